/** A series by hour as lines; where there is none, why, and what to do. */

import { html, svg } from "../lit.js";
import { chart } from "../pure/chart.js";
import { amount, recorded, resource } from "../pure/format.js";
import { empty } from "./ui.js";

const [WIDTH, HEIGHT] = [720, 180];

export function history(data) {
  if (!data.configured) {
    return empty("History is not recorded", data.why, html`<p class="muted">Past use comes from the controller's own record, or from Prometheus where its configuration names one.</p>`);
  }
  const series = data.series.map((one) => ({
    name: one.resource ? `${one.name} (${resource(one.resource)})` : one.name,
    points: one.points.map((value, at) => [data.start + at * data.step, value === null ? NaN : value]),
  }));
  const drawn = chart(series, WIDTH, HEIGHT);
  if (!drawn.lines.length) return empty("Nothing recorded yet", data.since === undefined ? "Prometheus has no sample of this for these hours." : recorded(data.since));
  const dated = drawn.times.length > 1 && drawn.times.at(-1).at - drawn.times[0].at > 2 * 86400;
  return html`<ul class="legend">${drawn.lines.map((line, at) => html`<li><i class=${`swatch line-${at % 4}`}></i>${line.name}</li>`)}</ul>
    <svg class="chart" viewBox=${`-44 -10 ${WIDTH + 60} ${HEIGHT + 40}`} role="img" aria-label=${spoken(data)}>
      ${drawn.ticks.map((tick) => svg`<g><line class="grid" x1="0" x2=${WIDTH} y1=${tick.y} y2=${tick.y}></line><text class="y" x="-8" y=${tick.y + 4}>${amount(tick.value)}</text></g>`)}
      ${drawn.times.map((mark) => svg`<text class="x" x=${mark.x} y=${HEIGHT + 20}>${clock(mark.at, dated)}</text>`)}
      ${drawn.lines.map((line, at) => svg`<g class=${`line-${at % 4}`}>${at === 0 ? svg`<path class="area" d=${line.area}></path>` : ""}<path class="line" d=${line.d}></path></g>`)}
    </svg>
    ${data.since === undefined ? "" : html`<p class="muted">${recorded(data.since)}</p>`}`;
}

function clock(at, dated) {
  const date = new Date(at * 1000);
  const two = (value) => String(value).padStart(2, "0");
  return dated ? `${two(date.getMonth() + 1)}-${two(date.getDate())}` : `${two(date.getHours())}:00`;
}

function spoken(data) {
  const last = data.series.map((one) => `${one.name} ${amount(one.points.filter((value) => value !== null).at(-1))}`);
  return `By hour; at the end ${last.join(", ")}`;
}
