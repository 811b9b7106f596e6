"""Jobs that somebody else made for a queued job than its own controller: the whole process."""

from typing import Any

import msgspec
import pytest

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.watching.kinds import JOBS, WORKLOADS
from controller.jobs.kinds.batchjob import BatchJob
from controller.reconcile.jobshell import watched
from kube.resources import EVENTS
from kube.testing import eventually
from tests.controller.cluster.process.test_jobs import job
from tests.controller.reconcile.jobs.test_reconcile_shell import OTHERS, OtherKind, condition, other, part, suspended
from tests.support.controller.stage import CONFIG, Stage, config, stage, stamp
from tests.support.hang import HANG_S

AWAITS = {"metadata": {"annotations": {"tessera.dev/awaits-owner": "true"}}}


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> ControllerConfig:
    monkeypatch.setattr(watched, "JOB_KINDS", (BatchJob(), OtherKind()))
    given = config()
    frameworks = (*given.integrations.frameworks, OtherKind.framework)
    return msgspec.structs.replace(
        given, integrations=msgspec.structs.replace(given.integrations, frameworks=frameworks)
    )


def told(scene: Stage, name: str) -> str:
    return " ".join(each["note"] for each in scene.server.list_all(EVENTS) if each["regarding"].get("name") == name)


def child(scene: Stage, name: str, **spec: Any) -> None:
    """A Job as the policy leaves one that an unknown operator made for ``a``."""
    part(scene, name, OTHERS, "a")
    scene.server.merge(JOBS, name, {**AWAITS, "spec": spec}, namespace="team")


def runs(scene: Stage, name: str) -> bool:
    return not suspended(scene, JOBS, name)


def finish(scene: Stage, name: str) -> None:
    done = {"type": "Complete", "status": "True", "lastTransitionTime": stamp()}
    scene.server.merge(JOBS, name, {"status": {"conditions": [done], "succeeded": 1}}, namespace="team")


async def test_children_start_within_what_their_owner_is_charged_for(both: ControllerConfig) -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        scene.workload("before", 2)
        other(scene, "a")
        scene.server.merge(OTHERS, "a", {"spec": {"parallelism": 2, "completions": 2}}, namespace="team")
        async with scene.controller(both, core_only=False):
            await scene.until_admitted("before")
            child(scene, "a-0")
            await eventually(lambda: "until the job that owns it is admitted" in told(scene, "a-0"))
            assert not runs(scene, "a-0")
            scene.finish("before")
            await eventually(lambda: runs(scene, "a-0"), within_s=HANG_S)
            child(scene, "a-1")
            await eventually(lambda: runs(scene, "a-1"), within_s=HANG_S)
            child(scene, "a-2")
            await eventually(lambda: "no room for 1 more" in told(scene, "a-2"))
            assert not runs(scene, "a-2")
            finish(scene, "a-0")
            await eventually(lambda: runs(scene, "a-2"), within_s=HANG_S, what="the room of the child that ended")
            assert len(scene.server.list_all(WORKLOADS)) == 2, "children have none"
            labels = scene.server.get(JOBS, "a-2", namespace="team")["spec"]["template"]["metadata"]["labels"]
            assert labels["kueue.x-k8s.io/podset"] == "main"


@pytest.mark.parametrize("spec", [{"parallelism": 2, "completions": 2}, {"cpu": "2"}], ids=str)
async def test_a_child_that_is_more_or_larger_than_what_is_charged_waits(
    both: ControllerConfig, spec: dict[str, Any]
) -> None:
    async with stage() as scene:
        scene.queue(cpus=8)
        other(scene, "a")
        async with scene.controller(both, core_only=False):
            await eventually(lambda: not suspended(scene, OTHERS, "a"))
            if cpu := spec.pop("cpu", None):
                container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
                spec = {"template": {"spec": {"containers": [container]}}}
            child(scene, "a-0", **spec)
            await eventually(lambda: "no room for" in told(scene, "a-0"))
            assert not runs(scene, "a-0")


async def test_what_the_owners_controller_makes_goes_before_what_others_made(both: ControllerConfig) -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        other(scene, "a")
        async with scene.controller(both, core_only=False):
            await eventually(lambda: not suspended(scene, OTHERS, "a"))
            child(scene, "a-0")
            await eventually(lambda: runs(scene, "a-0"), within_s=HANG_S)
            part(scene, "a-own", OTHERS, "a", suspend=False)
            await eventually(lambda: not runs(scene, "a-0"), what="suspended again")
            assert runs(scene, "a-own")
            await eventually(lambda: "no room for 1 more" in told(scene, "a-0"))
            assert condition(scene, "Other", "Admitted") == "True/Admitted"


async def test_a_child_of_a_kind_that_its_owner_does_not_make_waits(both: ControllerConfig) -> None:
    async with stage() as scene:
        scene.queue(cpus=8)
        async with scene.controller(both, core_only=False):
            job(scene, "owner")
            await eventually(lambda: runs(scene, "owner"))
            part(scene, "stowaway", JOBS, "owner")
            scene.server.merge(JOBS, "stowaway", AWAITS, namespace="team")
            await eventually(lambda: "which makes no Job" in told(scene, "stowaway"))
            assert not runs(scene, "stowaway")


async def test_an_owner_that_may_not_be_read_keeps_its_child_waiting_and_the_right_is_named() -> None:
    given = config(CONFIG + "integrations: {externalFrameworks: [Other.v1.example.dev]}\n")
    async with stage() as scene:
        scene.queue(cpus=8)
        other(scene, "a")
        child(scene, "a-0")
        scene.server.refuse = lambda _method, path: 403 if "/others" in path else None
        async with scene.controller(given, core_only=False):
            await eventually(
                lambda: "lacks the right to get others.example.dev in namespace team" in told(scene, "a-0")
            )
            assert not runs(scene, "a-0")
