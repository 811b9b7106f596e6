"""Pods that a job's controller made, above the minimum of the job: queued one by one, behind the gate of their job."""

from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.framework import names
from controller.jobs.framework.actions import CreateWorkload, DeleteWorkload
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import MANAGED, SeenPod
from controller.jobs.framework.settings import JobSettings
from controller.objects.meta import OwnerReference
from controller.reconcile.pods.actions import DeletePod, PatchPod, PodAction, uncounted
from controller.reconcile.pods.group import SeenPods
from controller.reconcile.pods.reconcile import reconcile_pods
from inventory.api.names import ABOVE_MINIMUM_OF
from tests.support.controller.jobmodel import cluster_objects
from tests.support.controller.podworld import PodWorld

TRACKED, TRAINING = "batch.kubernetes.io/job-tracking", "training.kubeflow.org/job-name"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
JOB = {"metadata": {"name": "j", "uid": "j", "labels": {"kueue.x-k8s.io/queue-name": "q"}}}


def pod(*, above: str = "w", gates: tuple[str, ...] = (names.TOPOLOGY_GATE,), **meta: Any) -> dict[str, Any]:
    """As its job's controller made it, and as it was marked since."""
    labels = {MANAGED: "true", "kueue.x-k8s.io/queue-name": "q", names.POD_SET: "worker"}
    metadata = {
        "name": "j-1",
        "namespace": "default",
        "labels": labels | meta.pop("labels", {}),
        "annotations": {ABOVE_MINIMUM_OF: above},
        "ownerReferences": [OWNER],
        **meta,
    }
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [container], "schedulingGates": [{"name": name} for name in gates]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


class OfJob(PodWorld):
    """Its job is there, and queued."""

    def __init__(self, *pods: dict[str, Any], admitted: bool = True) -> None:
        super().__init__(*pods)
        self.cluster = cluster_objects(owner=lambda _namespace, _reference: JOB, is_admitted=lambda _uid: admitted)

    def seen(self) -> SeenPods:
        (raw,) = self.pods.values()
        own = next(iter(self.workloads.values()), None)
        return SeenPods(pods=(SeenPod(raw),), workload=None if own is None else SeenWorkload.of(own))

    def next_actions(self) -> tuple[PodAction, ...]:
        return reconcile_pods(self.seen(), JobSettings(), self.cluster)


def test_it_gets_a_workload_of_its_own_without_a_finalizer_and_starts_by_that() -> None:
    world = OfJob(pod(gates=("example.com/other", names.TOPOLOGY_GATE)))
    (created, *_) = world.step()
    assert isinstance(created, CreateWorkload)
    assert created.body["metadata"]["annotations"][ABOVE_MINIMUM_OF] == "w"
    assert [each["count"] for each in created.body["spec"]["podSets"]] == [1]
    assert not [action for action in world.step() if isinstance(action, PatchPod | DeletePod)], "it waits"
    world.admit(hosts={"n1": 1}, above="j-1")
    (patch,) = [action for action in world.next_actions() if isinstance(action, PatchPod)]
    assert patch.body["spec"]["schedulingGates"] == [{"name": "example.com/other"}]
    assert patch.body["spec"]["nodeSelector"]["kubernetes.io/hostname"] == "n1"
    assert patch.body["metadata"]["annotations"][names.WORKLOAD] == created.body["metadata"]["name"]
    world.step()
    assert not world.seen().pods[0].is_gated


@pytest.mark.parametrize("gate", [names.TOPOLOGY_GATE, "kueue.x-k8s.io/admission"])
def test_it_does_not_go_back_by_itself_when_the_minimum_leaves(gate: str) -> None:
    """Its job deletes it. Any other pod above a minimum goes back into its group."""
    seen = SeenPods(pods=(SeenPod(pod(gates=(gate,))),), minimum=minimum())
    patched = [
        action for action in reconcile_pods(seen, JobSettings(), cluster_objects()) if isinstance(action, PatchPod)
    ]
    assert bool(patched) is (gate != names.TOPOLOGY_GATE)


def minimum() -> SeenWorkload:
    return SeenWorkload.of({"metadata": {"name": "w", "namespace": "default"}, "spec": {"podSets": []}})


def test_one_that_is_taken_back_into_the_minimum_loses_its_workload_and_is_let_go_of() -> None:
    world = OfJob(pod())
    world.step()
    (raw,) = world.pods.values()
    raw["metadata"]["annotations"][ABOVE_MINIMUM_OF] = ""
    actions = world.next_actions()
    assert [type(action) for action in actions][-2:] == [DeleteWorkload, PatchPod]
    (patch,) = [action for action in actions if isinstance(action, PatchPod)]
    assert patch.body["metadata"]["labels"] == {MANAGED: None}
    world.step()
    assert raw["spec"]["schedulingGates"] == [{"name": names.TOPOLOGY_GATE}], "until it gets its place"
    assert not any("deletionTimestamp" not in each["metadata"] for each in world.workloads.values())


def test_a_workload_that_is_not_its_own_stays() -> None:
    world = OfJob(pod(above=""))
    world.workloads["other"] = {
        "metadata": {"name": "other", "namespace": "default", "uid": "o", "ownerReferences": [OWNER]},
        "spec": {"podSets": []},
    }
    assert [type(action) for action in world.next_actions()] == [PatchPod]


def ended(**status: Any) -> SeenWorkload:
    body = {"metadata": {"name": "w", "namespace": "default"}, "spec": {"podSets": []}}
    conditions = [{"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}]
    return SeenWorkload.of({**body, "status": {"conditions": conditions, **status}})


@pytest.mark.parametrize("admitted", [True, False])
def test_one_that_waits_when_its_job_has_ended_goes_uncounted_with_its_workload(admitted: bool) -> None:
    world = OfJob(pod(labels={TRAINING: "j"}, uid="u"))
    world.step()
    if admitted:
        world.admit(hosts={"n1": 1}, above="j-1")
    seen = replace(world.seen(), minimum=ended())
    actions = reconcile_pods(seen, JobSettings(), world.cluster)
    assert [type(action) for action in actions][-2:] == [DeleteWorkload, DeletePod]
    (gone,) = [action for action in actions if isinstance(action, DeletePod)]
    assert (gone.reason, gone.uncounted[-1]["op"]) == ("JobFinished", "remove")
    assert gone.message == "Workload w has finished, whose minimum it waited above"


def test_one_that_goes_already_or_has_no_workload_yet_is_looked_at_once() -> None:
    leaves = SeenPods(pods=(SeenPod(pod(deletionTimestamp="2026-01-01T00:00:00Z")),), minimum=ended())
    assert not [
        each for each in reconcile_pods(leaves, JobSettings(), cluster_objects()) if isinstance(each, DeletePod)
    ]
    new = SeenPods(pods=(SeenPod(pod()),), minimum=ended())
    assert [type(each) for each in reconcile_pods(new, JobSettings(), cluster_objects())] == [DeletePod]


@pytest.mark.parametrize("done", [True, False])
def test_where_finished_workloads_are_not_kept_the_job_tells_that_it_has_ended(done: bool) -> None:
    asked = []

    def has_ended(namespace: str, job: OwnerReference) -> bool:
        asked.append((namespace, job.name, job.uid))
        return done

    seen = SeenPods(pods=(SeenPod(pod()),), minimum=None)
    actions = reconcile_pods(seen, JobSettings(), cluster_objects(has_ended=has_ended))
    assert asked == [("default", "j", "j")]
    gone = [each for each in actions if isinstance(each, DeletePod)]
    assert [each.message for each in gone] == ["Workload w has finished, whose minimum it waited above"] * done


@pytest.mark.parametrize("meta", [{"gates": ()}, {"finalizers": [MANAGED]}])
def test_one_that_runs_or_is_of_no_job_goes_on_after_its_minimum(meta: dict[str, Any]) -> None:
    seen = SeenPods(pods=(SeenPod(pod(**meta)),), minimum=ended())
    assert not [each for each in reconcile_pods(seen, JobSettings(), cluster_objects()) if isinstance(each, DeletePod)]


def test_what_goes_is_no_failure_of_its_job() -> None:
    tracked = pod(finalizers=["a", TRACKED, "b"], uid="u")
    tied = {"op": "test", "path": "/metadata/uid", "value": "u"}
    assert uncounted(SeenPod(tracked)) == (
        tied,
        {"op": "test", "path": "/metadata/finalizers", "value": ["a", TRACKED, "b"]},
        {"op": "replace", "path": "/metadata/finalizers", "value": ["a", "b"]},
    )
    labelled = SeenPod(pod(labels={TRAINING: "j"}, uid="u"))
    assert uncounted(labelled) == (tied, {"op": "remove", "path": "/metadata/labels/training.kubeflow.org~1job-name"})
    assert uncounted(SeenPod(pod(uid="u"))) == ()
    assert uncounted(SeenPod(pod(above="", finalizers=[TRACKED], labels={TRAINING: "j"}, uid="u"))) == ()


def test_an_evicted_one_is_deleted_so() -> None:
    world = OfJob(pod(finalizers=[TRACKED]))
    world.step()
    world.admit(above="j-1")
    world.step()
    world.evict(above="j-1")
    (deleted,) = [action for action in world.next_actions() if isinstance(action, DeletePod)]
    assert [step["op"] for step in deleted.uncounted] == ["test", "test", "replace"]
