"""The CRD of a job kind is installed and removed while the controller runs, with the chart's rights and no restart.

One that serves only a version that is not queued lets none of its jobs carry a queue. A kind that nobody has heard of
is queued by its JobKind.
"""

import copy
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from hack.cluster.waiting import until as wait_until
from tests.support.controller.declarations import job_kind
from tests.support.e2e.charttext import rendered
from tests.support.e2e.kubernetes import SUSPEND_BY
from tests.support.e2e.podlab import WEBHOOK, answering, refused
from tests.support.e2e.queuelab import ALONE, QUEUE, Json, install, lab, until

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
CRD = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds" / "jobset" / "jobsets.yaml"
FOUND_S = 60.0
"""The promise is ten seconds, on an idle machine."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    with Cluster.up(f"comeandgo-{os.getpid()}", Spec(nodes=(), kwok_nodes=1)) as cluster:
        install(cluster)
        yield cluster


def job_set(name: str, queue: str) -> str:
    pod = {"containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}]}
    jobs = [{"name": "a", "template": {"spec": {"template": {"spec": {"restartPolicy": "Never", **pod}}}}}]
    metadata = {"name": name, "namespace": "team", "labels": {QUEUE: queue}}
    spec = {"suspend": True, "replicatedJobs": jobs}
    return json.dumps({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec})


async def test_a_kind_is_queued_from_its_installation_to_its_removal(cluster: Cluster, tmp_path: Path) -> None:
    assert CRD.exists(), f"JobSet's CRD not found: {CRD} is no file; set TESSERA_SHARED"

    def started(name: str) -> bool:
        try:
            return cluster.kubectl("get", "jobset", "-n", "team", name, "-o", "jsonpath={.spec.suspend}") == "false"
        except ClusterError:
            return False

    def created(name: str) -> bool:
        try:
            cluster.kubectl("create", "-f", "-", input=job_set(name, "sets"))
        except ClusterError:
            return False
        return True

    async with lab(cluster, {"sets": 1}) as scene:
        await scene.queue("sets", 1)
        with scene.controllers(tmp_path, "one", flags=ALONE) as (controller,):

            def found() -> int:
                """How often it was said that JobSets are there, alone or with other kinds that came at once."""
                return len(re.findall(r"now there: .*\bjobsets\b", controller.log.read_text()))

            await scene.job("before", "sets")
            await until(lambda: scene.runs("before"), "Jobs run without the CRD of any other kind")
            cluster.kubectl("delete", "job", "-n", "team", "before", "--cascade=background")

            for name in ("first", "again"):
                told = found()
                cluster.kubectl("apply", "--server-side", "-f", str(CRD))
                here_s = time.monotonic()
                await until(lambda told=told: found() > told, "found")  # type: ignore[misc]
                assert time.monotonic() - here_s <= FOUND_S
                await until(lambda name=name: created(name), "a JobSet is created")  # type: ignore[misc]
                await until(lambda name=name: started(name), "the JobSet is started")  # type: ignore[misc]
                await scene.job(f"after-{name}", "sets")
                await until(
                    lambda name=name: scene.condition(f"after-{name}", "QuotaReserved").startswith("False"),  # type: ignore[misc]
                    "the JobSet has all of the quota",
                )
                cluster.kubectl("delete", "-f", str(CRD), "--timeout=120s")
                await until(lambda name=name: scene.runs(f"after-{name}"), "the quota of its jobs is free again")  # type: ignore[misc]
                await until(lambda: "jobsets are not served any more" in controller.log.read_text(), "given up")
                cluster.kubectl("delete", "job", "-n", "team", f"after-{name}", "--cascade=background")
            noise = [
                line
                for line in controller.log.read_text().splitlines()
                if "jobset" in line and "level=info" not in line
            ]
            assert not noise, noise[:5]


TRAINER = CRD.parents[1] / "kubeflow"
"""TrainJob's CRD there is of a release that has podSpecOverrides in the place of runtimePatches."""


def train_job(queue: str) -> str:
    """A TrainJob and its runtime: one pod."""
    pod = {"spec": {"restartPolicy": "Never", **POD["spec"]}}
    jobs = [{"name": "node", "template": {"spec": {"template": pod}}}]
    group = "trainer.kubeflow.org/v1alpha1"
    spec = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": jobs}}}
    runtime = {"kind": "ClusterTrainingRuntime", "metadata": {"name": "torch"}, "spec": spec}
    metadata = {"name": "pruned", "namespace": "team", "labels": {QUEUE: queue}}
    job = {"kind": "TrainJob", "metadata": metadata, "spec": {"suspend": True, "runtimeRef": {"name": "torch"}}}
    return "\n---\n".join(json.dumps({"apiVersion": group, **one}) for one in (runtime, job))


async def test_a_start_that_an_older_crd_drops_gives_its_quota_back(cluster: Cluster, tmp_path: Path) -> None:
    files = [TRAINER / f"{name}.yaml" for name in ("clustertrainingruntimes", "trainingruntimes", "trainjobs")]
    cluster.kubectl("apply", "--server-side", *(word for file in files for word in ("-f", str(file))))
    assert "runtimePatches" not in files[-1].read_text()
    dropped = "The job cannot start: the API server does not keep spec.runtimePatches: expected a CRD with this field"
    async with lab(cluster, {"dropped": 1}) as scene:
        await scene.queue("dropped", 1)
        with scene.controllers(tmp_path, "dropped", flags=ALONE):
            body = train_job("dropped")
            await until(lambda: not refused(cluster, "apply", "-f", "-", input=body), "the TrainJob is created")
            await until(lambda: scene.condition("pruned", "Finished") == "True/FailedToStart", "given up")
            await scene.job("next", "dropped")
            await until(lambda: scene.runs("next"), "the quota is free")
            found = json.loads(cluster.kubectl("get", "trainjob", "-n", "team", "pruned", "-o", "json"))
            assert found["spec"]["suspend"] is True
            listed = ("get", "events.events.k8s.io", "-n", "team", "-o", "json")

            def told() -> list[str]:
                events = json.loads(cluster.kubectl(*listed))["items"]
                return [one["note"] for one in events if one["reason"] == "FailedToStart"]

            await until(lambda: told() == [dropped], "told once")
            cluster.kubectl("delete", "trainjob,job", "-n", "team", "--all", "--cascade=background")
    cluster.kubectl("delete", *(word for file in files for word in ("-f", str(file))), "--timeout=60s")


def old_mpi_job(name: str, queue: str) -> str:
    labels = {QUEUE: queue} if queue else {}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return json.dumps({"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": metadata, "spec": {}})


OLD_MPI_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "mpijobs.kubeflow.org"},
    "spec": {
        "group": "kubeflow.org",
        "names": {"kind": "MPIJob", "listKind": "MPIJobList", "plural": "mpijobs", "singular": "mpijob"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def test_an_mpi_job_of_the_training_operator_is_refused_where_no_other_is_served(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(OLD_MPI_CRD))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "mpijobs.kubeflow.org", "--timeout=120s")
    cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered("job-version-policy"))
    create = ("create", "--dry-run=server", "-f", "-")
    sentence = (
        "apiVersion: found kubeflow.org/v1: an MPIJob of the training operator is not queued, "
        "write it as kubeflow.org/v2beta1 for the MPI operator"
    )
    wait_until(
        lambda: sentence in refused(cluster, *create, input=old_mpi_job("queued", "research")),
        "the policy in effect",
        timeout_s=120,
        every_s=0.2,
    )
    cluster.kubectl("create", "-f", "-", input=old_mpi_job("free", ""))
    label = ("label", "mpijobs", "free", "-n", "default", f"{QUEUE}=research")
    assert sentence in refused(cluster, *label)
    cluster.kubectl("label", "mpijobs", "free", "-n", "default", "team=vision")


EXAMPLES = ROOT / "examples" / "jobkinds"
POD: Json = {"spec": {"containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}]}}
ANY: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SWEEP_CRD: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "sweeps.lab.example"},
    "spec": {
        "group": "lab.example",
        "scope": "Namespaced",
        "names": {"kind": "Sweep", "listKind": "SweepList", "plural": "sweeps", "singular": "sweep"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": ANY, "status": ANY}}},
            }
        ],
    },
}
WRONG: dict[str, Json] = {
    "spec.ready": {"ready": {}},
    "expected templates that lie apart": {"podSets": [{"name": "a", "template": ".spec.a"}] * 2},
    "expected suspended or observedGeneration, found neither": {"suspended": None},
    "spec.suspend": {"suspend": ".metadata.labels"},
    "expected sweeps.other.example, found sweeps.lab.example": {"group": "other.example"},
}


class Sweeps:
    """Objects of the kind, and what their controller writes: a test plays it, step by step."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create(self, name: str, queue: str, *, paused: bool = True, priority: str = "") -> None:
        labels = {QUEUE: queue, **({"kueue.x-k8s.io/priority-class": priority} if priority else {})}
        trials = copy.deepcopy({"parallel": 1, "template": POD})
        body = {
            "apiVersion": "lab.example/v1",
            "kind": "Sweep",
            "metadata": {"name": name, "namespace": "team", "labels": labels},
            "spec": {"paused": paused, "search": {"template": POD}, "trials": trials},
        }
        self._cluster.kubectl("create", "-f", "-", input=json.dumps(body))

    def get(self, name: str) -> Json:
        found: Json = json.loads(self._cluster.kubectl("get", "sweep", "-n", "team", name, "-o", "json"))
        return found

    def paused(self, name: str) -> bool:
        return bool(self.get(name)["spec"]["paused"])

    def writes(self, name: str, phase: str, pods: int) -> None:
        status = json.dumps({"status": {"phase": phase, "pods": pods, "readyPods": pods}})
        self._cluster.kubectl(
            "patch", "sweep", "-n", "team", name, "--subresource=status", "--type=merge", "-p", status
        )

    def says(self, type_: str) -> str:
        path = f'{{.status.conditions[?(@.type=="{type_}")].reason}}'
        try:
            return self._cluster.kubectl("get", "jobkind", "sweeps.lab.example", "-o", f"jsonpath={path}")
        except ClusterError:
            return "gone"


async def test_a_kind_of_ones_own_is_queued_by_its_job_kind_alone(cluster: Cluster, tmp_path: Path) -> None:
    declaration, role = (json.dumps(each) for each in yaml.safe_load_all((EXAMPLES / "sweeps.yaml").read_text()))
    for said, spec in WRONG.items():
        verdict = refused(cluster, "create", "--dry-run=server", "-f", "-", input=json.dumps(job_kind(**spec)))
        assert said in verdict, verdict
    async with lab(cluster, {"sweeps": 2}) as scene:
        sweeps = Sweeps(cluster)
        await scene.queue("sweeps", 2, preemption={"withinClusterQueue": "LowerPriority"})
        urgent = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "value": 100}
        urgent["metadata"] = {"name": "urgent"}
        cluster.kubectl("apply", "-f", "-", input=json.dumps(urgent))
        with scene.controllers(tmp_path, "declared", flags=ALONE):
            cluster.kubectl("apply", "-f", "-", input=declaration)
            await until(lambda: sweeps.says("Active") == "Forbidden", "the missing rights are told")
            cluster.kubectl("apply", "-f", "-", input=role)
            await until(lambda: sweeps.says("Active") == "NotServed", "the missing CRD is told")
            cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(SWEEP_CRD))
            await until(lambda: sweeps.says("Active") == "Active", "the kind is queued")

            sweeps.create("low", "sweeps", paused=False)
            await until(lambda: scene.condition("low", "Admitted") == "True/Admitted", "held, then admitted")
            await until(lambda: not sweeps.paused("low"), "started")
            sweeps.writes("low", "Running", 2)
            await until(lambda: scene.condition("low", "PodsReady").startswith("True"), "its pods are ready")
            sweeps.create("high", "sweeps", priority="urgent")
            await until(lambda: sweeps.paused("low"), "preempted")
            assert sweeps.paused("high"), "the pods of the other may still be there"
            sweeps.writes("low", "Paused", 0)
            await until(lambda: not sweeps.paused("high"), "started in its place")
            assert sweeps.get("low")["spec"]["trials"] == {"parallel": 1, "template": POD}
            sweeps.writes("high", "Running", 2)

            cluster.kubectl("delete", "jobkind", "sweeps.lab.example", "--wait=false")
            await until(lambda: sweeps.says("Active") == "Terminating", "it waits for what holds quota")
            sweeps.writes("high", "Succeeded", 0)
            await until(lambda: scene.condition("high", "Finished") == "True/Succeeded", "finished")
            await until(lambda: sweeps.says("Active") == "gone", "the JobKind has gone")
            assert sweeps.paused("low")
            cluster.kubectl("apply", "-f", "-", input=declaration)
            await until(lambda: not sweeps.paused("low"), "taken up again")
            cluster.kubectl("delete", "sweeps", "-n", "team", "--all", "--wait=false")
            await until(lambda: not [key for key in scene.watcher.workloads if "sweep-" in key], "no Workload is left")
            cluster.kubectl("delete", "jobkind", "sweeps.lab.example", "--timeout=120s")
            cluster.kubectl("delete", "crd", "sweeps.lab.example", "--timeout=120s")


async def test_the_chart_holds_objects_of_a_kind_that_its_values_declare(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(SWEEP_CRD))
    parts = ("jobkinds", "controller-rbac-kinds", f"job-suspend-{SUSPEND_BY}", "job-policy", *WEBHOOK)
    printed = rendered(*parts, files=(EXAMPLES / "values.yaml",))
    cluster.kubectl("apply", "--server-side", "-f", "-", input=printed)
    with answering(cluster, {("lab.example", "Sweep"): ("spec", "paused")}):
        async with lab(cluster, {}) as scene:
            await scene.queue("held", 1)
            sweeps = Sweeps(cluster)

            def held() -> bool:
                cluster.kubectl("delete", "sweep", "-n", "team", "held", "--ignore-not-found")
                try:
                    sweeps.create("held", "sweeps", paused=False)
                except ClusterError:
                    return False  # the policies are not there yet, or the kind is not
                return sweeps.paused("held")

            await until(held, "the API server holds it")
            start = ("patch", "sweep", "-n", "team", "held", "--type=merge", "-p", '{"spec": {"paused": false}}')
            await until(
                lambda: "only the controller starts a Sweep" in refused(cluster, *start), "nobody else starts it"
            )
            cluster.kubectl("delete", "crd", "sweeps.lab.example", "--timeout=120s")
