/** Cohorts and queues as rows of one tree, parents before their children. Pure. */

const ORDER = new Intl.Collator("en", { numeric: true });

const COHORT = "cohort/";

/** The name of the cohort that a row's `parent` is; empty where it has none. The server says `cohort/NAME`. */
export function cohortOf(row) {
  return row.parent ? row.parent.slice(COHORT.length) : "";
}

/**
 * Rows in the order in which they are shown, each with its `depth`, 0 at the top. `nodes`: {name, kind, parent}, kind
 * `cohort` or `queue`, parent `cohort/NAME` or null. A parent that nobody describes is made up (Kueue's cohorts need no
 * object of their own), and of parents in a circle each node is shown once.
 */
export function treeRows(nodes) {
  const cohorts = new Map(nodes.filter((node) => node.kind === "cohort").map((node) => [node.name, node]));
  for (const name of nodes.map(cohortOf)) {
    if (name && !cohorts.has(name)) cohorts.set(name, { name, kind: "cohort", parent: null, made: true });
  }
  const queues = nodes.filter((node) => node.kind === "queue");
  const children = new Map();
  for (const node of [...cohorts.values(), ...queues]) {
    const parent = cohortOf(node);
    (children.get(parent) ?? children.set(parent, []).get(parent)).push(node);
  }
  const rows = [];
  const seen = new Set();
  const walk = (parent, depth) => {
    const members = (children.get(parent) ?? []).sort(byKindAndName);
    for (const node of members) {
      const key = `${node.kind}/${node.name}`;
      if (seen.has(key)) continue;
      seen.add(key);
      rows.push({ ...node, depth });
      if (node.kind === "cohort") walk(node.name, depth + 1);
    }
  };
  walk("", 0);
  for (const name of cohorts.keys()) {
    if (seen.has(COHORT + name)) continue;
    rows.push({ ...cohorts.get(name), depth: 0 });
    seen.add(COHORT + name);
    walk(name, 1);
  }
  return rows;
}

/** The cohorts above a row, the outermost first. Of a circle each is named once. */
export function cohortsAbove(row, rows) {
  const parents = new Map(rows.filter((each) => each.kind === "cohort").map((each) => [each.name, cohortOf(each)]));
  const above = [];
  for (let name = cohortOf(row); name && !above.includes(name); name = parents.get(name) ?? "") above.unshift(name);
  return above;
}

function byKindAndName(a, b) {
  if (a.kind !== b.kind) return a.kind === "cohort" ? -1 : 1;
  return ORDER.compare(a.name, b.name);
}

/**
 * A quota as a bar: shares of its whole length, which is the largest of nominal, used and guarantee.
 *
 * @returns {{own: number, borrowed: number, nominal: number, guarantee: number|null}} `own` is used of the own quota,
 *   `borrowed` what stands beyond it, `nominal` and `guarantee` where their marks are.
 */
export function quotaBar(nominal, used, guarantee = null) {
  const whole = Math.max(nominal, used, guarantee ?? 0) || 1;
  return {
    own: Math.min(used, nominal) / whole,
    borrowed: Math.max(0, used - nominal) / whole,
    nominal: nominal / whole,
    guarantee: guarantee === null ? null : guarantee / whole,
  };
}
