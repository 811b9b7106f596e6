"""Jobs through the whole process: queued, started, stopped, resumed, refused, orphaned."""

from typing import Any

import pytest

from controller.cluster.watching.kinds import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, WORKLOADS
from inventory.api.names import KEPT_OFF, SPOT
from kube.resources import EVENTS
from kube.testing import eventually
from tests.support.controller.stage import CONFIG, Stage, config, stage, stamp
from tests.support.controller.told import page

QUEUE = "kueue.x-k8s.io/queue-name"


def job(scene: Stage, name: str, cpus: int = 1, *, priority: str | None = None) -> None:
    labels = {"kueue.x-k8s.io/priority-class": priority} if priority is not None else {}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": str(cpus)}}}
    scene.server.create(
        JOBS,
        name,
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"creationTimestamp": stamp(), "labels": {QUEUE: "lq-cq", **labels}},
            "spec": {
                "suspend": True,
                "parallelism": 1,
                "completions": 1,
                "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            },
        },
        namespace="team",
    )


def seen(scene: Stage, name: str) -> dict[str, Any]:
    found: dict[str, Any] = scene.server.get(JOBS, name, namespace="team")
    return found


def workload_of(scene: Stage, name: str) -> dict[str, Any]:
    """The Workload that the job owns; empty while there is none."""
    for one in scene.server.list_all(WORKLOADS):
        if any(owner["name"] == name for owner in one["metadata"].get("ownerReferences", [])):
            found: dict[str, Any] = one
            return found
    return {}


def says(scene: Stage, name: str, type_: str) -> str:
    conditions = workload_of(scene, name).get("status", {}).get("conditions", [])
    return next((f"{one['status']}/{one['reason']}" for one in conditions if one["type"] == type_), "")


async def test_a_job_is_started_when_its_workload_is_admitted_and_finished_with_it() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller(core_only=False) as process:
            job(scene, "a")
            await eventually(lambda: seen(scene, "a")["spec"]["suspend"] is False)
            assert says(scene, "a", "Admitted") == "True/Admitted"
            waited = 'kueue_workload_creation_latency_seconds_count{job_kind="Job",replica_role="standalone"} 1.0'
            assert waited in page(process).splitlines()
            job(scene, "b")
            await eventually(lambda: says(scene, "b", "QuotaReserved") == "False/WaitingForQuota")
            assert seen(scene, "b")["spec"]["suspend"] is True
            done = {"type": "Complete", "status": "True", "lastTransitionTime": stamp()}
            scene.server.merge(JOBS, "a", {"status": {"conditions": [done], "succeeded": 1}}, namespace="team")
            await eventually(lambda: says(scene, "a", "Finished") == "True/Succeeded")
            for name in ("finished", "admitted"):
                series = f'kueue_{name}_workloads_total{{cluster_queue="cq",priority_class="",'
                await eventually(lambda series=series: series in page(process))  # type: ignore[misc]
            await eventually(lambda: seen(scene, "b")["spec"]["suspend"] is False)
            wanted = {("Job", "CreatedWorkload"), ("Job", "Started"), ("Workload", "Admitted")}
            await eventually(
                lambda: wanted <= {(e["regarding"]["kind"], e["reason"]) for e in scene.server.list_all(EVENTS)}
            )


async def test_an_evicted_job_is_suspended_its_quota_released_and_it_comes_back() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller(core_only=False):
            job(scene, "a")
            await eventually(lambda: seen(scene, "a")["spec"]["suspend"] is False)
            name = workload_of(scene, "a")["metadata"]["name"]
            scene.server.merge(WORKLOADS, name, {"spec": {"active": False}}, namespace="team")
            await eventually(lambda: seen(scene, "a")["spec"]["suspend"] is True)
            await eventually(lambda: workload_of(scene, "a")["status"].get("admission") is None)
            scene.server.merge(WORKLOADS, name, {"spec": {"active": True}}, namespace="team")
            await eventually(lambda: seen(scene, "a")["spec"]["suspend"] is False)


async def test_a_restart_does_not_stop_what_runs() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller(core_only=False):
            job(scene, "a")
            await eventually(lambda: seen(scene, "a")["spec"]["suspend"] is False)
        for number in range(300):
            # Known before the job's own workload is: meanwhile the job seems to have none.
            scene.workload(f"before-{number}", 1)
            scene.finish(f"before-{number}")
        before = len(scene.server.seen("PATCH", "jobs/a"))
        async with scene.controller(core_only=False):
            job(scene, "b")
            await eventually(lambda: says(scene, "b", "QuotaReserved") == "False/WaitingForQuota")
        assert len(scene.server.seen("PATCH", "jobs/a")) == before
        assert seen(scene, "a")["spec"]["suspend"] is False


async def test_a_job_that_is_gone_leaves_no_quota_behind() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller(core_only=False):
            job(scene, "a")
            await eventually(lambda: says(scene, "a", "Admitted") == "True/Admitted")
            scene.server.delete(JOBS, "a", namespace="team")
            await eventually(lambda: says(scene, "a", "Finished") == "True/OwnerNotFound")
            await eventually(lambda: "finalizers" not in workload_of(scene, "a")["metadata"])
            job(scene, "b")
            await eventually(lambda: seen(scene, "b")["spec"]["suspend"] is False)


async def test_a_workload_that_its_job_has_left_is_finished_and_may_go() -> None:
    """As ``kubectl delete --cascade=orphan`` leaves it: without an owner, with the job's label."""
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller(core_only=False):
            scene.workload("left", 1)
            marks = {"labels": {"kueue.x-k8s.io/job-uid": "gone"}, "finalizers": ["kueue.x-k8s.io/resource-in-use"]}
            scene.server.merge(WORKLOADS, "left", {"metadata": marks}, namespace="team")
            await eventually(lambda: scene.condition("left", "Finished") == "True/OwnerNotFound")
            await eventually(
                lambda: not scene.server.get(WORKLOADS, "left", namespace="team")["metadata"].get("finalizers")
            )
            assert scene.used() == 0


async def test_with_the_gate_of_explicit_status_a_workload_says_at_once_that_it_waits() -> None:
    slow = CONFIG.replace("after: 0s", "after: 1h")
    text = slow.replace("tessera:", "featureGates: {UnadmittedWorkloadsExplicitStatus: true}\ntessera:")
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller(config(text)):
            scene.workload("large", 2)
            await eventually(lambda: scene.condition("large", "QuotaReserved") == "False/ExceedsMaxQuota")


async def test_a_job_that_cannot_be_queued_hears_why_once() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller(core_only=False):
            job(scene, "a", priority="nobody")

            def told() -> list[dict[str, Any]]:
                return [
                    one for one in scene.server.list_all(EVENTS) if one["reason"] == "WorkloadPriorityClassNotFound"
                ]

            await eventually(lambda: len(told()) == 1)
            assert "nobody" in told()[0]["note"]
            assert workload_of(scene, "a") == {}


@pytest.mark.parametrize(
    ("of_queue", "of_local", "kept_off"), [("never", None, True), ("never", "allowed", False), (None, "never", True)]
)
async def test_pods_keep_off_spot_nodes_by_the_word_of_their_nearest_queue(
    of_queue: str | None, of_local: str | None, *, kept_off: bool
) -> None:
    async with stage() as scene:
        scene.queue(cpus=9)
        scene.server.merge(CLUSTER_QUEUES, "cq", {"metadata": {"annotations": {SPOT: of_queue}}})
        scene.server.merge(LOCAL_QUEUES, "lq-cq", {"metadata": {"annotations": {SPOT: of_local}}}, namespace="team")
        async with scene.controller(config(CONFIG.replace("policy: kueue", "policy: tessera")), core_only=False):
            job(scene, "a")
            await eventually(lambda: seen(scene, "a")["spec"]["suspend"] is False)
            notes = seen(scene, "a")["spec"]["template"]["metadata"]["annotations"]
            assert notes.get(KEPT_OFF) == ("spot" if kept_off else None)
