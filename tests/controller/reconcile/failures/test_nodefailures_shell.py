"""A lost node in the live controller: its pods' place moves and nobody else's, and a second loss evicts."""

from typing import Any

import pytest

from controller.cluster.watching.kinds import CLUSTER_QUEUES, NODES, PODS, WORKLOADS
from controller.objects.core import Toleration
from controller.objects.decode import decode
from controller.objects.meta import to_json
from controller.objects.placeencoding import Domain, encode
from controller.objects.workload import Workload
from controller.reconcile.failures.nodefailures_shell import placed
from kube.resources import EVENTS
from kube.testing import eventually
from tests.controller.cluster.process.test_gpunodes import node, on_hosts
from tests.support.controller.stage import CONFIG, Stage, config, stage

WITH_JOBS = CONFIG.replace("tessera:", "integrations: {frameworks: [batch/job]}\ntessera:")
JOBS = config(WITH_JOBS)
HOLDING = config(f"{WITH_JOBS}  holdEvictions: 10m\n")


def begin(scene: Stage, *nodes: str) -> None:
    scene.queue()
    on_hosts(scene)
    for name in nodes:
        scene.server.create(NODES, name, node(name, 4))


def spread(scene: Stage, count: int, name: str = "gang", **spec: Any) -> None:
    """A workload whose pods take a whole node each."""
    resources = {"requests": {"nvidia.com/gpu": "4"}, "limits": {"nvidia.com/gpu": "4"}}
    template = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    scene.workload(name, podSets=[{"name": "main", "count": count, "template": template}], **spec)


def hosts(scene: Stage, name: str = "gang") -> set[str]:
    """Where its pods are to run."""
    admission = scene.status(name).get("admission") or {"podSetAssignments": []}
    found = set()
    for one in admission["podSetAssignments"]:
        for part in one.get("topologyAssignment", {}).get("slices", ()):
            values = part["valuesPerLevel"][-1]
            if "universal" in values:
                found.add(values["universal"])
            else:
                roots = values["individual"]["roots"]
                head, tail = (values["individual"].get(key, "") for key in ("prefix", "suffix"))
                found |= {head + root + tail for root in roots}
    return found


def pod(scene: Stage, name: str, host: str, *, bound: bool = True, **status: Any) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"annotations": {"kueue.x-k8s.io/workload": "gang"}, "labels": {"kueue.x-k8s.io/podset": "main"}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": host},
            "containers": [{"name": "main"}],
            **({"nodeName": host} if bound else {}),
        },
        "status": status or {"phase": "Running"},
    }
    scene.server.create(PODS, name, body, namespace="team")


def reasons(scene: Stage) -> list[str]:
    return [one["reason"] for one in scene.server.list_all(EVENTS)]


async def test_only_the_lost_part_moves() -> None:
    async with stage() as scene:
        begin(scene, "a", "b", "c")
        async with scene.controller(JOBS, core_only=False):
            spread(scene, 2)
            await scene.until_admitted("gang")
            before = hosts(scene)
            lost = max(before)
            scene.server.delete(NODES, lost)
            await eventually(lambda: hosts(scene) == {"a", "b", "c"} - {lost}, what="placed anew")
            assert len(hosts(scene) & before) == 1
            assert scene.admitted("gang")
            await eventually(lambda: not scene.status("gang").get("unhealthyNodes"))
            await eventually(lambda: "UnhealthyNode" in reasons(scene))


async def test_with_no_place_left_it_is_evicted_for_the_lost_node() -> None:
    async with stage() as scene:
        begin(scene, "a", "b")
        async with scene.controller(JOBS, core_only=False):
            spread(scene, 2)
            await scene.until_admitted("gang")
            scene.server.delete(NODES, "a")
            await eventually(lambda: scene.condition("gang", "Evicted") == "True/NodeFailures")


async def test_a_lost_node_does_not_wait_for_evictions_that_are_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.cluster.writing.pace.Pace.quick", lambda _self, _now_s: True)
    async with stage() as scene:
        begin(scene, "a")
        preemption = {"preemption": {"withinClusterQueue": "LowerPriority"}}
        scene.server.merge(CLUSTER_QUEUES, "cq", {"spec": preemption})
        async with scene.controller(HOLDING, core_only=False):
            spread(scene, 1)
            await scene.until_admitted("gang")
            spread(scene, 1, "high", priority=2)
            await eventually(lambda: len(scene.core.decisions.held) == 1)
            scene.server.delete(NODES, "a")
            await eventually(lambda: scene.condition("gang", "Evicted") == "True/NodeFailures")
            assert len(scene.core.decisions.held) == 0


async def test_two_nodes_lost_together_evict_it() -> None:
    async with stage() as scene:
        begin(scene, "a", "b", "c", "d")
        async with scene.controller(JOBS, core_only=False):
            spread(scene, 2)
            await scene.until_admitted("gang")
            # Known together: the feed tells both before anybody judges.
            for name in sorted(hosts(scene)):
                scene.server.delete(NODES, name)
            await eventually(lambda: scene.condition("gang", "Evicted") == "True/NodeFailures")


async def test_a_node_that_is_not_ready_is_lost_when_its_pods_are_going() -> None:
    async with stage() as scene:
        begin(scene, "a", "b", "c")
        async with scene.controller(JOBS, core_only=False) as process:
            spread(scene, 1)
            await scene.until_admitted("gang")
            (host,) = hosts(scene)
            pod(scene, "p", host)
            await eventually(lambda: process._feeds is not None and len(process._feeds[PODS]) == 1)
            unready = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
            scene.server.merge(NODES, host, {"status": unready})
            await eventually(lambda: len(scene.core.inbox) == 0)
            assert hosts(scene) == {host}
            scene.server.merge(PODS, "p", {"status": {"phase": "Failed"}}, namespace="team")
            await eventually(lambda: bool(hosts(scene)) and hosts(scene) != {host}, what="placed anew")


async def test_a_pod_that_was_sent_to_a_lost_node_and_never_got_there_is_marked_failed() -> None:
    async with stage() as scene:
        begin(scene, "a", "b", "c")
        async with scene.controller(JOBS, core_only=False):
            spread(scene, 1)
            await scene.until_admitted("gang")
            (host,) = hosts(scene)
            pod(scene, "p", host, bound=False, phase="Pending")
            scene.server.delete(NODES, host)
            await eventually(
                lambda: scene.server.get(PODS, "p", namespace="team")["status"]["phase"] == "Failed", what="failed"
            )
            await eventually(lambda: bool(hosts(scene)) and hosts(scene) != {host}, what="placed anew")


async def test_with_the_gate_off_nothing_is_written() -> None:
    off = config(CONFIG.replace("tessera:", "featureGates: {TASFailedNodeReplacement: false}\ntessera:"))
    async with stage() as scene:
        begin(scene, "a", "b")
        async with scene.controller(off, core_only=False):
            spread(scene, 1)
            await scene.until_admitted("gang")
            (host,) = hosts(scene)
            scene.server.delete(NODES, host)
            scene.workload("later", 1)
            await scene.until_admitted("later")
            assert hosts(scene) == {host}
            assert not scene.server.get(WORKLOADS, "gang", namespace="team")["status"].get("unhealthyNodes")


HOST = "kubernetes.io/hostname"


def admitted(levels: tuple[str, ...] = (HOST,), **conditions: str) -> Workload:
    """Two sets of pods that share a node; ``conditions`` by type, beside Admitted."""
    tolerations = [{"key": "own", "operator": "Exists"}]
    sets = [{"name": name, "count": 2, "template": {"spec": {"tolerations": tolerations}}} for name in ("one", "two")]
    assigned = [
        {"name": name, "flavors": {"gpu": "f"}, "topologyAssignment": to_json(encode(levels, domains))}
        for name, domains in (
            ("one", [Domain((*levels[:-1], "a"), 2)]),
            ("two", [Domain((*levels[:-1], "a"), 1), Domain((*levels[:-1], "b"), 1)]),
        )
    ]
    told = [{"type": type_, "status": said} for type_, said in {"Admitted": "True", **conditions}.items()]
    status = {"admission": {"clusterQueue": "q", "podSetAssignments": assigned}, "conditions": told}
    return decode({"metadata": {"name": "w"}, "spec": {"podSets": sets}, "status": status}, Workload)


def test_a_workload_is_on_the_nodes_of_all_its_sets_and_tolerates_what_its_flavors_do() -> None:
    added = Toleration(key="flavor", operator="Exists")
    found = placed(admitted(), lambda flavor: (added,) if flavor == "f" else ())
    assert found is not None
    assert found.pods == {"a": 3, "b": 1}
    assert [one.key for one in found.tolerations["a"]] == ["own", "flavor"]


def test_tolerations_that_admission_checks_add_count() -> None:
    update = {"name": "two", "tolerations": [{"key": "check", "operator": "Exists"}]}
    raw = to_json(admitted())
    raw["status"]["admissionChecks"] = [{"name": "c", "state": "Ready", "podSetUpdates": [update]}]
    found = placed(decode(raw, Workload), lambda _flavor: ())
    assert found is not None
    assert {host: [one.key for one in keys] for host, keys in found.tolerations.items()} == {
        "a": ["own", "check"],
        "b": ["own", "check"],
    }


def test_a_workload_without_an_admission_has_no_host() -> None:
    raw = to_json(admitted())
    del raw["status"]["admission"]
    found = placed(decode(raw, Workload), lambda _flavor: ())
    assert found is not None
    assert (dict(found.pods), found.pod_sets) == ({}, frozenset())


@pytest.mark.parametrize(
    "workload",
    [
        admitted(Admitted="False"),
        admitted(Evicted="True"),
        admitted(Finished="True"),
        admitted(DeactivationTarget="True"),
        admitted(("rack",)),
    ],
)
def test_one_that_runs_nowhere_or_whose_nodes_are_not_known_is_not_looked_at(workload: Workload) -> None:
    assert placed(workload, lambda _flavor: ()) is None
