"""Runners of the suites about pods on nodes: lost nodes, scheduling gates, and what pods beside the queues take."""

import asyncio
import copy
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import NODES, PODS
from controller.cluster.watching.ledger import Ledger, LedgerEntry
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites
from controller.jobs.framework.raw import Json
from controller.objects.core import Node, Pod
from controller.objects.decode import decode
from controller.objects.meta import find_condition
from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.objects.placeencoding import decode as domains
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import Workload
from controller.reconcile.failures.nodefailures_shell import NodeFailureController
from controller.reconcile.placing.gateremovals_shell import GateRemovals
from controller.reconcile.placing.ungating_shell import TopologyUngater
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.topology.nodes import NodeCache, asks_for_topology, placed_here
from kube.clock import Clock
from kube.reading.entries import CachedObject, ObjectKey
from kube.reading.reflector import Added, Changed
from kube.resources import Resource
from kube.writing.writes import Outcome, Write, Written
from tests.conformance.kueue.runners_workload import duration_s
from tests.conformance.kueuejobs.runners_core import now_s
from tests.conformance.kueuejobs.runners_podsets import filled
from tests.conformance.kueuejobs.world import At
from tests.conformance.replay import Case, Difference, first_difference, runner

_TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"


def added(resource: Resource, given: Any) -> ObjectChange:
    meta = given.metadata
    return ObjectChange(resource, Added(ObjectKey(meta.namespace, meta.name), _cached(given)))


def _cached(given: Any) -> CachedObject[Any]:
    return CachedObject(given, given.metadata.uid, given.metadata.resource_version)


# -- lost nodes --------------------------------------------------------------------------------------------------------


class _Statuses:
    """Stands for the API server behind ``WorkloadWrites``: takes each status in, or refuses all."""

    def __init__(self, ledger: Ledger, *, refuses: bool) -> None:
        self._ledger = ledger
        self._refuses = refuses
        self._versions = itertools.count(2)

    def status(
        self, entry: LedgerEntry, after: Workload, then: Callable[[Result, str], None], _failpoint: object
    ) -> None:
        if self._refuses:
            then(Result.REFUSED, "the case says so")
            return
        key = next(key for key in self._ledger if self._ledger.get(key) is entry)
        self._ledger.wrote(key, after, str(next(self._versions)))
        then(Result.WRITTEN, "")


class _Lost:
    """A node failure controller that knows the case's objects, of nodes those that it is asked about.

    Kueue looks at one node at a time. The others that a Workload is assigned to are as its status says.
    """

    def __init__(self, case: Case, objects: Sequence[Json], asked: frozenset[str]) -> None:
        engine = Engine(EngineConfig(gates=case.gates))
        self.ledger = Ledger()
        self.failed: list[str] = []
        writes = _Statuses(self.ledger, refuses=bool(case.input.get("injectPatchError")))
        self.now_s = now_s(case)
        self.controller = NodeFailureController(
            engine,
            self.ledger,
            cast("WorkloadWrites", writes),
            self._put,
            clock=cast("Clock", At(self.now_s)),
            ready=lambda: True,
            tell=lambda _events: None,
        )
        for raw in objects:
            if raw["kind"] == "ResourceFlavor":
                engine.put(decode(raw, ResourceFlavor), self.now_s)
            elif raw["kind"] == "Node" and raw["metadata"]["name"] in asked:
                self.controller.hear(added(NODES, decode(raw, Node)))
            elif raw["kind"] == "Pod":
                self.controller.hear(added(PODS, decode(raw, Pod)))
        for raw in objects:
            if raw["kind"] == "Workload":
                workload = decode(raw, Workload)
                self.ledger.observe(workload)
                self._told_well(workload, asked)
                self.controller.workload(workload, False)

    def _told_well(self, workload: Workload, asked: frozenset[str]) -> None:
        named = {node.name for node in workload.status.unhealthy_nodes}
        for host in sorted(_hosts(workload) - asked - named):
            ready = {"type": "Ready", "status": "True"}
            node = {"metadata": {"name": host, "labels": {HOSTNAME_LABEL: host}}, "status": {"conditions": [ready]}}
            self.controller.hear(added(NODES, decode({"apiVersion": "v1", "kind": "Node", **node}, Node)))

    def _put(self, write: Write[Any]) -> "asyncio.Future[Outcome[Any]]":
        assert write.body["status"]["phase"] == "Failed"
        self.failed.append(write.name)
        return cast("asyncio.Future[Outcome[Any]]", None)  # nothing waits for it

    def workload(self) -> Workload:
        (kept,) = self.ledger.values()
        return kept.workload


def _hosts(workload: Workload) -> frozenset[str]:
    admission = workload.status.admission
    given = (each.topology_assignment for each in (admission.pod_set_assignments if admission is not None else ()))
    found = (each for each in given if each is not None and each.levels[-1] == HOSTNAME_LABEL)
    return frozenset(domain.values[-1] for each in found for domain in domains(each))


@runner("jobs-tas-TestNodeFailureReconciler")
def node_failures(case: Case) -> Difference | None:
    asked = frozenset(each["namespacedName"].split("/")[-1] for each in case.input["reconcileRequests"])
    world = _Lost(case, case.input["initObjs"], asked)
    world.controller.reconcile()
    status = world.workload().status
    evicted = find_condition(status.conditions, "Evicted")
    wanted = case.expect.get("wantEvictedCond")
    due_s = world.controller.failures.next_due_s()
    found: Json = {
        "evicted": None if evicted is None or evicted.status != "True" else evicted.reason,
        "failed": sorted(set(case.expect.get("wantPatchedPods") or ()) & set(world.failed)),
        "again": 0.0 if due_s is None else due_s - world.now_s,
        "nodes": sorted(node.name for node in status.unhealthy_nodes),
    }
    expected: Json = {
        "evicted": wanted and wanted["reason"],
        "failed": sorted(case.expect.get("wantPatchedPods") or ()),
        "again": duration_s(case.expect.get("wantRequeue") or "0s"),
        "nodes": sorted(node["name"] for node in case.expect.get("wantUnhealthyNodes") or ()),
    }
    if case.input.get("ignoreUnhealthyNodes"):
        del found["nodes"], expected["nodes"]
    return first_difference(expected, found)


@runner("jobs-tas-TestGetWorkloadStatus")
def workload_on_a_node(case: Case) -> Difference | None:
    name = case.input["nodeName"]
    nodes = [case.input["node"]] if case.input.get("node") else []
    others = [raw for raw in case.input.get("initObjs") or () if raw["kind"] != "Node"]
    world = _Lost(case, [*others, *nodes], frozenset({name}))
    world.controller.reconcile()
    lost = name in {node.name for node in world.workload().status.unhealthy_nodes}
    return first_difference(bool(case.expect["wantStatus"]), lost, "lost") or first_difference(
        sorted(case.expect.get("wantDeleted") or ()), sorted(world.failed), "failed"
    )


# -- the topology gate -------------------------------------------------------------------------------------------------


class _Gated:
    """The pods of the case's Workloads, and a topology ungater whose patches are carried out on them."""

    def __init__(self, case: Case) -> None:
        clock = cast("Clock", At(now_s(case)))
        ledger = Ledger()
        for raw in case.input["workloads"] or ():
            ledger.observe(decode(raw, Workload))
        self.pods = {raw["metadata"]["name"]: _with_uid(raw) for raw in case.input["pods"] or ()}
        self.removed: list[tuple[str, str, bool, float]] = []
        self._removals = GateRemovals(ledger, clock, lambda *removal: self.removed.append(removal))
        self._ungater = TopologyUngater(
            ledger,
            self._put,
            clock=clock,
            ready=lambda: True,
            count=lambda _outcome: None,
            tell=lambda *_event: None,
        )

    async def reconcile(self) -> None:
        for raw in self.pods.values():
            self._ungater.hear(added(PODS, decode(raw, Pod)))
        self._ungater.reconcile()
        await asyncio.sleep(0)

    def _put(self, write: Write[Any]) -> "asyncio.Future[Outcome[Any]]":
        before = self.pods[write.name]
        after = self.pods[write.name] = _patched(before, write.body)
        old, new = decode(before, Pod), decode(after, Pod)
        key = ObjectKey(new.metadata.namespace, new.metadata.name)
        self._removals.hear(ObjectChange(PODS, Changed(key, _cached(old), _cached(new))))
        done: asyncio.Future[Outcome[Any]] = asyncio.get_running_loop().create_future()
        done.set_result(Written(None))
        return done


def _with_uid(raw: Json) -> Json:
    """The API server gives each object one."""
    meta = raw["metadata"]
    return {**copy.deepcopy(raw), "metadata": {**meta, "uid": meta.get("uid") or f"uid of {meta['name']}"}}


def _patched(raw: Json, operations: Sequence[Json]) -> Json:
    """A JSON patch of the operations that an ungating has (RFC 6902)."""
    after = copy.deepcopy(raw)
    for operation in operations:
        steps = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
        there = functools.reduce(lambda value, step: value[step], steps[:-1], after)
        if operation["op"] == "test":
            assert there[steps[-1]] == operation["value"], "the API server would refuse it"
        else:
            there[steps[-1]] = operation["value"]
    return after


def _selectors(pods: Sequence[Json]) -> Counter[str]:
    """Node selectors of pods without the topology gate that may run."""
    ends = ("Succeeded", "Failed")
    free = [pod["spec"] for pod in pods if not _is_gated(pod) and (pod.get("status") or {}).get("phase") not in ends]
    return Counter(str(sorted((spec.get("nodeSelector") or {}).items())) for spec in free)


def _is_gated(pod: Json) -> bool:
    return {"name": _TOPOLOGY_GATE} in (pod["spec"].get("schedulingGates") or ())


@runner("jobs-tas-TestReconcile")
def ungated(case: Case) -> Difference | None:
    world = _Gated(case)
    asyncio.run(world.reconcile())
    found = list(world.pods.values())
    if (counts := case.expect.get("wantCounts")) is not None:
        wanted = Counter({str(sorted((one["nodeSelector"] or {}).items())): one["count"] for one in counts})
        if wanted != _selectors(found):
            return Difference("counts", dict(wanted), dict(_selectors(found)))
    exactly = case.input["nodeSelectorAssertMode"] == "Exact"
    return first_difference(
        _pods_json(case.expect.get("wantPods") or (), exactly=exactly, gates=exactly or counts is None),
        _pods_json(found, exactly=exactly, gates=exactly or counts is None),
        "pods",
    )


def _pods_json(pods: Sequence[Json], *, exactly: bool, gates: bool) -> Json:
    """``exactly``: with node selectors. Otherwise which of several pods lost its gate is not said."""
    found = {}
    for pod in pods:
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeSelector" or exactly}
        if not gates:
            spec.pop("schedulingGates", None)
        meta = {key: value for key, value in pod["metadata"].items() if key in ("labels", "annotations", "finalizers")}
        found[pod["metadata"]["name"]] = filled({"metadata": meta, "spec": spec, "status": pod.get("status") or {}})
    return found


@runner("jobs-tas-TestRecordPodSchedulingGateRemovalSeconds")
def gate_removals(case: Case) -> Difference | None:
    world = _Gated(case)
    asyncio.run(world.reconcile())
    pods = _pods_json(case.expect["wantPods"] or (), exactly=True, gates=True)
    own = [removal for removal in world.removed if removal[1] == _TOPOLOGY_GATE]
    found = {"count": len(own), "seconds": sum(removal[3] for removal in own)}
    wanted = {"count": case.expect["wantMetricsCount"], "seconds": float(case.expect["wantMetricsSeconds"])}
    in_group = all(removal[2] == bool(case.input["isGroup"]) for removal in own)
    return (
        first_difference(pods, _pods_json(list(world.pods.values()), exactly=True, gates=True), "pods")
        or first_difference(wanted, found)
        or first_difference(True, in_group, "isGroup")
    )


# -- pods beside the queues --------------------------------------------------------------------------------------------


@runner("jobs-tas-TestIsTAS")
def asks_for_places(case: Case) -> Difference | None:
    return first_difference(case.expect["want"], asks_for_topology(decode(case.input["pod"], Pod)))


@runner("jobs-tas-TestBelongsToNonTASCache")
@runner("jobs-tas-TestPodUsageReconcilerCreate")
def takes_room(case: Case) -> Difference | None:
    return first_difference(case.expect["want"], bool(_seen(NodeCache(), case.input["pod"])))


@runner("jobs-tas-TestPodUsageReconcilerUpdatePredicate")
def changes_room(case: Case) -> Difference | None:
    cache = NodeCache()
    _seen(cache, case.input["oldPod"])
    return first_difference(case.expect["want"], bool(_seen(cache, case.input["newPod"])))


@runner("jobs-tas-TestPodUsageReconcilerDelete")
def gives_room_back(case: Case) -> Difference | None:
    cache = NodeCache()
    _seen(cache, case.input["pod"])
    return first_difference(case.expect["want"], bool(cache.remove_pod(decode(case.input["pod"], Pod).key)))


def _seen(cache: NodeCache, raw: Json) -> tuple[str, ...]:
    """The nodes on which pods beside the queues take other amounts now."""
    pod = decode(raw, Pod)
    return cache.set_pod(pod, placed=placed_here(pod))


@runner("jobs-tas-TestDrainPendingNodes")
def freed_nodes(case: Case) -> Difference | None:
    """Pods beside the queues go from these nodes: a node that still shows what they took is pending."""
    cache = NodeCache()
    empty = {}
    for raw in case.input.get("objects") or ():
        facts = cache.set_node(decode(raw, Node))
        if facts is not None:
            empty[facts.name] = dict(facts.free)
    names = case.input.get("initialNodes") or ()
    for number, name in enumerate(names):
        pod = {"metadata": {"namespace": "ns", "name": f"pod-{number}"}, "spec": {"nodeName": name, "containers": []}}
        _seen(cache, {"apiVersion": "v1", "kind": "Pod", **pod})
    for number in range(len(names)):
        for name in cache.remove_pod(f"ns/pod-{number}"):
            cache.refresh(name)
    pending = sorted(
        name for name, free in empty.items() if {k: v for k, v in cache.facts[name].free.items() if v} != free
    )
    return first_difference(sorted(case.expect.get("wantPendingKeys") or ()), pending)


@runner("jobs-tas-TestNodeHandler_Update")
def node_changes(case: Case) -> Difference | None:
    """Whether placement sees another node: which part of it has changed does not matter to it."""
    cache = NodeCache()
    cache.set_node(decode(case.input["oldNode"], Node))
    facts = cache.set_node(decode(case.input["newNode"], Node))
    return first_difference(bool(case.expect["wantChanged"]), facts is not None)
