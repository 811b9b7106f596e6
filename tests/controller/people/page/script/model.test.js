import assert from "node:assert/strict";
import { test } from "node:test";
import { chart, niceTop } from "./pure/chart.js";
import { fabric, linkWords } from "./pure/fabric.js";
import { called, gpuOf, holderName, jobsOf, nodeOf, ofResource, queueOfHolder, resourcesOf } from "./pure/model.js";
import { namespaceIn } from "./pure/manifest.js";
import { formatRoute, parseRoute } from "./pure/route.js";
import { heldShare, isOut, isUsed, matches, STATES, totals, wordsOf } from "./pure/tiles.js";
import { timeline } from "./pure/timeline.js";
import { cohortOf, cohortsAbove, quotaBar, treeRows } from "./pure/tree.js";
import { NODES, QUEUES, cohortLike, gpuLike, holderLike, linkLike, nodeLike, partLike, queueLike, quotaLike, recordLike } from "./recorded.js";

const holder = (name, takes = 1) => holderLike({ pod: `${name}-0`, workload: name, hidden: false, takes });
const part = (name, size, ...holders) => partLike({ name, size, health: "Healthy", holders });
const unmade = (parts, more = {}) => gpuLike({ index: 0, uuid: "u", product: "H100", health: "Healthy", reasons: [], busy: null, parts, ...more });
const gpu = (parts, more = {}) => gpuOf(unmade(parts, more));
const whole = (...holders) => [part("whole", 1, ...holders)];
const row = (more = {}) => nodeLike({ name: "n-1", ready: true, cordoned: false, taints: [], levels: ["b-1", "r-1", "n-1"], gpus: [], linkGroups: [], ...more });
const LEVELS = ["x/block", "x/rack", "kubernetes.io/hostname"];

test("every address leads to a view and back, whatever is in its names", () => {
  for (const name of ["a", "a/b", "a%b", "ü?&=#", "<script>", "a b+c"]) {
    const fragment = formatRoute(["queues", name], { q: name, by: "", none: null });
    assert.deepEqual(parseRoute(fragment), { parts: ["queues", name], query: { q: name } });
  }
  assert.deepEqual(parseRoute(""), { parts: ["fleet"], query: {} });
  assert.deepEqual(parseRoute("#/x/%E0%A4%A").parts, ["x", "%E0%A4%A"]);
});

test("each GPU is in one state, as the server says, and counted once", () => {
  const states = NODES.flatMap((node) => node.gpus.map((each) => each.state));
  assert.ok(states.every((state) => state in STATES), `${new Set(states)}`);
  const sums = totals(NODES.map((node) => nodeOf(node, LEVELS)));
  assert.equal(Object.values(sums.byState).reduce((a, b) => a + b), states.length);
  assert.deepEqual(Object.keys(STATES).filter((state) => isUsed({ state })), ["held", "idle"]);
  assert.deepEqual(Object.keys(STATES).filter((state) => isOut({ state })), ["watched", "fault"]);
});

test("shares of the parts of a GPU add up to what is given out", () => {
  const shared = gpu([part("share", 4, holder("a/b"), holder("a/c", 2))]);
  assert.deepEqual(shared.parts.map((part) => part.share), [0.25, 0.5, 0.25]);
  assert.equal(heldShare(shared), 0.75);
  const percents = gpu([part("percent", 100, holder("a/b", 30))]);
  assert.equal(heldShare(percents), 0.3);
  const mig = gpu([part("3g.40gb", 1, holder("a/b")), part("1g.10gb", 1)]);
  assert.equal(Math.round(heldShare(mig) * 7), 3);
  assert.equal(heldShare(gpu(whole(holder("a/b")))), 1);
});

test("sums of the fleet count each GPU once and take the mean of those that are measured", () => {
  const node = nodeOf(row({ gpus: [unmade(whole(holder("a/b")), { busy: 0.5 }), unmade(whole(), { index: 1 })] }), LEVELS);
  const sums = totals([node, nodeOf(row({ ready: false }), LEVELS)]);
  assert.equal(sums.gpus, 2);
  assert.equal(Object.values(sums.byState).reduce((a, b) => a + b), 2);
  assert.deepEqual([sums.busy, sums.measured, sums.unready], [0.5, 1, 1]);
});

test("a filter wants all its words, in a name, a place or a holder", () => {
  const node = nodeOf(row({ gpus: [unmade(whole(holder("team-a/bert")), { reasons: ["XID 79"] })] }), LEVELS);
  for (const [text, wanted] of [["", true], ["R-1 bert", true], ["xid", true], ["bert r-2", false]]) assert.equal(matches(node, wordsOf(text)), wanted, text);
  assert.deepEqual([node.block, node.rack], ["b-1", "r-1"]);
});

test("a holder without a name has its queue in what is said of it", () => {
  assert.equal(queueOfHolder({ name: "a workload of queue research" }, new Map()), "research");
  assert.equal(queueOfHolder({ name: "a/b", workload: "a/b" }, new Map([["a/b", "vision"]])), "vision");
  assert.equal(queueOfHolder({ name: "a/b", workload: null }, new Map()), "");
  const jobs = jobsOf(new Map([["k", { workload: "a/job-train-1c2d", job: "train", hidden: false }], ["h", { workload: "a/x", job: "y", hidden: true }]]));
  assert.deepEqual([...jobs], [["a/job-train-1c2d", "train"]]);
  assert.equal(holderName({ name: "a/job-train-1c2d", workload: "a/job-train-1c2d", pod: "a/train-0" }, jobs), "train");
  assert.equal(holderName({ name: "a/train-0", workload: null, pod: "a/train-0" }, jobs), "train-0");
});

test("the server's cohorts and queues are one tree, each below its own cohort", () => {
  const tree = treeRows(QUEUES);
  assert.equal(tree.length, QUEUES.length);
  assert.deepEqual(tree.slice(0, 3).map((each) => `${each.depth} ${each.name}`), ["0 all", "1 online", "2 production"]);
  for (const each of tree) assert.deepEqual([each.depth, cohortOf(each)], [cohortsAbove(each, tree).length, cohortsAbove(each, tree).at(-1) ?? ""], each.name);
});

test("amounts of a cohort are the sums of what stands below it", () => {
  for (const above of QUEUES.filter((each) => each.kind === "cohort")) {
    const members = QUEUES.filter((each) => cohortOf(each) === above.name);
    for (const { resource, nominal: own } of above.resources) {
      const whole = ofResource(above, resource);
      assert.equal(whole.own, own, "what a cohort has beside its members is named");
      for (const [field, ownPart] of [["nominal", own], ["used", 0]]) {
        const sum = members.reduce((total, each) => total + ofResource(each, resource)[field], ownPart);
        assert.equal(whole[field], sum, `${above.name}: ${field} of ${resource}`);
      }
    }
  }
});

test("cohorts stand before what is in them, made ones too, and a circle ends", () => {
  const queue = (name, parent) => queueLike({ name, parent });
  const cohort = (name, parent) => cohortLike({ name, parent });
  const rows = treeRows([queue("q2", "cohort/c"), queue("q1", "cohort/c"), queue("alone", null), cohort("d", "cohort/c")]);
  assert.deepEqual(rows.map((each) => `${each.depth} ${each.name}`), ["0 c", "1 d", "1 q1", "1 q2", "0 alone"]);
  const circle = treeRows([cohort("a", "cohort/b"), cohort("b", "cohort/a"), queue("q", "cohort/b")]);
  assert.deepEqual(circle.map((each) => each.name).sort(), ["a", "b", "q"]);
  assert.deepEqual(cohortsAbove(circle.find((each) => each.name === "q"), circle), ["a", "b"]);
});

test("a quota's bar never leaves its frame, and what is beyond the quota is borrowed", () => {
  for (const [nominal, used, guarantee] of [[16, 20, 0], [16, 4, 8], [0, 0, null], [0, 5, null], [8, 8, 8]]) {
    const bar = quotaBar(nominal, used, guarantee);
    assert.ok(bar.own + bar.borrowed <= 1 + 1e-9 && bar.nominal <= 1, `${nominal} ${used}`);
  }
  assert.deepEqual(quotaBar(10, 20), { own: 0.5, borrowed: 0.5, nominal: 0.5, guarantee: null });
});

test("what is free of a shared GPU is said once", () => {
  const { parts } = gpu([part("share", 4, holder("a/b"))]);
  assert.deepEqual(parts.map((each) => [each.label, each.free ?? false]), [["1 of 4", false], ["3 of 4 free", true]]);
});

test("what a queue has is the sum of its flavors, and of a cohort the quota below it", () => {
  const parts = [["a", 8, 8, 3], ["b", 4, 16, 1]].map(([flavor, nominal, subtree, used]) => quotaLike({ flavor, resource: "nvidia.com/gpu", nominal, subtree, used }));
  assert.equal(ofResource(queueLike({ resources: parts }), "nvidia.com/gpu").nominal, 12);
  assert.equal(ofResource(cohortLike({ resources: parts }), "nvidia.com/gpu").nominal, 24);
  assert.equal(ofResource(queueLike({ resources: parts }), "cpu").known, false);
  assert.deepEqual([cohortLike, queueLike].map((like) => ofResource(like({ resources: parts }), "nvidia.com/gpu").own), [12, 0]);
  assert.deepEqual(resourcesOf(QUEUES), ["nvidia.com/gpu", "cpu"]);
});

test("the same decision again and again is one step of the story, the newest first", () => {
  const record = (at, sentence) => recordLike({ at, sentence });
  const steps = timeline({ conditions: [{ type: "Admitted", status: "True", lastTransitionTime: "1970-01-01T00:02:00Z" }], story: [record(10, "x"), record(20, "x"), record(30, "y"), record(40, "x")] });
  assert.deepEqual(steps.map((step) => [step.at, step.times]), [[120, undefined], [40, 1], [30, 1], [10, 2]]);
  assert.equal(steps[0].kind, "good");
});

test("the namespace of a manifest is seen in its metadata, and nowhere else", () => {
  const block = (metadata) => `kind: Job\nmetadata:\n${metadata}spec:\n  namespace: no\n`;
  for (const [text, wanted] of [
    [block("  name: a\n  namespace: team\n"), "team"], [block("  labels:\n    namespace: no\n"), null], [block("  # note\n\n  namespace: 'team-b'\n"), "team-b"],
    ["metadata: {name: a, namespace: team}\nspec: {}", "team"], ['{"kind": "Job", "metadata": {"namespace": "team"}}', "team"], ["metadata: {name: a}\nspec: {namespace: no}", null], ["", null],
  ]) assert.equal(namespaceIn(text), wanted, text);
});

test("links are drawn between GPUs that exist, and told in words", () => {
  const drawn = fabric([0, 3].map((index) => gpuLike({ index })), [[3, "NV18"], [9, "NV18"], [3, "SYS"]].map(([b, kind]) => linkLike({ a: 0, b, kind })), 300);
  assert.deepEqual(drawn.lines.map((line) => [line.from.index, line.to.index, line.nvlinks]), [[0, 3, 18]]);
  assert.equal(linkWords("NV1"), "1 NVLink");
  assert.equal(linkWords("PIX"), "PCIe by one PCIe switch");
});

test("a series with gaps is drawn in pieces under a round top", () => {
  const drawn = chart([{ name: "used", points: [[0, 1], [1, NaN], [2, 3], [3, 4]] }], 300, 100);
  assert.equal(drawn.lines[0].d.match(/M/g).length, 2);
  assert.equal(drawn.top, 4);
  assert.deepEqual([0, 3, 70, 900, 1001].map(niceTop), [1, 4, 80, 1000, 2000]);
  assert.deepEqual(chart([{ name: "used", points: [] }], 300, 100).lines, []);
});

test("a sentence calls workloads by the names of their jobs, whether they run or wait", () => {
  const rows = (key, job, hidden = false) => new Map([[key, { workload: key, job, hidden }]]);
  const jobs = jobsOf(rows("research/job-llm-4f1c2", "llm"), rows("research/job-evaluation-665e1", "evaluation"), rows("x/job-y-1", "y", true));
  assert.equal(called("When research/job-llm-4f1c2 (8 nvidia.com/gpu) ends, after research/job-evaluation-665e1.", jobs), "When research/llm (8 nvidia.com/gpu) ends, after research/evaluation.");
  assert.equal(called("x/job-y-1 and research/job-llm-4f1c", jobs), "x/job-y-1 and research/job-llm-4f1c");
  assert.equal(called(undefined, jobs), "");
});
