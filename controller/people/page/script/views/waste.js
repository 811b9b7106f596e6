/** What is held and does nothing, what nobody holds, and what could be done about it. */

import { html, nothing } from "../lit.js";
import { empty, fetched, figure, link, panel, said, time, workloadLink } from "../parts/ui.js";
import { count, duration, percent, plural, product } from "../pure/format.js";

export const title = () => "Waste";

const MOST = 200;

export function render(page) {
  return fetched(page.ask("page/waste", 20), "what is wasted", (data) => shown(page, data));
}

function shown(page, data) {
  const idle = [...data.idle].sort((a, b) => (a.since ?? Infinity) - (b.since ?? Infinity));
  const hours = idle.reduce((sum, each) => sum + (each.since === null ? 0 : (page.now - each.since) / 3600), 0);
  const unused = data.unused.length;
  return html`<dl class="figures">
      ${figure("Held, idle", data.measured ? count(idle.length) : "–", data.measured ? "GPUs that do nothing" : "not measured", idle.length ? "warn" : "weak")}
      ${figure("Lost", data.measured ? duration(hours * 3600) : "–", "of GPU time, up to now")}
      ${figure("Held by nobody", count(unused), "GPUs", unused ? "" : "weak")}
      ${figure("Advice", count(data.advice.length), "")}
    </dl>
    ${data.measured ? nothing : html`<p class="note">${data.why}</p>`}
    ${panel("What to do", data.advice.length ? html`<ul class="advice">${data.advice.map((each) => html`<li><p>${said(each.sentence)}</p>${each.workload ? html`<p>${workloadLink(each.workload, each.hidden)}</p>` : nothing}</li>`)}</ul>`
      : empty("No advice", data.measured ? "No workload asks for more than it uses." : "Advice comes from what was measured, and nothing measures here."))}
    ${data.measured ? panel("Held and idle, the longest first", idle.length ? table(["GPU", "Product", "Held by", "Busy", "Idle since"], idle.slice(0, MOST).map((each) => [
      gpu(each), product(each.product), each.workload ? workloadLink(each.workload, each.hidden) : workloadLink(each.pod, true), percent(each.busy), time(each.since, page.now)]), idle.length)
      : empty("Nothing is idle", "Every GPU that a pod holds is at work.")) : nothing}
    ${panel("Held by nobody", unused ? table(["GPU", "Product", "Why"], data.unused.slice(0, MOST).map((each) => [gpu(each), product(each.product), each.why]), unused)
      : empty("Every GPU has a holder", "What waits, waits for others to end: see Pending."))}`;
}

function gpu(each) {
  return link(["nodes", each.node, "gpus", each.index], {}, `${each.node} GPU ${each.index}`);
}

function table(heads, rows, all) {
  return html`<div class="scroll-x" tabindex="0" role="group" aria-label="Table"><table class="small"><thead><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
    <tbody>${rows.map((cells) => html`<tr>${cells.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody></table></div>
    ${all > rows.length ? html`<p class="muted">and ${plural(all - rows.length, "more GPU")}</p>` : nothing}`;
}
