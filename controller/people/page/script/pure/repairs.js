/** The repair of one GPU as a time line, from its fault to what comes next. Pure. */

import { words } from "./timeline.js";

const KINDS = { RebootWanted: "bad", Retired: "bad", Probation: "good" };

/**
 * Steps, the first one first: {at, kind, title, text}; `kind` as in `timeline`, `at` null for what is to come.
 *
 * `repair`: one of an answer of `page/nodes/NAME`. Steps that it does not tell of are left out, not guessed.
 */
export function repairSteps(repair) {
  const steps = [{ at: repair.faultSince, kind: "bad", title: "Fault", text: repair.cause }];
  if (repair.granted !== null) steps.push({ at: repair.granted, kind: "good", title: `${words(repair.asks)} granted`, text: "" });
  const attempt = repair.attempt ? `, attempt ${repair.attempt}` : "";
  steps.push({ at: repair.since, kind: KINDS[repair.state] ?? "plain", title: `${words(repair.state)}${attempt}`, text: repair.note });
  steps.sort((a, b) => (a.at ?? 0) - (b.at ?? 0));
  if (repair.asks && repair.granted === null) steps.push({ at: null, kind: "wait", title: `Asks for a ${repair.asks}`, text: "The controller has not granted it." });
  if (repair.next) steps.push({ at: null, kind: "wait", title: "Next", text: repair.next });
  return steps.filter((step) => step.at !== null || step.kind === "wait");
}
