/**
 * Rows of the server as the views take them. Pure; what is made of a row is kept with it, so that a delta costs what it
 * changes.
 */

const HIDDEN = /^a workload of queue (.+)$/;
const nodes = new WeakMap();

/** A node of the fleet. `levels`: labels of the topology, the last one the node's own where it is the host name. */
export function nodeOf(row, levels) {
  let made = nodes.get(row);
  if (made) return made;
  const wide = levels.at(-1) === "kubernetes.io/hostname" ? row.levels.slice(0, -1) : row.levels;
  const rest = wide.slice(1).filter(Boolean).join(" / ");
  made = {
    ...row,
    block: wide.length > 1 ? wide[0] : "",
    rack: wide.length > 1 ? rest : wide[0] ?? "",
    gpus: row.gpus.map(gpuOf),
  };
  nodes.set(row, made);
  return made;
}

/** A GPU with `holders`, one for each workload or pod, and `parts`, empty where it is given out as a whole. */
export function gpuOf(gpu) {
  const holders = new Map();
  for (const holder of gpu.parts.flatMap((part) => part.holders)) {
    const name = holder.workload ?? holder.pod;
    if (!holders.has(name)) holders.set(name, { name, pod: holder.pod, workload: holder.workload, hidden: holder.hidden });
  }
  return { ...gpu, holders: [...holders.values()], parts: gpu.parts.flatMap(pieces) };
}

/** Parts as what is drawn side by side, each with its `share` of the GPU from 0 to 1. */
function pieces(part) {
  if (part.name === "whole") return [];
  if (part.name === "share" || part.name === "percent") {
    const unit = part.name === "percent" ? "%" : `of ${part.size}`;
    const held = part.holders.map((holder) => ({
      label: `${holder.takes} ${unit}`,
      share: holder.takes / part.size,
      holder,
      health: part.health,
    }));
    const left = part.size - part.holders.reduce((sum, holder) => sum + holder.takes, 0);
    return left > 0 ? [...held, { label: `${left} ${unit} free`, share: left / part.size, holder: null, health: part.health, free: true }] : held;
  }
  const slices = /^(\d+)(?:c\.(\d+))?g\./.exec(part.name) ?? /^(\d+)g\./.exec(part.name);
  return [{ label: part.name, share: slices ? Number(slices[1]) / 7 : 1 / 7, holder: part.holders[0] ?? null, health: part.health }];
}

/** The queue of each workload that holds something, by its key. */
export function queuesOf(workloads) {
  return new Map([...workloads.values()].filter((row) => !row.hidden).map((row) => [row.workload, row.queue]));
}

/** The job of each workload that runs or waits and has a name, as its user knows it. */
export function jobsOf(...topics) {
  return new Map(topics.flatMap((rows) => [...rows.values()]).filter((row) => !row.hidden && row.job).map((row) => [row.workload, row.job]));
}

/** A sentence in which workloads are called by their jobs' names: `ns/job-a-4f1c2` is `ns/a`. */
export function called(text, jobs) {
  return String(text ?? "").replace(/[a-z0-9][a-z0-9.-]*\/[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/g, (key) => (jobs.has(key) ? `${split(key).namespace}/${jobs.get(key)}` : key));
}

/** What a holder is called where there is little room: its job's name, else its own, without the namespace. */
export function holderName(holder, jobs) {
  return jobs.get(holder.workload) ?? (holder.workload ?? holder.pod ?? holder.name ?? "").split("/").at(-1);
}

/** The queue of a holder: its workload's; of one without a name, what the name says. Empty where none is known. */
export function queueOfHolder(holder, queues) {
  return HIDDEN.exec(holder.name)?.[1] ?? queues.get(holder.workload) ?? "";
}

/** The namespace and name of a key, both empty for what has none. */
export function split(key) {
  const at = (key ?? "").indexOf("/");
  return at < 0 ? { namespace: "", name: key ?? "" } : { namespace: key.slice(0, at), name: key.slice(at + 1) };
}

/** The amount of devices that a row asks for or holds: resources whose names have a slash. */
export function devices(amounts) {
  return Object.entries(amounts ?? {}).reduce((sum, [name, value]) => sum + (name.includes("/") ? value : 0), 0);
}

/** Resources of the queues that are devices first, in the order in which a switch shows them. */
export function resourcesOf(queues) {
  const names = new Set(queues.flatMap((row) => row.resources.map((each) => each.resource)));
  return [...names].sort((a, b) => Number(b.includes("/")) - Number(a.includes("/")) || (a < b ? -1 : 1));
}

/** What a queue has of one resource in all its flavors. `limit` is null where one flavor may borrow without bound. */
export function ofResource(row, resource) {
  const parts = row.resources.filter((each) => each.resource === resource);
  const sum = (field) => parts.reduce((total, each) => total + (each[field] ?? 0), 0);
  return {
    flavors: parts,
    nominal: sum(row.kind === "cohort" ? "subtree" : "nominal"),
    own: row.kind === "cohort" ? sum("nominal") : 0,
    used: sum("used"),
    borrowed: sum("borrowed"),
    guaranteed: sum("guaranteed"),
    available: sum("available"),
    known: parts.length > 0,
  };
}
