import assert from "node:assert/strict";
import { test } from "node:test";
import { repairSteps } from "./pure/repairs.js";

const draining = { gpu: 3, uuid: "u", state: "Draining", since: 20, faultSince: 10, attempt: 0, cause: "XID 119", asks: "", granted: null, note: "held by ml/a", next: "it is reset once nobody has it" };
const titles = (repair) => repairSteps(repair).map((step) => step.title);

test("a repair goes from its fault by its state to what comes next", () => {
  assert.deepEqual(repairSteps(draining), [
    { at: 10, kind: "bad", title: "Fault", text: "XID 119" },
    { at: 20, kind: "plain", title: "Draining", text: "held by ml/a" },
    { at: null, kind: "wait", title: "Next", text: "it is reset once nobody has it" },
  ]);
});

test("an ask waits for its grant, and a grant stands at its time", () => {
  assert.deepEqual(titles({ ...draining, asks: "reset" }), ["Fault", "Draining", "Asks for a reset", "Next"]);
  assert.deepEqual(titles({ ...draining, asks: "reset", granted: 25 }), ["Fault", "Draining", "Reset granted", "Next"]);
});

test("attempts are counted, and states that need a person look so", () => {
  const wanted = repairSteps({ ...draining, state: "RebootWanted", attempt: 2, next: "" });
  assert.deepEqual(wanted.map((step) => [step.title, step.kind]), [["Fault", "bad"], ["Reboot wanted, attempt 2", "bad"]]);
});

test("what the agent does not tell is left out", () => {
  assert.deepEqual(titles({ ...draining, faultSince: null, next: "" }), ["Draining"]);
  assert.deepEqual(titles({ ...draining, faultSince: null, since: null, next: "" }), []);
});
