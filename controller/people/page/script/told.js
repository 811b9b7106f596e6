/** What a screen reader is told of changes: faults that come and go, and starts; at most one sentence a few seconds. */

import { plural } from "./pure/format.js";

const PAUSE_MS = 5000;

export class Told {
  constructor() {
    this.before = null;
    this.atMs = 0;
  }

  look(page) {
    if (Date.now() - this.atMs < PAUSE_MS || !page.known.topic("fleet").whole) return;
    this.atMs = Date.now();
    const now = { faults: faultsOf(page.known.nodes), pending: page.known.pending.length };
    const sentence = this.before ? sentenceOf(this.before, now) : "";
    this.before = now;
    if (sentence) document.getElementById("told").textContent = sentence;
  }
}

function faultsOf(nodes) {
  const found = new Set();
  for (const node of nodes) {
    for (const gpu of node.gpus) if (gpu.state === "fault") found.add(`${node.name} GPU ${gpu.index}`);
  }
  return found;
}

function sentenceOf(before, now) {
  const failed = [...now.faults].filter((each) => !before.faults.has(each));
  const back = [...before.faults].filter((each) => !now.faults.has(each));
  const parts = [];
  if (failed.length) parts.push(failed.length > 2 ? `${plural(failed.length, "GPU")} failed` : `${failed.join(" and ")} failed`);
  if (back.length) parts.push(back.length > 2 ? `${plural(back.length, "GPU")} came back` : `${back.join(" and ")} came back`);
  if (now.pending !== before.pending) parts.push(`${plural(now.pending, "workload")} pending`);
  return parts.join("; ");
}
