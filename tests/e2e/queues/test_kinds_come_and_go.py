"""The CRD of a job kind is installed and removed while the controller runs, with the chart's rights and no restart.

One that serves only a version that is not queued lets none of its jobs carry a queue.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from hack.cluster.waiting import until as wait_until
from tests.support.e2e.podlab import refused, rendered
from tests.support.e2e.queuelab import ALONE, QUEUE, install, lab, until

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
CRD = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds" / "jobset" / "jobsets.yaml"
FOUND_S = 10.0


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
            await scene.job("before", "sets")
            await until(lambda: scene.runs("before"), "Jobs run without the CRD of any other kind")
            cluster.kubectl("delete", "job", "-n", "team", "before", "--cascade=background")

            for name in ("first", "again"):
                told = controller.log.read_text().count("now there: jobsets")
                cluster.kubectl("apply", "--server-side", "-f", str(CRD))
                here_s = time.monotonic()
                await until(lambda told=told: controller.log.read_text().count("now there: jobsets") > told, "found")  # type: ignore[misc]
                assert time.monotonic() - here_s <= FOUND_S
                await until(lambda name=name: created(name), "a JobSet is created")  # type: ignore[misc]
                await until(lambda name=name: started(name), "the JobSet is started")  # type: ignore[misc]
                await scene.job(f"after-{name}", "sets")
                await until(
                    lambda name=name: scene.condition(f"after-{name}", "QuotaReserved").startswith("False"),  # type: ignore[misc]
                    "the JobSet has all of the quota",
                )
                cluster.kubectl("delete", "-f", str(CRD), "--timeout=60s")
                await until(lambda name=name: scene.runs(f"after-{name}"), "the quota of its jobs is free again")  # type: ignore[misc]
                await until(lambda: "jobsets are not served any more" in controller.log.read_text(), "given up")
                cluster.kubectl("delete", "job", "-n", "team", f"after-{name}", "--cascade=background")
            noise = [
                line
                for line in controller.log.read_text().splitlines()
                if "jobset" in line and "level=info" not in line
            ]
            assert not noise, noise[:5]


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
    cluster.kubectl("wait", "--for=condition=Established", "crd", "mpijobs.kubeflow.org", "--timeout=60s")
    cluster.kubectl("apply", "--server-side", "-f", "-", input=rendered("job-version-policy"))
    create = ("create", "--dry-run=server", "-f", "-")
    sentence = (
        "apiVersion: found kubeflow.org/v1: an MPIJob of the training operator is not queued, "
        "write it as kubeflow.org/v2beta1 for the MPI operator"
    )
    wait_until(
        lambda: sentence in refused(cluster, *create, input=old_mpi_job("queued", "research")),
        "the policy in effect",
        timeout_s=60,
        every_s=0.2,
    )
    cluster.kubectl("create", "-f", "-", input=old_mpi_job("free", ""))
    label = ("label", "mpijobs", "free", "-n", "default", f"{QUEUE}=research")
    assert sentence in refused(cluster, *label)
    cluster.kubectl("label", "mpijobs", "free", "-n", "default", "team=vision")
