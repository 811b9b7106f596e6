"""Every kind of job on a real control plane: each example waits, starts, is preempted, comes back and ends.

All kinds are played at once, each in its own namespace and queues, and each is deleted in every state. In its last life
the controller is killed in every state, and pods with ranks are placed one by one. The training operator is real and
serves four kinds; the other kinds' own controllers are played (``kindoperators``). API server, Job controller,
scheduler, policies and rights are real. At each stop of the way the pods that the API server has are those that the
queue was charged with.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.cluster.watching.kinds import CLUSTER_QUEUES
from controller.jobs.kinds.kubeflow import KUBEFLOW_JOBS
from controller.jobs.serving.table import STAMPED_KINDS
from controller.reconcile.jobshell.watched import resource_of
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from hack.cluster.waiting import until as wait_until
from kube.client import Client, Selection
from kube.kubeconfig import from_kubeconfig
from kube.resources import PODS, Resource
from tests.support.e2e import trainingoperator
from tests.support.e2e.charttext import rendered
from tests.support.e2e.kindcrds import JAX_CRD, RUNTIME_PATCHES
from tests.support.e2e.kindoperators import LISTED, OPERATORS, RAY_CLUSTERS, Operators
from tests.support.e2e.kindplay import (
    ADMITTED,
    FINISHED,
    HELD,
    HOST,
    LATE_S,
    PODS_GO_ON,
    PODS_WAIT,
    PREEMPTED,
    RACK,
    RUNNING,
    TOPOLOGY,
    Meetings,
    Play,
    Played,
    steps,
)
from tests.support.e2e.kindworld import GPU, RESOURCES, URGENT, Json, Seen, World, asked, has
from tests.support.e2e.queuelab import ALONE, API, CONFIG, CRDS, NAMESPACE, ROOT, Controller
from tests.support.e2e.trainingoperator import TrainingOperator

pytestmark = pytest.mark.e2e

EXAMPLES = ROOT / "examples" / "kinds"
SHARED_CRDS = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds"
FOLDERS = ("jobset", "kubeflow", "kuberay", "appwrapper", "spark")
SCALED, OUTLIVED = "raycluster scaled", "pytorchjob outlived"
PYTORCH_JOBS = resource_of(KUBEFLOW_JOBS[0])
SIZES = ((2, 2), (4, 4), (1, 1), (5, 1), (3, 3))
"""Workers that Ray's autoscaler asks for, and those that run: there is quota for four."""


def install_kinds(cluster: Cluster) -> None:
    """The kinds' CRDs, ours, the chart's policies and rights, and an account for the kinds' controllers."""
    assert SHARED_CRDS.is_dir(), f"CRDs of job kinds not found: {SHARED_CRDS} is no folder; set TESSERA_SHARED"
    files = [*sorted(CRDS.glob("*.yaml"))]
    files += [path for folder in FOLDERS for path in sorted((SHARED_CRDS / folder).glob("*.yaml"))]
    cluster.kubectl("apply", "--server-side", *(word for file in files for word in ("-f", str(file))))
    cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(JAX_CRD))
    cluster.kubectl("patch", "crd", "trainjobs.trainer.kubeflow.org", "--type=json", "-p", json.dumps(RUNTIME_PATCHES))
    listed = cluster.kubectl("get", "crd", "-o", "name").split()
    converted = [name for name in listed if name.endswith(".kueue.x-k8s.io")]
    patch = '{"spec": {"conversion": {"strategy": "None", "webhook": null}}}'
    cluster.kubectl("patch", *converted, "--type=merge", "-p", patch)
    cluster.kubectl("wait", "--for=condition=Established", *listed, "--timeout=120s")
    cluster.kubectl("create", "namespace", NAMESPACE)
    parts = ("controller-rbac", "controller-rbac-kinds", "job-suspend-policy", "job-policy", "job-rules-policy")
    cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered(*parts))
    cluster.kubectl("create", "serviceaccount", "operators", "-n", NAMESPACE)
    account = f"--serviceaccount={NAMESPACE}:operators"
    cluster.kubectl("create", "clusterrolebinding", "operators", "--clusterrole=cluster-admin", account)


def as_operators(cluster: Cluster, folder: Path) -> Path:
    config = json.loads(cluster.kubeconfig.read_text())
    token = cluster.kubectl("create", "token", "operators", "-n", NAMESPACE, "--duration=1h").strip()
    config["users"][0]["user"] = {"token": token}
    path = folder / "operators.kubeconfig"
    path.write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "kwok", "helm", "training-operator"):
        binaries.build(program)
    spec = Spec(nodes=(), kwok_nodes=4, kwok_capacity={GPU: "32"})
    with Cluster.up(f"kinds-{os.getpid()}", spec) as cluster:
        install_kinds(cluster)
        yield cluster


class Scaled(Play):
    """An elastic Ray cluster, whose number of workers Ray's autoscaler writes within the group's bounds."""

    def __init__(self, world: World, meetings: Meetings, bodies: list[Json]) -> None:
        super().__init__(world, meetings, RAY_CLUSTERS, bodies)
        self.namespace, self.cluster_queue = "kind-raycluster-scaled", "raycluster-scaled"

    def body(self) -> Json:
        made = super().body()
        made["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
        made["spec"]["enableInTreeAutoscaling"] = True
        (group,) = made["spec"]["workerGroupSpecs"]
        group |= {"minReplicas": 1, "maxReplicas": 5}
        for part in (made["spec"]["headGroupSpec"], group):
            part["template"]["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/elastic-job"}]
        return made

    async def _run(self) -> None:
        """It has quota for four workers. The fifth waits behind its gate, and begins when there is quota for it."""
        await self._prepare()
        need = (await self._create()).workload["spec"]["podSets"]
        head, worker = ({name: asked(one["template"], name) for name in RESOURCES} for one in need)
        self.need = {name: head[name] + 4 * worker[name] for name in RESOURCES}
        await self._quota("played")
        await self._open()
        for workers, running in SIZES:
            await self._autoscaler_writes(workers)
            await self.until(partial(Seen.sized, pods=1 + workers, running=1 + running), f"{running} of {workers} run")
            await self._uses(running)
            self.did(f"{running} of {workers}")
        await self._delete(RUNNING)

    async def _uses(self, gpus: int) -> None:
        """Return when the queue says so. It tells a moment after it decided."""

        async def used() -> int:
            queue = await self.client.get(CLUSTER_QUEUES, self.cluster_queue, dict[str, Any])
            usage = queue.get("status", {}).get("flavorsUsage", [])
            return sum(int(one["total"]) for flavor in usage for one in flavor["resources"] if one["name"] == GPU)

        late_s = asyncio.get_running_loop().time() + LATE_S
        while (found := await used()) != gpus:
            assert asyncio.get_running_loop().time() < late_s, f"expected {gpus} GPUs in use, found {found}"
            await self.world.next()

    async def _autoscaler_writes(self, workers: int) -> None:
        path = "/spec/workerGroupSpecs/0/replicas"
        write = [{"op": "replace", "path": path, "value": workers}]
        place = {"namespace": self.namespace, "field_manager": "ray-autoscaler"}
        await self.client.json_patch(self.resource, self.name, write, Any, **place)


class Outlived(Play):
    """A PyTorchJob whose workers run on when its master, and with it the job, has ended.

    The controller finishes its Workload after a list of the job's pods that shows none running, asked for once the job
    had ended and answered by the store: its operator adds no pod any more, so it cannot be early. A round of ``World``
    lists pods before Workloads, and may show a pod that went in between. So pods are asked for anew here, after the
    Workload was seen to be finished.
    """

    def __init__(self, world: World, meetings: Meetings, bodies: list[Json]) -> None:
        super().__init__(world, meetings, PYTORCH_JOBS, bodies)
        self.namespace, self.cluster_queue = "kind-pytorchjob-outlived", "pytorchjob-outlived"

    async def _run(self) -> None:
        await self._prepare()
        need = (await self._create()).workload["spec"]["podSets"]
        self.need = {name: sum(one["count"] * asked(one["template"], name) for one in need) for name in RESOURCES}
        await self._quota("played")
        await self._open()
        seen = await self.until(lambda seen: seen.as_charged, "its pods run, and are those that were charged")
        await self.complete([pod for pod in seen.pods if _set_of(pod) == "master"])
        seen = await self.until(partial(_outlived, ended={"master": 1}), "its master's quota alone is given back")
        assert "cleanPodPolicy" not in seen.job["spec"].get("runPolicy", {})
        self.did("ended")
        await self._urgent_comes()
        await self.until(lambda seen: seen.finished, "it is over")
        assert not await self._going(), "its operator takes its workers away first"
        self.did("taken away")
        await self._urgent_goes()
        await self._delete(FINISHED)

    async def _going(self) -> list[str]:
        found = await self.client.list_all(PODS, dict[str, Any], Selection(self.namespace))
        return [
            pod["metadata"]["name"]
            for pod in found.items
            if pod["status"].get("phase") not in ("Succeeded", "Failed")
            and "training.kubeflow.org/job-name" in pod["metadata"]["labels"]
        ]


def _set_of(pod: Json) -> str:
    return str(pod["metadata"]["labels"].get("kueue.x-k8s.io/podset"))


def _outlived(seen: Seen, ended: dict[str, int]) -> bool:
    """The job is over, its Workload is not: what it has given back is what runs no more."""
    given = {one["name"]: one["count"] for one in seen.workload["status"].get("reclaimablePods", [])}
    left = {name for name in map(_set_of, seen.pods) if name not in ended}
    return has(seen.job, "Succeeded") and not seen.finished and given == ended and bool(left)


@asynccontextmanager
async def operating(cluster: Cluster, folder: Path) -> AsyncIterator[World]:
    kubeconfig = as_operators(cluster, folder)
    async with Client(from_kubeconfig(kubeconfig), timeout_s=20.0) as client:
        world = World(cluster, client, LISTED)
        tasks = [asyncio.create_task(each) for each in (world.run(), Operators(world, trainingoperator.PLURALS).run())]
        real = TrainingOperator(cluster, kubeconfig.read_text())
        try:
            with real.running():
                yield world
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def meetings(cluster: Cluster, controller: Controller) -> Meetings:
    """The controller is killed in each state of all kinds at once. While pods wait, kwok does nothing."""

    async def signalled(number: signal.Signals) -> None:
        os.kill(cluster.state.processes["kwok"].pid, number)

    async def killed() -> None:
        await asyncio.to_thread(controller.kill)
        controller.start()

    async def killed_and(number: signal.Signals) -> None:
        await signalled(number)
        await killed()

    return Meetings(
        {
            PODS_WAIT: partial(signalled, signal.SIGSTOP),
            PODS_GO_ON: partial(signalled, signal.SIGCONT),
            HELD: partial(killed_and, signal.SIGSTOP),
            ADMITTED: partial(killed_and, signal.SIGCONT),
            **dict.fromkeys((RUNNING, PREEMPTED, FINISHED), killed),
        }
    )


async def _play_all(cluster: Cluster, folder: Path) -> dict[str, Played]:
    (folder / "controller.yaml").write_text(CONFIG)
    controller = Controller(cluster, folder, "one", ALONE)
    async with operating(cluster, folder) as world:
        controller.start()
        meet = meetings(cluster, controller)
        plays = [Play(world, meet, operator.resource, example(operator.resource)) for operator in OPERATORS]
        alone = {
            SCALED: Scaled(world, Meetings({}), example(RAY_CLUSTERS)),
            OUTLIVED: Outlived(world, Meetings({}), example(PYTORCH_JOBS)),
        }
        try:
            await asyncio.gather(*(play.run() for play in (*plays, *alone.values())))
        finally:
            controller.kill()
    log = controller.log.read_text()[-3000:]
    found = {play.name: play.played for play in plays} | {name: play.played for name, play in alone.items()}
    for played in found.values():
        played.error += log if played.error else ""
    return found


def example(resource: Resource) -> list[Json]:
    return list(yaml.safe_load_all((EXAMPLES / f"{resource.kind.lower()}.yaml").read_text()))


@pytest.fixture(scope="module")
def played(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    flavor = {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": "played"}}
    flavor["spec"] = {"nodeLabels": {"type": "kwok"}}
    urgent = {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": URGENT}, "value": 100}
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    topology = {"apiVersion": API, "kind": "Topology", "metadata": {"name": TOPOLOGY}, "spec": {"levels": levels}}
    for body in (flavor, urgent, topology):
        cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(body))

    def in_effect() -> bool:
        (body,) = yaml.safe_load_all((EXAMPLES / "mpijob.yaml").read_text())
        body["metadata"]["namespace"] = "default"
        found = cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(body))
        return bool(json.loads(found)["spec"].get("runPolicy", {}).get("suspend"))

    wait_until(in_effect, "the policies in effect", timeout_s=120, every_s=0.2)
    return asyncio.run(_play_all(cluster, tmp_path_factory.mktemp("kinds")))


def test_every_example_is_of_a_kind_that_is_played() -> None:
    """Those of serving kinds run in test_plain_pods.py."""
    served = {kind.kind.lower() for kind in STAMPED_KINDS}
    played = {operator.resource.kind.lower() for operator in OPERATORS}
    assert {path.stem for path in EXAMPLES.iterdir()} == played | served


@pytest.mark.parametrize("name", sorted(operator.resource.kind.lower() for operator in OPERATORS))
def test_it_is_deleted_killed_preempted_and_restored_in_each_state_with_the_pods_that_were_charged(
    name: str, played: dict[str, Played]
) -> None:
    assert not played[name].error, played[name].error
    assert played[name].steps == steps(name)


def test_pods_that_outlive_their_job_keep_its_quota_until_it_is_needed(played: dict[str, Played]) -> None:
    assert not played[OUTLIVED].error, played[OUTLIVED].error
    assert played[OUTLIVED].steps == ["ended", "taken away", f"deleted while {FINISHED}"]


def test_rays_autoscaler_changes_the_quota_with_the_workers(played: dict[str, Played]) -> None:
    assert not played[SCALED].error, played[SCALED].error
    wanted = [f"{running} of {workers}" for workers, running in SIZES]
    assert played[SCALED].steps == [*wanted, f"deleted while {RUNNING}"]
