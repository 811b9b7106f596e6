/** Queues: the cohort tree with what each has, uses and borrowed; and one queue with its flavors and its history. */

import { html, nothing, svg } from "../lit.js";
import { badge, choice, empty, fetched, figure, link, panel, said } from "../parts/ui.js";
import { history } from "../parts/history.js";
import { amount, count, plural, quantity, resource as short } from "../pure/format.js";
import { ofResource, resourcesOf } from "../pure/model.js";
import { cohortsAbove, quotaBar } from "../pure/tree.js";

export const title = (page) => page.route.parts[1] ? `Queue ${page.route.parts[1]}` : "Queues";

const STATES = { open: ["live", "Open"], stopped: ["idle", "Stopped"], draining: ["idle", "Draining"], inactive: ["fault", "Inactive"], "no nodes": ["fault", "No nodes"] };

const SHARE = "Fair share: borrowed, as a part of what the cohort could lend, divided by the weight. 0 borrows nothing; of two the smaller comes first";

export function render(page) {
  const { known, route } = page;
  const denied = page.live.hello?.denied?.queues;
  if (denied) return empty("Queues are not yours to see", `${denied}.`);
  if (!known.topic("queues").whole) return html`<div class="waiting" role="status"><i aria-hidden="true"></i>Waiting for the queues …</div>`;
  const rows = known.tree;
  if (!rows.length) return empty("No queue yet", "A ClusterQueue gives a team its quota; a LocalQueue lets a namespace submit to it.", html`<code>kubectl apply -f examples/queues/team-quotas.yaml</code>`);
  const names = resourcesOf(rows.filter((row) => row.resources));
  const chosen = route.query.resource && names.includes(route.query.resource) ? route.query.resource : names[0];
  const [, name] = route.parts;
  if (name) {
    const row = rows.find((each) => each.kind === "queue" && each.name === name);
    return row ? one(page, row) : empty(`No queue ${name}`, "It was deleted, or the address is wrong.", link(["queues"], {}, "To all queues", "button"));
  }
  return html`<div class="tools-row">${names.length > 1 ? choice("resource", "Resource", names.slice(0, 5).map((each) => [each, short(each)]), chosen, (each) => page.put({ resource: each === names[0] ? "" : each })) : nothing}
      <ul class="legend"><li><i class="swatch bar-own"></i>own quota used</li><li><i class="swatch bar-borrowed"></i>borrowed</li><li><i class="swatch mark"></i>nominal quota</li><li><i class="swatch mark-guarantee"></i>never lent</li></ul></div>
    <section class="panel flush" aria-label="Queues"><div class="scroll-x" tabindex="0" role="group" aria-label="Table"><table class="tree"><thead><tr>
      <th scope="col">Queue</th><th scope="col" class="less">State</th><th scope="col" class="wide">${short(chosen ?? "")} used of nominal</th><th scope="col" class="number">Used</th><th scope="col" class="number">Nominal</th>
      <th scope="col" class="number" title="Beyond its own quota. What queues borrow of each other is no loan to their cohort, so a cohort's own stands in its title">Borrowed</th><th scope="col" class="number less" title="What it could take now, with all it may borrow: 0 where it is stopped, inactive or without nodes">Available</th><th scope="col" class="number less" title=${SHARE}>Share</th><th scope="col" class="number less" title="Workloads with a pod that runs">Running</th><th scope="col" class="number">Waiting</th>
    </tr></thead><tbody>${rows.map((row) => line(row, chosen))}</tbody></table></div></section>`;
}

function line(row, chosen) {
  const has = row.resources ? ofResource(row, chosen) : { known: false };
  const queue = row.kind === "queue";
  const [kind, word] = STATES[row.state] ?? ["off", row.state ?? ""];
  return html`<tr class=${row.kind}>
    <th scope="row" data-depth=${Math.min(6, row.depth)}>${queue ? link(["queues", row.name], {}, row.name) : html`<span>${row.name}</span>`}
      ${queue ? nothing : html`<small>cohort</small>`}${row.weight !== undefined && row.weight !== 1 ? html`<small>weight ${amount(row.weight)}</small>` : nothing}${row.calendar ? html`<small title=${row.calendar.sentence}>by calendar</small>` : nothing}</th>
    <td class="less">${queue ? badge(kind, word, (row.problems ?? []).join("\n")) : nothing}</td>
    <td class="wide">${has.known ? quotaDrawn(has) : nothing}</td>
    <td class="number">${has.known ? quantity(chosen, has.used) : "–"}</td><td class="number muted">${has.known ? quantity(chosen, has.nominal) : "–"}${has.own ? html`<small>${quantity(chosen, has.own)} its own</small>` : nothing}${has.guaranteed ? html`<small>${quantity(chosen, has.guaranteed)} never lent</small>` : nothing}</td>
    <td class="number ${queue && has.borrowed ? "borrowed" : "muted"}" title=${queue || !has.known ? "" : `The cohort has borrowed ${quantity(chosen, has.borrowed)} from outside; its queues borrow of each other, too`}>${has.known && queue ? quantity(chosen, has.borrowed) : "–"}</td><td class="number less">${has.known && queue ? quantity(chosen, has.available) : ""}</td>
    <td class="number less" title=${SHARE}>${row.share === undefined || row.share === null ? "–" : amount(row.share / 1000)}</td>
    <td class="number less">${running(row)}${row.admittedWithoutPods ? html`<small title=${withoutPods(row)}>of ${count(row.running + row.admittedWithoutPods)} admitted</small>` : nothing}</td>
    <td class="number">${row.pending && queue ? link(["pending"], { queue: row.name }, count(row.pending)) : count(row.pending ?? 0)}</td></tr>`;
}

/** Workloads with a pod that runs, as `tessera queue list` counts them. */
function running(row) {
  return row.running === null || row.running === undefined ? "–" : count(row.running);
}

function withoutPods(row) {
  return `${plural(row.admittedWithoutPods, "admitted workload has", "admitted workloads have")} no pod that runs`;
}

function quotaDrawn(has) {
  const drawn = quotaBar(has.nominal, has.used, has.guaranteed || null);
  const words = `${amount(has.used)} of ${amount(has.nominal)} used${has.borrowed ? `, ${amount(has.borrowed)} borrowed` : ""}${has.guaranteed ? `, ${amount(has.guaranteed)} never lent` : ""}`;
  return html`<svg class="quota" viewBox="0 0 100 14" preserveAspectRatio="none" role="img" aria-label=${words}><title>${words}</title>
    <rect class="bar-all" x="0" y="3" width=${drawn.nominal * 100} height="8"></rect>
    <rect class="bar-own" x="0" y="3" width=${drawn.own * 100} height="8"></rect>
    <rect class="bar-borrowed" x=${drawn.own * 100} y="3" width=${drawn.borrowed * 100} height="8"></rect>
    ${drawn.guarantee === null ? nothing : svg`<rect class="mark-guarantee" x=${Math.max(0, drawn.guarantee * 100 - 0.4)} y="1" width="0.8" height="12"></rect>`}
    ${svg`<rect class="mark" x=${Math.max(0, drawn.nominal * 100 - 0.8)} y="0" width="0.8" height="14"></rect>`}</svg>`;
}

function one(page, row) {
  const [kind, word] = STATES[row.state] ?? ["off", row.state];
  const hours = page.route.query.hours ?? "24";
  const past = page.ask(`page/history?what=${row.kind === "cohort" ? "cohort" : "queue"}&name=${encodeURIComponent(row.name)}&hours=${encodeURIComponent(hours)}`, 120);
  const holders = page.known.holders.filter((each) => each.queue === row.name);
  return html`<p class="crumbs">${link(["queues"], {}, "Queues")}${cohortsAbove(row, page.known.tree).map((name) => html` › ${name}`)} ${badge(kind, word)}</p>
    ${(row.problems ?? []).map((problem) => html`<p class="note warn">${problem}</p>`)}
    ${(row.interrupted ?? []).map((each) => html`<p class="note">${each}</p>`)}
    ${row.calendar ? html`<p class="note">${said(row.calendar.sentence)}</p>` : nothing}
    <dl class="figures">
      ${figure("Running", running(row), row.admittedWithoutPods ? withoutPods(row) : plural(row.reserving, "workload holds", "workloads hold") + " quota")}
      <div class="figure"><dt>Waiting</dt><dd><b>${link(["pending"], { queue: row.name }, count(row.pending))}</b> <span>${row.parked ? `${count(row.parked)} until something changes` : ""}</span></dd></div>
      ${figure("Fair share", row.share === null ? "–" : amount(row.share / 1000), row.share ? "borrowed, of what the cohort could lend, by weight" : "borrows nothing")}
      ${figure("Weight", amount(row.weight), "")}
      ${figure("Order", row.strategy === "StrictFIFO" ? "strict" : "best effort", row.strategy)}
    </dl>
    ${panel("Quota", html`<div class="scroll-x" tabindex="0" role="group" aria-label="Table"><table class="small"><thead><tr><th scope="col">Flavor</th><th scope="col">Resource</th><th scope="col" class="wide"><span class="sr">Drawn</span></th><th scope="col" class="number">Used</th><th scope="col" class="number">Nominal</th><th scope="col" class="number">Borrowed</th><th scope="col" class="number">May borrow</th><th scope="col" class="number">Never lent</th><th scope="col" class="number">Available</th></tr></thead>
      <tbody>${row.resources.map((each) => html`<tr><td>${each.flavor}</td><td><code>${each.resource}</code></td><td class="wide">${quotaDrawn(each)}</td><td class="number">${quantity(each.resource, each.used)}</td><td class="number">${quantity(each.resource, each.nominal)}</td><td class="number">${quantity(each.resource, each.borrowed)}</td>
        <td class="number">${each.borrowingLimit === null ? "no limit" : quantity(each.resource, each.borrowingLimit)}</td><td class="number">${quantity(each.resource, each.guaranteed)}</td><td class="number">${quantity(each.resource, each.available)}</td></tr>`)}</tbody></table></div>`)}
    ${panel("History by hour", fetched(past, "the history", (data) => history(data)), choice("hours", "How far back", [["24", "1 day"], ["168", "7 days"]], hours, (each) => page.put({ hours: each === "24" ? "" : each })))}
    ${holders.length ? panel("Holding quota here", html`<p>${link(["workloads"], { queue: row.name }, `Show all ${plural(holders.length, "workload")}`)}</p>`) : nothing}`;
}
