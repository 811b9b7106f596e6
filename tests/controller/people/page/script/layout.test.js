import assert from "node:assert/strict";
import { test } from "node:test";
import { WRITTEN, bridges, grouped, hit, layout, neighbour } from "./pure/fleetlayout.js";
import { nodeOf } from "./pure/model.js";
import { moved, scrolledTo, visible } from "./pure/window.js";
import { gpuLike, groupLike, nodeLike } from "./recorded.js";

const LEVELS = ["x/block", "x/rack", "kubernetes.io/hostname"];
const node = (name, block, rack, gpus = 8) => nodeOf(nodeLike({ name, levels: [block, rack, name], gpus: Array.from({ length: gpus }, (_, index) => gpuLike({ index })) }), LEVELS);
const fleet = (count, gpus = 8) => grouped(Array.from({ length: count }, (_, at) => node(`n-${at}`, `b-${at >> 5}`, `r-${(at >> 3) & 3}`, gpus)));

test("blocks, racks and nodes are in the natural order of their names", () => {
  const blocks = grouped([node("n-10", "b-2", "r-10"), node("n-2", "b-2", "r-9"), node("n-1", "b-1", "r-1"), node("n-9", "b-2", "r-10")]);
  assert.deepEqual(blocks.map((block) => block.name), ["b-1", "b-2"]);
  assert.deepEqual(blocks[1].racks.map((rack) => rack.name), ["r-9", "r-10"]);
  assert.deepEqual(blocks[1].racks[1].nodes.map((each) => each.name), ["n-9", "n-10"]);
});

test("every GPU has a tile inside the width, and no two nodes lie on each other", () => {
  for (const [count, gpus] of [[1, 8], [3, 1], [40, 4], [300, 8], [7, 16], [5, 0]]) {
    for (const width of [340, 900, 1600]) {
      const map = layout(fleet(count, gpus), width, 600);
      assert.equal(map.cells.length, count);
      assert.ok(map.cells.every((cell) => cell.tiles.length === gpus && cell.x >= 0 && cell.x + cell.w <= width), `${count} ${width}`);
      assert.ok(map.cells.every((cell) => cell.y + cell.h <= map.height));
      const spots = [...map.cells].sort((a, b) => a.y - b.y || a.x - b.x);
      for (let at = 1; at < spots.length; at += 1) {
        const [a, b] = [spots[at - 1], spots[at]];
        assert.ok(a.y !== b.y || a.x + a.w < b.x, `${a.node.name} and ${b.node.name}`);
      }
    }
  }
});

test("bridges join neighbours of one NVLink group and no others", () => {
  const pairs = { ...node("n", "", "", 4), linkGroups: [groupLike({ kind: "NV4", gpus: [0, 1] }), groupLike({ kind: "NV4", gpus: [2, 3] }), groupLike({ kind: "PIX", gpus: [] })] };
  assert.deepEqual(bridges(pairs, 4), [[0, 1], [2, 3]]);
  assert.deepEqual(bridges({ ...pairs, linkGroups: [groupLike({ kind: "NV18", gpus: [0, 1, 2, 3] })] }, 2), [[0, 1], [0, 2], [1, 3], [2, 3]]);
  assert.deepEqual(bridges({ ...pairs, linkGroups: [groupLike({ kind: "PIX", gpus: [0, 1] })] }, 4), []);
});

test("few nodes have large tiles, and many have tiles that can still be told apart", () => {
  const few = layout(fleet(4), 1200, 600);
  assert.ok(few.tile >= WRITTEN, "each says who holds it");
  assert.deepEqual(few.labels.filter((label) => label.kind === "node").map((label) => label.text), ["n-0", "n-1", "n-2", "n-3"]);
  assert.ok(layout(fleet(1, 1), 1200, 600).labels.some((label) => label.kind === "node"), "a node of one GPU, too");
  assert.equal(layout(fleet(2000), 1200, 600).tile, 6);
});

test("the middle of each tile belongs to its GPU, and beside the map is nothing", () => {
  const map = layout(fleet(40), 1000, 500);
  map.cells.forEach((cell, at) => cell.tiles.forEach((tile, gpu) => {
    assert.deepEqual(hit(map, tile.x + map.tile / 2, tile.y + map.tile / 2), { cell: at, gpu });
  }));
  assert.equal(hit(map, -50, -50), null);
});

test("arrows to the right pass every GPU once, and back again", () => {
  const map = layout(fleet(9), 700, 500);
  let place = neighbour(map, null, "ArrowRight");
  const seen = new Set();
  for (let step = 0; step < 9 * 8; step += 1) {
    seen.add(`${place.cell}/${place.gpu}`);
    place = neighbour(map, place, "ArrowRight");
  }
  assert.equal(seen.size, 72);
  assert.deepEqual(place, neighbour(map, place, "End"));
  for (let step = 0; step < 100; step += 1) place = neighbour(map, place, "ArrowLeft");
  assert.deepEqual(place, { cell: 0, gpu: 0 });
});

test("down and up lead to a node below and above, and stay at the edges", () => {
  const map = layout(fleet(64), 700, 500);
  const down = neighbour(map, { cell: 0, gpu: 3 }, "ArrowDown");
  assert.ok(map.cells[down.cell].y > map.cells[0].y);
  assert.deepEqual(neighbour(map, { cell: 0, gpu: 3 }, "ArrowUp"), { cell: 0, gpu: 3 });
  assert.equal(neighbour(layout([], 700, 500), null, "ArrowDown"), null);
});

test("of ten thousand rows only those in sight are drawn, at every place", () => {
  for (const scroll of [0, 51, 5200, 519000, 520000]) {
    const { first, end } = visible(scroll, 600, 52, 10000);
    assert.ok(first * 52 <= scroll && end * 52 >= Math.min(520000, scroll + 600) && end - first < 50 && end <= 10000);
  }
  assert.deepEqual(visible(0, 600, 52, 0), { first: 0, end: 0 });
});

test("keys move a row within the list, and the list follows it", () => {
  assert.equal(moved("ArrowDown", -1, 5, 10), 0);
  assert.equal(moved("PageDown", 3, 5, 10), 4);
  assert.equal(moved("Home", 3, 5, 10), 0);
  assert.equal(moved("x", 3, 5, 10), 3);
  assert.equal(moved("End", -1, 0, 10), -1);
  assert.equal(scrolledTo(20, 0, 520, 52), 572);
  assert.equal(scrolledTo(2, 300, 520, 52), 104);
  assert.equal(scrolledTo(3, 0, 520, 52), 0);
});
