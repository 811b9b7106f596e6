"""Runners of the suites about pods when they are created, lose their gates, and lose their Workload."""

import json
from collections.abc import Mapping
from typing import Any, cast

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import QUEUED_PODS
from controller.cluster.watching.ledger import Ledger
from controller.cluster.webhooks.pods import patch
from controller.jobs.framework import names
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import ADMISSION_GATE, ROLE_HASH, SeenPod
from controller.jobs.framework.raw import JobError, Json, merged
from controller.objects.decode import decode
from controller.objects.meta import LabelSelector
from controller.objects.workload import Workload
from controller.reconcile.placing.gateremovals_shell import GateRemovals
from controller.reconcile.pods.actions_shell import PodActions
from controller.reconcile.pods.groupobjects_shell import GroupObjects
from controller.reconcile.pods.reconcile_shell import PodController, read_pod
from controller.reconcile.pods.start import places
from kube.clock import Clock
from kube.reading.entries import CachedObject, ObjectKey
from kube.reading.reflector import Changed
from tests.conformance.kueuejobs.podgroups import now_s, pods_world, with_given_uids
from tests.conformance.kueuejobs.runners_defaults import applied
from tests.conformance.kueuejobs.runners_pods import pods_json
from tests.conformance.kueuejobs.runners_podsets import filled
from tests.conformance.kueuejobs.world import At, api_objects, selector
from tests.conformance.replay import Case, Difference, first_difference, runner


def _namespace_labels(case: Case) -> Mapping[str, str]:
    name = case.input["pod"]["metadata"].get("namespace")
    listed = [*(case.input.get("initObjects") or ()), *api_objects(case)]
    found = (one for one in listed if one["kind"] == "Namespace" and one["metadata"]["name"] == name)
    return next((one["metadata"].get("labels") or {} for one in found), {})


def _is_selected(case: Case) -> bool:
    """What the selectors of the webhook's configuration, or of the policies, leave to it."""
    given, labels = case.input, case.input["pod"]["metadata"].get("labels") or {}
    managed = given.get("managedJobsNamespaceSelector") or {}
    if "labelSelector" in managed and not selector(managed["labelSelector"]).matches(_namespace_labels(case)):
        return False
    for key, found in (("namespaceSelector", _namespace_labels(case)), ("podSelector", labels)):
        if given.get(key) is not None and not decode(given[key], LabelSelector).matches(found):
            return False
    return True


def _created(pod: Json) -> Any:
    """Less what is not written: roles follow from what pods ask for, and one gate holds a pod until it has a place."""
    spec, noted = dict(pod["spec"]), dict(pod["metadata"].get("annotations") or {})
    noted.pop(ROLE_HASH, None)
    spec["schedulingGates"] = [
        gate for gate in spec.get("schedulingGates") or () if gate["name"] != names.TOPOLOGY_GATE
    ]
    return filled({**pod, "metadata": {**pod["metadata"], "annotations": noted}, "spec": spec})


@runner("jobs-pod-TestDefault")
def created(case: Case) -> Difference | None:
    pod = case.input["pod"]
    managed = bool(case.input.get("manageJobsWithoutQueueName"))
    operations = patch(pod, manage_without_queue_name=managed) if _is_selected(case) else []
    error = bool(case.expect.get("wantErr"))
    wanted = pod if error else case.expect["want"]
    return first_difference(error, False, "error") or first_difference(
        _created(wanted), _created(applied(pod, operations))
    )


@runner("jobs-podutil-TestGate")
def gated(case: Case) -> Difference | None:
    """The gate that the case speaks of is ours, and the pod is in a queue."""
    given, name = case.input["pod"], case.input["gateName"]

    def gates(pod: Json, now: str, then: str) -> list[str]:
        listed = (gate["name"] for gate in pod["spec"].get("schedulingGates") or ())
        return sorted(then if gate == now else gate for gate in listed)

    pod = merged(given, {"metadata": {"labels": {names.QUEUE_NAME: "q"}}})
    pod["spec"]["schedulingGates"] = [{"name": gate} for gate in gates(given, name, ADMISSION_GATE)]
    after = applied(pod, patch(pod, manage_without_queue_name=False))
    return first_difference(gates(case.expect["wantPod"], "", ""), gates(after, ADMISSION_GATE, name)) or (
        first_difference(case.expect["want"], gates(after, "", "") != gates(pod, "", ""), "added")
    )


@runner("jobs-pod-TestRun")
def started(case: Case) -> Difference | None:
    """What was assigned to pod sets that the workload does not have starts nothing."""
    assigned = [
        {"name": one.get("name") or ("main" if not index else f"other-{index}"), "count": one.get("count")}
        for index, one in enumerate(case.input["runInfo"] or ())
    ]
    status = {"admission": {"clusterQueue": "cq", "podSetAssignments": assigned}}
    workload = SeenWorkload.of(merged(case.input["wl"], {"status": status}))
    pods = [SeenPod(merged(raw, {"metadata": {"uid": raw["metadata"]["name"]}})) for raw in case.input["pods"]]
    try:
        places(workload, pods, single=True, gang=True, minimum=None)
    except JobError:
        return first_difference(bool(case.expect["wantErr"]), True, "error")
    return first_difference(bool(case.expect["wantErr"]), False, "error")


@runner("jobs-pod-TestWorkloadHandlerDelete")
def workload_is_gone(case: Case) -> Difference | None:
    none: Any = None
    actions = PodActions(none, none, none, none)
    controller = PodController(
        none,
        none,
        none,
        none,
        actions,
        none,
        none,
        (),
        pod_groups=GroupObjects(none, none, (), none, none, none, clock=none, written=()),
    )
    controller.workload(decode(case.input["workload"], Workload), gone=True)
    found = [
        {"namespacedName": f"group/{key.namespace}/{key.group}" if key.group else f"{key.namespace}/{key.pod}"}
        for key in controller._queue._waiting
    ]
    return first_difference(case.expect["wantRequests"] or [], found)


@runner("jobs-pod-TestRecordPodSchedulingGateRemovalSeconds")
def gate_removals(case: Case) -> Difference | None:
    """Measured on what a watch shows of the pods before and after a step."""
    state = pods_world(case)
    before = dict(state.pods)
    ledger, found = Ledger(), []
    for raw in state.workloads.values():
        ledger.observe(decode(raw, Workload))
    for action in state.next():
        state.carry_out(action)
    removals = GateRemovals(ledger, cast("Clock", At(now_s(case))), lambda *one: found.append(one))
    for name, raw in before.items():
        key = ObjectKey(raw["metadata"]["namespace"], name)
        removals.hear(ObjectChange(QUEUED_PODS, Changed(key, _cached(raw), _cached(state.pods[name]))))
    wanted = {"count": case.expect["wantMetricsCount"], "seconds": float(case.expect["wantMetricsSeconds"])}
    return (
        first_difference(pods_json(case.expect["wantPods"]), pods_json(list(state.pods.values())), "pods")
        or first_difference(wanted, {"count": len(found), "seconds": sum(one[3] for one in found)})
        or first_difference([bool(case.input["isGroup"])] * len(found), [one[2] for one in found], "isGroup")
    )


def _cached(raw: Json) -> Any:
    return CachedObject(read_pod(json.dumps(with_given_uids(raw)).encode()), raw["metadata"]["uid"], "1")
