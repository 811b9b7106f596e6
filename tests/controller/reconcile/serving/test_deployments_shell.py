"""Replicas of Deployments through the whole process: the minimum that is kept, and a rollout at full quota."""

from typing import Any

from controller.cluster.watching.kinds import DEPLOYMENTS, PODS, REPLICA_SETS, WORKLOADS
from controller.jobs.framework.names import REPLACEMENT_FOR
from controller.jobs.framework.podview import MANAGED, SUSPENDING_PARENT
from inventory.api.names import ABOVE_MIN_REPLICAS, MIN_REPLICAS
from kube.testing import eventually
from tests.controller.reconcile.pods.test_reconcile_shell import free, freed, pod, runs, seen, told
from tests.support.controller.podworld import pod as marked
from tests.support.controller.stage import CONFIG, Stage, config, stage, stamp

SERVING = config(CONFIG.replace("policy: kueue", "policy: tessera"))
LABELS = {"kueue.x-k8s.io/queue-name": "lq-cq", MANAGED: "true"}


def deployment(scene: Stage, name: str = "web", *, minimum: str | None = None) -> None:
    notes = {} if minimum is None else {MIN_REPLICAS: minimum}
    metadata = {"creationTimestamp": stamp(), "labels": {"kueue.x-k8s.io/queue-name": "lq-cq"}, "annotations": notes}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {}}
    scene.server.create(DEPLOYMENTS, name, body, namespace="team")


def owned_by(scene: Stage, resource: Any, name: str) -> dict[str, Any]:
    uid = scene.server.get(resource, name, namespace="team")["metadata"]["uid"]
    owner = {"apiVersion": resource.api_version, "kind": resource.kind, "name": name, "uid": uid, "controller": True}
    return {"ownerReferences": [owner]}


def replica_set(scene: Stage, name: str, revision: int, *, of: str = "web") -> None:
    notes = {"deployment.kubernetes.io/revision": str(revision)}
    metadata = {"creationTimestamp": stamp(), "labels": LABELS, "annotations": notes}
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {**metadata, **owned_by(scene, DEPLOYMENTS, of)}}
    scene.server.create(REPLICA_SETS, name, body, namespace="team")


def replica(scene: Stage, name: str, *, cpu: int = 1) -> None:
    """``name``: that of its ReplicaSet and more. Deleted, it stays until ``ends``, as one does that has time to end."""
    body = marked(name, cpu=str(cpu), labels=LABELS, notes={SUSPENDING_PARENT: "deployment"})
    body["metadata"]["finalizers"] = ["test/kubelet"]
    owners = owned_by(scene, REPLICA_SETS, name.rpartition("-")[0])
    body["metadata"] |= {"namespace": "team", "creationTimestamp": stamp(), **owners}
    scene.server.store.finalizers = True
    scene.server.create(PODS, name, body, namespace="team")


def leaves(scene: Stage, *names: str) -> bool:
    return all("deletionTimestamp" in seen(scene, name)["metadata"] for name in names)


def ends(scene: Stage, *names: str) -> None:
    runs(scene, *names, phase="Failed")
    for name in names:
        scene.server.merge(PODS, name, {"metadata": {"finalizers": None}}, namespace="team")


def of_pod(scene: Stage, name: str) -> dict[str, Any]:
    """Its Workload; empty while there is none."""
    for each in scene.server.list_all(WORKLOADS):
        if any(owner["name"] == name for owner in each["metadata"].get("ownerReferences", [])):
            return dict(each)
    return {}


def is_spare(scene: Stage, name: str) -> bool | None:
    found = of_pod(scene, name)
    return ABOVE_MIN_REPLICAS in found["metadata"].get("annotations", {}) if found else None


def says(scene: Stage, name: str, type_: str) -> str:
    conditions = of_pod(scene, name).get("status", {}).get("conditions", [])
    return next((f"{each['status']}/{each['reason']}" for each in conditions if each["type"] == type_), "")


async def test_replicas_above_the_minimum_give_way_to_anybody_and_the_others_stay() -> None:
    async with stage() as scene:
        scene.queue(cpus=3, preemption={"withinClusterQueue": "LowerPriority"})
        async with scene.controller(SERVING, core_only=False):
            deployment(scene, minimum="1")
            replica_set(scene, "web-1", 1)
            names = ("web-1-a", "web-1-b", "web-1-c")
            for name in names:
                replica(scene, name)
            await eventually(lambda: freed(scene, *names))
            runs(scene, *names)
            await eventually(lambda: [is_spare(scene, name) for name in names].count(False) == 1)
            kept = next(name for name in names if not is_spare(scene, name))
            pod(scene, "train", cpu=2)
            spare = [name for name in names if name != kept]
            await eventually(lambda: leaves(scene, *spare))
            assert not leaves(scene, kept)
            assert not free(scene, "train"), "the others have not ended yet"
            ends(scene, *spare)
            await eventually(lambda: free(scene, "train"))
            # What is made anew is above the minimum again: it waits, and takes nothing from the training pod.
            replica(scene, "web-1-d")
            await eventually(lambda: says(scene, "web-1-d", "QuotaReserved").startswith("False"))
            assert is_spare(scene, "web-1-d")
            assert free(scene, "train")
            await eventually(lambda: bool(told(scene, "WaitsForQuota")), what="the pod says why")


async def test_a_replica_moves_up_when_one_of_the_minimum_is_gone() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller(SERVING, core_only=False):
            deployment(scene, minimum="1")
            replica_set(scene, "web-1", 1)
            replica(scene, "web-1-a")
            await eventually(lambda: is_spare(scene, "web-1-a") is False)
            replica(scene, "web-1-b")
            await eventually(lambda: freed(scene, "web-1-a", "web-1-b"))
            assert is_spare(scene, "web-1-b")
            scene.server.delete(PODS, "web-1-a", namespace="team")
            ends(scene, "web-1-a")
            await eventually(lambda: is_spare(scene, "web-1-b") is False)
            body = {"metadata": {"annotations": {MIN_REPLICAS: None}}}
            scene.server.merge(DEPLOYMENTS, "web", {"metadata": {"annotations": {MIN_REPLICAS: "0"}}}, namespace="team")
            await eventually(lambda: is_spare(scene, "web-1-b") is True)
            scene.server.merge(DEPLOYMENTS, "web", body, namespace="team")
            await eventually(lambda: is_spare(scene, "web-1-b") is False, what="without a minimum nobody is above it")
            scene.server.merge(DEPLOYMENTS, "web", {"metadata": {"annotations": {MIN_REPLICAS: "x"}}}, namespace="team")
            await eventually(lambda: bool(told(scene, "ErrWorkloadCompose")))
            assert "expected" in told(scene, "ErrWorkloadCompose")[0]


async def test_a_new_replica_takes_over_the_quota_of_an_old_one_once_that_has_ended() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller(SERVING, core_only=False):
            deployment(scene)
            replica_set(scene, "web-1", 1)
            replica(scene, "web-1-a")
            await eventually(lambda: free(scene, "web-1-a"))
            runs(scene, "web-1-a")
            replica_set(scene, "web-2", 2)
            replica(scene, "web-2-a")
            await eventually(lambda: says(scene, "web-2-a", "Admitted") == "True/Admitted")
            await eventually(lambda: says(scene, "web-1-a", "Finished") == "True/WorkloadSliceReplaced")
            await eventually(lambda: leaves(scene, "web-1-a"))
            assert not free(scene, "web-2-a"), "its predecessor has not ended"
            assert scene.used() == 1
            # Another of the old revision takes nothing back.
            replica(scene, "web-1-b")
            await eventually(lambda: says(scene, "web-1-b", "QuotaReserved").startswith("False"))
            ends(scene, "web-1-a")
            await eventually(lambda: free(scene, "web-2-a"))
            assert REPLACEMENT_FOR not in of_pod(scene, "web-1-b")["metadata"].get("annotations", {})
            assert not free(scene, "web-1-b")
            assert scene.used() == 1


async def test_with_room_for_the_surge_nothing_is_taken_over() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller(SERVING, core_only=False):
            deployment(scene)
            replica_set(scene, "web-1", 1)
            replica(scene, "web-1-a")
            await eventually(lambda: free(scene, "web-1-a"))
            replica_set(scene, "web-2", 2)
            replica(scene, "web-2-a")
            await eventually(lambda: free(scene, "web-2-a"))
            assert free(scene, "web-1-a")
            assert not leaves(scene, "web-1-a")


async def test_as_kueue_has_it_a_surge_waits_and_there_is_no_minimum() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller(config(), core_only=False):
            deployment(scene, minimum="0")
            replica_set(scene, "web-1", 1)
            replica(scene, "web-1-a")
            await eventually(lambda: free(scene, "web-1-a"))
            replica_set(scene, "web-2", 2)
            replica(scene, "web-2-a")
            await eventually(lambda: says(scene, "web-2-a", "QuotaReserved").startswith("False"))
            assert is_spare(scene, "web-1-a") is False
            assert REPLACEMENT_FOR not in of_pod(scene, "web-2-a")["metadata"].get("annotations", {})
