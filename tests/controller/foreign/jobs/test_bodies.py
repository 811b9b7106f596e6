"""Pods and volume claims of Volcano Jobs, as workers and Volcano's tools expect them."""

from typing import Any

import msgspec
import pytest

from controller.cluster.config.settings import ForeignSystem
from controller.foreign.jobs.bodies import job_here, keeping, pod_bodies, rescaled
from controller.foreign.jobs.gang import NewPod
from controller.foreign.jobs.kind import ForeignJobKind
from controller.foreign.jobs.placement import placement, written
from controller.foreign.jobs.plugins import table
from controller.foreign.jobs.plugins.plugin import JobView, view
from controller.foreign.jobs.podfacts import pod_facts
from controller.jobs.framework.marks import priority_class, queue_name
from controller.jobs.framework.podsets import PodSetInfo, SeenWorkload
from controller.jobs.framework.podview import SeenPod
from controller.objects.meta import to_json
from controller.scheduler.mirror.specs import System
from inventory.api.names import PLACEMENT
from tests.support.controller.volcanoworld import TEMPLATE, VolcanoWorld, task

SPLIT = {"partitionPolicy": {"totalPartitions": 2, "partitionSize": 2}}


def pod(world: VolcanoWorld, name: str = "worker", index: int = 3) -> dict[str, Any]:
    here = job_here(world.job, world.seen().here)
    [made] = pod_bodies(here, world.seen(), world.status, [NewPod(task=name, index=index)])
    return made


def test_a_pod_says_which_of_its_jobs_pods_it_is() -> None:
    world = VolcanoWorld(task("worker", 4, **SPLIT), queue="research")
    world.job["metadata"]["labels"] = {"volcano.sh/preemptable": "true", "team": "vision"}
    made = pod(world.start())
    assert made["metadata"]["name"] == "train-worker-3"
    assert made["metadata"]["labels"] == {
        "volcano.sh/task-index": "3",
        "volcano.sh/task-spec": "worker",
        "volcano.sh/job-name": "train",
        "volcano.sh/job-namespace": "team",
        "volcano.sh/queue-name": "research",
        "volcano.sh/partition-id": "1",
        "volcano.sh/preemptable": "true",
    }
    annotations = made["metadata"]["annotations"]
    assert annotations["scheduling.k8s.io/group-name"] == "train-u1"
    assert (annotations["volcano.sh/job-version"], annotations["volcano.sh/job-retry-count"]) == ("0", "0")
    facts = pod_facts(made)
    assert facts is not None
    assert (facts.task, facts.index, facts.version, facts.phase) == ("worker", 3, 0, "Pending")


def test_a_pod_has_what_its_admission_puts_in_each_time_it_is_made() -> None:
    world = VolcanoWorld(task("worker", 4)).start()
    assert world.placed is not None
    info = PodSetInfo(name="worker", count=4, node_selector={"gpu": "h100"}, scheduling_gates=("gate",))
    world.placed = {"worker": msgspec.structs.replace(world.placed["worker"], info=info)}
    for _ in range(2):
        spec = pod(world)["spec"]
        assert spec["nodeSelector"] == {"gpu": "h100"}
        assert spec["schedulingGates"] == [{"name": "gate"}]


def test_what_the_template_leaves_out_comes_from_the_job() -> None:
    own = {"spec": {"containers": [{"name": "c"}], "schedulerName": "mine", "priorityClassName": "low"}}
    bare = {"spec": {"containers": [{"name": "c"}], "hostNetwork": True}}
    tasks = (task("own", 1, template=own), task("bare", 1, template=bare))
    world = VolcanoWorld(*tasks, schedulerName="volcano", priorityClassName="high").start()
    written_out, from_job = (pod(world, name, 0)["spec"] for name in ("own", "bare"))
    assert (written_out["schedulerName"], written_out["priorityClassName"]) == ("mine", "low")
    assert (from_job["schedulerName"], from_job["priorityClassName"]) == ("default-scheduler", "high")
    assert from_job["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_the_site_says_which_scheduler_binds() -> None:
    world = VolcanoWorld(task("worker", 1), schedulerName="vc").start()
    switch = ForeignSystem(system=System.VOLCANO, scheduler_names=("vc",))
    keeps = msgspec.structs.replace(switch, keep_scheduler_name=True)
    here = job_here(world.job, world.seen().here)
    new = NewPod(task="worker", index=0)
    made = [
        each["spec"] for by in (switch, keeps) for each in pod_bodies(here, world.seen(), world.status, [new], by.binds)
    ]
    assert [each["schedulerName"] for each in made] == ["default-scheduler", "vc"]
    assert (keeps.binds(""), keeps.binds("mine")) == ("vc", "mine")


def test_volumes_are_mounted_in_all_containers_and_claims_are_made_once_under_one_name() -> None:
    claim = {"accessModes": ["ReadWriteOnce"]}
    volumes = [
        {"mountPath": "/own", "volumeClaimName": "data"},
        {"mountPath": "/new", "volumeClaim": claim},
        {"mountPath": "/named", "volumeClaimName": "mine", "volumeClaim": claim},
    ]
    world = VolcanoWorld(task("worker", 4), volumes=volumes).settle()
    world.placed = VolcanoWorld(task("worker", 4)).start().placed
    decision = world.decide()
    kept = keeping(world.job, world.seen(), decision)
    names = [each.body["metadata"]["name"] for each in kept.made]
    assert names[1:] == ["mine"]
    assert names[0].startswith("train-pvc-")
    assert kept.controlled == {f"volume-pvc-{name}": name for name in names}
    spec = pod(world)["spec"]
    claims = [each["persistentVolumeClaim"]["claimName"] for each in spec["volumes"]]
    assert claims == ["data", names[0], "mine"]
    assert [each["mountPath"] for each in spec["containers"][0]["volumeMounts"]] == ["/own", "/new", "/named"]
    world.status = msgspec.structs.replace(world.status, controlled_resources=kept.controlled)
    assert keeping(world.job, world.seen(), decision).made == ()


def test_pods_are_told_of_all_others_that_may_come() -> None:
    world = VolcanoWorld(task("worker", 4), minAvailable=1, plugins={"svc": []}).start(worker=2)
    env = {each["name"]: each.get("value") for each in pod(world, index=1)["spec"]["containers"][0]["env"]}
    (hosts,) = (
        each.body
        for each in keeping(job_here(world.job, world.seen().here), world.seen(), _again(world)).made
        if each.body["kind"] == "ConfigMap"
    )
    assert "VC_WORKER_NUM" in env
    assert hosts["data"]["VC_WORKER_NUM"] == "4"


def test_the_hosts_of_a_job_are_listed_once_for_all_pods_of_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pod that is made may be told of all the others: listing them for each is quadratic."""
    listed: list[JobView] = []

    def counting(job: dict[str, Any]) -> JobView:
        listed.append(view(job))
        return listed[-1]

    monkeypatch.setattr(table, "view", counting)
    world = VolcanoWorld(task("worker", 40), plugins={"svc": []}).start()
    new = [NewPod(task="worker", index=index) for index in range(40)]
    assert len(list(pod_bodies(world.job, world.seen(), world.status, new))) == 40
    assert len(listed) == 1
    assert not list(pod_bodies(world.job, world.seen(), world.status, ()))
    assert len(listed) == 1, "nothing is made: nothing is listed"


def _again(world: VolcanoWorld) -> Any:
    world.vanish("train-worker-0")
    return world.decide()


def test_a_scale_down_is_written_down_before_its_pods_go() -> None:
    world = VolcanoWorld(task("worker", 4)).run()
    assert world.placed is not None
    world.job["metadata"]["annotations"] = {PLACEMENT: written(world.placed)}
    assert rescaled(world.job, world.seen(), world.now_s) is None
    world.scale("worker", 2)
    patch = rescaled(world.job, world.seen(), world.now_s)
    assert patch is not None
    assert patch.body["metadata"]["resourceVersion"] == "1"
    world.job["metadata"]["annotations"] = patch.body["metadata"]["annotations"]
    placed = world.placed = placement(world.job)
    assert rescaled(world.job, world.seen(), world.now_s) is None
    assert placed is not None
    assert placed["worker"].pods == 2
    kind, job = ForeignJobKind(), {**world.job, "status": to_json(world.status)}
    assert kind.counts(job) == {"worker": 4}
    assert kind.reclaimed(job) == {"worker": 2}
    assert kind.counts({**world.scale("worker", 3).job, "status": job["status"]}) == {"worker": 3}
    back = {**world.scale("worker", 4).job, "status": job["status"]}
    body = {"kind": "Workload", "spec": {"podSets": [{"name": "worker", "count": 4, "template": {}}]}}
    assert kind.needs_again(back, SeenWorkload.of(body)), (
        "four are to run together, and two have given their quota back"
    )


def test_a_pod_above_the_minimum_is_queued_as_a_plain_pod_is() -> None:
    world = VolcanoWorld(task("worker", 4, template={**TEMPLATE, "metadata": {"finalizers": ["own/one"]}}))
    world.job["metadata"] |= {
        "labels": {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": "high", "team": "vision"},
        "annotations": {"tessera.dev/runtime": "1h", "other": "1"},
    }
    world.start(worker=2)
    above = NewPod(task="worker", index=2, above="the-job")
    [made] = pod_bodies(world.job, world.seen(), world.status, [above])
    seen = SeenPod(made)
    assert (seen.is_managed, seen.is_gated, seen.has_finalizer, seen.above_minimum_of) == (True, True, True, "the-job")
    assert (seen.foreign_group, queue_name(made), priority_class(made)) == (None, "q", "high")
    assert seen.annotations["tessera.dev/runtime"] == "1h"
    assert "kueue.x-k8s.io/podset" not in seen.labels
    assert seen.gates == ("kueue.x-k8s.io/admission",)
    assert made["metadata"]["finalizers"] == ["own/one", "kueue.x-k8s.io/managed"]
    assert "team" not in seen.labels
    assert "other" not in seen.annotations
    facts = pod_facts(made)
    assert facts is not None
    assert (facts.is_above, facts.is_ours, facts.is_given_up, facts.created_s) == (True, True, False, None)
    assert world.plan.tasks[0].template["metadata"] == {"finalizers": ["own/one"]}, "the template is as it was"


def test_a_pod_above_the_minimum_waits_to_run_since_it_has_a_node_and_is_given_up_by_the_queue_alone() -> None:
    def facts(*conditions: dict[str, str], **annotations: str) -> Any:
        marks = {"volcano.sh/task-index": "2", "volcano.sh/task-spec": "worker", "volcano.sh/job-version": "0"}
        metadata = {"creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {**marks, **annotations}}
        found = pod_facts({"metadata": metadata, "status": {"conditions": list(conditions)}})
        assert found is not None
        return found

    above = {"tessera.dev/above-minimum-of": "w"}
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}
    assert facts().created_s + 60 == facts(bound, **above).created_s
    assert facts({**bound, "status": "False"}, **above).created_s is None
    taken = {"type": "TerminationTarget", "status": "True"}
    assert facts(taken, **above).is_given_up
    assert not facts(taken).is_given_up
    assert not facts({**taken, "status": "False"}, **above).is_given_up
