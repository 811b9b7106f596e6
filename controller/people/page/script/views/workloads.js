/** Who holds quota: where, since when, and whether its pods run. */

import { html, nothing } from "../lit.js";
import "../parts/table.js";
import { sortedRows } from "../parts/table.js";
import { empty, figure, link, time, workloadLink } from "../parts/ui.js";
import { count, plural, quantity, resource } from "../pure/format.js";
import { split } from "../pure/model.js";
import { wordsOf } from "../pure/tiles.js";
import { orderOf } from "./fleet.js";
import { stateOfWorkload, wordOf } from "./pending.js";

export const title = () => "Holding quota";

const COLUMNS = (now) => [
  { id: "workload", label: "Workload", css: "xl", sort: (row) => row.workload, cell: (row) => html`${workloadLink(row.workload, row.hidden, "strong", row.job)}<small>${row.queue}${row.priority ? html` · priority ${count(row.priority)}` : nothing}</small>` },
  { id: "state", label: "State", css: "m", less: true, sort: (row) => wordOf(row.state, row.running), cell: (row) => stateOfWorkload(row.state, row.running) },
  { id: "holds", label: "Holds", css: "l", down: true, sort: held, cell: (row) => holdsCell(row) },
  { id: "since", label: "Since", css: "s", sort: (row) => row.since, cell: (row) => time(row.since, now) },
  { id: "nodes", label: "Nodes", css: "xxl", less: true, down: true, sort: (row) => row.nodeCount, cell: (row) => html`${row.nodes.slice(0, 2).map((name, at) => html`${at ? ", " : ""}${link(["nodes", name], {}, name)}`)}${row.nodeCount > 2 ? html`<small>and ${plural(row.nodeCount - 2, "other")}</small>` : nothing}${row.nodeCount ? nothing : html`<span class="muted">as the scheduler likes</span>`}` },
];

function withoutPods(rows) {
  const without = rows.filter((row) => row.state === "Admitted" && row.running === false).length;
  return without ? `${plural(without, "admitted workload has", "admitted workloads have")} no pod that runs` : "have a pod that runs";
}

function held(row) {
  return row.holds.reduce((sum, each) => sum + (each.resource.includes("/") ? each.amount : 0), 0);
}

function holdsCell(row) {
  const parts = [...row.holds].sort((a, b) => Number(b.resource.includes("/")) - Number(a.resource.includes("/")));
  const words = parts.map((each) => `${quantity(each.resource, each.amount)} ${resource(each.resource)}`);
  return html`<span title=${words.join(", ")}>${words.join(", ")}</span><small>${[...new Set(parts.map((each) => each.flavor))].join(", ")}</small>`;
}

export function render(page) {
  const { known, route } = page;
  const denied = page.live.hello?.denied?.workloads;
  if (denied) return empty("Workloads are not yours to see", `${denied}.`);
  if (!known.topic("workloads").whole) return html`<div class="waiting" role="status"><i aria-hidden="true"></i>Waiting for the workloads …</div>`;
  const all = known.holders;
  if (!all.length) return empty("Nothing holds quota", "No workload is admitted. What waits, and why, is under Pending.", html`<code>tessera submit FILE</code>`);
  const { query } = route;
  const words = wordsOf(query.q);
  const rows = all.filter((row) => (!query.queue || row.queue === query.queue) && words.every((word) => `${row.workload} ${row.job ?? ""} ${row.queue} ${wordOf(row.state, row.running)} ${row.nodes.join(" ")}`.toLowerCase().includes(word)));
  const columns = COLUMNS(page.now);
  const order = orderOf(query) ?? { by: "holds", down: true };
  const view = { rows: sortedRows(rows, columns, order), columns, keyOf: (row) => row.key, order, label: "Workloads that hold quota" };
  return html`<dl class="figures">${figure("Workloads", count(rows.length), query.queue ? `in ${query.queue}` : "hold quota")}${figure("Hold", count(rows.reduce((sum, row) => sum + held(row), 0)), "devices together")}
      ${figure("Running", known.holders.some((row) => row.running === null) ? "–" : count(rows.filter((row) => row.state === "Admitted" && row.running).length), withoutPods(rows))}
      ${figure("Evicting", count(rows.filter((row) => row.state === "Evicting").length), "give back what they hold")}</dl>
    <div class="tools-row">
      <label class="search"><span class="sr">Filter</span><input type="search" placeholder="Filter: name, namespace, node …" .value=${query.q ?? ""} @input=${(event) => page.put({ q: event.target.value })}></label>
      <label class="select"><span>Queue</span><select @change=${(event) => page.put({ queue: event.target.value })}><option value="" ?selected=${!query.queue}>all</option>${known.queueNames.map((name) => html`<option value=${name} ?selected=${name === query.queue}>${name}</option>`)}</select></label>
    </div>
    ${rows.length ? html`<section class="panel flush" aria-label="Workloads"><virtual-table .view=${view} @order=${(event) => page.put({ sort: `${event.detail.down ? "-" : ""}${event.detail.by}` })} @open=${(event) => opened(page, event.detail)}></virtual-table></section>`
    : empty("Nothing matches", "All words must be in the name, the queue or a node.", html`<button type="button" @click=${() => page.put({ q: "", queue: "" })}>Clear the filter</button>`)}`;
}

function opened(page, row) {
  if (row.hidden) return;
  const { namespace, name } = split(row.workload);
  page.go(["workloads", namespace, name]);
}
