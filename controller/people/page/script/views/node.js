/** One node: its GPUs with parts and holders, their links, its faults with what to do. */

import { html, nothing, svg } from "../lit.js";
import { history } from "../parts/history.js";
import { badge, bar, choice, empty, fetched, figure, lasting, link, panel, stateBadge, time, workloadLink } from "../parts/ui.js";
import { fabric, linkWords } from "../pure/fabric.js";
import { absolute, count, memory, percent, plural, product } from "../pure/format.js";
import { repairSteps } from "../pure/repairs.js";
import { isOut, isUsed } from "../pure/tiles.js";
import { nodeBadge } from "./fleet.js";

export const title = (page) => {
  const [, name, , index] = page.route.parts;
  return index === undefined ? name : `${name}, GPU ${index}`;
};

export function render(page) {
  const [, name, , index] = page.route.parts;
  const node = page.known.nodes.find((each) => each.name === name);
  const denied = page.live.hello?.denied?.fleet;
  if (denied) return empty("Nodes are not yours to see", `${denied}.`);
  if (!node && !page.known.topic("fleet").whole) return html`<div class="waiting" role="status"><i aria-hidden="true"></i>Waiting for the fleet …</div>`;
  if (!node) return empty(`No node ${name}`, "It has no GPUs, or it left the cluster.", link(["fleet"], {}, "To the fleet", "button"));
  const more = page.ask(`page/nodes/${encodeURIComponent(name)}`, 10, node.observed);
  const gpus = index === undefined ? node.gpus : node.gpus.filter((gpu) => String(gpu.index) === index);
  return html`<p class="crumbs">${link(["fleet"], { q: node.block }, node.block || "Fleet")}${node.rack ? html` › ${link(["fleet"], { q: node.rack }, node.rack)}` : nothing}
      ${index === undefined ? nothing : html` › ${link(["nodes", name], {}, name)}`} ${nodeBadge(node)}</p>
    ${index === undefined ? facts(page, node) : nothing}
    ${faults(page, more.data?.faults?.filter((fault) => index === undefined || String(fault.gpu) === index) ?? [], more)}
    ${repairs(page, more.data?.repairs?.filter((repair) => index === undefined || String(repair.gpu) === index) ?? [])}
    <section aria-label="GPUs"><h2 class="sr">GPUs</h2><div class="cards">${gpus.map((gpu) => card(page, node, gpu))}</div></section>
    ${gpus.length ? nothing : empty("No such GPU", "The node tells of none with this index.")}
    <div class="two">
      ${links(node, more)}
      ${resources(more.data?.resources ?? [], node)}
    </div>
    ${index === undefined && page.live.hello?.history ? past(page, name) : nothing}`;
}

function past(page, name) {
  const hours = page.route.query.hours === "168" ? "168" : "24";
  const answer = page.ask(`page/history?what=node&name=${encodeURIComponent(name)}&hours=${hours}`, 120);
  return panel("Use by hour", fetched(answer, "the history", (data) => history(data)), choice("hours", "How far back", [["24", "1 day"], ["168", "7 days"]], hours, (each) => page.put({ hours: each === "24" ? "" : each })));
}

function facts(page, node) {
  const used = node.gpus.filter(isUsed).length;
  const out = node.gpus.filter(isOut).length;
  return html`<dl class="figures">
    ${figure("GPUs in use", `${used} of ${node.gpus.length}`, product(node.gpus[0]?.product))}
    ${out ? figure("Out of service", count(out), "failed, or watched after a reset", "bad") : nothing}
    ${figure("Memory", memory(node.gpus.reduce((sum, gpu) => sum + gpu.memoryMiB, 0)), "in all GPUs")}
    ${figure("Driver", node.driver ?? "–", "")}
    ${figure("Agent", node.agent ?? "none", node.agent ? "" : "nothing heard", node.agent ? "" : "bad")}
    <div class="figure"><dt>Last change</dt><dd><b>${time(node.observed, page.now)}</b></dd></div>
  </dl>
  ${node.taints.length ? html`<p class="note">Taints keep pods away that do not tolerate them: ${node.taints.map((taint) => html`<code>${taint}</code> `)}</p>` : nothing}
  ${node.problems.map((problem) => html`<p class="note warn">${problem}</p>`)}`;
}

function faults(page, all, answer) {
  if (answer.error && !answer.data) return html`<p class="note warn">Faults and links are not known: ${answer.error}</p>`;
  if (!all.length) return nothing;
  const failed = new Set(all.map((fault) => fault.gpu)).size;
  return panel(`${plural(all.length, "open fault")} on ${plural(failed, "GPU")}`, html`<ul class="faults">${all.map((fault) => html`<li>
    <p><b>${link(["nodes", page.route.parts[1], "gpus", fault.gpu], {}, `GPU ${fault.gpu}`)}</b> ${badge(fault.state === "Probation" ? "watched" : "fault", fault.state)} <span class="muted">${time(fault.since, page.now)}</span></p>
    <p class="why">${fault.reason}</p>
    ${fault.runbook ? html`<details><summary>What to do: ${fault.runbook.title}</summary><pre class="runbook" tabindex="0">${fault.runbook.text}</pre></details>` : nothing}
  </li>`)}</ul>`, nothing, "bad");
}

function repairs(page, all) {
  if (!all.length) return nothing;
  return panel(`${plural(all.length, "GPU")} in repair`, html`<ul class="repairs">${all.map((repair) => html`<li><h3>${repair.gpu === null ? repair.uuid : link(["nodes", page.route.parts[1], "gpus", repair.gpu], {}, `GPU ${repair.gpu}`)}</h3>
    <ol class="timeline">${repairSteps(repair).map((step) => html`<li class="is-${step.kind}">
      <p><b>${step.title}</b> ${step.at === null ? nothing : html`<span class="when" title=${absolute(step.at)}>${time(step.at, page.now)}</span>`}</p>
      ${step.text ? html`<p>${step.text}</p>` : nothing}
    </li>`)}</ol></li>`)}</ul>`);
}

function card(page, node, gpu) {
  const used = gpu.usedMiB;
  return html`<article class="card is-${gpu.state}" aria-label=${`GPU ${gpu.index}`}>
    <header><h3>${link(["nodes", node.name, "gpus", gpu.index], {}, `GPU ${gpu.index}`)}</h3>${stateBadge(gpu)}</header>
    <p class="muted">${product(gpu.product)} · ${memory(gpu.memoryMiB)} · ${MODES[gpu.mode] ?? gpu.mode}</p>
    ${gpu.busy === null ? nothing : html`<div class="gauge"><span>Busy</span>${bar(gpu.busy, "", `${percent(gpu.busy)} busy`)}<b>${percent(gpu.busy)}</b></div>`}
    ${used === null || used === undefined ? nothing : html`<div class="gauge"><span>Memory</span>${bar(used / gpu.memoryMiB, "memory", "memory in use")}<b>${memory(used)}</b></div>`}
    ${gpu.parts.length ? partList(gpu) : gpu.holders.length ? html`<ul class="holders">${gpu.holders.map((holder) => html`<li>${holderOf(holder)}</li>`)}</ul>` : html`<p class="muted">Held by nobody</p>`}
    ${gpu.reasons.map((reason) => html`<p class="why">${reason}</p>`)}
    ${gpu.since ? html`<p class="muted">${gpu.health} for ${lasting(gpu.since, page.now)}</p>` : nothing}
    <p class="uuid" title=${gpu.uuid}>${gpu.uuid}</p>
  </article>`;
}

const MODES = { whole: "whole", timeSlicing: "time-sliced", mps: "shared by MPS", mig: "MIG", fractional: "by the percent" };

function holderOf(holder) {
  return html`${workloadLink(holder.workload ?? holder.pod, holder.hidden || !holder.workload)}${holder.workload && !holder.hidden && holder.pod ? html`<small>pod ${holder.pod.split("/").at(-1)}</small>` : nothing}`;
}

function partList(gpu) {
  let left = 0;
  const drawn = gpu.parts.map((part) => {
    const width = part.share * 100;
    const piece = svg`<rect x=${left + 0.4} y="0" width=${Math.max(0.5, width - 0.8)} height="10" class=${part.holder ? "part held" : "part"}></rect>`;
    left += width;
    return piece;
  });
  return html`<svg class="parts" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">${drawn}</svg>
    <ul class="holders">${gpu.parts.map((part) => html`<li><b>${part.label}</b> ${part.holder ? holderOf(part.holder) : part.free ? nothing : html`<span class="muted">free</span>`}</li>`)}</ul>`;
}

function links(node, answer) {
  const all = answer.data?.links ?? [];
  if (!node.linkGroups.length && !all.length) return nothing;
  const drawing = fabric(node.gpus, all, 300);
  const out = node.gpus.filter(isOut);
  const down = new Set(out.map((gpu) => gpu.index));
  const most = Math.max(1, ...drawing.lines.map((line) => line.nvlinks));
  return panel("Links", html`${drawing.lines.length ? html`<svg class="fabric" viewBox="0 0 300 300" role="img" aria-label="NVLinks between the GPUs of this node; the list below says the same">
      ${drawing.lines.map((line) => svg`<line class=${down.has(line.from.index) || down.has(line.to.index) ? "down" : ""} x1=${line.from.x} y1=${line.from.y} x2=${line.to.x} y2=${line.to.y} stroke-width=${0.6 + (2.4 * line.nvlinks) / most}></line>`)}
      ${drawing.places.map((place) => svg`<g><circle cx=${place.x} cy=${place.y} r="16" class=${`gpu-dot is-${node.gpus.find((gpu) => gpu.index === place.index).state}`}></circle><text x=${place.x} y=${place.y + 4}>${place.index}</text></g>`)}
    </svg>` : nothing}
    ${out.length ? html`<p class="why">Out of service, with all links: ${out.map((gpu) => `GPU ${gpu.index}`).join(", ")}</p>` : nothing}
    <ul class="plain">${node.linkGroups.map((group) => html`<li><b>GPU ${group.gpus.join(", ")}</b> <span class="muted">each to each: ${linkWords(group.kind)}</span></li>`)}</ul>`);
}

function resources(all, node) {
  if (!all.length) return nothing;
  return panel("What it offers", html`<table class="small"><thead><tr><th scope="col">Resource</th><th scope="col" class="number">Devices</th><th scope="col" class="number" title="Of GPUs that are in service: what the node's allocatable has">In service</th><th scope="col">Sharing</th></tr></thead>
    <tbody>${all.map((each) => html`<tr><td><code>${each.name}</code></td><td class="number">${count(each.devices)}</td><td class="number">${count(each.inService)}</td><td>${each.sharing}</td></tr>`)}</tbody></table>
    ${node.gpus.some((gpu) => gpu.clique) ? html`<p class="muted">NVLink fabric (clique): ${[...new Set(node.gpus.map((gpu) => gpu.clique).filter(Boolean))].join(", ")}</p>` : nothing}`);
}
