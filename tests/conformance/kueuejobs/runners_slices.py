"""Runners of the suites about elastic jobs: which slice runs, and which of its pods lose their gate."""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.jobs.framework import compose, names
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.raw import Json
from controller.objects.decode import decode
from controller.objects.workload import Workload
from controller.reconcile.jobs.actions_shell import pods_to_ungate
from controller.reconcile.jobs.elastic import (
    Settled,
    granted,
    in_order,
    latest_active,
    may_run,
    scaled_down,
    settle,
    surviving,
)
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.state.intake import replaced_slice
from tests.conformance.kueuejobs.world import api_objects
from tests.conformance.replay import Case, Difference, first_difference, runner


def seen(listed: Sequence[Json] | None) -> list[SeenWorkload]:
    return [SeenWorkload.of(raw) for raw in listed or ()]


def is_slice(workload: SeenWorkload) -> bool:
    return workload.typed.metadata.annotations.get(names.ELASTIC_JOB) == "true"


@runner("jobs-elasticjobs-TestShouldUngate")
def runs(case: Case) -> Difference | None:
    (workload,) = seen([case.input["workload"]])
    return first_difference(case.expect["want"], is_slice(workload) and may_run(workload))


@runner("jobs-elasticjobs-TestReconcile")
def ungated(case: Case) -> Difference | None:
    """The pods that have lost their gate after one step."""
    there = {raw["metadata"]["name"]: raw for raw in case.input["pods"] or ()}
    there |= {raw["metadata"]["name"]: raw for raw in api_objects(case) if raw["kind"] == "Pod"}
    counts = granted(_eligible(case, [one for one in seen(case.input["workloads"]) if is_slice(one)]))
    free = {pod["metadata"]["name"] for pod in pods_to_ungate(list(there.values()), names.ELASTIC_JOB, counts)}
    gates = {
        name: [gate for gate in _gates(raw) if name not in free or gate != names.ELASTIC_JOB]
        for name, raw in there.items()
    }
    wanted = {raw["metadata"]["name"]: _gates(raw) for raw in case.expect["wantPods"] or ()}
    return first_difference(wanted, gates)


def _eligible(case: Case, slices: list[SeenWorkload]) -> list[SeenWorkload]:
    """The slice that is looked at where pods may run by it, else all: ours looks at the newest of a job's."""
    asked = (case.input.get("reconcileKey") or "").rpartition("/")[2]
    named = asked or next((raw["metadata"]["name"] for raw in case.input["workloads"] or ()), "")
    own = [one for one in slices if one.name == named and may_run(one)]
    return own or slices


def _gates(pod: Mapping[str, Any]) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


@runner("jobs-workloadslicing-TestFindLatestActiveWorkload")
def latest(case: Case) -> Difference | None:
    found = latest_active(seen(case.input["workloads"]))
    return first_difference(case.expect["want"] or "", "" if found is None else found.name)


@runner("jobs-workloadslicing-TestFindNotFinishedWorkloads")
def unfinished(case: Case) -> Difference | None:
    args = case.input["args"]
    uid = args["jobObject"]["metadata"]["uid"]
    mine = [
        one
        for one in seen(args["clnt"].get("clientObjects"))
        if not one.is_finished and any(owner.uid == uid for owner in one.typed.metadata.owner_references)
    ]
    error = bool(case.expect.get("wantErr"))
    wanted = [one["metadata"]["name"] for one in case.expect.get("want") or ()]
    return first_difference(error, False, "error") or first_difference(wanted, [one.name for one in in_order(mine)])


@runner("jobs-workloadslicing-TestPreemptibleSliceKey")
def replaced(case: Case) -> Difference | None:
    workload = decode(case.input["args"]["wl"], Workload)
    return first_difference(case.expect["want"], replaced_slice(workload, EngineConfig(gates=case.gates)))


@runner("jobs-workloadslicing-TestScaledDown")
def smaller(case: Case) -> Difference | None:
    args = case.input["args"]
    return first_difference(case.expect["want"], scaled_down(args["oldCounts"] or {}, args["newCounts"] or {}))


@runner("jobs-workloadslicing-TestNormalizeActiveSlices")
def survivors(case: Case) -> Difference | None:
    """The slice that goes on, and the one that holds the quota meanwhile where that is another."""
    holder, survivor = surviving(seen(case.input["workloads"]))
    wanted = case.expect["want"]
    kept = holder if holder is not None and holder is not survivor else None
    return (
        first_difference(bool(wanted.get("error")), False, "error")
        or first_difference(wanted.get("survivor"), survivor and survivor.name, "survivor")
        or first_difference(wanted.get("keptAdmitted"), kept and kept.name, "kept")
    )


@runner("jobs-workloadslicing-TestEnsureWorkloadSlices")
def ensured(case: Case) -> Difference | None:
    """The slice that asks for the job's size afterwards, its pod sets, and whether slices and job are comparable."""
    args = case.input["args"]
    listed = [raw for raw in args["clnt"].get("clientObjects") or () if _belongs(raw, args)]
    live = [one for one in seen(listed) if not one.is_finished]
    asked = {one["name"]: one.get("count", 0) for one in args.get("jobPodSets") or ()}
    settled = settle(live, asked)
    wanted = case.expect["want"]
    return (
        first_difference(bool(wanted.get("error")), False, "error")
        or first_difference(wanted["compatible"], settled.comparable, "compatible")
        or first_difference(_shown(wanted.get("workload")), _shown(_after(settled, asked)), "workload")
    )


def _belongs(raw: Json, args: Mapping[str, Any]) -> bool:
    """Of the API's objects, the job's Workloads: their owner has its kind and name, as in Kueue's index."""
    job = (args["jobObjectGVK"]["Kind"], args["jobObject"]["metadata"]["name"])
    owners = raw["metadata"].get("ownerReferences") or ()
    return raw["kind"] == "Workload" and any((one["kind"], one["name"]) == job for one in owners)


def _after(settled: Settled, asked: dict[str, int]) -> Json | None:
    slice_ = settled.going_on
    if slice_ is None or not settled.resized:
        return None if slice_ is None else slice_.raw
    return {**slice_.raw, "spec": {**slice_.raw["spec"], **compose.with_counts(slice_, asked)}}


def _shown(raw: Json | None) -> Json | None:
    return None if raw is None else {"name": raw["metadata"]["name"], "podSets": raw["spec"].get("podSets")}
