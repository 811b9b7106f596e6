"""Volcano Jobs through the whole process: admitted, run, restarted, evicted, killed at any write."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.cluster.watching.kinds import (
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    VOLCANO_COMMANDS,
    VOLCANO_QUEUES,
    WORKLOADS,
)
from controller.foreign.jobs.queuecommands_shell import closed_above
from controller.foreign.jobs.reconcile_shell import JOBS
from controller.foreign.objects.volcanoqueue import (
    CLOSED_BY_PARENT,
    VolcanoQueue,
    VolcanoQueueSpec,
    VolcanoQueueState,
    VolcanoQueueStatus,
)
from controller.objects.meta import ObjectMeta
from inventory.api.names import PLACEMENT
from kube.resources import EVENTS, LEASES, Resource
from kube.testing import eventually
from tests.support.controller.stage import CONFIG, Stage, config, stage, stamp

EXAMPLES = Path(__file__).parents[4] / "examples"
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
WITH_VOLCANO = config(f"{CONFIG}integrations: {{frameworks: [batch/job, batch.volcano.sh/job]}}\n")


@asynccontextmanager
async def volcano() -> AsyncIterator[Stage]:
    """A stage with Volcano's CRDs."""
    async with stage() as scene:
        scene.server.install(JOBS)
        scene.server.install(VOLCANO_COMMANDS)
        yield scene


def vcjob(scene: Stage, name: str, *, workers: int = 2, **spec: Any) -> None:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "schedulerName": "volcano"}}
    scene.server.create(
        JOBS,
        name,
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"creationTimestamp": stamp()},
            "spec": {
                "queue": "lq-cq",
                "schedulerName": "volcano",
                "tasks": [{"name": "worker", "replicas": workers, "template": template}],
                **spec,
            },
        },
        namespace="team",
    )


def seen(scene: Stage, name: str) -> dict[str, Any]:
    found: dict[str, Any] = scene.server.get(JOBS, name, namespace="team")
    return found


def phase(scene: Stage, name: str) -> str:
    return str(seen(scene, name).get("status", {}).get("state", {}).get("phase", ""))


def pods(scene: Stage) -> dict[str, dict[str, Any]]:
    return {pod["metadata"]["name"]: pod for pod in scene.server.list_all(PODS)}


def becomes(scene: Stage, pod_phase: str, *names: str, **status: Any) -> None:
    for name in names or pods(scene):
        scene.server.merge(PODS, name, {"status": {"phase": pod_phase, **status}}, namespace="team")


async def test_a_volcano_job_is_admitted_run_and_completed_with_its_spec_untouched() -> None:
    async with volcano() as scene:
        scene.queue(cpus=2)
        async with scene.controller(WITH_VOLCANO, core_only=False):
            vcjob(scene, "a", plugins={"svc": [], "env": []})
            before = seen(scene, "a")["spec"]
            await eventually(lambda: len(pods(scene)) == 2)
            vcjob(scene, "b", workers=1)
            await eventually(lambda: phase(scene, "b") == "Pending")
            pod = pods(scene)["a-worker-1"]
            assert pod["metadata"]["labels"]["volcano.sh/task-index"] == "1"
            assert pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "worker"
            assert pod["metadata"]["ownerReferences"][0]["uid"] == seen(scene, "a")["metadata"]["uid"]
            assert pod["spec"]["schedulerName"] == "default-scheduler"
            assert {"name": "VC_TASK_INDEX", "value": "1"} in pod["spec"]["containers"][0]["env"]
            assert "worker.host" in scene.server.get(CONFIGMAPS, "a-svc", namespace="team")["data"]
            becomes(scene, "Running")
            await eventually(lambda: phase(scene, "a") == "Running")
            status = seen(scene, "a")["status"]
            assert (status["running"], status["minAvailable"]) == (2, 2)
            assert status["controlledResources"] == {"plugin-env": "env", "plugin-svc": "svc"}
            becomes(scene, "Succeeded")
            await eventually(lambda: phase(scene, "a") == "Completed")
            assert seen(scene, "a")["spec"] == before
            await eventually(lambda: "b-worker-0" in pods(scene))
            assert not any(each["metadata"]["name"] == "a-svc" for each in scene.server.list_all(CONFIGMAPS))


async def test_arguments_of_plugins_that_cannot_be_read_are_told_once_in_an_event() -> None:
    async with volcano() as scene:
        scene.queue(cpus=2)
        async with scene.controller(WITH_VOLCANO, core_only=False):
            vcjob(scene, "a", plugins={"svc": [], "pytorch": ["--port=many"]})
            await eventually(lambda: len(pods(scene)) == 2)
            becomes(scene, "Running")
            await eventually(lambda: phase(scene, "a") == "Running")
            becomes(scene, "Succeeded")
            await eventually(lambda: phase(scene, "a") == "Completed")
            sentence = "spec.plugins.pytorch: --port: expected an integer, found 'many'"
            await eventually(lambda: told_of(scene, "PluginArguments") != [])
            assert told_of(scene, "PluginArguments") == [sentence]


def told_of(scene: Stage, reason: str) -> list[str]:
    """The notes of events with this reason."""
    return [each["note"] for each in scene.server.list_all(EVENTS) if each["reason"] == reason]


async def test_the_example_runs_in_a_queue_that_is_volcanos_own() -> None:
    example = yaml.safe_load((EXAMPLES / "volcano" / "job.yaml").read_text())
    settings = config(f"{CONFIG}  volcano: {{enabled: true}}\nintegrations: {{frameworks: [batch.volcano.sh/job]}}\n")
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    offers = {"cpu": "8", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "4"}
    machine = {"metadata": {"labels": {"kubernetes.io/hostname": "n1"}}, "spec": {}}
    async with volcano() as scene:
        for resource in (VOLCANO_QUEUES, POD_GROUPS):
            scene.server.install(resource)
        scene.server.create(NAMESPACES, "team", {"metadata": {"labels": {"kubernetes.io/metadata.name": "team"}}})
        scene.server.create(NODES, "n1", {**machine, "status": {"allocatable": offers, "conditions": [ready]}})
        scene.server.create(VOLCANO_QUEUES, example["spec"]["queue"], {"spec": {"weight": 1}})
        async with scene.controller(settings, core_only=False):
            made = {**example, "metadata": {"creationTimestamp": stamp()}}
            scene.server.create(JOBS, "train", made, namespace="team")
            await eventually(lambda: sorted(pods(scene)) == ["train-master-0", "train-worker-0", "train-worker-1"])
            becomes(scene, "Running")
            await eventually(lambda: phase(scene, "train") == "Running")
            await eventually(lambda: group_phases(scene) == {f"train-{made_uid(scene)}": "Running"})
            becomes(scene, "Succeeded", "train-master-0")
            await eventually(lambda: phase(scene, "train") == "Completed", what="its policy completes it")
            await eventually(lambda: set(group_phases(scene).values()) == {"Completed"})
            assert len(scene.server.written("podgroups")) <= 5, "one of them asks for the version"


def made_uid(scene: Stage) -> str:
    return str(seen(scene, "train")["metadata"]["uid"])


def group_phases(scene: Stage) -> dict[str, str]:
    found = scene.server.list_all(POD_GROUPS)
    return {group["metadata"]["name"]: group["status"]["phase"] for group in found}


async def test_a_failed_pod_restarts_the_job_and_a_command_ends_it() -> None:
    async with volcano() as scene:
        scene.queue(cpus=2)
        async with scene.controller(WITH_VOLCANO, core_only=False):
            vcjob(scene, "a", policies=[{"event": "PodFailed", "action": "RestartJob"}])
            await eventually(lambda: len(pods(scene)) == 2)
            first = {pod["metadata"]["uid"] for pod in pods(scene).values()}
            becomes(scene, "Failed", "a-worker-0")
            await eventually(
                lambda: len(pods(scene)) == 2 and not first & {pod["metadata"]["uid"] for pod in pods(scene).values()}
            )
            assert seen(scene, "a")["status"]["retryCount"] == 1
            assert pods(scene)["a-worker-0"]["metadata"]["annotations"]["volcano.sh/job-version"] == "1"
            uid = seen(scene, "a")["metadata"]["uid"]
            target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "a", "uid": uid}
            body = {"metadata": {"creationTimestamp": stamp()}, "action": "TerminateJob", "target": target}
            scene.server.create(VOLCANO_COMMANDS, "end", body, namespace="team")
            await eventually(lambda: phase(scene, "a") == "Terminated")
            await eventually(lambda: scene.server.list_all(VOLCANO_COMMANDS) == [])
            assert pods(scene) == {}


async def test_an_evicted_job_keeps_its_retries_and_comes_back() -> None:
    async with volcano() as scene:
        scene.queue(cpus=2)
        async with scene.controller(WITH_VOLCANO, core_only=False):
            vcjob(scene, "a", policies=[{"event": "PodEvicted", "action": "RestartJob"}])
            await eventually(lambda: len(pods(scene)) == 2)
            becomes(scene, "Running")
            await eventually(lambda: phase(scene, "a") == "Running")
            (workload,) = scene.server.list_all(WORKLOADS)
            name = workload["metadata"]["name"]
            scene.server.merge(WORKLOADS, name, {"spec": {"active": False}}, namespace="team")
            await eventually(lambda: PLACEMENT not in seen(scene, "a")["metadata"].get("annotations", {}))
            await eventually(lambda: pods(scene) == {})
            await eventually(lambda: scene.server.list_all(WORKLOADS)[0]["status"].get("admission") is None)
            assert phase(scene, "a") == "Pending"
            scene.server.merge(WORKLOADS, name, {"spec": {"active": True}}, namespace="team")
            await eventually(lambda: len(pods(scene)) == 2)
            status = seen(scene, "a")["status"]
            assert (status.get("retryCount", 0), status.get("version", 0)) == (0, 0)


async def test_a_controller_that_dies_in_a_restart_is_followed_by_one_that_ends_it() -> None:
    async with volcano() as scene:
        scene.queue(cpus=3)
        async with scene.controller(WITH_VOLCANO, core_only=False):
            vcjob(scene, "a", workers=3, policies=[{"event": "PodFailed", "action": "RestartTask"}])
            await eventually(lambda: len(pods(scene)) == 3)
            first = {pod["metadata"]["uid"] for pod in pods(scene).values()}
            scene.server.refuse = lambda method, path: 500 if method == "DELETE" and "/pods/" in path else None
            becomes(scene, "Failed", "a-worker-0")
            await eventually(lambda: seen(scene, "a")["status"].get("retryCount") == 1)
        scene.server.refuse = lambda _method, _path: None
        async with scene.controller(WITH_VOLCANO, core_only=False):
            await eventually(
                lambda: len(pods(scene)) == 3 and not first & {pod["metadata"]["uid"] for pod in pods(scene).values()}
            )
            assert seen(scene, "a")["status"]["retryCount"] == 1


def gated(scene: Stage) -> dict[str, bool]:
    return {name: bool(pod["spec"].get("schedulingGates")) for name, pod in pods(scene).items()}


async def grown(scene: Stage, running: int, *, of: int = 4) -> None:
    """So many pods of job ``a`` are let go and run, its minimum of two among them; the others wait behind the gate."""

    def let_go() -> list[str]:
        return sorted(name for name, waits in gated(scene).items() if not waits)

    await eventually(lambda: len(pods(scene)) == of and len(let_go()) == running, what=f"{running} pods let go")
    assert {"a-worker-0", "a-worker-1"} <= set(let_go())
    becomes(scene, "Running", *let_go())


async def test_a_job_grows_above_its_minimum_and_gives_back_pod_by_pod() -> None:
    async with volcano() as scene:
        scene.queue(cpus=3, preemption={"withinClusterQueue": "LowerPriority"})
        async with scene.controller(WITH_VOLCANO, core_only=False):
            restarts = {"events": ["PodEvicted", "PodFailed"], "action": "RestartJob"}
            vcjob(scene, "a", workers=4, minAvailable=2, policies=[restarts])
            await grown(scene, 3)
            await eventually(lambda: phase(scene, "a") == "Running" and seen(scene, "a")["status"]["running"] == 3)
            status = seen(scene, "a")["status"]
            assert (status["pending"], status["minAvailable"]) == (1, 2)
            (minimum,) = (each for each in scene.server.list_all(WORKLOADS) if "job-" in each["metadata"]["name"])
            assert [each["count"] for each in minimum["spec"]["podSets"]] == [2]
            scene.workload("urgent")
            await scene.until_admitted("urgent")
            await grown(scene, 2)
        scene.finish("urgent")
        async with scene.controller(WITH_VOLCANO, core_only=False):
            await grown(scene, 3)
            scene.workload("larger", 2)
            await eventually(lambda: scene.condition("larger", "QuotaReserved").startswith("False/"))
            assert sum(gated(scene).values()) == 1, "what is above the minimum is not enough: no pod leaves in vain"
            becomes(scene, "Succeeded", "a-worker-0", "a-worker-1")
            await scene.until_admitted("larger")
            scene.finish("larger")
            await eventually(lambda: not any(gated(scene).values()), what="all pods let go")
            becomes(scene, "Succeeded")
            await eventually(lambda: phase(scene, "a") == "Completed")
            assert seen(scene, "a")["status"].get("retryCount", 0) == 0
            await eventually(lambda: scene.used() == 0)


async def test_a_job_that_is_evicted_while_it_grows_leaves_nothing_behind() -> None:
    """The controller is killed between the pods of the minimum and those above it, and again in the eviction."""
    async with volcano() as scene:
        scene.queue(cpus=4)
        scene.server.refuse = lambda method, path: 500 if method == "POST" and path.endswith("/pods") else None
        async with scene.controller(WITH_VOLCANO, core_only=False):
            vcjob(scene, "a", workers=4, minAvailable=2, policies=[{"event": "PodEvicted", "action": "AbortJob"}])
            await eventually(lambda: seen(scene, "a").get("status", {}).get("pending") == 4)
        scene.server.refuse = lambda _method, _path: None
        async with scene.controller(WITH_VOLCANO, core_only=False):
            await grown(scene, 4)
            scene.server.refuse = lambda method, path: 500 if method == "DELETE" and "/pods/" in path else None
            name = next(each for each in workloads(scene) if each.startswith("job-"))
            scene.server.merge(WORKLOADS, name, {"spec": {"active": False}}, namespace="team")
            await eventually(lambda: PLACEMENT not in seen(scene, "a")["metadata"].get("annotations", {}))
        scene.server.refuse = lambda _method, _path: None
        async with scene.controller(WITH_VOLCANO, core_only=False):
            await eventually(lambda: pods(scene) == {})
            await eventually(lambda: scene.used() == 0)
            assert (phase(scene, "a"), seen(scene, "a")["status"].get("retryCount", 0)) == ("Pending", 0)
            scene.server.merge(WORKLOADS, name, {"spec": {"active": True}}, namespace="team")
            await grown(scene, 4)


def workloads(scene: Stage) -> list[str]:
    return [each["metadata"]["name"] for each in scene.server.list_all(WORKLOADS)]


async def test_pods_that_volcano_started_are_neither_deleted_nor_started_again() -> None:
    async with volcano() as scene:
        scene.queue(cpus=2)
        vcjob(scene, "a")
        counts = {"running": 2, "state": {"phase": "Running"}, "taskStatusCount": {"worker": {"phase": {"Running": 2}}}}
        scene.server.merge(JOBS, "a", {"status": counts}, namespace="team")
        meta = seen(scene, "a")["metadata"]
        owner = {"apiVersion": JOBS.api_version, "kind": "Job", "name": "a", "uid": meta["uid"], "controller": True}
        for index in ("0", "1"):
            own = {"volcano.sh/job-name": "a", "volcano.sh/task-index": index, "volcano.sh/task-spec": "worker"}
            said = {"volcano.sh/job-version": "0"}
            metadata = {"labels": own, "annotations": said, "ownerReferences": [owner], "creationTimestamp": stamp()}
            status = {"status": {"phase": "Running"}}
            scene.server.create(PODS, f"a-worker-{index}", {"metadata": metadata, **status}, namespace="team")
        before = {name: pod["metadata"]["uid"] for name, pod in pods(scene).items()}
        async with scene.controller(WITH_VOLCANO, core_only=False):
            becomes(scene, "Failed", "a-worker-0")
            await eventually(lambda: seen(scene, "a")["status"].get("failed") == 1)
            assert {name: pod["metadata"]["uid"] for name, pod in pods(scene).items()} == before
            becomes(scene, "Succeeded", "a-worker-1")
            await eventually(lambda: phase(scene, "a") == "Failed")
            assert not scene.server.list_all(WORKLOADS)


@pytest.mark.parametrize(
    "switch",
    [
        "  volcano: {enabled: false, namespaceSelector: {matchLabels: {volcano: gone}}}\n",
        "managedJobsNamespaceSelector: {matchLabels: {volcano: gone}}\n",
    ],
)
async def test_only_jobs_of_the_selected_namespaces_are_queued_and_run(switch: str) -> None:
    settings = config(f"{CONFIG}{switch}integrations: {{frameworks: [batch.volcano.sh/job]}}\n")
    async with volcano() as scene:
        scene.queue(cpus=2)
        async with scene.controller(settings, core_only=False):
            vcjob(scene, "a")
            scene.workload("w", 1)
            await eventually(lambda: scene.admitted("w"), what="what came later is decided")
            assert (pods(scene), phase(scene, "a")) == ({}, "")
            assert len(scene.server.list_all(WORKLOADS)) == 1
            scene.finish("w")
            labels = {"kubernetes.io/metadata.name": "team", "volcano": "gone"}
            scene.server.merge(NAMESPACES, "team", {"metadata": {"labels": labels}})
            await eventually(lambda: len(pods(scene)) == 2)


def order(scene: Stage, name: str, action: str, target: dict[str, str]) -> None:
    body = {"metadata": {"creationTimestamp": stamp()}, "action": action, "target": target}
    scene.server.create(VOLCANO_COMMANDS, name, body, namespace="team")


async def test_commands_close_and_open_a_queue() -> None:
    settings = config(f"{CONFIG}  volcano: {{enabled: true}}\nintegrations: {{frameworks: [batch.volcano.sh/job]}}\n")
    target = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": "q", "uid": "any"}

    def state() -> str:
        return str(scene.server.get(VOLCANO_QUEUES, "q").get("status", {}).get("state"))

    async with volcano() as scene:
        scene.server.install(VOLCANO_QUEUES)
        scene.server.create(VOLCANO_QUEUES, "q", {"spec": {}})
        async with scene.controller(settings, core_only=False):
            await eventually(lambda: state() == "Open")
            order(scene, "close", "CloseQueue", target)
            await eventually(lambda: state() == "Closed", what="nothing runs in it")
            order(scene, "open", "OpenQueue", target)
            await eventually(lambda: state() == "Open")
            order(scene, "gone", "CloseQueue", {**target, "name": "gone"})
            await eventually(lambda: scene.server.list_all(VOLCANO_COMMANDS) == [])


async def test_below_a_closed_queue_none_is_opened_and_one_that_is_closed_stays_so() -> None:
    settings = config(f"{CONFIG}  volcano: {{enabled: true}}\nintegrations: {{frameworks: [batch.volcano.sh/job]}}\n")
    target = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": "q", "uid": "any"}
    closed = {"status": {"state": "Closed"}}
    async with volcano() as scene:
        scene.server.install(VOLCANO_QUEUES)
        scene.server.create(VOLCANO_QUEUES, "top", {"spec": {}, **closed})
        marked = {"metadata": {"annotations": {CLOSED_BY_PARENT: "true"}}, "spec": {"parent": "top"}, **closed}
        scene.server.create(VOLCANO_QUEUES, "q", marked)
        order(scene, "open", "OpenQueue", target)
        async with scene.controller(settings, core_only=False):
            await eventually(lambda: not scene.server.list_all(VOLCANO_COMMANDS))
            assert scene.server.get(VOLCANO_QUEUES, "q")["metadata"]["annotations"] == {CLOSED_BY_PARENT: "true"}
            refused = "The queue stays closed: spec.parent: found 'top', which is Closed, expected an open Queue"
            await eventually(lambda: any(refused == event["note"] for event in scene.server.list_all(EVENTS)))
            order(scene, "close", "CloseQueue", target)
            await eventually(lambda: not scene.server.list_all(VOLCANO_COMMANDS))
            assert scene.server.get(VOLCANO_QUEUES, "q")["metadata"]["annotations"] == {CLOSED_BY_PARENT: "false"}


def test_the_nearest_closed_queue_above_is_named_and_a_circle_has_an_end() -> None:
    def queue(name: str, parent: str, state: VolcanoQueueState = "Open") -> VolcanoQueue:
        return VolcanoQueue(
            metadata=ObjectMeta(name=name),
            spec=VolcanoQueueSpec(parent=parent),
            status=VolcanoQueueStatus(state=state),
        )

    top, middle = queue("top", "root", "Closed"), queue("middle", "top", "Closing")
    known = {each.metadata.name: each for each in (top, middle, queue("a", "b"), queue("b", "a"))}
    assert closed_above(queue("q", "middle", "Closed"), known.get) is middle
    assert closed_above(middle, known.get) is top
    assert closed_above(top, known.get) is None
    assert closed_above(known["a"], known.get) is None


async def test_with_auto_jobs_are_run_where_volcanos_own_controller_holds_no_lease() -> None:
    text = CONFIG.replace("policy: kueue", "policy: tessera")
    async with volcano() as scene:
        scene.server.install(VOLCANO_QUEUES)
        scene.queue(cpus=2)
        async with scene.controller(config(text), core_only=False):
            vcjob(scene, "a")
            await eventually(lambda: len(pods(scene)) == 2)
    held = {"holderIdentity": "theirs", "renewTime": datetime.now(UTC).isoformat(), "leaseDurationSeconds": 3600}
    async with volcano() as scene:
        scene.server.install(VOLCANO_QUEUES)
        scene.server.create(LEASES, "vc-controller-manager", {"spec": held}, namespace="volcano-system")
        scene.queue(cpus=2)
        vcjob(scene, "a")
        async with scene.controller(config(text), core_only=False):
            scene.workload("w", 1)
            await eventually(lambda: scene.admitted("w"))
            assert len(scene.server.list_all(WORKLOADS)) == 1
            assert not scene.server.seen("GET", JOBS.path())
