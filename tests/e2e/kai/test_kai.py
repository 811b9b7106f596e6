"""KAI's manifests, unmodified, on a real control plane: departments borrow and give back, classes of priority say who
may be preempted, and jobs move so that another fits, whenever the controller is killed.

Four nodes with four GPUs each, and two departments with a quota of eight. A fifth node has a real kubelet. Jobs of
ClusterQueues move on the same nodes.
"""

import asyncio
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.report import NodeReport
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.render import TEST_IMAGE
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from inventory.api.names import MOVED
from kube.client import Selection
from kube.resources import EVENTS
from tests.support.e2e.charttext import rendered
from tests.support.e2e.hands import Hands
from tests.support.e2e.kailab import (
    CLAIM_DRIVER,
    CLASS,
    CLASS_NAME,
    EXAMPLES,
    KaiLab,
    asks,
    by_claim,
    configured,
    devices,
    install,
    install_training,
    job,
    kai_lab,
    kai_queue,
    part_of_time,
    pod_sets,
    queued,
    quota_of,
    start,
    training,
    two_shapes,
    waits,
)
from tests.support.e2e.kaimoves import advised, moving, scatter, scatter_again
from tests.support.e2e.lab import EXAMPLES as ALL_EXAMPLES
from tests.support.e2e.lab import FAST, Lab, Pod, fleet, held_by, holders
from tests.support.e2e.podlab import GPU, HOST, TEAM, is_held
from tests.support.e2e.queuelab import Controller, Json
from tests.support.e2e.trainingoperator import TrainingOperator

pytestmark = pytest.mark.e2e

NODES, GPUS = 4, 4
ONLY_QUOTA = "allocatedNonPreemptible"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "containerd", "kwok", "helm", "training-operator"):
        binaries.build(program)
    spec = Spec(kwok_nodes=NODES, kwok_capacity={GPU: str(GPUS)})
    with Cluster.up(f"kai-{os.getpid()}", spec) as cluster:
        install(cluster)
        yield cluster


@pytest.fixture(scope="module")
def controller(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    made = start(cluster, tmp_path_factory.mktemp("controller"))
    yield made
    made.kill()


async def departments(lab: KaiLab) -> None:
    await lab.apply(EXAMPLES / "queues.yaml")
    await lab.scene.until(lambda: children(lab, "research") == ["speech", "vision"], "its teams are known")


def children(lab: KaiLab, queue: str) -> list[str]:
    return list(lab.queues.get(queue, {}).get("status", {}).get("childQueues", []))


async def test_a_department_borrows_what_is_idle_and_gives_it_back(cluster: Cluster, controller: Controller) -> None:
    """The other asks for its quota: it gets it, whatever becomes of the controller while others leave."""
    vision, speech = [f"vision-{at}" for at in range(5)], [f"speech-{at}" for at in range(3)]
    ads = [f"ads-{at}" for at in range(4)]
    async with kai_lab(cluster, controller) as lab:
        until, gpus = lab.scene.until, lab.gpus
        await departments(lab)
        await lab.create(*(job(name, name.split("-")[0], pods=2) for name in (*vision, *speech)))
        await until(lambda: lab.runs(*vision, *speech), "one department has all")
        await until(
            lambda: [gpus(name) for name in ("research", "vision", "speech", "product")] == [16, 10, 6, 0], "told"
        )
        with lab.no_pod_goes():
            await lab.create(*(job(name, "ads", pods=2) for name in ads))
            await until(lambda: sum(bool(lab.evictions(name)) for name in (*vision, *speech)) == 4, "four are to leave")
            await lab.kill()
        await until(lambda: lab.runs(*ads), "the other has its quota")
        await until(lambda: [len(lab.running(team)) for team in (vision, speech)] == [2, 2], "each team keeps its own")
        await until(
            lambda: [gpus(name) for name in ("research", "vision", "speech", "product")] == [8, 4, 4, 8], "told"
        )
        assert (gpus("research", "requested"), gpus("ads", "requested")) == (16, 8)
        await lab.finish(*ads)
        await until(lambda: lab.runs(*vision, *speech), "what is idle is borrowed again")


async def test_a_job_begins_with_its_minimum_grows_and_shrinks_to_it(cluster: Cluster, controller: Controller) -> None:
    """Pod by pod, whatever becomes of the controller between. No pod that was taken back counts as a failed one."""
    async with kai_lab(cluster, controller) as lab:
        until, size = lab.scene.until, lab.size
        await departments(lab)
        await lab.create(*(job(name, "ads", pods=4) for name in ("ads-0", "ads-1")), job("speech", "speech", pods=4))
        await until(lambda: lab.runs("ads-0", "ads-1", "speech"), "the others have their quotas")
        await lab.create(job("sweep", "vision", pods=6, least=2))
        await until(lambda: size("sweep") == (4, 2), "it begins, and grows into its quota")
        await lab.kill()
        await lab.finish("speech")
        await until(lambda: size("sweep") == (6, 0), "it grows into what is idle")
        with lab.no_pod_goes():
            await lab.create(job("speech-2", "speech", pods=4))
            await until(lambda: size("sweep") == (4, 2), "two are to leave, and two have been made in their place")
            await lab.kill()
        await until(lambda: lab.runs("speech-2"), "the team has its quota again")
        await until(lambda: size("sweep") == (4, 2), "the others have gone on")
        await lab.create(job("urgent", "vision", pods=2, marks={CLASS: "build"}))
        await until(lambda: lab.runs("urgent"), "two more have left")
        await until(lambda: size("sweep") == (2, 4), "its minimum runs")
        assert lab.evictions("sweep") == {}
        await lab.finish_running("sweep")
        await until(lambda: size("sweep") == (2, 2), "those that waited above have the places of the minimum")
        await lab.finish("urgent")
        await until(lambda: size("sweep") == (4, 0), "and the others grow again")
        await lab.finish("sweep")
        await until(lambda: lab.complete("sweep"), "it has ended")
        done = lab.scene.queues.watcher.jobs[f"{TEAM}/sweep"]["status"]
        assert (done["succeeded"], done.get("failed", 0)) == (6, 0)


async def test_an_elastic_training_job_grows_and_shrinks_under_its_own_operator(
    cluster: Cluster, controller: Controller
) -> None:
    """Its example as it is. A worker that is taken back does not fail the job, although none may be restarted."""
    install_training(cluster)
    operator = TrainingOperator(cluster, cluster.kubeconfig.read_text())
    async with kai_lab(cluster, controller) as lab:
        until, size = lab.scene.until, lab.size
        await departments(lab)
        await lab.create(*(job(name, "ads", pods=4) for name in ("ads-0", "ads-1")), job("speech", "speech", pods=4))
        await lab.create(job("other", "vision", pods=2))
        await until(lambda: lab.runs("ads-0", "ads-1", "speech", "other"), "two GPUs are left")
        with operator.running():
            await lab.applied(EXAMPLES / "pytorchjob-elastic.yaml")
            await until(lambda: size("elastic") == (2, 4), "it begins with its minimum")
            assert {"elastic-worker-0", "elastic-worker-1"} == lab.running_pods("elastic")
            await lab.finish("other", "speech")
            await until(lambda: size("elastic") == (6, 0), "all of it runs")
            with lab.no_pod_goes():
                await lab.create(job("speech-2", "speech", pods=4))
                await until(lambda: size("elastic")[0] == 4, "two are to leave")
                await lab.kill()
            await until(lambda: lab.runs("speech-2"), "the team has its quota again")
            await lab.create(job("urgent", "vision", pods=2, marks={CLASS: "build"}))
            await until(lambda: lab.runs("urgent"), "two more have left")
            await until(lambda: size("elastic") == (2, 4), "its operator has made the others anew, and they wait")
            assert {"elastic-worker-0", "elastic-worker-1"} == lab.running_pods("elastic")
            await lab.finish("urgent")
            await until(lambda: size("elastic") == (4, 2), "it grows again")
            assert "Failed" not in training(cluster, "elastic")
            await lab.finish_running("elastic")
            await until(lambda: "Succeeded" in training(cluster, "elastic"), "a worker that ends has ended the job")
            await lab.delete("pytorchjobs/elastic")
            await until(lambda: not lab.pods("elastic"), "nothing of it is left")


async def test_classes_of_priority_say_who_gives_way(cluster: Cluster, controller: Controller) -> None:
    """Below 100 a job may be preempted; from 100 on it is not, and gets no more than its queue's quota."""
    async with kai_lab(cluster, controller) as lab:
        until = lab.scene.until
        await departments(lab)
        others = {"other-0": "ads", "other-1": "ads", "other-2": "speech"}
        await lab.create(*(job(name, queue, gpus=4) for name, queue in others.items()))
        await until(lambda: lab.runs(*others), "the other queues have their quotas")
        for name, gives_way in (("train", ""), ("build-preemptible", "train"), ("build", "build-preemptible")):
            await lab.create(job(name, "vision", gpus=4, marks={CLASS: name}))
            await until(lambda name=name: lab.runs(name), f"{name} runs")  # type: ignore[misc]
            await until(lambda name=gives_way: not name or lab.waits(name), f"{gives_way} gives way")  # type: ignore[misc]
        await lab.create(job("inference", "vision", gpus=4, marks={CLASS: "inference"}))
        says = "NonPreemptibleOverQuota: Queue vision has 4 nvidia.com/gpu of its quota"
        await until(lambda: says in lab.told("inference", "QuotaReserved"), "it is told why it waits")
        await until(lambda: lab.gpus("vision", ONLY_QUOTA) == 4, "what is never preempted is told")
        assert lab.runs("build")
        for ends, begins in (
            ("build", "inference"),
            ("inference", "build-preemptible"),
            ("build-preemptible", "train"),
        ):
            await lab.finish(ends)
            await until(lambda name=begins: lab.runs(name), f"{begins} is next")  # type: ignore[misc]


async def test_two_jobs_move_so_that_a_third_gets_a_whole_node(cluster: Cluster, controller: Controller) -> None:
    """Both run again elsewhere, once each, whatever becomes of the controller between, and say for whom they moved."""
    async with kai_lab(cluster, controller) as lab:
        until = lab.scene.until
        await departments(lab)
        fixed = {"three-1": (1, 3), "one-1": (1, 1), "three-2": (2, 3), "one-2": (2, 1), "four-3": (3, 4)}
        places = {name: {HOST: f"kwok-{at}"} for name, (at, _) in fixed.items()}
        await lab.create(
            *(job(name, "speech", gpus=gpus, nodeSelector=places[name]) for name, (_, gpus) in fixed.items())
        )
        await until(lambda: lab.runs(*fixed), "three nodes are full of jobs that may not leave them")
        await lab.create(job("left", "vision"), job("right", "vision"))
        await until(lambda: lab.runs("left", "right"), "two jobs run on the fourth")
        assert lab.nodes("left") == lab.nodes("right") == {"kwok-0"}
        await lab.finish("one-1", "one-2")
        await until(lambda: lab.complete("one-1", "one-2"), "a GPU is free on two of the others")
        await until(lambda: lab.gpus("research") == 12, "and counted as free: else the department would give one up")
        with lab.no_pod_goes():
            await lab.create(job("wide", "ads", gpus=4))
            await until(lambda: bool(lab.evictions("left") and lab.evictions("right")), "both are to move")
            await lab.kill()
        await until(lambda: lab.runs("wide", "left", "right"), "all three run")
        assert lab.nodes("wide") == {"kwok-0"}
        assert lab.nodes("left") | lab.nodes("right") == {"kwok-1", "kwok-2"}
        for name in ("left", "right"):
            says = lab.told(name, MOVED)
            assert says.startswith("Preempted to accommodate workload team/job-wide-"), says
            assert re.search(r"has moved from kwok-0 to kwok-[12]; ", says), says
            assert lab.evictions(name) == {"Preempted": 1}


async def test_a_job_lies_on_one_node_where_its_annotation_requires_that(
    cluster: Cluster, controller: Controller
) -> None:
    """Three pods would fit on two nodes: they wait for one, whatever becomes of the controller meanwhile."""
    async with kai_lab(cluster, controller) as lab:
        until = lab.scene.until
        await departments(lab)
        others = [f"half-{at}" for at in range(NODES)]
        places = ({HOST: f"kwok-{at}"} for at in range(NODES))
        await lab.create(
            *(job(name, "ads", gpus=2, nodeSelector=place) for name, place in zip(others, places, strict=True))
        )
        await until(lambda: lab.runs(*others), "half of each node is free")
        close = job("close", "vision", pods=3)
        close["metadata"]["annotations"]["kai.scheduler/topology-required-placement"] = HOST
        await lab.create(close)
        says = f"no domain of {HOST} has room for the gang"
        await until(lambda: says in lab.told("close", "QuotaReserved"), "it is told what has no room")
        assert lab.waits("close")
        await lab.kill()
        await lab.finish(others[0])
        await until(lambda: lab.runs("close"), "a node is free")
        assert lab.nodes("close") == {"kwok-0"}


async def test_a_job_and_a_service_run_as_they_are_written(cluster: Cluster, controller: Controller) -> None:
    """Pods of the service are queued one by one, in its queue's quota; the job may be preempted."""
    async with kai_lab(cluster, controller) as lab:
        until = lab.scene.until
        await departments(lab)
        await lab.apply(EXAMPLES / "job-training.yaml", EXAMPLES / "deployment-inference.yaml")
        await until(lambda: lab.runs("resnet"), "the job runs")
        await until(
            lambda: [lab.gpus("ads", what) for what in ("allocated", ONLY_QUOTA)] == [2, 2], "the service counts"
        )
        await until(
            lambda: [lab.gpus("vision", what) for what in ("allocated", ONLY_QUOTA)] == [2, 0], "so does the job"
        )
        served = [one for one in lab.scene.watcher.pods.values() if one["metadata"]["labels"].get("app") == "ranker"]
        await until(lambda: lab.scene.runs(*(one["metadata"]["name"] for one in served)), "the service runs")
        assert [one["spec"]["schedulerName"] for one in served] == ["default-scheduler"] * 2


async def test_a_tree_of_subgroups_starts_when_each_of_them_can(cluster: Cluster, controller: Controller) -> None:
    """One pod of a subgroup is late, and there is a pod too many of another: none starts. Then all do at once, whatever
    becomes of the controller between. When one is lost and does not come back, all others go after a while.
    """
    group, *pods = yaml.safe_load_all((EXAMPLES / "podgroup-subgroups.yaml").read_text())
    names = [one["metadata"]["name"] for one in pods]
    async with kai_lab(cluster, controller) as lab:
        until, there = lab.scene.until, lab.scene.watcher.pods
        await departments(lab)
        group["metadata"]["annotations"] = {"kai.scheduler/staleness-grace-period": "5s"}
        more = {**pods[0], "metadata": {**pods[0]["metadata"], "name": "router-more"}}
        await lab.apply(group, *pods[:-1], more)
        await until(lambda: lab.group("serving").get("phase") == "Inqueue", "its pods are awaited")
        await until(lambda: "1 of 2 pods of decode" in json.dumps(lab.group("serving")), "it says which")
        assert all(map(is_held, there.values()))
        with lab.no_pod_goes():
            await lab.apply(pods[-1])
            await until(lambda: not any(is_held(there[name]) for name in names), "all of it may start")
            await lab.kill()
        await until(lambda: lab.scene.runs(*names), "all of it runs")
        await until(lambda: lab.group("serving").get("phase") == "Running", "told")
        await until(lambda: lab.gpus("speech") in (7, 8), "its queue has it")
        await lab.delete("pod/decode-0")
        await until(lambda: "decode-0" not in there, "it is gone")
        await lab.kill()
        await until(lambda: not set(names) & there.keys(), "the gang has run below its minimum for too long")
        events = await lab.scene.client.list_all(EVENTS, dict[str, Any], Selection(namespace=TEAM))
        (why,) = (one["note"] for one in events.items if one["reason"] == "EvictedDueToStaleGang")
        assert why.startswith("It has run below its minimum for 5s: 1 of 5 pods have failed"), why


async def test_half_a_gpu_is_translated_admitted_given_and_counted(
    cluster: Cluster, controller: Controller, tmp_path: Path
) -> None:
    """By an agent on a node with a kubelet of its own, whose GPUs are given in parts: of one GPU, and of two each. The
    controller is killed before it has admitted the first, and while the second runs.
    """
    bench = Lab(cluster, cluster.node("node-1"))
    path = fleet(tmp_path / "fleet.yaml", gpus=3, product="NVIDIA A100-SXM4-80GB")
    entries = ("gpus: [0], mode: fractional", "gpus: [1, 2], mode: fractional, oneDaemon: true")
    layout = "".join(f"- {{{entry}, granularity: 10}}\n" for entry in entries)
    config = f"version: v1\nhealth: {FAST}\nlayout:\n{layout}"
    with bench.agent(path, config) as agent:
        async with kai_lab(cluster, controller) as lab:
            until, pods = lab.scene.until, lab.scene.watcher.pods
            await departments(lab)
            await lab.apply(EXAMPLES / "pod-fraction.yaml")
            await lab.kill()
            await until(lambda: lab.scene.runs("notebook"), "it runs")
            assert pods["notebook"]["spec"]["nodeName"] == "node-1"
            env = cluster.kubectl("exec", "-n", TEAM, "notebook", "--", "env").splitlines()
            assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50" in env
            agent.until(lambda report: len(held_by(report, "notebook")) == 50, "fifty percents are held")
            told = [(queue, what) for queue in ("vision", "research") for what in ("allocated", ONLY_QUOTA)]
            await until(lambda: [lab.gpus(*each) for each in told] == [0.5] * 4, "half a GPU is counted")
            await lab.apply(EXAMPLES / "pod-fractions.yaml")
            await until(lambda: lab.scene.runs("halves"), "it runs")
            await lab.kill()
            env = cluster.kubectl("exec", "-n", TEAM, "halves", "--", "env").splitlines()
            assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50" in env
            assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=40960M,1=40960M" in env
            visible = next(line for line in env if line.startswith("NVIDIA_VISIBLE_DEVICES="))
            agent.until(lambda report: len(held_by(report, "halves")) == 100, "a hundred percents are held")
            parts = Counter(device.partition("::")[0] for device in held_by(agent.report(), "halves"))
            assert sorted(parts.values()) == [50, 50]
            assert set(visible.partition("=")[2].split(",")) == set(parts)
            await until(lambda: [lab.gpus(*each) for each in told] == [1.5] * 4, "two halves more are counted")


async def test_a_queue_that_had_much_gets_the_smaller_part_after_a_crash_too(
    cluster: Cluster, controller: Controller
) -> None:
    """What it had is in its annotation alone: the new process looks at nothing else for as long as this takes."""
    usage = "kai: {{usage: {{kValue: 1, windowSize: 400s, halfLifePeriod: 60s, fetchInterval: {}}}}}"
    async with kai_lab(cluster, controller) as lab, lab.configured(usage.format("1s")):
        until = lab.scene.until
        await lab.apply(kai_queue("all"), kai_queue("heavy", "all"), kai_queue("light", "all"))
        before = [f"before-{at}" for at in range(8)]
        await lab.create(*(job(name, "heavy", gpus=2) for name in before))
        await until(lambda: lab.runs(*before), "one queue has all")
        await until(lambda: part_of_time(lab.queues["heavy"]) > 0.8, "its use is kept")
        controller.kill()
        await lab.finish(*before)
        await until(lambda: lab.complete(*before), "it has nothing any more")
        for at in range(8):
            await lab.create(job(f"heavy-{at}", "heavy", gpus=2), job(f"light-{at}", "light", gpus=2))
        (controller.folder / "controller.yaml").write_text(configured(usage.format("1h")))
        controller.start()
        await until(lambda: lab.gpus("light") >= 12 and lab.gpus("light") + lab.gpus("heavy") == 16, "it stands back")


# Claims of devices, in queues of both kinds.

CLAIMS = ALL_EXAMPLES / "claims"
MAPPED = f"""resources:
  deviceClassMappings:
  - {{name: {GPU}, deviceClassNames: [{CLASS_NAME}]}}
  - name: example.com/parts
    deviceClassNames: [parts.example.com]
    sources: [{{counter: {{name: parts, driver: {CLAIM_DRIVER}}}}}]
"""


async def test_jobs_and_gangs_with_claims_wait_in_queues_of_both_kinds(
    cluster: Cluster, controller: Controller
) -> None:
    """A claim that a gang and a job share is charged once, whatever becomes of the controller, until neither runs."""
    async with kai_lab(cluster, controller) as lab:
        until = lab.scene.until
        await lab.kill(configured() + MAPPED)
        try:
            await lab.apply(*devices())
            await departments(lab)
            await lab.create(by_claim(job("tuning", "vision", pods=2), resourceClaimTemplateName="one"))
            await until(lambda: "no ResourceClaimTemplate team/one" in lab.told("tuning", "QuotaReserved"), "told")
            await lab.apply(asks("ResourceClaimTemplate", "one", 1))
            await until(lambda: lab.runs("tuning"), "it runs under KAI's queue")
            await until(lambda: lab.gpus("vision") == 2, "and is counted")

            await lab.scene.queue("shared", 4)
            await lab.apply(asks("ResourceClaim", "pair", 3))
            gang, reader = by_claim(queued("gang", "shared"), resourceClaimName="pair"), queued("reader", "shared")
            gang["spec"] |= {"parallelism": 2, "completions": 2}
            await lab.create(gang)
            await until(lambda: lab.runs("gang"), "a gang shares a claim")
            await lab.create(by_claim(reader, resourceClaimName="pair"))
            await until(lambda: lab.runs("reader"), "and another job does")
            wide = by_claim(queued("wide", "shared"), resourceClaimTemplateName="one")
            wide["spec"] |= {"parallelism": 2, "completions": 2}
            await lab.create(wide)
            await until(lambda: "1 free, 1 more needed" in lab.told("wide", "QuotaReserved"), "one waits")
            await lab.finish("gang")
            await until(lambda: lab.complete("gang"), "the first has ended")
            await lab.kill()
            await lab.create(by_claim(queued("small", "shared"), resourceClaimTemplateName="one"))
            await until(lambda: lab.waits("wide"), "the claim is charged still")
            await lab.finish("reader")
            await until(lambda: lab.runs("wide"), "nobody has it any more")
            await lab.delete("jobs/tuning", "jobs/wide", "jobs/small")
        finally:
            await lab.kill(configured())
    kinds = ("localqueues.kueue.x-k8s.io", "clusterqueues.kueue.x-k8s.io", "resourceclaims", "resourceclaimtemplates")
    for kind in kinds:
        cluster.kubectl("delete", kind, "-A", "--all", "--timeout=120s")
    cluster.kubectl("delete", f"deviceclass/{CLASS_NAME}", "resourceslice/fabric")


async def test_claims_of_queued_jobs_and_gangs_are_prepared_on_a_real_node(
    cluster: Cluster, controller: Controller, tmp_path: Path
) -> None:
    """The examples, in a ClusterQueue, and a job of KAI's after them: two GPUs, one after the other.

    The gang's pods are of two shapes here: two pod sets share the claim, and it is charged to the first.
    """
    bench = Lab(cluster, cluster.node("node-1"))
    path = fleet(tmp_path / "fleet.yaml", gpus=3, product="NVIDIA A100-SXM4-80GB")
    config = f"version: v1\nhealth: {FAST}\nlayout: [{{gpus: [0, 1], mode: dra}}]\n"
    classes = rendered("device-classes", served=("resource.k8s.io/v1/DeviceClass",))
    cluster.kubectl("apply", "--server-side", "-f", "-", input=classes)
    names = [f"claims-gang-{rank}" for rank in range(2)]

    def holding(report: NodeReport) -> set[str]:
        return {held.holder.pod.rpartition("-")[0] for held in report.holders} if len(holders(report)) == 2 else set()

    def gated(name: str) -> bool:
        pod: dict[str, Any] = bench.get(f"/api/v1/namespaces/default/pods/{name}")
        return bool(pod["spec"].get("schedulingGates"))

    with bench.agent(path, config) as agent, Hands(bench).watching() as hands:
        async with kai_lab(cluster, controller) as lab:
            until = lab.scene.until
            await lab.kill(configured() + MAPPED.replace(CLASS_NAME, "gpu.nvidia.com"))
            try:
                await asyncio.to_thread(bench.apply, CLAIMS / "queued.yaml")
                await asyncio.to_thread(agent.until, lambda report: holding(report) == {"claims-queued"}, "a Job runs")
                await asyncio.to_thread(bench.apply, two_shapes(CLAIMS / "queued-gang.yaml", tmp_path / "gang.yaml"))
                await until(lambda: pod_sets(bench, "claims-gang") == [1, 1], "a pod set for each shape")
                await until(lambda: quota_of(bench, "claims") == "2", "its claims are charged")
                assert all(map(gated, names)), "the quota of two is the Job's"
                cluster.kubectl("delete", "job", "claims-queued", "--cascade=foreground", "--timeout=120s")
                for name in names:
                    await asyncio.to_thread(Pod(bench, name).await_ready)
                    assert Pod(bench, name).device_nodes == ["/dev/nvidia0", "/dev/nvidia1"]
                await asyncio.to_thread(agent.until, lambda report: holding(report) == {"claims-gang"}, "one claim")
                await departments(lab)
                asked = asks("ResourceClaimTemplate", "one", 2)
                asked["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "gpu.nvidia.com"
                await lab.apply(asked)
                made = by_claim(job("tuning", "vision"), resourceClaimTemplateName="one")
                made["spec"]["template"]["spec"]["containers"][0] |= {"image": TEST_IMAGE, "command": ["sleep", "3600"]}
                await lab.create(made)
                await until(lambda: "claims find no devices" in waits(bench, "job-tuning-"), "the gang has the GPUs")
                assert not lab.pods("tuning")
                cluster.kubectl("delete", "pod", *names, "--now", "--timeout=120s")
                await until(lambda: lab.runs("tuning"), "it runs when they are back")
                await until(lambda: lab.gpus("vision") == 2, "and is counted")
                await lab.delete("jobs/tuning", "resourceclaimtemplates/one")
            finally:
                await lab.kill(configured())
            await asyncio.to_thread(agent.until, lambda report: not report.holders, "all is given back")
        hands.check()
        assert "claim" in hands.seen
    cluster.kubectl("delete", "-f", str(CLAIMS / "queued.yaml"), "--ignore-not-found", "--timeout=120s")
    cluster.kubectl("delete", "resourceclaim", "gang-gpus", "--timeout=120s")
    cluster.kubectl("delete", "-f", "-", input=classes)


async def test_a_queued_job_that_asks_for_gpus_gets_them_by_claim_where_no_plugin_offers_any(
    cluster: Cluster, controller: Controller, tmp_path: Path
) -> None:
    """One node gives its two GPUs by claim alone, the others theirs by plugins; the class serves ``nvidia.com/gpu``."""
    bench = Lab(cluster, cluster.node("node-1"))
    path = fleet(tmp_path / "fleet.yaml", gpus=2, product="NVIDIA A100-SXM4-80GB")
    config = "version: v1\nhealth: {}\nlayout: [{{gpus: [{}], mode: dra}}]\n"
    classes = rendered("device-classes", served=("resource.k8s.io/v1/DeviceClass",))

    def asking(name: str, **place: Any) -> Json:
        made = job(name, "vision", gpus=2, **place)
        made["spec"]["template"]["spec"]["containers"][0] |= {"image": TEST_IMAGE, "command": ["sleep", "3600"]}
        return made

    def held(name: str) -> Callable[[NodeReport], bool]:
        return lambda report: [pod.rpartition("-")[0] for pod in holders(report).values()] == [name] * 2

    with bench.agent(path, config.format(FAST, "0")) as agent, Hands(bench).watching() as hands:
        agent.take_up(config.format(FAST, "0, 1"))
        bench.await_amounts({GPU: 0})
        cluster.kubectl("apply", "--server-side", "-f", "-", input=classes)
        async with kai_lab(cluster, controller) as lab:
            until = lab.scene.until
            await departments(lab)
            at = {"nodeSelector": {HOST: "node-1"}}
            await lab.create(asking("first", **at))
            await until(lambda: lab.runs("first"), "it runs by claim")
            await asyncio.to_thread(agent.until, held("first"), "both GPUs are its")
            await lab.create(asking("second", **at))
            await until(lambda: waits(bench, "job-second-") != "", "the node has no more")
            await lab.kill()
            await lab.create(asking("elsewhere"))
            await until(lambda: lab.runs("elsewhere"), "a node whose plugin offers GPUs has room")
            assert (lab.nodes("elsewhere") & {"node-1"}, lab.waits("second")) == (set(), True)
            await lab.delete("jobs/first")
            await until(lambda: lab.runs("second"), "it runs when they are back")
            await asyncio.to_thread(agent.until, held("second"), "both GPUs are its")
            await lab.delete("jobs/second", "jobs/elsewhere")
        await asyncio.to_thread(agent.until, lambda report: not report.holders, "all is given back")
        hands.check()
        assert "claim" in hands.seen
    cluster.kubectl("delete", "-f", "-", input=classes)


# Moves in ClusterQueues.


async def test_jobs_of_cluster_queues_move_within_their_bounds(
    cluster: Cluster, controller: Controller, tmp_path: Path
) -> None:
    """Never under policy kueue, never what is marked to stay, however cheap, and as many in an hour as may, whatever
    becomes of the controller between. What would move next is told without being done.
    """
    async with kai_lab(cluster, controller) as lab, lab.configured("policy: kueue"):
        until = lab.scene.until
        for name, gpus in (("research", 12), ("product", 8)):
            await lab.scene.queue(name, gpus, placed=True, cohortName="all")
        await scatter(lab)
        # One GPU stays on each of two nodes, two may move from a third: all that is free would be enough.
        await lab.create(queued("wide", "product", 4))
        await lab.passes_by("small-0", "product")
        await lab.kill(configured(moving(1)))
        await lab.passes_by("small-1", "product")
        assert [lab.evictions(name) for name in ("left", "right")] == [{}, {}], "two would have to move"
        with lab.no_pod_goes():
            await lab.kill(configured(moving(2)))
            await until(lambda: bool(lab.evictions("left") and lab.evictions("right")), "both are to move")
            await lab.kill()
        await until(lambda: lab.runs("wide", "left", "right", "kept-0", "kept-1"), "all run")
        assert (lab.nodes("wide"), lab.nodes("left") | lab.nodes("right") <= {"kwok-0", "kwok-1"}) == ({"kwok-2"}, True)
        for name in ("left", "right"):
            says = lab.told(name, MOVED)
            assert says.startswith("Preempted to accommodate workload team/job-wide-"), says
            costs = r"[1-9]\d* GPU-seconds of its work are lost"
            assert re.search(rf"has moved from kwok-2 to kwok-[01]; {costs}$", says), says
        evictions = [lab.evictions(name) for name in ("left", "right", "kept-0", "kept-1")]
        assert evictions == [{"Preempted": 1}, {"Preempted": 1}, {}, {}]

        other = await scatter_again(lab, GPUS)
        await lab.create(queued("wide-2", "research", 4))
        await lab.passes_by("small-2", "product")
        await lab.kill()
        await lab.passes_by("small-3", "product")
        assert not lab.evictions("three"), "two have moved in this hour"

        there = lab.nodes("three")
        await advised(lab, tmp_path, other)
        assert (lab.evictions("three"), lab.nodes("three"), lab.runs("three")) == ({}, there, True), "told, not done"

        await lab.kill(configured(moving(3)))
        await until(lambda: lab.runs("wide-2", "three"), "there is a third move in the hour")
        assert (lab.nodes("three"), lab.nodes("wide-2")) == ({other}, there)
        await until(lambda: lab.counted("tessera_consolidation_moves_total").get("product") == 1.0, "counted")
        assert lab.counted("tessera_consolidation_lost_gpu_seconds_total")["product"] > 3.0
        workload = lab.scene.queues.watcher.of_job("three")["metadata"]["name"]
        events = ("get", "events", "-n", TEAM, "--field-selector", f"involvedObject.name={workload}", "-o", "json")

        def reasons() -> set[str]:
            found = json.loads(cluster.kubectl(*events))["items"]
            return {one["reason"] for one in found if f"to {other}; " in one["message"]}

        await until(lambda: reasons() >= {"EvictedDueToPreempted", "Preempted"}, "events say it too")
    for kind in ("localqueues.kueue.x-k8s.io", "clusterqueues.kueue.x-k8s.io"):
        cluster.kubectl("delete", kind, "-A", "--all", "--timeout=120s")
