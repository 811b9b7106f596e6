/** Who waits, in the order in which they are tried: why, when it is expected to start, and what would make it sooner. */

import { html, nothing } from "../lit.js";
import "../parts/table.js";
import { sortedRows } from "../parts/table.js";
import { badge, empty, figure, lasting, said, workloadLink } from "../parts/ui.js";
import { asked, count, plural, range } from "../pure/format.js";
import { devices, split } from "../pure/model.js";
import { wordsOf } from "../pure/tiles.js";
import { orderOf } from "./fleet.js";

export const title = () => "Pending";

const COLUMNS = (now) => [
  { id: "position", label: "#", css: "xs", less: true, sort: placeOf, cell: (row) => html`<span class="num">${row.position === null ? "100+" : row.position + 1}</span>` },
  { id: "workload", label: "Workload", css: "xl", sort: (row) => row.workload, cell: (row) => html`${workloadLink(row.workload, row.hidden, "strong", row.job)}<small>${row.queue}${row.priority ? html` · priority ${count(row.priority)}` : nothing}</small>` },
  { id: "asks", label: "Asks for", css: "l", less: true, down: true, sort: (row) => devices(row.asks), cell: (row) => html`<span title=${asked(row.asks)}>${asked(row.asks)}</span><small>${plural(row.pods, "pod")}</small>` },
  { id: "since", label: "Waits", css: "m", sort: (row) => row.since, cell: (row) => lasting(row.since, now) },
  { id: "start", label: "Expected start", css: "m", sort: (row) => row.forecast?.likely ?? null, cell: forecastCell },
  { id: "why", label: "Why it waits", css: "xxl", less: true, cell: (row) => html`<span title=${said(row.sentence)}>${said(row.sentence) || "It has not been tried yet"}</span><small>${row.reason}${row.parked ? ", tried again when something changes" : ""}</small>` },
];

function placeOf(row) {
  return row.position ?? Number.MAX_SAFE_INTEGER;
}

function forecastCell(row) {
  if (row.forecast?.never) return html`<span title=${row.forecast.never}>never</span><small>${row.forecast.never}</small>`;
  if (row.forecast?.notBefore) return html`<span title=${row.forecast.notBefore}>not yet</span><small>not before ${row.forecast.notBefore}</small>`;
  const known = row.forecast && row.forecast.from !== null;
  if (!known) return html`<span class="muted">not known</span>`;
  return html`<span title=${(row.forecast.assumes ?? []).join("\n")}>${range(row.forecast.from, row.forecast.to)}</span><small>${row.forecast.ahead ? `${plural(row.forecast.ahead, "workload")} ahead` : "next"}</small>`;
}

export function render(page) {
  const { known, route } = page;
  const denied = page.live.hello?.denied?.pending;
  if (denied) return empty("Pending workloads are not yours to see", `${denied}.`);
  if (!known.topic("pending").whole) return html`<div class="waiting" role="status"><i aria-hidden="true"></i>Waiting for the pending workloads …</div>`;
  const all = known.pending;
  if (!all.length) return empty("Nothing waits", "Every workload has started. A new one that does not start at once appears here, with the reason.");
  const { query } = route;
  const words = wordsOf(query.q);
  const rows = all.filter((row) => (!query.queue || row.queue === query.queue) && words.every((word) => `${row.workload} ${row.job ?? ""} ${row.queue} ${row.localQueue ?? ""} ${row.reason} ${row.sentence}`.toLowerCase().includes(word)));
  const columns = COLUMNS(page.now);
  const order = orderOf(query);
  const turns = order ? sortedRows(rows, columns, order) : inTurn(rows);
  const wanted = rows.reduce((sum, row) => sum + devices(row.asks), 0);
  const oldest = rows.reduce((least, row) => Math.min(least, row.since ?? Infinity), Infinity);
  const view = { rows: turns, columns, keyOf: (row) => row.key, order, label: "Pending workloads" };
  return html`<dl class="figures">${figure("Waiting", count(rows.length), query.queue ? `in ${query.queue}` : `in ${plural(new Set(rows.map((row) => row.queue)).size, "queue")}`)}
      ${figure("Ask for", count(wanted), "devices together")}
      <div class="figure"><dt>Longest wait</dt><dd><b>${Number.isFinite(oldest) ? lasting(oldest, page.now) : "–"}</b></dd></div>
      ${figure("Until a change", count(rows.filter((row) => row.parked).length), "not tried before")}</dl>
    <div class="tools-row">
      <label class="search"><span class="sr">Filter</span><input type="search" placeholder="Filter: name, namespace, reason …" .value=${query.q ?? ""} @input=${(event) => page.put({ q: event.target.value })}></label>
      <label class="select"><span>Queue</span><select @change=${(event) => page.put({ queue: event.target.value })}><option value="" ?selected=${!query.queue}>all</option>${known.queueNames.map((name) => html`<option value=${name} ?selected=${name === query.queue}>${name}</option>`)}</select></label>
    </div>
    ${rows.length ? html`<section class="panel flush" aria-label="Pending workloads"><virtual-table .view=${view} @order=${(event) => page.put({ sort: `${event.detail.down ? "-" : ""}${event.detail.by}` })} @open=${(event) => opened(page, event.detail)}></virtual-table></section>`
    : empty("Nothing matches", "All words must be in the name, the queue or the reason.", html`<button type="button" @click=${() => page.put({ q: "", queue: "" })}>Clear the filter</button>`)}`;
}

function opened(page, row) {
  if (row.hidden) return;
  const { namespace, name } = split(row.workload);
  page.go(["workloads", namespace, name]);
}

/** Queue by queue, each in its own order: that is how they are tried. */
function inTurn(rows) {
  return [...rows].sort((a, b) => (a.queue === b.queue ? placeOf(a) - placeOf(b) || (a.since ?? 0) - (b.since ?? 0) : a.queue < b.queue ? -1 : 1));
}

/** A workload's state in a word: one that is admitted runs once a pod of it does. `runs` is null while that is not known. */
export function wordOf(state, runs = null) {
  if (state === "Admitted" && runs) return "Running";
  return { QuotaReserved: "Quota reserved", HeldBack: "Held back" }[state] ?? state;
}

/** A badge with that word. */
export function stateOfWorkload(state, runs = null) {
  const kind = { Admitted: runs ? "live" : "watched", QuotaReserved: "watched", Evicting: "idle", Evicted: "idle" }[state] ?? "off";
  return badge(kind, wordOf(state, runs), state === "Admitted" && runs === false ? "No pod of it runs" : "");
}
