"""Volcano Jobs in containers: what their plugins promise is used by the programs that need it.

Kubelet, containerd, CoreDNS, sshd and Open MPI are real, and so are the API server, the scheduler and the controller;
GPUs are simulated. A job whose controller is killed in the middle ends as one whose controller lives.
"""

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial

import pytest
import yaml

from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.support.e2e import volcanoimages
from tests.support.e2e.lab import EXAMPLES, GPU, Agent, Lab, holders
from tests.support.e2e.queuelab import Controller
from tests.support.e2e.volcanolab import TEAM, VolcanoLab, controlling, install_volcano, volcano_lab

pytestmark = pytest.mark.e2e

VOLCANO = EXAMPLES / "volcano"
ARTICLE = "pytorch-distributed"
MPI, TRAINING = "allreduce", "finetune"
LAUNCHER, *MPI_WORKERS = [f"{MPI}-{pod}" for pod in ("launcher-0", "worker-0", "worker-1")]
MASTER, *WORKERS = [f"{TRAINING}-{pod}" for pod in ("master-0", "worker-0", "worker-1")]
ADDRESSES = "import socket, sys; print(*map(socket.gethostbyname, sys.argv[1:]))"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    for program in ("kubernetes", "containerd", "coredns", "helm"):
        binaries.build(program)
    with Cluster.up(f"vcpods-{os.getpid()}", Spec(dns=True)) as cluster:
        install_volcano(cluster)
        lab = Lab(cluster, cluster.node())
        volcanoimages.load(lab.host, tmp_path_factory.mktemp("images"))
        yield lab


@pytest.fixture(scope="module")
def agent(lab: Lab) -> Iterator[Agent]:
    with lab.agent(EXAMPLES / "fleets" / "dgx1.yaml") as agent:
        lab.await_amounts({GPU: 8})
        yield agent


@pytest.fixture(scope="module")
def controller(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    with controlling(lab.cluster, tmp_path_factory.mktemp("volcano")) as controller:
        yield controller


@pytest.fixture
async def scene(agent: Agent, controller: Controller) -> AsyncIterator[VolcanoLab]:
    assert agent.serves()
    assert controller.runs
    async with volcano_lab(controller.cluster) as scene:
        yield scene


def apply(scene: VolcanoLab, name: str) -> None:
    """An example as it is."""
    scene.cluster.kubectl("apply", "-f", str(VOLCANO / f"{name}.yaml"))


def inside(scene: VolcanoLab, job: str, pod: str, *command: str) -> list[str]:
    """The lines that a command prints in a pod's container."""
    namespace = scene.pods(job)[pod]["metadata"]["namespace"]
    return scene.cluster.kubectl("exec", pod, "-n", namespace, "--", *command).splitlines()


def logs(scene: VolcanoLab, pod: str) -> list[str]:
    return scene.cluster.kubectl("logs", pod, "-n", TEAM).splitlines()


def phases(scene: VolcanoLab, job: str) -> dict[str, str]:
    """Of its pods, by name."""
    return {name: str(pod["status"].get("phase")) for name, pod in scene.pods(job).items()}


# -- names


async def test_the_articles_job_runs_and_its_pods_find_each_other_by_name(scene: VolcanoLab, agent: Agent) -> None:
    """Variables and files of the plugins have the names, and each container's resolver knows them all."""
    scene.namespace("ml-research")
    apply(scene, ARTICLE)
    await scene.until(lambda: scene.runs(ARTICLE, 4), "all of its pods run")
    pods = scene.pods(ARTICLE)
    held = agent.until(lambda report: len(holders(report)) == 4, "four GPUs are held")
    assert set(holders(held).values()) == set(pods)
    addresses = [pod["status"]["podIP"] for pod in pods.values()]
    assert len(set(addresses)) == 4
    master, *workers = [f"{name}.{ARTICLE}" for name in pods]
    for index, pod in enumerate(pods):
        environment = dict(line.split("=", 1) for line in inside(scene, ARTICLE, pod, "env"))
        listed = [*environment["VC_MASTER_HOSTS"].split(","), *environment["VC_WORKER_HOSTS"].split(",")]
        assert listed == [master, *workers]
        assert environment["VC_TASK_INDEX"] == str(max(index - 1, 0))
        assert inside(scene, ARTICLE, pod, "cat", "/etc/volcano/worker.host") == workers
        await scene.until(
            partial(finds, scene, pod, dict(zip(listed, addresses, strict=True))), f"{pod} knows all names"
        )


def finds(scene: VolcanoLab, pod: str, hosts: dict[str, str]) -> bool:
    """Whether the resolver in a container of the article's job has these addresses. A name is there a moment after its
    pod is ready.
    """
    with suppress(ClusterError):
        [line] = inside(scene, ARTICLE, pod, "python", "-c", ADDRESSES, *hosts)
        return line.split() == list(hosts.values())
    return False


# -- ssh


async def test_an_mpi_launcher_reaches_its_workers_by_ssh(scene: VolcanoLab) -> None:
    apply(scene, "mpi")
    await scene.until(lambda: scene.phase(MPI) == "Completed", "the launcher is done, and so is the job")
    await reduced(scene)


async def test_a_launcher_is_made_although_the_controller_was_killed_before(
    scene: VolcanoLab, controller: Controller
) -> None:
    """It depends on its workers, and these take ssh in while nobody is there to see it."""
    apply(scene, "mpi")
    await scene.until(lambda: set(scene.pods(MPI)) >= set(MPI_WORKERS), "the workers are made")
    controller.kill()
    await scene.until(lambda: all(is_ready(scene, MPI, name) for name in MPI_WORKERS), "they take ssh in")
    controller.start()
    await scene.until(lambda: scene.phase(MPI) == "Completed", "the launcher is done, and so is the job")
    await reduced(scene)
    assert scene.times_made(MPI) == dict.fromkeys([LAUNCHER, *MPI_WORKERS], 1)


def is_ready(scene: VolcanoLab, job: str, pod: str) -> bool:
    conditions = scene.pods(job)[pod]["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def reduced(scene: VolcanoLab) -> None:
    """Each worker ran a rank of its own, and knew the sum of all. Workers go with the end of the job."""
    await scene.until(lambda: phases(scene, MPI) == {LAUNCHER: "Succeeded"}, "the workers are gone")
    said = logs(scene, LAUNCHER)
    assert {f"rank {rank} of 2 on {name}: 3" for rank, name in enumerate(MPI_WORKERS)} <= set(said), said


# -- a rendezvous


async def test_workers_meet_their_master_at_the_address_that_they_were_given(scene: VolcanoLab) -> None:
    apply(scene, "pytorch")
    await scene.until(lambda: scene.phase(TRAINING) == "Completed", "all are done")
    met(scene)


async def test_a_training_that_ends_while_the_controller_is_dead_is_completed(
    scene: VolcanoLab, controller: Controller
) -> None:
    job = yaml.safe_load((VOLCANO / "pytorch.yaml").read_text())
    for each in job["spec"]["tasks"]:
        each["template"]["spec"]["containers"][0]["env"] = [{"name": "HELD", "value": "until released"}]
    scene.cluster.kubectl("apply", "-f", "-", input=json.dumps(job))
    await scene.until(lambda: scene.runs(TRAINING, 3) and logs(scene, MASTER) != [], "they have met")
    controller.kill()
    inside(scene, TRAINING, MASTER, "touch", volcanoimages.RELEASE)
    await scene.until(lambda: set(phases(scene, TRAINING).values()) == {"Succeeded"}, "all are done")
    assert scene.phase(TRAINING) == "Running"
    controller.start()
    await scene.until(lambda: scene.phase(TRAINING) == "Completed", "the job is done")
    met(scene)
    assert scene.times_made(TRAINING) == dict.fromkeys([MASTER, *WORKERS], 1)


def met(scene: VolcanoLab) -> None:
    assert phases(scene, TRAINING) == dict.fromkeys([MASTER, *WORKERS], "Succeeded")
    assert logs(scene, MASTER) == ["met 1 2"]
    assert [logs(scene, name)[-1] for name in WORKERS] == ["done", "done"]
