/** What a running server of the page said when these tests began: no row here that its encoder did not make. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

const SAID = JSON.parse(readFileSync(new URL("./recorded.json", import.meta.url)));

const rows = (topic) => Object.values(SAID.topics[topic]);
export const NODES = rows("fleet");
export const QUEUES = rows("queues");
export const { node: NODE, workload: WORKLOAD } = SAID;
const GPUS = NODES.flatMap((node) => node.gpus);
const PARTS = GPUS.flatMap((gpu) => gpu.parts);

/** One row of each kind to make others like it, and all that were said, by which these are checked. */
export const nodeLike = likeOne(NODES);
export const gpuLike = likeOne(GPUS.filter((gpu) => gpu.mode === "whole"), GPUS);
export const partLike = likeOne(PARTS);
export const holderLike = likeOne(PARTS.flatMap((part) => part.holders));
export const queueLike = likeOne(QUEUES.filter((row) => row.kind === "queue"), QUEUES);
export const cohortLike = likeOne(QUEUES.filter((row) => row.kind === "cohort"), QUEUES);
export const quotaLike = likeOne(QUEUES.flatMap((row) => row.resources));
export const recordLike = likeOne(WORKLOAD.story);
export const linkLike = likeOne(NODE.links);
export const groupLike = likeOne(NODES.flatMap((node) => node.linkGroups));

/** A function that changes fields of the first row. A field that no row has, or of a type that none has, is refused. */
function likeOne(from, all = from) {
  assert.ok(from.length, "the server said no row of this kind");
  const shape = shapeOf(all);
  return (changed = {}) => {
    const made = { ...from[0], ...changed };
    fits(made, shape, "row");
    return made;
  };
}

function kindOf(value) {
  return value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
}

function shapeOf(values) {
  const objects = values.filter((value) => kindOf(value) === "object");
  const items = values.filter(Array.isArray).flat();
  const keys = [...new Set(objects.flatMap(Object.keys))];
  return {
    kinds: new Set(values.map(kindOf)),
    fields: new Map(keys.map((key) => [key, shapeOf(objects.filter((each) => key in each).map((each) => each[key]))])),
    items: items.length ? shapeOf(items) : null,
  };
}

function fits(value, shape, at) {
  assert.ok(shape.kinds.has(kindOf(value)), `${at}: the server says ${[...shape.kinds]}, here stands ${kindOf(value)}`);
  if (Array.isArray(value)) {
    if (shape.items) value.forEach((each, index) => fits(each, shape.items, `${at}[${index}]`));
  } else if (kindOf(value) === "object") {
    for (const key of shape.fields.keys()) assert.ok(key in value, `${at}: the server says ${key}, too`);
    for (const [key, each] of Object.entries(value)) {
      assert.ok(shape.fields.has(key), `${at}.${key}: the server says no such field`);
      fits(each, shape.fields.get(key), `${at}.${key}`);
    }
  }
}
