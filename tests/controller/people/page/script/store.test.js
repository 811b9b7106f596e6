import assert from "node:assert/strict";
import { test } from "node:test";
import { applied, changes, initial, topic } from "./pure/store.js";

const snapshot = (revision, set) => ({ topic: "fleet", revision, set, gone: [], cut: 0 });
const delta = (revision, set, gone = []) => ({ topic: "fleet", revision, set, gone, cut: 0 });

test("a snapshot replaces all rows of its topic and of no other", () => {
  const one = applied(initial(), "snapshot", snapshot(1, { a: { x: 1 }, b: { x: 2 } }));
  const two = applied(one, "snapshot", { ...snapshot(1, { q: {} }), topic: "queues" });
  const three = applied(two, "snapshot", snapshot(9, { c: { x: 3 } }));
  assert.deepEqual([...topic(three, "fleet").rows.keys()], ["c"]);
  assert.equal(topic(three, "queues"), topic(two, "queues"));
});

test("a delta sets whole rows, removes keys, and leaves other rows the same objects", () => {
  const before = applied(initial(), "snapshot", snapshot(1, { a: { x: 1 }, b: { x: 2 }, c: { x: 3 } }));
  const after = applied(before, "delta", delta(2, { b: { x: 5 }, d: { x: 4 } }, ["c"]));
  assert.deepEqual([...topic(after, "fleet").rows], [["a", { x: 1 }], ["b", { x: 5 }], ["d", { x: 4 }]]);
  assert.equal(topic(after, "fleet").rows.get("a"), topic(before, "fleet").rows.get("a"));
  assert.deepEqual(changes(before, after, "fleet"), { changed: ["b", "d"], gone: ["c"] });
  assert.equal(topic(before, "fleet").rows.size, 3);
});

test("a delta without a snapshot, or one that was applied before a break, changes nothing", () => {
  assert.deepEqual(applied(initial(), "delta", delta(5, { a: {} })), initial());
  const known = applied(initial(), "snapshot", snapshot(5, { a: { x: 1 } }));
  assert.equal(applied(known, "delta", delta(5, { a: { x: 0 } })), known);
  assert.equal(applied(known, "delta", delta(4, {}, ["a"])), known);
});

test("whatever deltas come in pieces, the rows are those of a snapshot of the end", () => {
  let seed = 7;
  const draw = (most) => (seed = (seed * 48271) % 2147483647) % most;
  for (let round = 0; round < 200; round += 1) {
    const truth = new Map();
    let state = applied(initial(), "snapshot", snapshot(0, {}));
    for (let revision = 1; revision < 20; revision += 1) {
      const set = {};
      for (let at = 0; at < draw(4); at += 1) set[`k${draw(6)}`] = { value: draw(1000) };
      const gone = [...truth.keys()].filter((key) => !(key in set) && draw(4) === 0);
      for (const key of gone) truth.delete(key);
      for (const [key, row] of Object.entries(set)) truth.set(key, row);
      state = applied(state, "delta", delta(revision, set, gone));
    }
    const rows = topic(state, "fleet").rows;
    assert.deepEqual(Object.fromEntries(rows), Object.fromEntries(truth));
  }
});
