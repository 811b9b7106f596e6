"""StatefulSets and LeaderWorkerSets: which Workloads they have, which pods join them, and when their quota is free."""

import copy
from typing import Any

import pytest

from controller.jobs.framework import names
from controller.jobs.framework.actions import (
    CreateWorkload,
    DeleteWorkload,
    HoldWorkload,
    Refuse,
    ReleaseQuota,
    RemoveFinalizer,
    UpdateWorkload,
)
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import ADMISSION_GATE, GROUP_NAME, GROUP_TOTAL, MANAGED, ROLE_HASH, SeenPod
from controller.jobs.framework.raw import Json, merged
from controller.jobs.framework.settings import JobSettings
from controller.jobs.serving.apps import StatefulSet
from controller.jobs.serving.kind import ServingKind
from controller.jobs.serving.leaderworkerset import GROUP_INDEX, LEADER_NAME, NAME, LeaderWorkerSet
from controller.reconcile.pods.actions import PatchPod, PodAction
from controller.reconcile.pods.group import SeenPods
from controller.reconcile.pods.reconcile import reconcile_pods
from controller.reconcile.serving.reconcile import SeenServing, reconcile_serving
from inventory.api.names import ABOVE_MIN_REPLICAS, JOINING, MIN_REPLICAS
from tests.support.controller.jobmodel import cluster_objects

SETTINGS = JobSettings(keeps_minimum=True)


def template(cpu: int = 1) -> Json:
    container = {"name": "main", "image": "one", "resources": {"requests": {"cpu": str(cpu)}}}
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}}


def metadata(name: str, **more: Any) -> Json:
    return {"name": name, "namespace": "team", "uid": f"{name}-uid", "labels": {names.QUEUE_NAME: "q"}, **more}


def stateful_set(replicas: int = 3, cpu: int = 1, **more: Any) -> Json:
    return {"metadata": metadata("sts", **more), "spec": {"replicas": replicas, "template": template(cpu)}}


def leader_worker_set(replicas: int = 2, size: int = 3, **more: Any) -> Json:
    made = {"size": size, "leaderTemplate": template(), "workerTemplate": template(2)}
    return {"metadata": metadata("lws", **more), "spec": {"replicas": replicas, "leaderWorkerTemplate": made}}


def set_pod(index: int, *, cpu: int = 1, gated: bool = True, **labels: str) -> Json:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "sts", "uid": "sts-uid", "controller": True}
    gates = [{"name": ADMISSION_GATE}] if gated else []
    return {
        "metadata": {
            "name": f"sts-{index}",
            "namespace": "team",
            "uid": f"pod-{index}",
            "resourceVersion": "1",
            "labels": {JOINING: "true", **labels},
            "annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"},
            "ownerReferences": [owner],
        },
        "spec": {**template(cpu)["spec"], "schedulingGates": gates},
    }


class World:
    """An object, its Workloads and pods; what is decided is carried out on the Workloads and pods."""

    def __init__(self, kind: ServingKind, owner: Json | None, *pods: Json) -> None:
        self.kind, self.owner = kind, owner
        self.pods = {one["metadata"]["name"]: one for one in pods}
        self.workloads: dict[str, Json] = {}

    def step(self) -> list[PodAction]:
        seen = SeenServing(
            kind=self.kind,
            owner=copy.deepcopy(self.owner),
            workloads=tuple(SeenWorkload.of(copy.deepcopy(one)) for one in self.workloads.values()),
            pods=tuple(SeenPod(copy.deepcopy(one)) for one in self.pods.values()),
        )
        actions = list(reconcile_serving(seen, SETTINGS, cluster_objects()))
        for action in actions:
            match action:
                case CreateWorkload(body=body):
                    made = copy.deepcopy(body)
                    made["metadata"] |= {"uid": f"wl-{len(self.workloads)}", "resourceVersion": "1"}
                    self.workloads[made["metadata"]["name"]] = made
                case UpdateWorkload(name=name, patch=patch):
                    self.workloads[name] = merged(self.workloads[name], patch)
                case PatchPod(name=name, body=body):
                    self.pods[name] = merged(self.pods[name], body)
                case _:
                    pass
        return actions

    def settle(self) -> None:
        while self.step():
            pass

    def workload(self, index: int = 0) -> Json:
        return list(self.workloads.values())[index]

    def reserve(self, workload: Json, **conditions: str) -> None:
        sets = [
            {"name": one["name"], "flavors": {"cpu": "a100"}, "count": one["count"]}
            for one in workload["spec"]["podSets"]
        ]
        states = {"QuotaReserved": "True", "Admitted": "True", **conditions}
        listed = [{"type": type_, "status": status, "reason": "Said"} for type_, status in states.items()]
        workload["status"] = {"admission": {"clusterQueue": "cq", "podSetAssignments": sets}, "conditions": listed}

    def done(self, *kinds: type[object]) -> list[PodAction]:
        return [action for action in self.step() if isinstance(action, kinds)]


def pods_of(workload: Json) -> dict[str, int]:
    return {one["name"]: one["count"] for one in workload["spec"]["podSets"]}


def test_a_set_has_one_workload_of_all_replicas_and_its_pods_join_it() -> None:
    world = World(StatefulSet(), stateful_set(), set_pod(0))
    world.settle()
    (name,) = world.workloads
    assert pods_of(world.workload()) == {"main": 3}
    assert world.workload()["spec"]["queueName"] == "q"
    (owner,) = world.workload()["metadata"]["ownerReferences"]
    assert (owner["uid"], "controller" in owner) == ("sts-uid", False)
    meta = world.pods["sts-0"]["metadata"]
    assert meta["labels"] == {MANAGED: "true", names.QUEUE_NAME: "q"}
    assert [meta["annotations"][key] for key in (GROUP_NAME, GROUP_TOTAL, ROLE_HASH)] == [name, "3", "main"]


def test_a_joined_pod_is_let_go_by_the_admission_of_its_group_before_the_others_are_there() -> None:
    world = World(StatefulSet(), stateful_set(), set_pod(0))
    world.settle()

    def patches() -> list[Json]:
        pods = tuple(SeenPod(one) for one in world.pods.values())
        seen = SeenPods(pods=pods, workload=SeenWorkload.of(world.workload()))
        found = reconcile_pods(seen, SETTINGS, cluster_objects())
        return [action.body for action in found if isinstance(action, PatchPod)]

    assert patches() == []
    world.reserve(world.workload())
    (patch,) = patches()
    assert not patch["spec"]["schedulingGates"]


def test_a_leader_worker_set_has_a_workload_for_each_group() -> None:
    world = World(LeaderWorkerSet(), leader_worker_set())
    world.settle()
    assert [pods_of(one) for one in world.workloads.values()] == [{"leader": 1, "worker": 2}] * 2
    indexes = [one["metadata"]["annotations"][names.COMPONENT_INDEX] for one in world.workloads.values()]
    assert indexes == ["0", "1"]
    assert all(name.startswith(f"leaderworkerset-lws-{i}-") for i, name in enumerate(world.workloads))


@pytest.mark.parametrize(("leader", "role"), [("lws-1", "worker"), ("", "leader")])
def test_pods_of_a_group_are_told_by_their_labels(leader: str, role: str) -> None:
    labels = {NAME: "lws", GROUP_INDEX: "1", JOINING: "true"}
    notes = {LEADER_NAME: leader} if leader else {}
    pod = set_pod(0, cpu=2 if leader else 1)
    pod["metadata"] |= {"labels": labels, "annotations": notes}
    world = World(LeaderWorkerSet(), leader_worker_set(), pod)
    world.settle()
    annotations = world.pods["sts-0"]["metadata"]["annotations"]
    assert (annotations[ROLE_HASH], annotations[GROUP_TOTAL]) == (role, "3")
    assert annotations[GROUP_NAME].startswith("leaderworkerset-lws-1-")


def test_a_pod_that_asks_for_more_than_its_group_is_charged_with_does_not_join() -> None:
    world = World(StatefulSet(), stateful_set(), set_pod(0, cpu=2))
    refused = [action for action in world.step() if isinstance(action, Refuse)]
    assert [one.reason for one in refused] == ["ErrWorkloadCompose"]
    assert refused[0].sentence.startswith("pod sts-0: expected requests of cpu")
    assert JOINING in world.pods["sts-0"]["metadata"]["labels"]


def test_a_group_that_is_scaled_away_keeps_its_workload_until_its_pods_have_ended() -> None:
    world = World(LeaderWorkerSet(), leader_worker_set(replicas=2))
    world.settle()
    name = list(world.workloads)[1]
    world.reserve(world.workload(1))
    pod = set_pod(0, gated=False)
    pod["metadata"]["annotations"] = {GROUP_NAME: name}
    world.pods["p"] = pod
    assert world.owner is not None
    world.owner["spec"]["replicas"] = 1
    actions = world.done(DeleteWorkload, RemoveFinalizer)
    assert [type(one) for one in actions] == [DeleteWorkload]
    world.workloads[name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert world.done(DeleteWorkload, RemoveFinalizer) == []
    del world.pods["p"]
    assert [type(one) for one in world.done(DeleteWorkload, RemoveFinalizer)] == [RemoveFinalizer]


def test_a_set_at_zero_is_held_once_its_pods_have_ended_and_queues_again_with_its_new_size() -> None:
    world = World(StatefulSet(), stateful_set(), set_pod(0))
    world.settle()
    world.reserve(world.workload())
    assert world.owner is not None
    world.owner["spec"]["replicas"] = 0
    world.pods["sts-0"]["spec"]["schedulingGates"] = []
    assert world.done(HoldWorkload) == [], "its pod may run"
    world.pods.clear()
    (held,) = world.done(HoldWorkload)
    assert isinstance(held, HoldWorkload)
    assert held.on
    conditions = [{"type": type_, "status": "False", "reason": "OnHold"} for type_ in ("QuotaReserved", "Requeued")]
    world.workload()["status"] = {"conditions": conditions}
    world.owner["spec"]["replicas"] = 2
    (again,) = world.done(HoldWorkload)
    assert isinstance(again, HoldWorkload)
    assert not again.on
    assert pods_of(world.workload()) == {"main": 2}


def test_an_evicted_group_without_pods_gives_its_quota_back() -> None:
    world = World(StatefulSet(), stateful_set(), set_pod(0))
    world.settle()
    world.reserve(world.workload(), Evicted="True")
    assert world.done(ReleaseQuota) == [], "its pods tell when"
    world.pods.clear()
    assert len(world.done(ReleaseQuota)) == 1


def test_another_image_changes_nothing_and_another_shape_stops_the_set() -> None:
    world = World(StatefulSet(), stateful_set())
    world.settle()
    world.reserve(world.workload())
    assert world.owner is not None
    container = world.owner["spec"]["template"]["spec"]["containers"][0]
    container["image"] = "two"
    assert world.step() == []
    container["resources"] = {"requests": {"cpu": "2"}}
    assert len(world.done(DeleteWorkload)) == 1


def test_when_the_object_is_gone_its_workload_goes_with_its_last_pod() -> None:
    world = World(StatefulSet(), stateful_set(), set_pod(0))
    world.settle()
    world.reserve(world.workload())
    world.owner = None
    world.pods["sts-0"]["spec"]["schedulingGates"] = []
    assert world.step() == []
    world.pods.clear()
    assert len(world.done(RemoveFinalizer)) == 1


def test_groups_above_the_minimum_are_marked_and_the_mark_follows_it() -> None:
    def marked() -> list[bool]:
        return [ABOVE_MIN_REPLICAS in one["metadata"].get("annotations", {}) for one in world.workloads.values()]

    world = World(LeaderWorkerSet(), leader_worker_set(replicas=3, annotations={MIN_REPLICAS: "1"}))
    world.settle()
    assert marked() == [False, True, True]
    assert world.owner is not None
    world.owner["metadata"]["annotations"][MIN_REPLICAS] = "2"
    world.settle()
    assert marked() == [False, False, True]


def test_a_rollout_with_spare_groups_has_workloads_for_them() -> None:
    owner = leader_worker_set(replicas=1)
    owner["spec"]["rolloutStrategy"] = {"rollingUpdateConfiguration": {"maxSurge": "50%"}}
    owner["status"] = {"replicas": 2, "updatedReplicas": 0}
    world = World(LeaderWorkerSet(), owner)
    world.settle()
    assert len(world.workloads) == 2
    owner["status"]["updatedReplicas"] = 1
    assert len(world.done(DeleteWorkload)) == 1, "scaled down, the status merely lags behind"
