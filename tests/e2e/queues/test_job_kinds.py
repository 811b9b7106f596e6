"""Every kind of job on a real control plane: each example waits, starts, is preempted, comes back and ends.

All kinds are played at once, each in its own namespace and queue, while the controller is killed now and then. The
training operator is real and serves four of them; the other kinds' own controllers are played (``kindoperators``). API
server, Job controller, scheduler, policies and rights are real. At each stop of the way the pods that the API server
has are those that the queue was charged with.
"""

import asyncio
import copy
import functools
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.objects.quantity import parse_quantity
from controller.servingkinds.table import STAMPED_KINDS
from controller.watching.kinds import WORKLOADS
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.stages import COMPLETE_AFTER
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from hack.cluster.waiting import until as wait_until
from kube.client import Client, Selection
from kube.config import from_kubeconfig
from kube.resources import PODS, Resource
from tests.support.e2e import trainingoperator
from tests.support.e2e.kindoperators import OPERATORS, Json, Operator, Operators
from tests.support.e2e.podlab import rendered
from tests.support.e2e.queuelab import API, CONFIG, CRDS, NAMESPACE, ROOT, Controller, as_controller
from tests.support.e2e.trainingoperator import TrainingOperator

pytestmark = pytest.mark.e2e

EXAMPLES = ROOT / "examples" / "kinds"
SHARED_CRDS = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds"
FOLDERS = ("jobset", "kubeflow", "kuberay", "appwrapper", "spark")
GPU, QUEUE, POD_SET = "nvidia.com/gpu", "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/podset"
RESOURCES = ("cpu", "memory", GPU)
NEVER_END = ("rayclusters", "rayservices")
LATE_S = 120.0
KILLS, KILL_EVERY_S = 5, 5.0
WRITTEN_OUT = {"rayjob": ("submitterPodTemplate",), "sparkapplication": ("driver/template", "executor/template")}
"""Where a start has no template to write into, it writes the default out; a stop leaves that, without placement."""

JAX_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "jaxjobs.kubeflow.org"},
    "spec": {
        "group": "kubeflow.org",
        "names": {"kind": "JAXJob", "listKind": "JAXJobList", "plural": "jaxjobs", "singular": "jaxjob"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            part: {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                            for part in ("spec", "status")
                        },
                    }
                },
            }
        ],
    },
}


# The trainer's first releases had podSpecOverrides in its place.
RUNTIME_PATCHES = [
    {
        "op": "add",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/runtimePatches",
        "value": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
]


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
    cluster.kubectl("wait", "--for=condition=Established", *listed, "--timeout=60s")
    cluster.kubectl("create", "namespace", NAMESPACE)
    parts = ("controller-rbac", "controller-rbac-kinds", "job-suspend-policy", "job-policy")
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


@dataclass
class Played:
    """What one kind went through. ``error`` is empty if all of it was as it must be."""

    steps: list[str] = field(default_factory=list)
    error: str = ""


class Play:
    """One kind's example in its own namespace, with a queue of just its size."""

    def __init__(self, client: Client, cluster: Cluster, operator: Operator) -> None:
        self.client, self.cluster, self.resource = client, cluster, operator.resource
        self.name = operator.resource.kind.lower()
        self.namespace = f"kind-{self.name}"
        self.played = Played()

    async def run(self) -> None:
        try:
            await self._run()
        except Exception as error:  # noqa: BLE001 - it is one test's result, and the other kinds go on
            self.played.error = f"after {self.played.steps}: {error!r}\n{await self._told()}"

    async def _run(self) -> None:
        original = await self._create()
        self._did("held")
        await self._open_queue()
        await self._runs("admitted")
        await self._preempt(original)
        await self._runs("admitted again")
        await self._end()

    def _did(self, step: str) -> None:
        self.played.steps.append(step)

    async def _create(self) -> Json:
        """It is written as running, and held: no pod, and a workload without quota. As it was then."""
        bodies = list(yaml.safe_load_all((EXAMPLES / f"{self.name}.yaml").read_text()))
        await asyncio.to_thread(self.cluster.kubectl, "create", "namespace", self.namespace)
        spec = {"clusterQueue": self.name, "stopPolicy": "Hold"}
        await self._make("LocalQueue", {"name": "research", "namespace": self.namespace}, spec)
        for body in bodies:
            if "namespace" in body["metadata"]:
                body["metadata"]["namespace"] = self.namespace
            await asyncio.to_thread(self.cluster.kubectl, "create", "-f", "-", input=json.dumps(body))
        await self._until(lambda seen: bool(seen.workloads), "it has a workload")
        seen = await self._seen()
        assert not seen.pods, "it is held, and has pods"
        assert not seen.admitted
        asked = {one["name"]: one["count"] for one in seen.workload["spec"]["podSets"]}
        assert sum(asked.values()) >= 2, asked
        return seen.job

    async def _make(self, kind: str, metadata: Json, spec: Json) -> None:
        body = {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}
        await asyncio.to_thread(self.cluster.kubectl, "apply", "--server-side", "-f", "-", input=json.dumps(body))

    async def _open_queue(self) -> None:
        """A quota of exactly what the workload asks for."""
        pods = (await self._seen()).workload["spec"]["podSets"]
        need = {name: sum(one["count"] * asked(one["template"], name) for one in pods) for name in RESOURCES}
        quotas = [{"name": name, "nominalQuota": f"{nanos}n"} for name, nanos in need.items()]
        self.gpus = need[GPU] // 10**9
        group = {"coveredResources": list(RESOURCES), "flavors": [{"name": "played", "resources": quotas}]}
        preemption = {"withinClusterQueue": "LowerPriority"}
        spec = {"namespaceSelector": {}, "resourceGroups": [group], "preemption": preemption}
        await self._make("ClusterQueue", {"name": self.name}, spec)
        patch = '{"spec": {"stopPolicy": "None"}}'
        command = ("patch", "localqueues.kueue.x-k8s.io", "research", "-n", self.namespace, "--type=merge", "-p", patch)
        await asyncio.to_thread(self.cluster.kubectl, *command)

    async def _runs(self, step: str) -> None:
        def as_charged(seen: "Seen") -> bool:
            return seen.admitted and seen.charged == seen.requested and seen.counts == seen.assigned and seen.running

        await self._until(as_charged, f"{step}: its pods run, and are those that were charged")
        self._did(step)

    async def _preempt(self, original: Json) -> None:
        """All pods go, and the object is again as it was made."""
        container = {"name": "main", "image": "none", "resources": {"limits": {GPU: str(self.gpus)}}}
        container["resources"] |= {"requests": {"cpu": "1", "memory": "1Gi"}}  # type: ignore[operator]
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "urgent",
                "namespace": self.namespace,
                "labels": {QUEUE: "research", "kueue.x-k8s.io/priority-class": "urgent"},
            },
            "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
        }
        await asyncio.to_thread(self.cluster.kubectl, "create", "-f", "-", input=json.dumps(body))
        await self._until(lambda seen: not seen.admitted and not seen.pods, "it is preempted and its pods are gone")
        defaults = WRITTEN_OUT.get(self.name, ())
        wanted = written(original, defaults)
        await self._until(lambda seen: written(seen.job, defaults) == wanted, "its templates are restored")
        self._did("restored")
        await asyncio.to_thread(self.cluster.kubectl, "delete", "job", "urgent", "-n", self.namespace)

    async def _end(self) -> None:
        if self.resource.plural not in NEVER_END:
            until = asyncio.get_running_loop().time() + LATE_S
            while not (await self._seen()).finished:
                assert asyncio.get_running_loop().time() < until, "it did not finish"
                command = ("annotate", "pods", "--all", "-n", self.namespace, "--overwrite", f"{COMPLETE_AFTER}=0s")
                with suppress(ClusterError):  # a pod goes while it is annotated
                    await asyncio.to_thread(self.cluster.kubectl, *command)
                await asyncio.sleep(0.5)
            self._did("finished")
        gone = ("delete", self.resource.plural, self.name, "-n", self.namespace, "--wait=false")
        await asyncio.to_thread(self.cluster.kubectl, *gone)
        await self._until(lambda seen: not seen.job and not seen.workloads and not seen.pods, "nothing is left")
        self._did("gone")

    async def _until(self, holds: Callable[["Seen"], bool], what: str) -> None:
        until = asyncio.get_running_loop().time() + LATE_S
        while not holds(seen := await self._seen()):
            assert asyncio.get_running_loop().time() < until, f"not within {LATE_S:.0f} s: {what}: {seen}"
            await asyncio.sleep(0.2)

    async def _seen(self) -> "Seen":
        jobs, workloads, pods = [await self._list(resource) for resource in (self.resource, WORKLOADS, PODS)]
        return Seen.of(jobs, workloads, pods, self.name)

    async def _list(self, resource: Resource) -> list[Json]:
        return list((await self.client.list_all(resource, dict[str, Any], Selection(self.namespace))).items)

    async def _told(self) -> str:
        listed = ("events", "-n", self.namespace, "-o", "custom-columns=O:.regarding.name,R:.reason,N:.note")
        return await asyncio.to_thread(self.cluster.kubectl, "get", *listed)


@dataclass(frozen=True)
class Seen:
    """One look at a namespace. The workload is that of the example; ``pods`` leaves out those of the urgent Job."""

    job: Json
    workloads: list[Json]
    pods: list[Json]

    @classmethod
    def of(cls, jobs: list[Json], workloads: list[Json], pods: list[Json], name: str) -> "Seen":
        def is_urgent(each: Json) -> bool:
            owners = each["metadata"].get("ownerReferences", [])
            return any(owner["name"] == "urgent" for owner in owners)

        live = [each for each in pods if each["status"].get("phase") not in ("Succeeded", "Failed")]
        return cls(
            job=next((each for each in jobs if each["metadata"]["name"] == name), {}),
            workloads=[each for each in workloads if not is_urgent(each)],
            pods=[each for each in live if not is_urgent(each)],
        )

    @property
    def workload(self) -> Json:
        (found,) = self.workloads
        return found

    @property
    def _assignments(self) -> list[Json]:
        found: list[Json] = self.workload.get("status", {}).get("admission", {}).get("podSetAssignments", [])
        return found

    @property
    def admitted(self) -> bool:
        return bool(self._assignments) and self._has("Admitted")

    @property
    def finished(self) -> bool:
        return self._has("Finished")

    def _has(self, type_: str) -> bool:
        found = self.workload.get("status", {}).get("conditions", [])
        return any(one["type"] == type_ and one["status"] == "True" for one in found)

    @property
    def charged(self) -> Json:
        used = [one["resourceUsage"] for one in self._assignments]
        return {name: sum(nanos(each.get(name, "0")) for each in used) for name in RESOURCES}

    @property
    def requested(self) -> Json:
        return {name: sum(asked(pod, name) for pod in self.pods) for name in RESOURCES}

    @property
    def assigned(self) -> Counter[str]:
        return Counter({one["name"]: one["count"] for one in self._assignments})

    @property
    def counts(self) -> Counter[str]:
        return Counter(pod["metadata"].get("labels", {}).get(POD_SET, "") for pod in self.pods)

    @property
    def running(self) -> bool:
        return all(pod["status"].get("phase") == "Running" for pod in self.pods)

    def __str__(self) -> str:
        pods = [(p["metadata"]["name"], p["status"].get("phase"), p["spec"].get("schedulingGates")) for p in self.pods]
        statuses = [one.get("status", {}) for one in self.workloads]
        return json.dumps({"job": self.job, "statuses": statuses, "pods": pods})[:6000]


def nanos(quantity: str) -> int:
    return parse_quantity(quantity).nanos


def asked(template: Json, name: str) -> int:
    """Of one pod, in 10^-9 of its unit."""
    total = 0
    for container in template["spec"]["containers"]:
        resources = container.get("resources", {})
        found = {**resources.get("limits", {}), **resources.get("requests", {})}
        total += nanos(str(found.get(name, "0")))
    return total


def written(job: Json, defaults: tuple[str, ...] = ()) -> Json:
    """The spec as its user wrote it: an entry of ours and a map that say nothing any more are left out."""

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            kept = {key: bare(each) for key, each in value.items()}
            return {key: each for key, each in kept.items() if each not in ({}, [], None)}
        return [bare(each) for each in value] if isinstance(value, list) else value

    spec = copy.deepcopy(job.get("spec", {}))
    for path in defaults:
        *way, last = path.split("/")
        place = functools.reduce(lambda inner, key: inner[key], way, spec)
        left = place.get(last, {})
        assert not any(left.get("spec", {}).get(key) for key in ("nodeSelector", "tolerations", "schedulingGates"))
        assert not left.get("metadata"), left
        place.pop(last, None)
    patches = spec.pop("runtimePatches", [])
    spec["runtimePatches"] = [each for each in map(bare, patches) if each != {"manager": "kueue.x-k8s.io/manager"}]
    found: Json = bare(spec)
    return found


@asynccontextmanager
async def operating(cluster: Cluster, folder: Path) -> AsyncIterator[Client]:
    kubeconfig = as_operators(cluster, folder)
    real = TrainingOperator(cluster, kubeconfig.read_text())
    async with Client(from_kubeconfig(kubeconfig), timeout_s=20.0) as client:
        task = asyncio.create_task(Operators(client, trainingoperator.PLURALS).run())
        try:
            with real.running():
                yield client
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _kills(controller: Controller) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(KILL_EVERY_S)
        await asyncio.to_thread(controller.kill)
        controller.start()


async def _play_all(cluster: Cluster, folder: Path) -> dict[str, Played]:
    account = folder / "account.kubeconfig"
    account.write_text(as_controller(cluster))
    (folder / "controller.yaml").write_text(CONFIG)
    controller = Controller(cluster, folder, "one", ("--no-leader-elect", "--kubeconfig", str(account)))
    async with operating(cluster, folder) as client:
        controller.start()
        plays = [Play(client, cluster, operator) for operator in OPERATORS]
        killer = asyncio.create_task(_kills(controller))
        try:
            await asyncio.gather(*(play.run() for play in plays))
        finally:
            killer.cancel()
            await asyncio.gather(killer, return_exceptions=True)
            controller.kill()
    log = controller.log.read_text()[-3000:]
    for play in plays:
        play.played.error += log if play.played.error else ""
    return {play.name: play.played for play in plays}


@pytest.fixture(scope="module")
def played(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    flavor = {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": "played"}}
    flavor["spec"] = {"nodeLabels": {"type": "kwok"}}
    urgent = {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 100}
    for body in (flavor, urgent):
        cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(body))

    def in_effect() -> bool:
        bodies = list(yaml.safe_load_all((EXAMPLES / "mpijob.yaml").read_text()))
        bodies[0]["metadata"]["namespace"] = "default"
        found = cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(bodies[0]))
        return bool(json.loads(found)["spec"].get("runPolicy", {}).get("suspend"))

    wait_until(in_effect, "the policies in effect", timeout_s=60, every_s=0.2)
    return asyncio.run(_play_all(cluster, tmp_path_factory.mktemp("kinds")))


def test_every_example_is_of_a_kind_that_is_played() -> None:
    """Those of serving kinds run in test_plain_pods.py."""
    served = {kind.kind.lower() for kind in STAMPED_KINDS}
    played = {operator.resource.kind.lower() for operator in OPERATORS}
    assert {path.stem for path in EXAMPLES.iterdir()} == played | served


@pytest.mark.parametrize("name", sorted(operator.resource.kind.lower() for operator in OPERATORS))
def test_it_waits_starts_is_preempted_restored_and_ends_with_the_pods_that_were_charged(
    name: str, played: dict[str, Played]
) -> None:
    assert not played[name].error, played[name].error
    ends = ["gone"] if f"{name}s" in NEVER_END else ["finished", "gone"]
    assert played[name].steps == ["held", "admitted", "restored", "admitted again", *ends]
