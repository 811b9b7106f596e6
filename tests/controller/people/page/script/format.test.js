import assert from "node:assert/strict";
import { test } from "node:test";
import { absolute, asked, count, duration, memory, percent, range, recorded, relative } from "./pure/format.js";

test("amounts have their unit, and what is unknown is a dash", () => {
  assert.equal(count(12345), "12,345");
  assert.equal(percent(0.714), "71 %");
  assert.equal(memory(81920), "80 GiB");
  assert.equal(memory(512), "512 MiB");
  for (const unknown of [count(null), percent(undefined), memory(NaN), duration(null)]) assert.equal(unknown, "–");
});

test("a length of time is told in two units, minutes alone from ten on", () => {
  const told = [0, 8, 60, 200, 740, 3600, 4000, 90000, 86400].map(duration);
  assert.deepEqual(told, ["0 s", "8 s", "1 min", "3 min 20 s", "12 min", "1 h", "1 h 6 min", "1 d 1 h", "1 d"]);
});

test("a time reads from now in its largest unit, before and after", () => {
  assert.equal(relative(1000, 1000.4), "now");
  assert.equal(relative(1000, 1190), "3 min ago");
  assert.equal(relative(9000, 1000), "in 2 h");
  assert.equal(relative(null, 1000), "–");
});

test("the absolute time names its zone", () => {
  assert.match(absolute(1790000000), /^2026-09-2\d \d\d:\d\d:\d\d UTC([+-]\d\d:\d\d)?$/);
  assert.equal(absolute(undefined), "");
});

test("an expected start is a range in whole units, open where it may never be", () => {
  assert.equal(range(600, 7200), "10 min to 2 h");
  assert.equal(range(0, 10), "at once");
  assert.equal(range(10, 3600), "now to 1 h");
  assert.equal(range(3600, 3700), "about 1 h");
  assert.equal(range(86400, null), "1 d or later");
  assert.equal(range(null, null), "");
});

test("devices come before cores, and bytes are told as memory", () => {
  assert.equal(asked({ cpu: 64, "nvidia.com/gpu": 16, memory: 2 ** 33 }), "16 gpu, 64 cpu, 8 GiB memory");
});

test("a record says since when there is one, and that it has begun where nothing is in it yet", () => {
  assert.match(recorded(1790000000), /^Recorded by the controller since 2026-09-2\d \d\d:\d\d:\d\d UTC/);
  assert.match(recorded(null), /^The controller has begun to record/);
});
