/** The fleet: every GPU, as a map or as a table, and the node that is chosen beside it. */

import { html, nothing } from "../lit.js";
import "../parts/fleetmap.js";
import { history } from "../parts/history.js";
import { busyColour, palette, queueColour } from "../parts/palette.js";
import { sortedRows } from "../parts/table.js";
import { badge, bar, choice, empty, fetched, figure, link, panel, stateBadge, time, workloadLink } from "../parts/ui.js";
import { count, memory, percent, plural, product } from "../pure/format.js";
import { holderName, queueOfHolder } from "../pure/model.js";
import { isUsed, STATES } from "../pure/tiles.js";

export const title = () => "Fleet";

const COLOURS = [["state", "State"], ["busy", "Busy"], ["queue", "Queue"]];
const SHAPES = [["map", "Map"], ["table", "Table"]];

export function render(page) {
  const { known, route } = page;
  const denied = page.live.hello?.denied?.fleet;
  if (denied) return empty("The fleet is not yours to see", `${denied}. Ask for the ClusterRole whose name ends in -controller-queue-viewer.`);
  if (!known.topic("fleet").whole) return html`<div class="waiting" role="status"><i aria-hidden="true"></i>Waiting for the fleet …</div>`;
  if (!known.nodes.length) return empty("No node has a GPU yet", "Nodes appear here as soon as the agent runs on them.", html`<code>kubectl get gpunodes</code>`);
  const { query } = route;
  const blocks = known.blocks(query.q);
  const nodes = blocks.flatMap((block) => block.racks.flatMap((rack) => rack.nodes));
  const chosen = query.node ? known.nodes.find((node) => node.name === query.node) : null;
  return html`${figures(known.totals)}
    <div class="tools-row">
      <label class="search"><span class="sr">Filter the fleet</span><input type="search" placeholder="Filter: node, rack, product, workload …" .value=${query.q ?? ""} @input=${(event) => page.put({ q: event.target.value })}></label>
      ${choice("colour", "Colour GPUs by", COLOURS, query.by ?? "state", (by) => page.put({ by: by === "state" ? "" : by }))}
      ${choice("shape", "Show as", SHAPES, query.view ?? "map", (view) => page.put({ view: view === "map" ? "" : view }))}
    </div>
    ${query.q ? html`<p class="found" role="status">${plural(nodes.length, "node")} of ${count(known.nodes.length)} match</p>` : nothing}
    <div class="with-side ${chosen ? "open" : ""}">
      ${nodes.length ? shown(page, blocks, nodes) : empty("Nothing matches", "Names, racks, products, states and holders are looked through; all words must match.", html`<button type="button" @click=${() => page.put({ q: "" })}>Clear the filter</button>`)}
      ${chosen ? side(page, chosen) : nothing}
    </div>
    ${page.live.hello?.history ? panel("Use by hour", fetched(page.ask("page/history?what=fleet&hours=24", 120), "the history", (data) => history(data))) : nothing}`;
}

function shown(page, blocks, nodes) {
  if (page.route.query.view === "table") return table(page, nodes);
  const by = page.route.query.by ?? "state";
  const { known } = page;
  const sums = known.totals;
  const view = {
    label: `Map of ${plural(sums.nodes, "node")} with ${plural(sums.gpus, "GPU")}`,
    blocks,
    colour: by,
    queues: known.queueNames,
    queueOf: (holder) => queueOfHolder(holder, known.queueByWorkload),
    nameOf: (holder) => holderName(holder, known.jobByWorkload),
    selected: page.route.query.node ?? "",
    marked: null,
    height: Math.max(420, innerHeight - 300),
  };
  return html`<section class="panel map-panel" aria-label="Map of the fleet">${legend(page, by)}
    <fleet-map .view=${view} @pick=${(event) => page.put({ node: event.detail.node.name })}></fleet-map></section>`;
}

function figures(sums) {
  const used = sums.byState.held + sums.byState.idle;
  return html`<dl class="figures">
    ${figure("GPUs", count(sums.gpus), `on ${plural(sums.nodes, "node")}`)}
    ${figure("In use", percent(sums.gpus ? used / sums.gpus : 0), `${count(used)} GPUs`)}
    ${figure("Free", count(sums.byState.free), "can be given now", sums.byState.free ? "" : "weak")}
    ${figure("Busy", sums.measured ? percent(sums.busy) : "–", sums.measured ? "mean of those measured" : "not measured")}
    ${sums.measured ? figure("Held, idle", count(sums.byState.idle), "doing nothing", sums.byState.idle ? "warn" : "weak") : nothing}
    ${figure("Out of service", count(sums.byState.fault), sums.byState.watched ? `${count(sums.byState.watched)} more on probation` : "", sums.byState.fault ? "bad" : "weak")}
    ${sums.unready ? figure("Not ready", plural(sums.unready, "node"), "", "bad") : nothing}
  </dl>`;
}

function legend(page, by) {
  if (by === "busy") {
    return html`<ul class="legend" aria-label="Colours">${[0, 0.2, 0.4, 0.6, 0.8, 1].map((share) => html`<li>${swatch(busyColour(share))}${percent(share)}</li>`)}<li>${swatch(palette().muted)}Not measured</li><li>${swatch("none")}Free</li></ul>`;
  }
  if (by === "queue") {
    const names = page.known.queueNames;
    return html`<ul class="legend" aria-label="Colours">${names.slice(0, 12).map((name) => html`<li>${swatch(queueColour(names, name))}${link(["queues", name], {}, name)}</li>`)}${names.length > 12 ? html`<li class="muted">and ${count(names.length - 12)} more</li>` : nothing}</ul>`;
  }
  const sums = page.known.totals.byState;
  const states = Object.entries(STATES).filter(([state]) => sums[state] || state === "held" || state === "free");
  return html`<ul class="legend" aria-label="Colours">${states.map(([state, { label, hint }]) => html`<li title=${hint}><i class="swatch is-${state}" aria-hidden="true"></i>${label} <b>${count(sums[state])}</b></li>`)}${page.known.linked ? html`<li title="Drawn between neighbouring GPUs where the tiles are large enough: filter to come nearer"><i class="swatch nvlink" aria-hidden="true"></i>NVLink</li>` : nothing}</ul>`;
}

function swatch(colour) {
  return html`<svg class="swatch" viewBox="0 0 10 10" aria-hidden="true"><rect width="10" height="10" rx="2" fill=${colour} class=${colour === "none" ? "free" : ""}></rect></svg>`;
}

const COLUMNS = (now) => [
  { id: "node", label: "Node", css: "xl", sort: (node) => node.name, cell: (node) => html`${link(["nodes", node.name], {}, node.name, "strong")}<small>${[node.block, node.rack].filter(Boolean).join(" · ")}</small>` },
  { id: "state", label: "State", css: "m", sort: (node) => worst(node), cell: (node) => html`${nodeBadge(node)}<small>${node.taints.join(", ")}</small>` },
  { id: "gpus", label: "GPUs in use", css: "m", down: true, sort: (node) => node.gpus.filter(isUsed).length, cell: (node) => html`<span class="tiles">${node.gpus.map((gpu) => html`<i class="swatch is-${gpu.state}"></i>`)}</span><small>${node.gpus.filter(isUsed).length} of ${node.gpus.length} in use</small>` },
  { id: "busy", label: "Busy", css: "n", less: true, down: true, sort: meanBusy, cell: (node) => percent(meanBusy(node)) },
  { id: "product", label: "Product", css: "l", less: true, sort: (node) => node.gpus[0]?.product ?? "", cell: (node) => html`${product(node.gpus[0]?.product) || "–"}<small>${memory(node.gpus[0]?.memoryMiB)} each</small>` },
  { id: "holders", label: "Held by", css: "xxl", less: true, cell: (node) => holdersOf(node) },
  { id: "seen", label: "Changed", css: "s", less: true, down: true, sort: (node) => node.observed, cell: (node) => time(node.observed, now) },
];

function table(page, nodes) {
  const columns = COLUMNS(page.now);
  const order = orderOf(page.route.query);
  const view = { rows: sortedRows(nodes, columns, order), columns, keyOf: (node) => node.name, selected: page.route.query.node ?? "", order, label: "Nodes of the fleet" };
  return html`<section class="panel flush" aria-label="Table of the fleet"><virtual-table .view=${view} @order=${(event) => page.put({ sort: `${event.detail.down ? "-" : ""}${event.detail.by}` })}
    @open=${(event) => page.put({ node: event.detail.name })}></virtual-table></section>`;
}

/** How the address says a table's order: a column's id, with a minus before it for the largest first. */
export function orderOf(query) {
  if (!query.sort) return null;
  return query.sort.startsWith("-") ? { by: query.sort.slice(1), down: true } : { by: query.sort, down: false };
}

function holdersOf(node) {
  const names = new Map(node.gpus.flatMap((gpu) => gpu.holders).map((holder) => [holder.name, holder]));
  const all = [...names.values()];
  if (!all.length) return html`<span class="muted">nobody</span>`;
  return html`${workloadLink(all[0].name, all[0].hidden || !all[0].workload)}${all.length > 1 ? html`<small>and ${plural(all.length - 1, "other")}</small>` : nothing}`;
}

function meanBusy(node) {
  const measured = node.gpus.filter((gpu) => gpu.busy !== null);
  return measured.length ? measured.reduce((sum, gpu) => sum + gpu.busy, 0) / measured.length : null;
}

function worst(node) {
  if (!node.ready) return 0;
  if (node.cordoned) return 1;
  return node.gpus.some((gpu) => gpu.state === "fault") ? 2 : 3;
}

/** A node's state in a word. */
export function nodeBadge(node) {
  if (!node.ready) return badge("fault", "Not ready");
  if (node.cordoned) return badge("off", "Cordoned");
  const bad = node.gpus.filter((gpu) => gpu.state === "fault").length;
  if (bad) return badge("fault", `${plural(bad, "GPU")} out of service`);
  return badge("live", "Ready");
}

function side(page, node) {
  return html`<aside class="panel inspector" aria-label=${`Node ${node.name}`}>
    <header><h2>${node.name}</h2><button type="button" class="quiet" aria-label="Close" @click=${() => page.put({ node: "" })}>✕</button></header>
    <p>${nodeBadge(node)} <span class="muted">${[node.block, node.rack].filter(Boolean).join(" · ")}</span></p>
    ${node.taints.length ? html`<p class="why">Taints: ${node.taints.join(", ")}</p>` : nothing}
    <ol class="gpu-list">${node.gpus.map((gpu) => html`<li>
      <p class="gpu-head"><b>GPU ${gpu.index}</b>${stateBadge(gpu)}<span class="grow"></span>${gpu.busy === null ? nothing : html`<span class="num">${percent(gpu.busy)}</span>`}</p>
      ${gpu.busy === null ? nothing : bar(gpu.busy, "thin", `${percent(gpu.busy)} busy`)}
      ${gpu.holders.map((holder) => html`<p>${workloadLink(holder.name, holder.hidden || !holder.workload)}</p>`)}
      ${gpu.reasons.map((reason) => html`<p class="why">${reason}</p>`)}
    </li>`)}</ol>
    <p>${link(["nodes", node.name], {}, "All about this node", "button")}</p>
  </aside>`;
}
