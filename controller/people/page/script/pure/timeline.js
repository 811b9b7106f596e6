/** A workload's story as one time line: decisions and conditions by their time. Pure. */

/**
 * Steps of a time line, the newest first: {at, kind, title, text, details}. `kind`: good, bad, wait or plain.
 *
 * `workload`: an answer of `page/workloads/NAMESPACE/NAME`. The same decision again and again is one step with `times`.
 */
export function timeline(workload) {
  const steps = [...(workload.conditions ?? []).map(ofCondition), ...folded(workload.story ?? [])].filter((step) => step.at !== null);
  return steps.sort((a, b) => b.at - a.at);
}

const GOOD = new Set(["Admitted", "QuotaReserved", "PodsReady", "Finished"]);
const BAD = new Set(["Evicted", "Preempted", "DeactivationTarget"]);

function ofCondition(condition) {
  const on = condition.status === "True";
  const kind = BAD.has(condition.type) && on ? "bad" : GOOD.has(condition.type) ? (on ? "good" : "wait") : "plain";
  const at = Date.parse(condition.lastTransitionTime ?? "") / 1000;
  const title = on ? words(condition.type) : `Not ${words(condition.type).toLowerCase()}`;
  return { at: Number.isNaN(at) ? null : at, kind, title, text: condition.message ?? "", details: [], reason: condition.reason ?? "" };
}

function folded(story) {
  const steps = [];
  for (const record of story) {
    const last = steps.at(-1);
    if (last && last.text === record.sentence && !record.preempts?.length) {
      last.times += 1;
      last.until = record.at;
      continue;
    }
    steps.push({ at: record.at, until: record.at, kind: kindOf(record), title: "Tried", text: record.sentence, details: [...(record.details ?? [])], reason: record.reason, times: 1, preempts: record.preempts ?? [] });
  }
  return steps;
}

function kindOf(record) {
  if (record.preempts?.length) return "bad";
  return record.rule === "fits" || record.rule === "placed" ? "good" : "wait";
}

/** `QuotaReserved` as `Quota reserved`. */
export function words(camel) {
  const text = String(camel).replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
  return text.charAt(0).toUpperCase() + text.slice(1);
}
