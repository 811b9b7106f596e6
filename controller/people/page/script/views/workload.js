/** One workload: its state, what would admit it, its story as a time line, and its GPUs on the map of the fleet. */

import { html, nothing } from "../lit.js";
import "../parts/fleetmap.js";
import { history } from "../parts/history.js";
import { bar, empty, fetched, figure, lasting, link, panel, said, time, workloadLink } from "../parts/ui.js";
import { absolute, amount, count, percent, plural, range, resource } from "../pure/format.js";
import { holderName } from "../pure/model.js";
import { timeline } from "../pure/timeline.js";
import { stateOfWorkload } from "./pending.js";

/** The job's name once it is known: the workload's own name stands beside it. */
export const title = (page) => asked(page).data?.job ?? page.route.parts.slice(2).join("/");

function asked(page) {
  const [, namespace, ...rest] = page.route.parts;
  return page.ask(`page/workloads/${encodeURIComponent(namespace)}/${encodeURIComponent(rest.join("/"))}`, 5);
}

export function render(page) {
  return fetched(asked(page), "this workload", (data) => shown(page, data, page.route.parts[1]));
}

function shown(page, data, namespace) {
  const waits = data.state === "Pending" || data.state === "HeldBack";
  const decision = data.decision;
  return html`<p class="crumbs">${link([waits ? "pending" : "workloads"], {}, waits ? "Pending" : "Holding quota")} › ${namespace} ${data.job ? html`› ${page.route.parts.slice(2).join("/")} ` : nothing}${stateOfWorkload(data.state, data.pods ? data.pods.running > 0 : null)}</p>
    <dl class="figures">
      <div class="figure"><dt>Queue</dt><dd><b>${data.clusterQueue ? link(["queues", data.clusterQueue], {}, data.clusterQueue) : "none"}</b></dd></div>
      ${figure("Priority", count(data.priority))}
      ${data.position === null || data.position === undefined ? nothing : figure("Place in the queue", count(data.position + 1), data.position ? "" : "the next")}
      ${waits ? figure("Expected start", start(data.forecast), data.forecast?.never ? data.forecast.never : data.forecast?.notBefore ? `not before ${data.forecast.notBefore}` : data.forecast?.ahead ? `${plural(data.forecast.ahead, "workload")} ahead` : "") : figure("GPUs", count(data.gpus.length), plural(new Set(data.gpus.map((gpu) => gpu.node)).size, "node"))}
    </dl>
    ${waits ? why(page, data, decision) : nothing}
    ${pods(page, data.pods)}
    ${placed(page, data)}
    <div class=${data.gpus.length ? "two" : ""}>
      ${panel("Story", story(page, data))}
      ${data.gpus.length ? html`<div>${gpus(data)}${past(page, data)}</div>` : nothing}
    </div>`;
}

function start(forecast) {
  if (forecast?.never) return "never";
  if (forecast?.notBefore) return "not yet";
  return forecast && forecast.from !== null ? range(forecast.from, forecast.to) : "not known";
}

function why(page, data, decision) {
  const rows = decision?.wouldAdmit?.resources ?? [];
  const holders = rows.flatMap((row) => (row.heldBy ?? []).map((each) => ({ ...each, resource: row.resource })));
  return panel("Why it waits", html`
    <p class="lead">${said(data.blocked?.sentence ?? decision?.sentence ?? "It has not been tried yet.")}</p>
    ${changes(data)}
    ${data.forecast?.never ? nothing : before(data.forecast?.before ?? [], data.forecast?.ahead ?? 0)}
    ${(data.forecast?.assumes ?? []).length ? html`<details><summary>What the expected start assumes</summary><ul class="plain">${data.forecast.assumes.map((each) => html`<li>${each}</li>`)}</ul></details>` : nothing}
    ${rows.length ? html`<h3>By flavor ${decision.wouldAdmit.flavor}</h3><div class="scroll-x" tabindex="0" role="group" aria-label="Table"><table class="small"><thead><tr><th scope="col">Resource</th><th scope="col" class="number">Needed</th><th scope="col" class="number">Free</th><th scope="col" class="number">Lacking</th><th scope="col" class="number">Quota</th><th scope="col" class="number">Used</th><th scope="col" class="number">At most</th></tr></thead>
      <tbody>${rows.map((row) => html`<tr><td><code>${row.resource}</code></td><td class="number">${shownAmount(row.needed)}</td><td class="number">${shownAmount(row.available)}</td><td class="number lacking">${lacking(row)}</td><td class="number">${shownAmount(row.nominal)}</td><td class="number">${shownAmount(row.used)}</td><td class="number">${shownAmount(row.atMost)}</td></tr>`)}</tbody></table></div>` : nothing}
    ${holders.length ? html`<details><summary>Who holds it: ${plural(holders.length, "workload")}</summary><div class="scroll-x" tabindex="0" role="group" aria-label="Table"><table class="small"><thead><tr><th scope="col">Workload</th><th scope="col">Queue</th><th scope="col" class="number">Holds</th><th scope="col" class="number">Priority</th></tr></thead>
      <tbody>${holders.slice(0, 100).map((each) => html`<tr><td>${workloadLink(each.workload, each.hidden)}</td><td>${each.clusterQueue ?? each.queue}</td><td class="number">${shownAmount(each.amount)} ${resource(each.resource)}</td><td class="number">${count(each.priority)}</td></tr>`)}</tbody></table></div></details>` : nothing}
    ${(decision?.details ?? []).length ? html`<details><summary>What was tried</summary><pre>${said(decision.details.join("\n"))}</pre></details>` : nothing}`, nothing, "why-panel");
}

/** The smallest change first; others where the server tells some. */
function changes(data) {
  const all = data.forecast?.changes?.length ? data.forecast.changes.map((each) => each.sentence) : [data.change].filter(Boolean);
  if (!all.length) return nothing;
  return html`<div class="change"><h3>What would start it now</h3><ul class="plain">${all.map((sentence) => html`<li>${said(sentence)}</li>`)}</ul></div>`;
}

function before(rows, ahead) {
  if (!rows.length) return nothing;
  const more = ahead - rows.length;
  return html`<p class="muted">Tried before it: ${rows.map((each, at) => html`${at ? ", " : ""}${workloadLink(each.workload, false)}`)}${more > 0 ? ` and ${plural(more, "other")}` : ""}</p>`;
}

function shownAmount(value) {
  return typeof value === "number" ? amount(value) : value ?? "–";
}

function lacking(row) {
  const [needed, available] = [Number(row.needed), Number(row.available)];
  return Number.isFinite(needed - available) ? amount(Math.max(0, needed - available)) : "–";
}

function placed(page, data) {
  const marked = new Set(data.gpus.map((gpu) => `${gpu.node}/${gpu.index}`));
  if (!marked.size || !page.known.nodes.length) return nothing;
  const names = new Set(data.gpus.map((gpu) => gpu.node));
  const view = { label: `Map of the fleet with ${plural(marked.size, "GPU")} of this workload`, blocks: page.known.blocksWith(names), colour: "state", queues: [], queueOf: () => "", nameOf: (holder) => holderName(holder, page.known.jobByWorkload), selected: "", marked, height: 300 };
  return html`<section class="panel map-panel" aria-label="Where its pods are"><header><h2>Where its pods are</h2></header><fleet-map .view=${view} @pick=${(event) => page.go(["nodes", event.detail.node.name])}></fleet-map></section>`;
}

/** Why pods of one that holds quota do not run, as `tessera explain` says it: nothing where all of them do. */
function pods(page, found) {
  if (!found || (!found.troubles.length && found.running + found.succeeded >= found.of)) return nothing;
  return panel("Its pods", html`<p class="lead">Pods that run: ${count(found.running)} of ${count(found.of)}</p>
    ${found.troubles.map((each) => html`<p class="note warn">${each.sentence}${each.sinceSeconds === null ? nothing : html` <span class="muted">(for ${lasting(page.now - each.sinceSeconds, page.now)})</span>`}</p><p>${each.next}</p>`)}`, nothing, "pods-panel");
}

function story(page, data) {
  const steps = timeline(data);
  if (!steps.length) return empty("No story yet", "What is decided about it is kept from when this controller began to lead.");
  return html`<ol class="timeline">${steps.map((step) => html`<li class="is-${step.kind}">
    <p><b>${step.title}</b>${step.times > 1 ? html` <span class="muted">${count(step.times)} times, last ${time(step.until, page.now)}</span>` : nothing} <span class="when" title=${absolute(step.at)}>${time(step.at, page.now)}</span></p>
    ${step.text ? html`<p>${said(step.text)}</p>` : nothing}
    ${(step.preempts ?? []).map((each) => html`<p class="why">preempts ${workloadLink(each.workload, !each.workload?.includes("/"))}</p>`)}
    ${step.details.length ? html`<details><summary>In numbers</summary><pre>${said(step.details.join("\n"))}</pre></details>` : nothing}
  </li>`)}</ol>`;
}

function gpus(data) {
  const measured = data.gpus.filter((gpu) => gpu.busy !== null);
  const mean = measured.length ? measured.reduce((sum, gpu) => sum + gpu.busy, 0) / measured.length : null;
  return panel("Its GPUs", html`${mean === null ? html`<p class="muted">How busy they are is not measured.</p>` : html`<p>${percent(mean)} busy, the mean of ${plural(measured.length, "GPU")}</p>`}
    <div class="scroll-x tall" tabindex="0" role="group" aria-label="Table"><table class="small"><thead><tr><th scope="col">GPU</th><th scope="col">Pod</th><th scope="col">Health</th><th scope="col">Busy</th></tr></thead>
    <tbody>${data.gpus.slice(0, 256).map((gpu) => html`<tr><td>${link(["nodes", gpu.node, "gpus", gpu.index], {}, `${gpu.node} #${gpu.index}`)}</td><td>${(gpu.pod ?? "–").split("/").at(-1)}</td><td>${gpu.health}</td>
      <td>${gpu.busy === null ? html`<span class="muted">–</span>` : html`<span class="cell-bar">${bar(gpu.busy, "", `${percent(gpu.busy)} busy`)}<span class="num">${percent(gpu.busy)}</span></span>`}</td></tr>`)}</tbody></table></div>`);
}

function past(page, data) {
  const answer = page.ask(`page/history?what=workload&name=${encodeURIComponent(data.workload)}&hours=24`, 120);
  return panel("Use by hour", fetched(answer, "the history", (found) => history(found)));
}
