/** What views share of the state, made once for each of its changes. */

import { grouped } from "./pure/fleetlayout.js";
import { jobsOf, nodeOf, queuesOf } from "./pure/model.js";
import { topic } from "./pure/store.js";
import { matches, totals, wordsOf } from "./pure/tiles.js";
import { treeRows } from "./pure/tree.js";

/** A function of one argument that is asked again and again for the same: by identity, the last answer is kept. */
function lately(make) {
  let last = {};
  return (...given) => {
    if (!last.given || given.some((each, at) => each !== last.given[at])) last = { given, made: make(...given) };
    return last.made;
  };
}

export class Derived {
  constructor(live) {
    this.live = live;
    this.nodesOf = lately((rows, levels) => [...rows.values()].map((row) => nodeOf(row, levels)));
    this.totalsOf = lately(totals);
    this.blocksOf = lately((nodes, filter) => {
      const words = wordsOf(filter);
      return grouped(nodes.filter((node) => matches(node, words)));
    });
    this.queuesOf = lately(queuesOf);
    this.jobsOf = lately(jobsOf);
    this.treeOf = lately((rows) => treeRows([...rows.values()]));
    this.listOf = lately((rows) => [...rows].map(([key, row]) => ({ key, ...row })));
    this.holdersOf = lately((rows) => [...rows].map(([key, row]) => ({ key, ...row })));
    this.namesOf = lately((rows) => [...rows.values()].filter((row) => row.kind === "queue").map((row) => row.name).sort());
  }

  topic(name) {
    return topic(this.live.state, name);
  }

  get levels() {
    return this.live.hello?.levels ?? NONE;
  }

  get nodes() {
    return this.nodesOf(this.topic("fleet").rows, this.levels);
  }

  get totals() {
    return this.totalsOf(this.nodes);
  }

  blocks(filter) {
    return this.blocksOf(this.nodes, filter ?? "");
  }

  /** Whether any node has NVLinks. */
  get linked() {
    return this.nodes.some((node) => node.linkGroups.some((group) => group.kind.startsWith("NV")));
  }

  /** The blocks that have one of these nodes, as they are known now. */
  blocksWith(names) {
    const all = this.blocks("");
    const key = [...names].sort().join(" ");
    if (this.withNames?.key !== key || this.withNames.all !== all) {
      const found = all.filter((block) => block.racks.some((rack) => rack.nodes.some((node) => names.has(node.name))));
      this.withNames = { key, all, found };
    }
    return this.withNames.found;
  }

  /** The queue of each workload that holds quota and has a name. */
  get queueByWorkload() {
    return this.queuesOf(this.topic("workloads").rows);
  }

  /** The job of each workload that holds quota or waits and has a name. */
  get jobByWorkload() {
    return this.jobsOf(this.topic("workloads").rows, this.topic("pending").rows);
  }

  get queueNames() {
    return this.namesOf(this.topic("queues").rows);
  }

  get tree() {
    return this.treeOf(this.topic("queues").rows);
  }

  get pending() {
    return this.listOf(this.topic("pending").rows);
  }

  get holders() {
    return this.holdersOf(this.topic("workloads").rows);
  }
}

const NONE = [];
