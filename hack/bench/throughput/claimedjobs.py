"""Memory of the controller with jobs whose pods have claims of devices, against jobs that ask for GPUs in the old way:
``python -m hack.bench claimed-jobs``.

The API server is a stand-in in this process, and serves all of Dynamic Resource Allocation each time. A cluster that
has the API, and maps no class, pays the first figure. For the second the controller counts devices by their class; for
the third it follows what all nodes publish, with each place of each MIG profile.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from agent.dra.publishing.slices import RESOURCE_SLICES
from agent.dra.testing import DRIVER
from controller.cluster.watching.kinds import (
    CLAIM_KINDS,
    CLAIM_TEMPLATES,
    CLUSTER_QUEUES,
    DEVICE_CLASSES,
    FLAVORS,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
)
from controller.jobs.framework.raw import Json
from deviceplugin.testing import StandInKubelet
from hack.agents import AgentProcess, plain_kubeconfig
from hack.bench.node.agent import A100, FLEET, GPU
from hack.bench.node.claims import BY_CLAIM, GPUS, NODE
from hack.bench.table import Row, show
from hack.bench.throughput.drainshape import API
from hack.bench.throughput.measuring import memory_mib, started
from hack.bench.throughput.runningjobs import COMMAND, QUEUE, settled
from kube.resources import NODES
from kube.testing import FakeApiServer, eventually

HEAD: Final = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
MAPPED: Final = f"resources:\n  deviceClassMappings:\n  - {{name: {GPU}, deviceClassNames: [{DRIVER}]"
BY_CAPACITY: Final = "featureGates: {KueueDRAIntegrationConsumableCapacity: true}\n"
SOURCE: Final = f", sources: [{{capacity: {{name: memory, driver: {DRIVER}}}}}]"
WRITES_OF_A_JOB: Final = 3


class Way(NamedTuple):
    what: str
    config: str
    claims: bool


WAYS: Final = (
    Way("pods ask for GPUs, no class is mapped", HEAD, claims=False),
    Way("pods have claims, counted by class", f"{HEAD}{MAPPED}}}\n", claims=True),
    Way("pods have claims, counted by a capacity of devices", f"{HEAD}{BY_CAPACITY}{MAPPED}{SOURCE}}}\n", claims=True),
)


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m hack.bench claimed-jobs", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--jobs", type=int, default=1000, help="default %(default)s")
    parser.add_argument("--nodes", type=int, default=100, help="of eight GPUs each (default %(default)s)")
    options = parser.parse_args(words)
    asyncio.run(_measure(options.jobs, options.nodes))


async def _measure(jobs: int, nodes: int) -> None:
    rows = []
    with tempfile.TemporaryDirectory(prefix="tessera-claimed-") as name:
        slices = await published(Path(name) / "agent")
        for number, way in enumerate(WAYS):
            rows.append(await _row(Path(name) / str(number), way, jobs, nodes, slices))
    devices = nodes * sum(len(each["spec"].get("devices", ())) for each in slices)
    show(f"Memory of the controller: {jobs} jobs, {devices} devices of {nodes} nodes", rows)


async def published(folder: Path) -> list[Json]:
    """What an agent says of a node of eight A100 that are given out by claim."""
    folder.mkdir(parents=True)
    fleet = folder / "fleet.yaml"
    fleet.write_text(FLEET.format(gpus=GPUS, product=A100, nvlink="full", more=""))
    kubelet = StandInKubelet(folder / "k")
    async with FakeApiServer() as server:
        server.create(NODES, NODE, {"metadata": {}})
        server.install(RESOURCE_SLICES)
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(plain_kubeconfig(server.config.server))
        agent = AgentProcess(folder / "a", fleet, folder / "k", config=BY_CLAIM, kubeconfig=str(kubeconfig))
        await kubelet.start()
        agent.start()
        try:
            await eventually(lambda: len(server.list_all(RESOURCE_SLICES)) == GPUS + 1, what="slices")
            return list(server.list_all(RESOURCE_SLICES))
        finally:
            agent.stop()
            await kubelet.stop()


async def _row(folder: Path, way: Way, jobs: int, nodes: int, slices: list[Json]) -> Row:
    folder.mkdir()
    async with FakeApiServer() as server:
        for resource in CLAIM_KINDS:
            server.install(resource)
        _publish(server, slices, nodes)
        _queues(server)
        for number in range(jobs):
            name = f"job-{number}"
            server.create(JOBS, name, job(name, claims=way.claims), namespace="team")
        config, kubeconfig = folder / "controller.yaml", folder / "kubeconfig"
        config.write_text(way.config)
        kubeconfig.write_text(plain_kubeconfig(server.config.server))
        command = [*COMMAND, "0", "--config", str(config), "--kubeconfig", str(kubeconfig)]
        with started("claimed", [*command, "--namespace", "tessera-system"], folder / "log") as process:
            spent_s = await settled(server, process, jobs * WRITES_OF_A_JOB)
            peak, now = memory_mib(process, "VmHWM"), memory_mib(process, "VmRSS")
        running = sum(not each["spec"]["suspend"] for each in server.list_all(JOBS))
    assert running == jobs, f"{way.what}: {running} of {jobs} jobs were started; log in {folder}"
    return Row(way.what, f"{now:.0f} MiB, peak {peak:.0f} MiB, {spent_s:.1f} s of CPU", "")


def _publish(server: FakeApiServer, slices: list[Json], nodes: int) -> None:
    for number in range(nodes):
        node = f"node-{number}"
        for each in slices:
            text = json.dumps(each["spec"]).replace(f'"{NODE}"', f'"{node}"').replace("GPU-", f"GPU-{number}-")
            name = each["metadata"]["name"].replace(NODE, node)
            server.create(RESOURCE_SLICES, name, {"metadata": {}, "spec": json.loads(text)})


def _queues(server: FakeApiServer) -> None:
    """With room for everything, whatever it is counted in."""
    quotas = [{"name": name, "nominalQuota": "10P"} for name in ("cpu", GPU)]
    flavors = [{"name": "default", "resources": quotas}]
    groups = [{"coveredResources": ["cpu", GPU], "flavors": flavors}]
    head: Json = {"apiVersion": API, "metadata": {}}
    server.create(NAMESPACES, "team", {"metadata": {"labels": {"kubernetes.io/metadata.name": "team"}}})
    server.create(FLAVORS, "default", {**head, "kind": "ResourceFlavor"})
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    server.create(CLUSTER_QUEUES, "cq", {**head, "kind": "ClusterQueue", "spec": spec})
    local = {**head, "kind": "LocalQueue", "spec": {"clusterQueue": "cq"}}
    server.create(LOCAL_QUEUES, "research", local, namespace="team")
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
    selectors = [{"cel": {"expression": expression}}]
    server.create(DEVICE_CLASSES, DRIVER, {"metadata": {}, "spec": {"selectors": selectors}})
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1}}
    template: Json = {"metadata": {}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    server.create(CLAIM_TEMPLATES, "gpu", template, namespace="team")


def job(name: str, *, claims: bool) -> Json:
    """A suspended Job of one pod with a GPU."""
    asked: Json = {"claims": [{"name": "gpu"}]} if claims else {"limits": {GPU: "1"}, "requests": {GPU: "1"}}
    pod: Json = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none", "resources": asked}]}
    if claims:
        pod["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {QUEUE: "research"}},
        "spec": {"suspend": True, "parallelism": 1, "completions": 1, "template": {"metadata": {}, "spec": pod}},
    }
