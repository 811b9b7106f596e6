/** The server's events: one stream for all topics, with its state, told to who listens. */

import { applied, initial } from "./pure/store.js";

export const TOPICS = "fleet,queues,pending,workloads";
const SILENT_S = 40;
const HIDDEN_S = 60;

export class Live {
  /** `changed` is called after each message, `ended` when the session has. */
  constructor({ changed, ended }) {
    this.changed = changed;
    this.ended = ended;
    this.state = initial();
    this.hello = null;
    this.skewS = 0;
    this.status = "connecting";
    this.heardMs = Date.now();
  }

  start() {
    this.source = new EventSource(`page/events?topics=${TOPICS}`);
    this.source.addEventListener("hello", (event) => {
      this.hello = JSON.parse(event.data);
      this.clock(this.hello.now);
    });
    this.source.addEventListener("beat", (event) => this.clock(JSON.parse(event.data).now));
    for (const kind of ["snapshot", "delta"]) {
      this.source.addEventListener(kind, (event) => {
        this.heard();
        this.state = applied(this.state, kind, JSON.parse(event.data));
        this.changed();
      });
    }
    this.source.onerror = () => this.failed();
    if (this.watch) return;
    this.watch = setInterval(() => this.look(), 5000);
    // A browser has six connections for one server in all its tabs: a tab that nobody sees keeps none of them.
    addEventListener("pagehide", () => this.rest());
    addEventListener("pageshow", () => this.wake());
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this.tired);
      if (document.hidden) this.tired = setTimeout(() => this.rest(), HIDDEN_S * 1000);
      else this.wake();
    });
  }

  rest() {
    this.source.close();
    this.status = "resting";
  }

  wake() {
    if (this.status === "resting") this.again();
  }

  /** The server's clock less the browser's: waits and ages are told by the former. */
  clock(now) {
    this.skewS = now - Date.now() / 1000;
    this.heard();
    this.changed();
  }

  get now() {
    return Date.now() / 1000 + this.skewS;
  }

  heard() {
    this.heardMs = Date.now();
    this.status = "live";
  }

  look() {
    if (this.status === "live" && Date.now() - this.heardMs > SILENT_S * 1000) this.again();
  }

  /** A browser does not try again by itself after an answer that is no stream: the session may have ended. */
  async failed() {
    this.status = "broken";
    this.changed();
    if (this.source.readyState !== EventSource.CLOSED) return;
    const session = await fetch("page/session").catch(() => null);
    if (session?.status === 401) this.ended();
    else setTimeout(() => this.again(), 3000);
  }

  again() {
    this.source.close();
    this.status = "broken";
    this.start();
    this.changed();
  }
}
