/** What one GPU is, in a word, and the sums over many. Pure. */

/** The states of a GPU, as the server says which it is in, in the order of the legend. */
export const STATES = {
  held: { label: "In use", hint: "A pod holds it." },
  idle: { label: "Held, idle", hint: "A pod holds it and it does nothing." },
  free: { label: "Free", hint: "It can be given to the next pod." },
  watched: { label: "On probation", hint: "It failed, was reset, and is watched before it returns." },
  fault: { label: "Out of service", hint: "It failed. Its node's page says why and what to do." },
  off: { label: "Node not ready", hint: "The node is not ready, cordoned or unheard." },
};

/** Whether pods use the GPU. One that has failed is out of service, though its pod may not have ended yet. */
export function isUsed(gpu) {
  return gpu.state === "held" || gpu.state === "idle";
}

/** Whether pods can neither use the GPU nor get it: it failed, or is watched after its reset. */
export function isOut(gpu) {
  return gpu.state === "fault" || gpu.state === "watched";
}

export function isHeld(gpu) {
  return gpu.holders.length > 0;
}

/** How much of the GPU is given out, from 0 to 1: the parts that have a holder, or all of one that is held whole. */
export function heldShare(gpu) {
  if (!gpu.parts.length) return isHeld(gpu) ? 1 : 0;
  const whole = gpu.parts.reduce((sum, part) => sum + part.share, 0);
  const held = gpu.parts.reduce((sum, part) => sum + (part.holder ? part.share : 0), 0);
  return Math.min(1, held / Math.max(1, whole));
}

/** Sums of a fleet: nodes, nodes that are not ready, GPUs by state, mean busy share of those that are measured. */
export function totals(nodes) {
  const byState = Object.fromEntries(Object.keys(STATES).map((state) => [state, 0]));
  let gpus = 0;
  let unready = 0;
  let busy = 0;
  let measured = 0;
  for (const node of nodes) {
    if (!node.ready || node.cordoned) unready += 1;
    for (const gpu of node.gpus) {
      gpus += 1;
      byState[gpu.state] += 1;
      if (gpu.busy !== null) {
        busy += gpu.busy;
        measured += 1;
      }
    }
  }
  return { nodes: nodes.length, unready, gpus, byState, busy: measured ? busy / measured : null, measured };
}

/** Whether a node or one of its GPUs matches every word of a filter: by name, place, product, mode, health or holder. */
export function matches(node, words) {
  if (!words.length) return true;
  const text = searched(node);
  return words.every((word) => text.includes(word));
}

/** The words of a filter as `matches` takes them. */
export function wordsOf(filter) {
  return String(filter ?? "").toLowerCase().split(/\s+/).filter(Boolean);
}

const texts = new WeakMap();

function searched(node) {
  let text = texts.get(node);
  if (text === undefined) {
    const parts = [node.name, node.block, node.rack, node.ready ? "ready" : "not-ready", ...node.taints];
    for (const gpu of node.gpus) {
      parts.push(gpu.uuid, gpu.product, gpu.mode, gpu.health, ...gpu.reasons, ...gpu.holders.map((each) => each.name));
    }
    text = parts.join(" ").toLowerCase();
    texts.set(node, text);
  }
  return text;
}
