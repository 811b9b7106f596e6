/** Small pieces that all views are made of. Every text is a text node: nothing that the cluster says is read as HTML. */

import { html, nothing, svg } from "../lit.js";
import { absolute, duration, relative } from "../pure/format.js";
import { called } from "../pure/model.js";
import { formatRoute } from "../pure/route.js";
import { STATES } from "../pure/tiles.js";

const ICONS = {
  fleet: "M3 3h7v7H3zM14 3h7v7h-7zM3 14h7v7H3zM14 14h7v7h-7z",
  queues: "M4 5h16M4 5v14M4 12h10M4 19h7M14 10v4M11 17v4M20 3v4",
  pending: "M12 7v5l3 3M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z",
  workloads: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9",
  waste: "M5 20V10M12 20V4M19 20v-6M3 20h18",
  whatif: "M6 3v6a4 4 0 0 0 4 4h8M14 9l4 4-4 4M6 9v12",
  sun: "M12 7a5 5 0 1 0 0 10 5 5 0 0 0 0-10zM12 1v2M12 21v2M1 12h2M21 12h2M4.2 4.2l1.4 1.4M18.4 18.4l1.4 1.4M4.2 19.8l1.4-1.4M18.4 5.6l1.4-1.4",
  out: "M9 4H5v16h4M14 8l4 4-4 4M18 12H9",
};

/** A line drawing beside a text that says the same: hidden from screen readers. */
export function icon(name) {
  return svg`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${ICONS[name]}></path></svg>`;
}

/** A time as it reads from now, with the absolute one as its title. */
export function time(at, now) {
  if (typeof at !== "number") return html`<span class="muted">–</span>`;
  return html`<time datetime=${new Date(at * 1000).toISOString()} title=${absolute(at)}>${relative(at, now)}</time>`;
}

/** How long something has lasted, with its beginning as the title. */
export function lasting(since, now) {
  if (typeof since !== "number") return html`<span class="muted">–</span>`;
  return html`<time datetime=${new Date(since * 1000).toISOString()} title=${`since ${absolute(since)}`}>${duration(now - since)}</time>`;
}

/** A link into the page. */
export function link(parts, query, text, css = "") {
  return html`<a class=${css} href=${formatRoute(parts, query)}>${text}</a>`;
}

let jobs = new Map();

/** The jobs by whose names workloads are called in what is drawn from here on, by the workloads' keys. */
export function callByJobs(known) {
  jobs = known;
}

/** A sentence of the server's, with the names of jobs for their workloads'. */
export function said(text) {
  return called(text, jobs);
}

/**
 * A workload by its key NAMESPACE/NAME, or what stands for it where the reader may not see it. `job`: the name of its job,
 * by which its user knows it, is shown where there is one.
 */
export function workloadLink(key, hidden, css = "", job = jobs.get(key)) {
  const at = (key ?? "").indexOf("/");
  if (hidden || at < 0) return html`<span class="hidden-name">${key || "–"}</span>`;
  const [namespace, name] = [key.slice(0, at), key.slice(at + 1)];
  return link(["workloads", namespace, name], {}, html`<span class="muted">${namespace}/</span>${job ?? name}`, css);
}

/** A word with a mark of its own shape, so that colour is not all that tells it. */
export function badge(kind, text, title = "") {
  return html`<span class="badge is-${kind}" title=${title || nothing}><i aria-hidden="true"></i>${text}</span>`;
}

export function stateBadge(gpu) {
  const { label, hint } = STATES[gpu.state];
  return badge(gpu.state, label, hint);
}

/** A share from 0 to 1 as a bar. Widths are SVG attributes: the page's policy allows no style attributes. */
export function bar(share, css = "", label = "") {
  const known = typeof share === "number";
  const width = known ? Math.max(0, Math.min(1, share)) * 100 : 0;
  return html`<svg class="bar ${css}" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label=${label || (known ? `${Math.round(share * 100)} %` : "unknown")}>
    <rect class="bar-all" width="100" height="8"></rect><rect class="bar-part" width=${width} height="8"></rect>
  </svg>`;
}

/** One figure with its name, and what it is out of. */
export function figure(name, value, note = "", kind = "") {
  return html`<div class="figure ${kind}"><dt>${name}</dt><dd><b>${value}</b>${note ? html` <span>${note}</span>` : nothing}</dd></div>`;
}

/** What stands where there is nothing: why, and what to do. */
export function empty(title, text, more = nothing) {
  return html`<div class="empty"><p class="title">${title}</p><p>${text}</p>${more}</div>`;
}

const REFUSED = { 403: "is not yours to see", 404: "is not there" };

/** What stands while an answer is awaited or where there is none; else what `shown` makes of it. */
export function fetched(answer, what, shown) {
  if (answer.data) return shown(answer.data);
  if (answer.error) return empty(`${what.charAt(0).toUpperCase()}${what.slice(1)} ${REFUSED[answer.code] ?? "cannot be shown now"}`, answer.error);
  return html`<div class="waiting" role="status"><i aria-hidden="true"></i>Asking for ${what} …</div>`;
}

/** A choice between a few, as radio buttons that look like one switch. */
export function choice(name, label, options, value, chosen) {
  return html`<fieldset class="choice"><legend class="sr">${label}</legend>${options.map(
    ([key, text]) => html`<label><input type="radio" name=${name} value=${key} .checked=${key === value} @change=${() => chosen(key)}><span>${text}</span></label>`,
  )}</fieldset>`;
}

export function panel(title, body, more = nothing, css = "") {
  return html`<section class="panel ${css}" aria-label=${title}><header><h2>${title}</h2>${more}</header>${body}</section>`;
}
