/** The page: what its address says, drawn from what the server told, once for each change. */

import { Answers, signOut } from "./api.js";
import { Derived } from "./derive.js";
import { html, nothing, render } from "./lit.js";
import { Live } from "./live.js";
import { forget } from "./parts/palette.js";
import { badge, callByJobs, empty, icon } from "./parts/ui.js";
import { absolute, count } from "./pure/format.js";
import { formatRoute, parseRoute } from "./pure/route.js";
import { Told } from "./told.js";
import * as theme from "./theme.js";
import * as fleet from "./views/fleet.js";
import * as node from "./views/node.js";
import * as pending from "./views/pending.js";
import * as queues from "./views/queues.js";
import * as waste from "./views/waste.js";
import * as whatif from "./views/whatif.js";
import * as workload from "./views/workload.js";
import * as workloads from "./views/workloads.js";

const VIEWS = { fleet, queues, pending, workloads, waste, whatif };
const KEPT = "tessera-after-sign-in";

const root = document.getElementById("page");
const answers = new Answers(draw);
const live = new Live({ changed: draw, ended: () => location.reload() });
const known = new Derived(live);
const told = new Told();
let session = null;
let drawn = "";
let asked = false;
/** Whether the reader has signed out: nothing is drawn any more. */
let over = false;

/** What a view is given: what is known, where the reader is, and ways to ask and to go on. */
const page = {
  live,
  known,
  draw,
  get route() {
    return parseRoute(location.hash);
  },
  get now() {
    return live.now;
  },
  /** An answer of the server beside the stream, {data, error}. */
  ask: (path, maxAgeS = 15, since = null) => answers.of(path, maxAgeS, since),
  go: (parts, query) => {
    location.hash = formatRoute(parts, query);
  },
  /** Another value in the address of the same view; it is no step of the browser's history. */
  put: (query) => {
    const { parts, query: old } = page.route;
    history.replaceState(null, "", formatRoute(parts, { ...old, ...query }));
    draw();
  },
};

function viewOf(parts) {
  if (parts[0] === "workloads" && parts.length >= 3) return workload;
  if (parts[0] === "nodes" && parts[1]) return node;
  return VIEWS[parts[0]] ?? null;
}

function draw() {
  if (asked || over) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    if (!over) now();
  });
}

function now() {
  const { parts } = page.route;
  const view = viewOf(parts);
  const title = view ? view.title(page) : "Not found";
  document.title = `${title} - Tessera`;
  render(shell(parts, view, title), root);
  const place = parts.join("/");
  if (drawn && place !== drawn) entered();
  drawn = place;
  told.look(page);
}

/** After a step to another view the reader, and a screen reader, is at its heading. */
function entered() {
  document.querySelector("h1")?.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function viewed(view, page) {
  callByJobs(page.known.jobByWorkload);
  return view.render(page);
}

function shell(parts, view, title) {
  const waiting = known.topic("pending").rows.size;
  const entry = (name, text, note) => html`<a href=${formatRoute([name])} aria-current=${(parts[0] === name && !(name === "workloads" && parts.length > 1)) || (name === "fleet" && parts[0] === "nodes") ? "page" : nothing}>
    ${icon(name)}<span>${text}</span>${note ? html`<small aria-hidden="true">${note}</small>` : nothing}</a>`;
  return html`<header class="side">
      <a class="brand" href="#/fleet"><img src="page/icon.svg" alt="" width="26" height="26"><b>Tessera</b></a>
      <nav aria-label="Views">
        ${entry("fleet", "Fleet")}${entry("queues", "Queues")}${entry("pending", "Pending", waiting ? count(waiting) : "")}
        ${entry("workloads", "Holding quota")}${entry("waste", "Waste")}${entry("whatif", "What if")}
      </nav>
      <div class="foot">
        ${status()}
        ${session ? html`<p class="who" title=${session.groups.join(", ")}>${session.user}</p>` : nothing}
        <p class="tools">
          <button type="button" class="quiet" aria-label=${theme.isDark() ? "Light" : "Dark"} title="Light or dark" @click=${switchTheme}>${icon("sun")}<span>${theme.isDark() ? "Light" : "Dark"}</span></button>
          ${session && session.how !== "kubeconfig" ? html`<button type="button" class="quiet" aria-label="Sign out" title="Sign out" @click=${leave}>${icon("out")}<span>Sign out</span></button>` : nothing}
        </p>
      </div>
    </header>
    <main id="main"><h1 tabindex="-1">${title}</h1>${view ? viewed(view, page) : empty("There is no such view", "The address names none of this page.", html`<a class="button" href="#/fleet">To the fleet</a>`)}</main>
    <p class="sr" aria-live="polite" id="told"></p>`;
}

function status() {
  const { denied = {} } = live.hello ?? {};
  const kept = Object.values(denied);
  if (kept.length) return badge("idle", "Partly visible", kept.join("\n"));
  if (live.status === "live") return badge("live", "Live");
  return badge(live.status === "broken" ? "fault" : "off", live.status === "broken" ? "Reconnecting" : "Connecting");
}

function switchTheme() {
  theme.toggle();
  forget();
  draw();
}

/** Nothing of what was shown stays on the screen, whether the server hears of it or not. */
async function leave() {
  over = true;
  live.rest();
  render(html`<main id="main"><h1 tabindex="-1">Signing out …</h1></main>`, root);
  if (await signOut()) {
    location.reload();
    return;
  }
  const until = session?.expires ? ` until ${absolute(session.expires)}` : " until it expires";
  render(html`<main id="main"><h1 tabindex="-1">Signed out</h1><p class="note warn" role="alert">This browser has dropped the session. The server cannot be reached: it may still hold the session${until}.</p>
    <p><button type="button" class="primary" @click=${() => location.reload()}>Sign in again</button></p></main>`, root);
}

/** Asked again where the server has too much to do, or is away; where the session has ended the stream says so. */
async function who() {
  const answer = await fetch("page/session").catch(() => null);
  if (!answer?.ok) {
    if (answer?.status !== 401) setTimeout(who, 3000);
    return;
  }
  session = await answer.json();
  draw();
}

function begin() {
  theme.apply();
  theme.follow(() => {
    forget();
    draw();
  });
  const kept = sessionStorage.getItem(KEPT);
  sessionStorage.removeItem(KEPT);
  if (kept && !location.hash) history.replaceState(null, "", kept);
  addEventListener("hashchange", draw);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // The fragment is the view's.
    document.querySelector("h1")?.focus();
  });
  live.start();
  who();
  setInterval(draw, 1000); // Times are told from now.
  now();
}

begin();
