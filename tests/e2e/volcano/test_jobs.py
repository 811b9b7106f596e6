"""Volcano Jobs on a real control plane: an article's job as it is, each lifecycle action, evictions, and the controller
killed in the middle of each. What users see is what ``kubectl get vcjob`` prints.
"""

import json
from typing import Any

import pytest
import yaml

from controller.cluster.watching.kinds import VOLCANO_COMMANDS
from inventory.api.names import PLACEMENT
from kube.client import Selection
from kube.resources import Resource
from tests.support.e2e.lab import EXAMPLES
from tests.support.e2e.podlab import refused
from tests.support.e2e.queuelab import Controller, Json
from tests.support.e2e.volcanolab import (
    TEAM,
    VolcanoLab,
    still,
    task,
    volcano_job,
)

pytestmark = pytest.mark.e2e

ARTICLE = "pytorch-distributed"
ARTICLE_PODS = [f"{ARTICLE}-{pod}" for pod in ("master-0", "worker-0", "worker-1", "worker-2")]
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
SECRETS = Resource("", "v1", "secrets", "Secret", namespaced=True)
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True)
BESIDE = {
    Resource("", "v1", "services", "Service", namespaced=True): ARTICLE,
    CONFIG_MAPS: f"{ARTICLE}-svc",
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", namespaced=True): ARTICLE,
}
"""What the article's plugins bring."""
STARTED = ["Pending", "Running"]
RESTARTED = [*STARTED, "Restarting", *STARTED]


# -- the article's job


async def test_the_articles_job_runs_as_it_is(scene: VolcanoLab) -> None:
    """Its pods would be started again when they end (it names no restartPolicy): here kwok says that they are done."""
    namespace = await apply_article(scene)
    await scene.until(lambda: scene.runs(ARTICLE, 4), "all of its pods run")
    pods = scene.pods(ARTICLE)
    assert list(pods) == ARTICLE_PODS
    for pod in pods.values():
        assert pod["spec"]["schedulerName"] == "default-scheduler"
        assert pod["spec"]["nodeName"].startswith("kwok-")
        assert pod["spec"]["restartPolicy"] == "Always"
    assert scene.workload(ARTICLE)["status"]["admission"]["clusterQueue"] == "default"
    printed = scene.printed("vcjob", ARTICLE, namespace)
    assert printed | {"AGE": ""} == row(ARTICLE, "Running", 4, 4)
    for kind, name in BESIDE.items():
        assert name in await names(scene, kind, namespace), kind.plural
    group = f"{ARTICLE}-{scene.job(ARTICLE)['metadata']['uid']}"
    wanted = row(group, "Running", 4, 4)
    await scene.until(lambda: scene.printed("podgroups", group, namespace)["RUNNINGS"] == "4", "so does its PodGroup")
    shown = scene.printed("podgroups", group, namespace) | {"AGE": ""}
    assert shown == {key.replace("MINAVAILABLE", "MINMEMBER"): value for key, value in wanted.items()}
    assert scene.job(ARTICLE)["spec"]["schedulerName"] == "volcano", "its spec is as it was written"
    forged = ("annotate", "vcjob", ARTICLE, "-n", namespace, "--overwrite", f"{PLACEMENT}={{}}")
    assert f"metadata.annotations[{PLACEMENT}]: expected it as it was" in refused(scene.cluster, *forged)
    await ends_well(scene, ARTICLE, namespace)


async def names(scene: VolcanoLab, kind: Resource, namespace: str) -> list[str]:
    found = (await scene.client.list_all(kind, dict[str, Any], Selection(namespace=namespace))).items
    return [each["metadata"]["name"] for each in found]


async def apply_article(scene: VolcanoLab) -> str:
    """Return its namespace."""
    file = EXAMPLES / "volcano" / f"{ARTICLE}.yaml"
    namespace: str = yaml.safe_load(file.read_text())["metadata"]["namespace"]
    scene.namespace(namespace)
    scene.cluster.kubectl("apply", "-f", str(file))
    return namespace


def row(name: str, phase: str, minimum: int, running: int, queue: str = "default") -> dict[str, str]:
    """Of ``kubectl get vcjob -o wide``, but for its age."""
    shown = {"NAME": name, "STATUS": phase, "MINAVAILABLE": str(minimum), "AGE": "", "QUEUE": queue}
    return {**shown, "RUNNINGS": str(running or "")}


async def ends_well(scene: VolcanoLab, name: str, namespace: str) -> None:
    pods = scene.pods(name)
    await scene.finish(*pods)
    await scene.until(lambda: scene.phase(name) == "Completed", "it is done")
    await scene.until(lambda: scene.condition(name, "Finished") == "True/Succeeded", "so is its Workload")
    assert scene.status(name)["succeeded"] == len(pods)
    assert scene.phases(name) == [*STARTED, "Completed"]
    assert scene.times_made(name) == dict.fromkeys(pods, 1)
    minimum = scene.job(name)["spec"]["minAvailable"]
    assert scene.printed("vcjob", name, namespace) | {"AGE": ""} == row(name, "Completed", minimum, 0)


async def test_killed_at_each_step_the_articles_job_is_run_once(scene: VolcanoLab, controller: Controller) -> None:
    namespace = await apply_article(scene)
    steps = {
        "it has a Workload": lambda: scene.workload(ARTICLE),
        "it is admitted": lambda: scene.condition(ARTICLE, "Admitted").startswith("True"),
        "pods are made": lambda: scene.pods(ARTICLE),
        "pods run": lambda: scene.running(ARTICLE),
        "it runs": lambda: scene.runs(ARTICLE, 4),
    }
    for what, reached in steps.items():
        await scene.until(lambda reached=reached: bool(reached()), what)  # type: ignore[misc]
        restart(controller)
    await scene.finish(ARTICLE_PODS[0])
    await scene.until(lambda: scene.status(ARTICLE).get("succeeded") == 1, "one pod is done")
    restart(controller)
    await ends_well(scene, ARTICLE, namespace)


def restart(controller: Controller) -> None:
    """It ends as by a power cut, and is started again at once."""
    controller.kill()
    controller.start()


# -- lifecycle actions


async def six_run(scene: VolcanoLab, *policies: Json, **spec: Any) -> dict[str, str]:
    """A job of two tasks, the second in two partitions. Return the uids of its pods."""
    parts = {"totalPartitions": 2, "partitionSize": 2}
    tasks = (task("a", 2), task("b", 4, partitionPolicy=parts))
    await scene.create(volcano_job("work", *tasks, policies=list(policies), **spec))
    await scene.until(lambda: scene.runs("work", 6), "all of its pods run")
    return scene.uids("work")


RESTARTS = {
    "RestartJob": {"a-0", "a-1", "b-0", "b-1", "b-2", "b-3"},
    "RestartTask": {"b-0", "b-1", "b-2", "b-3"},
    "RestartPartition": {"b-2", "b-3"},
    "RestartPod": {"b-3"},
}
"""Which pods are made anew where pod 3 of task b fails."""


@pytest.mark.parametrize("action", RESTARTS)
async def test_a_failed_pod_restarts(scene: VolcanoLab, action: str) -> None:
    """The exit code chooses: the first policy is about another one."""
    other, this = {"action": "TerminateJob", "exitCode": 1}, {"action": action, "exitCode": 42}
    before = await six_run(scene, other, this)
    await scene.fail("work-b-3", exit_code=42)
    await scene.until(lambda: scene.phases("work") == RESTARTED and scene.runs("work", 6), "it runs again")
    assert_restarted(scene, action, before)


def assert_restarted(scene: VolcanoLab, action: str, before: dict[str, str]) -> None:
    after, status = scene.uids("work"), scene.status("work")
    assert {name.removeprefix("work-") for name in before if after[name] != before[name]} == RESTARTS[action]
    assert status["retryCount"] == 1
    assert status.get("version", 0) == (action == "RestartJob"), "a part of it goes on as it was"
    assert scene.times_made("work") == {name: 1 + (name.removeprefix("work-") in RESTARTS[action]) for name in before}
    assert scene.printed("vcjob", "work") | {"AGE": ""} == row("work", "Running", 6, 6)
    assert scene.condition("work", "Admitted") == "True/Admitted"
    assert scene.condition("work", "Evicted") == "", "a restart keeps the quota"


@pytest.mark.parametrize("action", ["RestartJob", "RestartPartition"])
async def test_killed_at_each_step_a_restart_is_counted_once(
    scene: VolcanoLab, controller: Controller, action: str
) -> None:
    cluster = scene.cluster
    before = await six_run(scene, {"action": action, "event": "PodFailed"})
    controller.kill()
    await scene.fail("work-b-3")
    with still(cluster):
        controller.start()
        await scene.until(lambda: scene.phase("work") == "Restarting", "what happened meanwhile is answered")
        restart(controller)
        leaving = {f"work-{name}" for name in RESTARTS[action] - {"b-3"}}
        await scene.until(lambda: leaving == scene.going("work") - {"work-b-3"}, "its pods are being deleted")
        restart(controller)
    await scene.until(lambda: scene.uids("work").get("work-b-3") not in (None, before["work-b-3"]), "made anew")
    restart(controller)
    await scene.until(lambda: scene.phases("work") == RESTARTED and scene.runs("work", 6), "it runs again")
    assert_restarted(scene, action, before)


async def test_a_job_whose_pod_was_drained_is_aborted_and_resumed_by_command(scene: VolcanoLab) -> None:
    before = await six_run(scene, {"action": "AbortJob", "event": "PodEvicted"})
    scene.evict("work-a-1")
    await scene.until(lambda: scene.phase("work") == "Aborted" and not scene.pods("work"), "no pod is left")
    await scene.until(lambda: scene.condition("work", "QuotaReserved").startswith("False"), "nor quota")
    assert scene.printed("vcjob", "work") | {"AGE": ""} == row("work", "Aborted", 6, 0)
    await scene.command("ResumeJob", "work")
    await scene.until(lambda: scene.runs("work", 6), "it runs again")
    assert scene.phases("work") == [*STARTED, "Aborting", "Aborted", "Restarting", *STARTED]
    assert scene.status("work")["retryCount"] == 1
    assert not {*scene.uids("work").values()} & {*before.values()}
    await commands_are_read(scene)


async def commands_are_read(scene: VolcanoLab) -> None:
    assert not (await scene.client.list_all(VOLCANO_COMMANDS, dict[str, Any])).items


async def test_a_command_aborts(scene: VolcanoLab) -> None:
    await six_run(scene)
    await scene.command("AbortJob", "work")
    await scene.until(lambda: scene.phase("work") == "Aborted", "no pod is left")
    assert scene.phases("work") == [*STARTED, "Aborting", "Aborted"]
    await commands_are_read(scene)


async def test_pods_that_stay_pending_terminate_their_job_in_time(scene: VolcanoLab) -> None:
    gated = task("a", 1)
    gated["template"]["spec"]["schedulingGates"] = [{"name": "site.example/licence"}]
    policy = {"action": "TerminateJob", "event": "PodPending", "timeout": "2s"}
    await scene.create(volcano_job("work", gated, task("b", 1), policies=[policy]))
    await scene.until(lambda: scene.running("work") == 1, "the other pod runs")
    await scene.until(lambda: scene.phase("work") == "Terminated", "the time is over")
    await scene.until(lambda: scene.condition("work", "Finished") == "True/Failed", "its Workload has failed")
    assert scene.phases("work") == ["Pending", "Terminating", "Terminated"]
    assert scene.status("work").get("retryCount", 0) == 0
    await scene.until(lambda: not scene.pods("work"), "no pod is left")
    assert scene.printed("vcjob", "work") | {"AGE": ""} == row("work", "Terminated", 2, 0)


async def test_a_task_that_is_done_completes_its_job(scene: VolcanoLab) -> None:
    await six_run(scene, {"action": "CompleteJob", "event": "TaskCompleted"})
    await scene.finish("work-a-0", "work-a-1")
    await scene.until(lambda: scene.phase("work") == "Completed", "it is done")
    await scene.until(lambda: scene.condition("work", "Finished") == "True/Succeeded", "so is its Workload")
    assert scene.phases("work") == [*STARTED, "Completing", "Completed"]
    await scene.until(lambda: set(scene.pods("work")) == {"work-a-0", "work-a-1"}, "those that have finished stay")
    assert scene.printed("vcjob", "work") | {"AGE": ""} == row("work", "Completed", 6, 0)


async def test_a_job_has_as_many_retries_as_it_says(scene: VolcanoLab) -> None:
    await six_run(scene, {"action": "RestartTask", "event": "PodFailed"}, maxRetry=2)
    await scene.fail("work-a-0")
    await scene.until(lambda: scene.phases("work") == RESTARTED and scene.runs("work", 6), "it runs again")
    await scene.fail("work-a-0", exit_code=7)
    await scene.until(lambda: scene.phase("work") == "Failed", "there is no other retry")
    await scene.until(lambda: scene.condition("work", "Finished") == "True/Failed", "its Workload has failed")
    assert scene.phases("work") == [*RESTARTED, "Restarting", "Failed"]
    assert scene.status("work")["retryCount"] == 2
    assert scene.printed("vcjob", "work") | {"AGE": ""} == row("work", "Failed", 6, 0)


# -- what is beside the pods


async def test_what_a_job_brings_follows_its_size_and_goes_with_it(scene: VolcanoLab) -> None:
    """A claim of its own (there is a volume for it), keys for ssh, names of its pods, and a time to live."""
    disk = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "disk"}
    volume = {**disk, "hostPath": {"path": "/none"}}
    scene.apply(apiVersion="v1", kind="PersistentVolume", metadata={"name": "disk"}, spec=volume)
    claim = {key: disk[key] for key in ("accessModes", "storageClassName")}
    claim["resources"] = {"requests": disk["capacity"]}
    parts = {"volumes": [{"mountPath": "/data", "volumeClaim": claim}], "plugins": {"svc": [], "ssh": []}}
    await scene.create(volcano_job("work", task("a", 3, minAvailable=1), ttlSecondsAfterFinished=0, **parts))
    await scene.until(lambda: scene.runs("work", 3), "it runs")
    beside = [*BESIDE, SECRETS, CLAIMS]
    own = {kind: [name for name in await names(scene, kind, TEAM) if name.startswith("work")] for kind in beside}
    assert {kind.plural: len(found) for kind, found in own.items()} == {kind.plural: 1 for kind in beside}

    fewer = [{"op": "replace", "path": "/spec/tasks/0/replicas", "value": 2}]
    scene.cluster.kubectl("patch", "vcjob", "work", "-n", TEAM, "--type=json", "-p", json.dumps(fewer))
    await scene.until(lambda: set(scene.pods("work")) == {"work-a-0", "work-a-1"}, "the last pod goes")
    await scene.until(lambda: scene.runs("work", 2), "the status says so")
    hosts = await scene.client.get(CONFIG_MAPS, "work-svc", dict[str, Any], namespace=TEAM)
    assert hosts["data"]["a.host"].split() == ["work-a-0.work", "work-a-1.work"]

    await scene.finish("work-a-0", "work-a-1")
    await scene.until(lambda: not scene.job("work"), "its time is over")
    await scene.until(lambda: not scene.pods("work"), "its pods go with it")
    for kind in (each for each in beside if each != CLAIMS):
        assert not set(own[kind]) & {*await names(scene, kind, TEAM)}, kind.plural


# -- evictions


async def test_a_preempted_job_comes_back_whole_and_no_retry_is_spent(
    scene: VolcanoLab, controller: Controller
) -> None:
    """The controller is killed while the victim's pods are going, and while the preemptor begins."""
    scene.priority_class("urgent", 1000)
    policies = [{"action": "RestartJob", "event": "PodEvicted"}]
    await scene.create(volcano_job("low", task("a", 6, gpus=1), policies=policies))
    await scene.until(lambda: scene.runs("low", 6), "it runs")
    with still(scene.cluster):
        await scene.create(volcano_job("high", task("a", 4, gpus=1), priorityClassName="urgent"))
        await scene.until(lambda: scene.condition("low", "Evicted") == "True/Preempted", "it has to go")
        restart(controller)
        await scene.until(lambda: len(scene.going("low")) == 6, "its pods are being deleted")
        assert not scene.pods("high"), "their room is not free yet"
        restart(controller)
    await scene.until(lambda: bool(scene.pods("high")), "the other begins")
    restart(controller)
    await scene.until(lambda: scene.runs("high", 4) and not scene.pods("low"), "it runs in its place")
    assert scene.phase("low") == "Pending"
    assert scene.printed("vcjob", "low") | {"AGE": ""} == row("low", "Pending", 6, 0)
    await scene.finish(*scene.pods("high"))
    await scene.until(lambda: scene.phase("high") == "Completed", "it is done")
    await scene.until(lambda: scene.runs("low", 6), "the first has all of its pods again")
    assert scene.status("low").get("retryCount", 0) == 0
    assert scene.phases("low") == [*STARTED, *STARTED]
    assert scene.times_made("low") == {f"low-a-{index}": 2 for index in range(6)}
    assert scene.times_made("high") == {f"high-a-{index}": 1 for index in range(4)}


# -- above the minimum


async def test_a_volcano_job_of_a_real_cluster_grows_above_its_minimum_and_gives_back_pod_by_pod(
    scene: VolcanoLab, controller: Controller
) -> None:
    """The controller is killed while pods join, while they are taken back, and while they come again."""
    scene.priority_class("urgent", 1000)
    policies = [{"action": "RestartJob", "events": ["PodEvicted", "PodFailed"]}]
    await scene.create(volcano_job("grow", task("a", 10, gpus=1), minAvailable=3, policies=policies))
    await scene.until(lambda: scene.running("grow") >= 3, "it starts")
    restart(controller)
    await scene.until(lambda: scene.runs("grow", 8) and scene.status("grow")["pending"] == 2, "it fills eight GPUs")
    assert scene.printed("vcjob", "grow") | {"AGE": ""} == row("grow", "Running", 3, 8)
    minimum = {f"grow-a-{index}": scene.uids("grow")[f"grow-a-{index}"] for index in range(3)}
    with still(scene.cluster):
        await scene.create(volcano_job("other", task("a", 4, gpus=1), priorityClassName="urgent"))
        await scene.until(lambda: len(scene.going("grow")) == 4, "four pods are taken back")
        restart(controller)
    await scene.until(lambda: scene.runs("other", 4) and scene.runs("grow", 4), "each has four")
    restart(controller)
    await scene.until(lambda: scene.status("grow").get("pending") == 6, "the others wait again")
    assert minimum.items() <= scene.uids("grow").items(), "the minimum has run all the time"
    await scene.finish(*scene.pods("other"))
    await scene.until(lambda: scene.phase("other") == "Completed", "it is done")
    await scene.until(lambda: scene.runs("grow", 8), "it grows again")
    await scene.finish(*minimum)
    await scene.until(lambda: scene.runs("grow", 7), "quota of the minimum is for those above it")
    await scene.finish(*scene.pods("grow"))
    await scene.until(lambda: scene.phase("grow") == "Completed", "all of its pods have ended")
    assert (scene.status("grow").get("retryCount", 0), scene.phases("grow")) == (0, [*STARTED, "Completed"])
    await scene.until(lambda: scene.condition("grow", "Finished") == "True/Succeeded", "so has its Workload")
