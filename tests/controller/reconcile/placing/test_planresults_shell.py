"""What a pod and a node's agent say about planned devices, and what people hear of the difference."""

from typing import Any

import pytest

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import GPU_NODES, PODS
from controller.objects.core import Pod
from controller.objects.decode import GpuNode, decode
from controller.reconcile.placing.planresults_shell import DRIFT, PlanResultReporter, planned_pod
from inventory.api.names import DEVICES
from kube.objects import ObjectReference
from kube.reading.entries import CachedObject, ObjectKey
from kube.reading.reflector import Added, Removed
from tests.support.controller.gpunodes import observed


def pod(plan: str = "g0,g1", phase: str = "Running", workload: str = "w") -> Pod:
    notes = {"kueue.x-k8s.io/workload": workload, DEVICES: plan}
    meta = {"name": "p", "namespace": "team", "uid": "1", "annotations": notes}
    return decode({"metadata": meta, "spec": {"containers": []}, "status": {"phase": phase}}, Pod)


def gpu_node(*held: str) -> GpuNode:
    return observed("n", holders=[{"device": device, "namespace": "team", "pod": "p"} for device in held])


class World:
    def __init__(self) -> None:
        self.counted: list[str] = []
        self.events: list[tuple[ObjectReference, str, str, str]] = []
        self.plans = PlanResultReporter(self.counted.append, lambda *what: self.events.append(what))

    def add(self, resource: Any, key: ObjectKey, entry: Any) -> None:
        self.plans.hear(ObjectChange(resource, Added(key, CachedObject(object=entry, uid="1", resource_version="1"))))

    def pod(self, plan: str) -> None:
        self.add(PODS, ObjectKey("team", "p"), pod(plan))

    def node(self, *held: str) -> None:
        self.add(GPU_NODES, ObjectKey("", "n"), gpu_node(*held))


@pytest.mark.parametrize("over", [pod(phase="Succeeded"), pod(phase="Failed"), pod(plan=""), pod(workload="")])
def test_without_a_plan_or_a_workload_and_when_it_is_over_a_pod_is_not_judged(over: Pod) -> None:
    assert planned_pod(over) is None


def test_a_pod_is_judged_by_its_devices_in_any_order() -> None:
    found = planned_pod(pod("g1,g0"))
    assert found is not None
    assert (found.workload, found.devices) == ("team/w", ("g0", "g1"))


def test_what_was_planned_is_counted_and_no_event() -> None:
    world = World()
    world.pod("g0,g1")
    world.node("g1", "g0::3")
    assert (world.counted, world.events) == (["honoured"], [])


def test_other_devices_than_planned_are_an_event_about_the_pod() -> None:
    world = World()
    world.pod("g0")
    world.node("g5")
    assert world.counted == ["drifted"]
    (about, kind, reason, note), *rest = world.events
    assert not rest
    assert (about.kind, about.namespace, about.name, about.uid) == ("Pod", "team", "p", "1")
    assert (kind, reason, note) == ("Warning", DRIFT, "Planned g0, got g5 on node n")


def test_a_pod_that_is_gone_is_not_judged_any_more() -> None:
    world = World()
    world.pod("g0")
    world.plans.hear(
        ObjectChange(
            PODS, Removed(ObjectKey("team", "p"), CachedObject(object=pod("g0"), uid="1", resource_version="1"))
        )
    )
    world.node("g5")
    assert (world.counted, world.events) == ([], [])
