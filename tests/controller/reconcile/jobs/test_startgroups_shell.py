"""PodGroups of starts in the whole process: made where the API is served, before the job starts, and removed later."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.watching.kinds import JOBS, WORKLOADS
from controller.jobs.framework.podview import ADMISSION_GATE
from controller.reconcile.jobs import theirgroups
from controller.reconcile.jobs.startgroups_shell import MADE_KINDS
from controller.reconcile.jobshell import followed_shell
from controller.scheduler.decisions import gangverdict
from inventory.api.names import GANG_SCHEDULED, POD_GROUP, START_OF
from kube.errors import KubeError
from kube.resources import EVENTS, PODS, Resource
from kube.testing import eventually
from tests.controller.cluster.process.test_jobs import QUEUE, says, seen, workload_of
from tests.controller.reconcile.pods.test_reconcile_shell import pod
from tests.support.controller.stage import CONFIG, Stage, config, stage, stamp

ON = config(CONFIG + "  nativeGangs: auto\n")
BETA = MADE_KINDS[0]


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_shell, "CHECK_S", 0.05)


@asynccontextmanager
async def scene_of(*kinds: Resource, given: ControllerConfig = ON) -> AsyncIterator[Stage]:
    async with stage() as scene:
        for kind in kinds:
            scene.server.install(kind)
        if not kinds:
            scene.server.unknown.add("podgroups")
        scene.queue(cpus=9)
        async with scene.controller(given, core_only=False):
            yield scene


def gang(scene: Stage, name: str, pods: int = 4) -> None:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"creationTimestamp": stamp(), "labels": {QUEUE: "lq-cq"}},
        "spec": {"suspend": True, "parallelism": pods, "completions": pods, "template": template},
    }
    scene.server.create(JOBS, name, body, namespace="team")


def runs(scene: Stage, name: str) -> bool:
    return seen(scene, name)["spec"]["suspend"] is False


def pod_of(scene: Stage, name: str) -> Any:
    return scene.server.get(PODS, name, namespace="team")


def note(scene: Stage, name: str) -> str:
    notes: dict[str, str] = seen(scene, name)["spec"]["template"].get("metadata", {}).get("annotations", {})
    return notes.get(POD_GROUP, "")


def groups(scene: Stage, kind: Resource = BETA) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in scene.server.list_all(kind)}


def asked(scene: Stage) -> list[str]:
    return [one.path for one in scene.server.requests if "podgroups" in one.path]


def verdict(scene: Stage, name: str, status: str, message: str = "") -> None:
    """What kube-scheduler writes on the group of the job."""
    said = {
        "type": "PodGroupInitiallyScheduled",
        "status": status,
        "reason": "Scheduled" if status == "True" else "Unschedulable",
        "message": message,
        "lastTransitionTime": stamp(),
    }
    scene.server.merge(BETA, note(scene, name), {"status": {"conditions": [said]}}, namespace="team")


@pytest.mark.parametrize("version", MADE_KINDS, ids=lambda kind: kind.version)
async def test_a_gang_starts_with_a_group_in_the_version_that_is_served(version: Resource) -> None:
    async with scene_of(version) as scene:
        gang(scene, "a")
        await eventually(lambda: runs(scene, "a"))
        (name,) = groups(scene, version)
        assert note(scene, "a") == name
        assert groups(scene, version)[name]["apiVersion"] == version.api_version
        assert groups(scene, version)[name]["spec"]["schedulingPolicy"] == {"gang": {"minCount": 4}}
        made = [one.path for one in scene.server.requests if one.method == "POST" and "podgroups" in one.path]
        assert len(made) == 1


async def test_without_the_api_nothing_is_written_and_one_line_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with scene_of() as scene:
        gang(scene, "a")
        await eventually(lambda: runs(scene, "a"))
        gang(scene, "b")
        await eventually(lambda: runs(scene, "b"))
        assert note(scene, "a") == note(scene, "b") == ""
        assert asked(scene) == []
        said = [record.message for record in caplog.records if "podgroups" in record.message]
        assert said == ["not there: podgroups of scheduling.k8s.io"]


async def test_jobs_and_pods_together_log_one_line_when_the_api_is_off_and_one_when_it_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each follows PodGroups for itself."""
    caplog.set_level(logging.INFO)
    both = config(CONFIG + "  nativeGangs: auto\nintegrations: {frameworks: [batch/job, pod]}\n")
    async with scene_of(given=both) as scene:
        gang(scene, "a")
        pod(scene, "p", schedulingGroup={"podGroupName": "mine"})
        await eventually(lambda: runs(scene, "a") and "no PodGroup 'mine'" in notes_of(scene))
        scene.server.unknown.discard("podgroups")
        scene.server.install(BETA)
        made_by_others(scene, "mine", {"gang": {"minCount": 1}})
        await eventually(lambda: ADMISSION_GATE not in str(pod_of(scene, "p")["spec"]))
        await eventually(lambda: len(asked(scene)) >= 6, what="looked for, listed, watched: for jobs and for pods")
        gang(scene, "b")
        await eventually(lambda: runs(scene, "b") and note(scene, "b") != "")
        lines = (record.message for record in caplog.records if record.name == followed_shell.__name__)
        said = [line for line in lines if "podgroups" in line]
        found = f"following podgroups of {BETA.api_version}"
        assert said == ["not there: podgroups of scheduling.k8s.io", found]


async def test_a_job_of_one_pod_asks_for_nothing() -> None:
    async with scene_of(BETA) as scene:
        gang(scene, "a", 1)
        await eventually(lambda: runs(scene, "a"))
        assert note(scene, "a") == ""
        assert asked(scene) == []


async def test_switched_off_a_gang_starts_as_it_always_did() -> None:
    async with scene_of(BETA, given=config(CONFIG + "  nativeGangs: off\n")) as scene:
        gang(scene, "a")
        await eventually(lambda: runs(scene, "a"))
        assert (note(scene, "a"), groups(scene)) == ("", {})


async def test_the_api_that_comes_while_the_controller_runs_serves_the_next_start() -> None:
    async with scene_of() as scene:
        gang(scene, "a")
        await eventually(lambda: runs(scene, "a"))
        scene.server.install(BETA)
        await eventually(lambda: len(asked(scene)) >= 3, what="looked for, listed, watched")
        gang(scene, "b")
        await eventually(lambda: runs(scene, "b"))
        assert list(groups(scene)) == [note(scene, "b")]
        assert note(scene, "a") == ""


async def test_an_evicted_gang_loses_its_group_and_comes_back_with_another() -> None:
    async with scene_of(BETA) as scene:
        gang(scene, "a")
        await eventually(lambda: runs(scene, "a"))
        first = note(scene, "a")
        name = workload_of(scene, "a")["metadata"]["name"]
        scene.server.merge(WORKLOADS, name, {"spec": {"active": False}}, namespace="team")
        await eventually(lambda: not runs(scene, "a") and note(scene, "a") == "" and not groups(scene), what="stopped")
        scene.server.merge(WORKLOADS, name, {"spec": {"active": True}}, namespace="team")
        await eventually(lambda: runs(scene, "a"), what="started again")
        assert list(groups(scene)) == [note(scene, "a")] != [first]


async def test_the_verdict_of_kube_scheduler_stands_on_the_workload_until_it_is_another() -> None:
    async with scene_of(BETA) as scene:
        gang(scene, "a")
        await eventually(lambda: runs(scene, "a"))
        verdict(scene, "a", "False", "0/3 nodes are available")
        await eventually(lambda: says(scene, "a", GANG_SCHEDULED) == "False/Unschedulable")
        verdict(scene, "a", "True")
        await eventually(lambda: says(scene, "a", GANG_SCHEDULED) == "True/Scheduled")
        assert runs(scene, "a"), "an autoscaler may add nodes: a gang without places of ours waits"


async def test_a_preempted_gang_is_evicted_and_waits_before_it_queues_again() -> None:
    async with scene_of(BETA) as scene:
        gang(scene, "a")
        await eventually(lambda: runs(scene, "a"))
        said = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        patch = {"status": {"conditions": [{**said, "message": "", "lastTransitionTime": stamp()}]}}
        scene.server.merge(BETA, note(scene, "a"), patch, namespace="team")
        await eventually(lambda: says(scene, "a", "Evicted") == "True/PreemptedByScheduler")
        await eventually(lambda: says(scene, "a", "Requeued") == "False/PreemptedByScheduler")
        assert workload_of(scene, "a")["status"]["requeueState"]["count"] == 1


async def test_a_group_that_is_refused_holds_the_start_and_says_why() -> None:
    async with scene_of(BETA) as scene:
        scene.server.refuse = lambda method, path: 403 if method == "POST" and "podgroups" in path else None
        gang(scene, "a")
        told = "The job does not start yet: its PodGroup could not be made"
        await eventually(lambda: any(one["note"].startswith(told) for one in scene.server.list_all(EVENTS)))
        assert not runs(scene, "a")
        scene.server.refuse = lambda _method, _path: None
        await eventually(lambda: runs(scene, "a"))
        assert list(groups(scene)) == [note(scene, "a")]


async def test_a_class_that_never_preempts_is_written_out_where_the_api_server_asks_for_it() -> None:
    async with scene_of(BETA) as scene:
        said = (
            "podgroups.scheduling.k8s.io is forbidden: the string value of PreemptionPolicy (PreemptLowerPriority) "
            "must not be provided in PodGroup spec; priority admission controller computed Never from its class"
        )
        answers = [KubeError(said, status=403, reason="Forbidden")]
        scene.server.refuse = lambda method, path: (
            answers.pop() if answers and method == "POST" and "podgroups" in path else None
        )
        gang(scene, "a")
        await eventually(lambda: runs(scene, "a"))
        (made,) = groups(scene).values()
        assert made["spec"]["preemptionPolicy"] == "Never"
        assert "could not be made" not in notes_of(scene)
        gang(scene, "b")
        await eventually(lambda: runs(scene, "b"))
        assert "preemptionPolicy" not in groups(scene)[note(scene, "b")]["spec"]


async def test_quota_of_a_gang_whose_group_is_refused_for_long_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gangverdict, "PATIENCE_S", 0.2)
    async with scene_of(BETA) as scene:
        answer = KubeError("exceeded quota: podgroups", status=403, reason="Forbidden")
        scene.server.refuse = lambda method, path: answer if method == "POST" and "podgroups" in path else None
        gang(scene, "a", 8)
        await eventually(lambda: says(scene, "a", "Evicted") == "True/GangNotScheduled")
        told = "Its PodGroup could not be made: "
        (verdict_told,) = (
            one["message"]
            for one in workload_of(scene, "a")["status"]["conditions"]
            if (one["type"], one["status"], one["reason"]) == (GANG_SCHEDULED, "False", "PodGroupNotMade")
        )
        assert verdict_told.startswith(told)
        assert "exceeded quota: podgroups" in verdict_told
        await eventually(lambda: says(scene, "a", "QuotaReserved").startswith("False"))
        scene.server.refuse = lambda _method, _path: None


async def test_a_group_that_is_made_after_a_refusal_ends_the_verdict() -> None:
    async with scene_of(BETA) as scene:
        scene.server.refuse = lambda method, path: 403 if method == "POST" and "podgroups" in path else None
        gang(scene, "a")
        await eventually(lambda: says(scene, "a", GANG_SCHEDULED) == "False/PodGroupNotMade")
        scene.server.refuse = lambda _method, _path: None
        await eventually(lambda: says(scene, "a", GANG_SCHEDULED) == "Unknown/PodGroupMade")
        assert runs(scene, "a")


async def test_a_label_that_a_person_wrote_makes_no_group_ours() -> None:
    async with scene_of(BETA) as scene:
        gang(scene, "a")
        await eventually(lambda: runs(scene, "a"))
        for name, body in (
            ("odd", {"metadata": {"labels": {START_OF: "nobody"}}, "spec": {"schedulingPolicy": 7}}),
            ("other", {"metadata": {"labels": {START_OF: ""}}, "spec": {}}),
        ):
            scene.server.create(BETA, name, body, namespace="team")
        gang(scene, "b", 2)
        await eventually(lambda: runs(scene, "b"))
        assert set(groups(scene)) == {"odd", "other", note(scene, "a"), note(scene, "b")}


async def test_a_controller_without_the_right_to_list_groups_starts_jobs_as_it_always_did() -> None:
    async with stage() as scene:
        scene.server.install(BETA)
        scene.server.refuse = lambda _method, path: 403 if "podgroups" in path else None
        scene.queue(cpus=9)
        async with scene.controller(ON, core_only=False):
            gang(scene, "a")
            await eventually(lambda: runs(scene, "a"))
            assert note(scene, "a") == ""


def made_by_others(scene: Stage, name: str, policy: dict[str, Any], *, job: str = "", **more: Any) -> None:
    """A PodGroup of the Job controller's for ``job``, else of a user's."""
    meta: dict[str, Any] = {}
    if job:
        uid = seen(scene, job)["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": True}
        meta["ownerReferences"] = [owner]
    body = {
        "apiVersion": BETA.api_version,
        "kind": "PodGroup",
        "metadata": meta,
        "spec": {"schedulingPolicy": policy, **more},
    }
    scene.server.create(BETA, name, body, namespace="team")


async def test_a_basic_group_of_the_job_controllers_makes_way_for_one_of_the_start() -> None:
    async with scene_of(BETA) as scene:
        gang(scene, "large", pods=8)
        await eventually(lambda: runs(scene, "large"))
        gang(scene, "next")
        made_by_others(scene, "theirs", {"basic": {}}, job="next")
        scene.server.delete(JOBS, "large", namespace="team")
        await eventually(lambda: runs(scene, "next"))
        assert "theirs" not in groups(scene)
        assert note(scene, "next") in groups(scene)


async def test_the_basic_group_of_the_first_job_that_asks_for_groups_makes_way_as_well() -> None:
    """Groups are not followed before that job: the one that it controls is known only once they are."""
    async with scene_of(BETA) as scene:
        gang(scene, "first")
        made_by_others(scene, "theirs", {"basic": {}}, job="first")
        await eventually(lambda: runs(scene, "first"))
        assert "theirs" not in groups(scene)
        assert note(scene, "first") in groups(scene)


def named(scene: Stage, name: str, of: str, **notes: str) -> None:
    """A Job of four pods whose template names a PodGroup."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    spec = {"restartPolicy": "Never", "containers": [container], "schedulingGroup": {"podGroupName": of}}
    template = {"metadata": {"annotations": notes}, "spec": spec}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"creationTimestamp": stamp(), "labels": {QUEUE: "lq-cq"}},
        "spec": {"suspend": True, "parallelism": 4, "completions": 4, "template": template},
    }
    scene.server.create(JOBS, name, body, namespace="team")


def notes_of(scene: Stage) -> str:
    return " ".join(one.get("note", "") for one in scene.server.list_all(EVENTS))


async def test_a_job_waits_for_the_group_that_its_template_names() -> None:
    async with scene_of(BETA) as scene:
        named(scene, "train", "mine")
        await eventually(lambda: "no PodGroup 'mine' of scheduling.k8s.io" in notes_of(scene))
        assert scene.server.list_all(WORKLOADS) == []
        made_by_others(scene, "mine", {"gang": {"minCount": 4}})
        await eventually(lambda: runs(scene, "train"))
        assert note(scene, "train") == ""


async def test_jobs_that_are_one_group_only_together_hold_no_quota() -> None:
    async with scene_of(BETA) as scene:
        made_by_others(scene, "mine", {"gang": {"minCount": 8}})
        named(scene, "one", "mine")
        named(scene, "two", "mine")
        told = "PodGroup mine: spec.schedulingPolicy.gang.minCount is 8, and the job makes 4 of its pods"
        await eventually(lambda: told in notes_of(scene))
        assert scene.server.list_all(WORKLOADS) == []
        scene.server.merge(BETA, "mine", {"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}, namespace="team")
        await eventually(lambda: runs(scene, "one") and runs(scene, "two"))


async def test_a_job_has_to_ask_for_the_level_of_the_group_that_its_template_names() -> None:
    async with scene_of(BETA) as scene:
        rack = {"topology": [{"key": "example.com/rack"}]}
        made_by_others(scene, "mine", {"gang": {"minCount": 4}}, schedulingConstraints=rack)
        named(scene, "train", "mine")
        told = "expected the annotation kueue.x-k8s.io/podset-required-topology: example.com/rack"
        await eventually(lambda: told in notes_of(scene))
        assert not runs(scene, "train")


async def test_the_verdict_on_a_group_of_the_job_controllers_comes_back() -> None:
    async with scene_of(BETA) as scene:
        gang(scene, "train")
        made_by_others(scene, "theirs", {"gang": {"minCount": 4}}, job="train")
        scene.server.merge(
            JOBS, "train", {"spec": {"scheduling": {"schedulingPolicy": {"gang": {}}}}}, namespace="team"
        )
        await eventually(lambda: runs(scene, "train"))
        assert "theirs" in groups(scene)
        said = {"type": "PodGroupInitiallyScheduled", "status": "False", "reason": "Unschedulable"}
        said |= {"message": "0/2 nodes are available", "lastTransitionTime": stamp()}
        scene.server.merge(BETA, "theirs", {"status": {"conditions": [said]}}, namespace="team")
        await eventually(lambda: says(scene, "train", GANG_SCHEDULED) == "False/Unschedulable")


def member(scene: Stage, name: str, *, node: str = "") -> None:
    """A pod of the Job ``train``."""
    uid = seen(scene, "train")["metadata"]["uid"]
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": stamp()}
    labels = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "train"}
    status = {"phase": "Running"} if node else {"phase": "Pending", "conditions": [waits]}
    spec = {"containers": [{"name": "main", "image": "none"}], **({"nodeName": node} if node else {})}
    body = {"metadata": {"labels": {**labels, "job-name": "train"}}, "spec": spec, "status": status}
    scene.server.create(PODS, name, body, namespace="team")


async def started_in_group(scene: Stage) -> None:
    """Starts the Job ``train`` in a PodGroup of its user's that kube-scheduler has started."""
    made_by_others(scene, "mine", {"gang": {"minCount": 4}})
    named(scene, "train", "mine")
    await eventually(lambda: runs(scene, "train"))
    said = {"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled", "message": ""}
    told = {"status": {"conditions": [{**said, "lastTransitionTime": stamp()}]}}
    scene.server.merge(BETA, "mine", told, namespace="team")


async def test_half_of_a_gang_in_a_group_of_others_is_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theirgroups, "LOOKS_EVERY_S", 0.05)
    async with scene_of(BETA) as scene:
        await started_in_group(scene)
        for name, node in (("a", "n1"), ("b", "n1"), ("c", ""), ("d", "")):
            member(scene, name, node=node)
        scene.server.merge(JOBS, "train", {"status": {"active": 4, "ready": 2}}, namespace="team")
        await eventually(lambda: says(scene, "train", "Evicted") == "True/PreemptedByScheduler")
        assert "lost the nodes of 2 pods" in str(workload_of(scene, "train")["status"]["conditions"])


async def test_half_of_a_gang_whose_other_pods_are_gone_does_not_wait_for_their_back_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Job controller counts the pods that kube-scheduler has preempted as failed, and makes them anew later."""
    monkeypatch.setattr(theirgroups, "LOOKS_EVERY_S", 0.05)
    monkeypatch.setattr(theirgroups, "HALF_S", 0.1)
    async with scene_of(BETA) as scene:
        await started_in_group(scene)
        member(scene, "a", node="n1")
        scene.server.merge(JOBS, "train", {"status": {"active": 1, "ready": 1, "failed": 3}}, namespace="team")
        await eventually(lambda: says(scene, "train", "Evicted") == "True/PreemptedByScheduler")
        assert "lost the nodes of 3 pods" in str(workload_of(scene, "train")["status"]["conditions"])
