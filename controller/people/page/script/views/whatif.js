/** What if: a manifest that were submitted, or another quota, run by the real engine on the present state. */

import { post } from "../api.js";
import { html, nothing } from "../lit.js";
import { badge, choice, empty, panel, said, workloadLink } from "../parts/ui.js";
import { amount, count, plural, resource as short } from "../pure/format.js";
import { namespaceIn } from "../pure/manifest.js";

export const title = () => "What if";

const EXAMPLE = `apiVersion: batch/v1
kind: Job
metadata:
  name: what-if
  labels: {kueue.x-k8s.io/queue-name: jobs}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: example
        resources: {limits: {nvidia.com/gpu: 8}}
`;

/** What is filled in stays while the reader looks at other views; nothing of it is in the address or kept on disk. */
const form = { manifest: EXAMPLE, namespace: "default", quotas: new Map(), answer: null, problem: "", running: false };

export function render(page) {
  const kind = page.route.query.kind ?? "manifest";
  return html`<p class="muted intro">The controller's own engine runs on the present state and changes nothing. Nobody else sees what you try.</p>
    <div class="two even">
      <section class="panel" aria-label="Question"><header><h2>What would happen if …</h2>${choice("kind", "Kind of change", [["manifest", "this were submitted"], ["quota", "a quota were different"]], kind, (each) => page.put({ kind: each === "manifest" ? "" : each }))}</header>
        ${kind === "manifest" ? manifest(page) : quotas(page)}
      </section>
      <section class="panel" aria-label="Outcome" aria-live="polite"><header><h2>Outcome</h2></header>${outcome()}</section>
    </div>`;
}

function manifest(page) {
  return html`<form @submit=${(event) => submit(event, page, { manifest: form.manifest, namespace: namespaceIn(form.manifest) ?? form.namespace })}>
    <label for="namespace">Namespace, where the manifest names none</label><input id="namespace" .value=${form.namespace} @input=${(event) => { form.namespace = event.target.value; }} spellcheck="false">
    <label for="manifest">Manifest</label><textarea id="manifest" rows="18" spellcheck="false" .value=${form.manifest} @input=${(event) => { form.manifest = event.target.value; }}></textarea>
    <button type="submit" class="primary" ?disabled=${form.running}>${form.running ? "Simulating …" : "Simulate"}</button></form>`;
}

function quotas(page) {
  const rows = page.known.tree.filter((row) => row.kind === "queue").flatMap((row) => row.resources.filter((each) => each.resource.includes("/") && typeof each.changeable === "number").map((each) => ({ ...each, queue: row.name })));
  if (!rows.length) return empty("No quota of devices", "No queue has a quota that could be changed here.");
  const changed = [...form.quotas].map(([key, nominal]) => ({ ...rows.find((row) => keyOf(row) === key), nominal: String(nominal) })).filter((each) => each.queue);
  const body = { quotas: changed.map(({ queue, flavor, resource, nominal }) => ({ queue, flavor, resource, nominal })) };
  return html`<form @submit=${(event) => submit(event, page, body)}>
    <ul class="sliders">${rows.map((row) => slider(page, row))}</ul>
    <p class="actions"><button type="submit" class="primary" ?disabled=${form.running || !changed.length}>${form.running ? "Simulating …" : changed.length ? `Simulate ${plural(changed.length, "change")}` : "Move a quota first"}</button>
    ${changed.length ? html`<button type="button" @click=${() => { form.quotas.clear(); page.draw(); }}>As it is</button>` : nothing}</p></form>`;
}

function keyOf(row) {
  return JSON.stringify([row.queue, row.flavor, row.resource]);
}

function slider(page, row) {
  const key = keyOf(row);
  const value = form.quotas.get(key) ?? row.changeable;
  const most = Math.max(16, row.changeable * 2, row.used * 2);
  const set = (event) => {
    const number = Math.max(0, Math.round(Number(event.target.value) || 0));
    if (number === row.changeable) form.quotas.delete(key);
    else form.quotas.set(key, number);
    page.draw();
  };
  const name = `${row.queue}, ${row.flavor}, ${row.resource}`;
  return html`<li class=${value === row.changeable ? "" : "changed"}><p><b>${row.queue}</b> <span class="muted">${row.flavor} · ${short(row.resource)} · ${amount(row.used)} used</span></p>
    <input type="range" min="0" max=${most} step="1" .value=${String(value)} aria-label=${`Quota of ${name}`} @input=${set}>
    <input type="number" min="0" step="1" .value=${String(value)} aria-label=${`Quota of ${name}, as a number`} @change=${set}>
    <small>${value === row.changeable ? "as it is" : `was ${amount(row.changeable)}`}</small></li>`;
}

async function submit(event, page, body) {
  event.preventDefault();
  if (form.running) return;
  Object.assign(form, { running: true, problem: "" });
  page.draw();
  try {
    form.answer = await post("page/whatif", body);
  } catch (failed) {
    Object.assign(form, { answer: null, problem: failed.message });
  }
  form.running = false;
  page.draw();
}

const KINDS = { admitted: "live", pending: "off", evicted: "fault" };

function state(word) {
  return badge(KINDS[word] ?? "off", word ?? "–");
}

function outcome() {
  if (form.running) return html`<div class="waiting" role="status"><i aria-hidden="true"></i>The engine runs …</div>`;
  if (form.problem) return html`<p class="note warn lines" role="alert">${form.problem}</p>`;
  const found = form.answer;
  if (!found) return empty("Nothing asked yet", "Paste a manifest or move a quota, and see here who would start, wait or be evicted.");
  const queues = found.queues.filter((row) => row.present.admitted !== row.simulated.admitted || row.present.pending !== row.simulated.pending);
  return html`<table class="small compare"><thead><tr><th scope="col"><span class="sr">Workloads</span></th><th scope="col" class="number">Present</th><th scope="col" class="number">Simulated</th></tr></thead><tbody>
      <tr><th scope="row">Admitted</th><td class="number">${count(found.present.admitted)}</td><td class="number">${delta(found.present.admitted, found.simulated.admitted)}</td></tr>
      <tr><th scope="row">Waiting</th><td class="number">${count(found.present.pending)}</td><td class="number">${delta(found.present.pending, found.simulated.pending)}</td></tr></tbody></table>
    ${found.warnings.map((warning) => html`<p class="note warn">${warning}</p>`)}
    ${found.arrived.length ? html`<h3>What was submitted</h3><ul class="outcomes">${found.arrived.map((each) => html`<li><p>${state(each.state)} <b>${each.workload}</b></p>${each.why ? html`<p>${said(each.why)}</p>` : nothing}${each.changes?.length ? html`<p class="muted">What would let it start now</p><ul class="plain">${each.changes.map((sentence) => html`<li>${said(sentence)}</li>`)}</ul>` : nothing}</li>`)}</ul>` : nothing}
    ${queues.length ? html`<h3>Queues that change</h3><table class="small"><thead><tr><th scope="col">Queue</th><th scope="col" class="number">Admitted</th><th scope="col" class="number">Waiting</th></tr></thead>
      <tbody>${queues.map((row) => html`<tr><td>${row.name}</td><td class="number">${count(row.present.admitted)} → ${count(row.simulated.admitted)}</td><td class="number">${count(row.present.pending)} → ${count(row.simulated.pending)}</td></tr>`)}</tbody></table>` : nothing}
    <h3>Workloads that change</h3>
    ${found.changes.length ? html`<ul class="outcomes">${found.changes.map((each) => html`<li><p>${workloadLink(each.workload, each.hidden)} ${state(each.before)} → ${state(each.after)}</p>${each.why ? html`<p class="muted">${said(each.why)}</p>` : nothing}</li>`)}</ul>` : html`<p class="muted">None: all others go on as they are.</p>`}
    <p class="muted">${found.note} ${`Took ${amount(found.tookS)} s.`}</p>`;
}

function delta(before, after) {
  const change = after - before;
  return html`${count(after)}${change ? html` <small class=${change > 0 ? "more" : "fewer"}>${change > 0 ? "+" : "−"}${count(Math.abs(change))}</small>` : nothing}`;
}
