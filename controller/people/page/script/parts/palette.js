/** Colours of the map, from the style sheet's variables, so that light and dark are told in one place. */

const NAMES = ["held", "idle", "free", "watched", "fault", "off", "ink", "muted", "line", "surface", "raised", "focus", "mark"];
const QUEUES = 8;
const STEPS = 6;

let kept = null;

export function palette() {
  if (kept) return kept;
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  kept = Object.fromEntries(NAMES.map((name) => [name, read(name)]));
  kept.queues = Array.from({ length: QUEUES }, (_, at) => read(`queue-${at}`));
  kept.busy = Array.from({ length: STEPS }, (_, at) => read(`busy-${at}`));
  kept.font = style.getPropertyValue("--font").trim() || "sans-serif";
  return kept;
}

/** The colours have changed: read them again. */
export function forget() {
  kept = null;
}

/** Which of the queues' colours a queue has: by its place among all names, so that it stays where others come and go. */
export function queueColour(names, name) {
  const at = names.indexOf(name);
  return at < 0 ? palette().muted : palette().queues[at % QUEUES];
}

export function busyColour(share) {
  return palette().busy[Math.min(STEPS - 1, Math.floor(share * STEPS))];
}
