"""Real pods on a real API server, let go, deleted and cleaned up by the core's own actions.

The workload is held in memory (``podworld.PodWorld``): what is proved here is that the patches are what the API server
accepts, that kube-scheduler puts the pods where they were sent, and that nothing lingers. The marks that a policy will
put on pods are in the manifests.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from controller.jobs.framework.podview import POD_INDEX, TERMINATION_TARGET
from controller.jobs.framework.raw import Json
from controller.reconcile.pods.actions import DeletePod, PodAction
from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from hack.cluster.waiting import until
from tests.support.controller.jobmodel import ConflictError, InvalidError
from tests.support.controller.podworld import PodWorld, member, pod

IN_MEMORY = pytest.mark.history(allow={"ran-without-admission", "forgotten"}, why="the workload is held in memory")
pytestmark = [pytest.mark.e2e, IN_MEMORY]

NODES = 3


class RealPodWorld(PodWorld):
    """The model with real pods in it. Time of creation and uid are the API server's."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def create(self, body: Json) -> None:
        self._cluster.kubectl("create", "-f", "-", input=json.dumps(body))
        self.read()

    def read(self) -> None:
        found = json.loads(self._cluster.kubectl("get", "pods", "-o", "json"))["items"]
        self.pods = {raw["metadata"]["name"]: raw for raw in found}
        self.collect()

    def carry_out(self, action: PodAction) -> None:
        if not isinstance(action, DeletePod):
            super().carry_out(action)
            return
        told = {"type": TERMINATION_TARGET, "status": "True", "reason": action.reason, "message": action.message}
        status = json.dumps({"metadata": {"uid": action.uid}, "status": {"conditions": [told]}})
        self._cluster.kubectl("patch", "pod", action.name, "--subresource=status", "--type=strategic", "-p", status)
        self.delete(action.name)

    def delete(self, name: str) -> None:
        self._cluster.kubectl("delete", "pod", name, "--wait=false")

    def patch_pod(self, name: str, body: Json) -> None:
        try:
            self._cluster.kubectl("patch", "pod", name, "--type=merge", "-p", json.dumps(body))
        except ClusterError as error:
            if "Conflict" in str(error) or "modified" in str(error):
                raise ConflictError(str(error)) from None
            raise InvalidError(str(error)) from None

    def kubelet(self) -> None:
        """kwok does it. A pod that it ends keeps its phase."""

    def running(self) -> set[str]:
        return {name for name in super().running() if "deletionTimestamp" not in self.pods[name]["metadata"]}

    def free(self) -> set[str]:
        return {name for name in super().free() if "deletionTimestamp" not in self.pods[name]["metadata"]}

    def until(self, condition: Any, what: str) -> None:
        def holds() -> bool:
            self.read()
            self.step()
            self.read()
            return bool(condition())

        until(holds, what, timeout_s=120, every_s=0.1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    binaries.build("kubernetes")
    binaries.build("kwok")
    with Cluster.up(f"pods-{os.getpid()}", Spec(nodes=(), kwok_nodes=NODES)) as found:
        found.kubectl("label", "nodes", "--all", "rack=r1", "gpu=a100")
        yield found


@pytest.fixture
def world(cluster: Cluster) -> Iterator[RealPodWorld]:
    made = RealPodWorld(cluster)
    yield made
    made.read()
    names = list(made.pods)
    for name in names:
        with suppress(ClusterError):  # it may go this very moment
            cluster.kubectl("patch", "pod", name, "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
    if names:
        cluster.kubectl("delete", "pods", "--all", "--now", "--wait", "--timeout=180s")


def nodes(world: RealPodWorld) -> dict[str, str]:
    return {name: raw["spec"].get("nodeName", "") for name, raw in world.pods.items()}


def test_a_group_goes_by_rank_to_its_nodes_is_evicted_and_comes_again(world: RealPodWorld) -> None:
    for index in (2, 0, 1):
        world.create(member(f"p{index}", 3, labels={POD_INDEX: str(index)}))
    world.until(lambda: world.workloads, "a workload")
    world.admit(hosts={"kwok-1": 1, "kwok-0": 2})
    world.until(lambda: len(world.running()) == 3, "three pods running")
    assert nodes(world) == {"p0": "kwok-1", "p1": "kwok-0", "p2": "kwok-0"}
    world.until(lambda: world.has("PodsReady"), "pods ready")
    world.evict()
    world.until(lambda: "admission" not in world.workload["status"], "quota released")
    assert not world.free()
    for index in range(3):
        world.create(member(f"again{index}", 3, labels={POD_INDEX: str(index)}))
    world.admit(hosts={"kwok-2": 3})
    world.until(lambda: len(world.running()) == 3, "three pods running again")
    world.until(lambda: len(world.pods) == 3, "the evicted pods gone")
    assert set(nodes(world).values()) == {"kwok-2"}


def test_none_of_a_group_is_let_go_while_one_is_missing_and_a_waiting_pod_goes_at_once(world: RealPodWorld) -> None:
    for index in range(2):
        world.create(member(f"p{index}", 2))
    world.until(lambda: world.workloads, "a workload")
    world.delete("p1")
    world.until(lambda: "p1" not in world.pods, "the deleted pod gone")
    world.admit(hosts={"kwok-0": 2})
    world.until(lambda: world.has("WaitingForReplacementPods"), "the condition")
    assert not world.free()
    world.create(member("late", 2))
    world.until(lambda: len(world.running()) == 2, "two pods running")


def test_deleted_by_a_person_a_group_and_a_pod_leave_nothing(world: RealPodWorld) -> None:
    world.create(pod("single"))
    world.until(lambda: world.workloads, "a workload")
    world.admit()
    world.until(world.running, "the pod running")
    world.delete("single")
    world.until(lambda: not world.pods and not world.workloads, "nothing left")
