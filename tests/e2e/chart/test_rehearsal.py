"""The plan of ``tessera migrate`` for a GPU Operator, rehearsed on a real kubelet: all steps as they are printed, then
all of their ways back, with a pod that holds GPUs all along.

The operator and its operands are stand-ins, the GPUs are simulated; API server, kubelet, DaemonSets and Helm are real.
"""

import json
import os
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from hack.image import agentimage
from simulator.fleet.fleetfile import load_fleet
from tests.support.e2e.gpuoperator import DEPLOY, PARTS, POLICY, GpuOperator
from tests.support.e2e.lab import EXAMPLES, GPU, ROOT, Pod, until
from tests.support.e2e.lifelab import NAMESPACE, PRESENT, SPEC, Life

pytestmark = pytest.mark.e2e

SHARED: Final = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared")
CRD: Final = SHARED / "crds" / "nvidia" / "clusterpolicies.yaml"
FLEET: Final = EXAMPLES / "fleets" / "a100-8.yaml"
GPUS: Final = 8
CLUSTER_POLICY: Final = {
    "apiVersion": "nvidia.com/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "cluster-policy"},
    "spec": {
        "operator": {"runtimeClass": "nvidia"},
        "daemonsets": {},
        "driver": {"enabled": False},
        "toolkit": {"enabled": True},
        "cdi": {"enabled": True},
        "mig": {"strategy": "single"},
        "dcgm": {"enabled": False},
        "nodeStatusExporter": {"enabled": False},
        **{part: {"enabled": True} for part in PARTS},
    },
}
CHANGES: Final = ("nvidia.com/gfd.timestamp", DEPLOY)
"""How labels begin that say when something was done, or what is to be done."""


@dataclass(frozen=True)
class Site:
    life: Life
    operator: GpuOperator

    def plan(self, *words: str) -> list[dict[str, str]]:
        """The steps that the command prints of the cluster."""
        printed = self.life.shell.run(f"tessera migrate --image {agentimage.REPOSITORY} {' '.join(words)} -o json")
        steps: list[dict[str, str]] = json.loads(printed)["steps"]
        return steps

    def seen(self) -> dict[str, Any]:
        """What pods see of the node, and what runs on it."""
        lab = self.life.lab
        found = {key: value for key, value in lab.labels().items() if not key.startswith(CHANGES)}
        return {"labels": found, "amounts": lab.amounts("capacity"), "containers": self.life.containers()}

    def await_seen(self, before: Mapping[str, Any]) -> None:
        """Return once pods see what they saw. ClusterError with what differs."""
        found: dict[str, Any] = {}

        def same() -> bool:
            found.update(self.seen())
            return all(found[key] == before[key] for key in found)

        try:
            until(same, "pods see what they saw")
        except ClusterError as late:
            differs = [set(one["labels"].items()) for one in (found, before)]
            raise ClusterError(f"{late}: {found['amounts']}, {differs[0] ^ differs[1]}") from None

    def series(self) -> set[str]:
        """GPUs of which the exporter, or the agent, says the use at its port."""
        found = set[str]()
        for space in (NAMESPACE, "gpu-operator"):
            for pod in self.life.lab.get(f"/api/v1/namespaces/{space}/pods")["items"]:
                with suppress(OSError):
                    url = f"http://{pod['status'].get('podIP')}:9400/metrics"
                    lines = urllib.request.urlopen(url, timeout=5).read().decode().splitlines()
                    found |= {
                        line.split('UUID="')[1][:40] for line in lines if line.startswith("DCGM_FI_DEV_GPU_UTIL{")
                    }
        return found

    def held(self, pod: str) -> list[str]:
        """The GPUs that the pod has, as the kubelet lists them."""
        return sorted(self.life.lab.given()[pod][GPU])

    def others(self, name: str) -> tuple[list[str], list[str], dict[str, str]]:
        """A pod of all GPUs that ``holds`` has not: its devices, its device files and its variables."""
        pod = self.life.lab.run(name, {GPU: GPUS - 2})
        found = self.held(name), pod.device_nodes, pod.environment
        self.life.lab.delete_pods(name)
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    assert CRD.is_file(), f"NVIDIA's CRDs not found: {CRD} is no file; set TESSERA_SHARED"
    binaries.build("helm")
    with Cluster.up(f"rehearsal-{os.getpid()}", SPEC) as cluster:
        folder = tmp_path_factory.mktemp("site")
        life = Life.beside(cluster, folder)
        life.load(PRESENT)
        _simulating(folder)
        uuids = [gpu.uuid for gpu in load_fleet(FLEET).node(life.lab.host.name).gpus]
        operator = GpuOperator(life.lab, uuids)
        operator.install(CRD, CLUSTER_POLICY)
        with operator.running():
            yield Site(life, operator)


def _simulating(folder: Path) -> None:
    """This site has no GPUs: its Helm installs with simulated ones, whatever the values besides."""
    values = folder / "simulated.yaml"
    values.write_text(json.dumps({"simulate": {"enabled": True, "fleet": FLEET.read_text()}}))
    shim = folder / "bin" / "helm"
    words = shim.read_text().splitlines()[-1]
    shim.write_text(f'#!/bin/sh\nif [ "$1" = install ]; then set -- "$@" --values {values}; fi\n{words}\n')


@pytest.fixture(scope="module")
def before(site: Site) -> dict[str, Any]:
    """The operator serves all; a pod holds two GPUs, the label asks the MIG manager for whole GPUs."""
    lab = site.life.lab
    lab.await_amounts({GPU: GPUS})
    site.operator.await_parts(*PARTS)
    lab.cluster.kubectl("label", "node", lab.host.name, "nvidia.com/mig.config=all-disabled")
    lab.run("holds", {GPU: 2})
    until(lambda: lab.labels().get("nvidia.com/gpu.count") == "8", "labels of feature discovery")
    until(lambda: lab.labels().get("nvidia.com/mig.config.state") == "success", "the MIG manager's answer")
    return {**site.seen(), "spec": lab.get(POLICY)["spec"], "others": site.others("first"), "holds": site.held("holds")}


def answers(site: Site) -> None:
    """The program that cuts GPUs answers to the label of MIG."""
    lab = site.life.lab

    def answered(value: str, answer: str) -> None:
        lab.cluster.kubectl("label", "node", lab.host.name, "--overwrite", f"nvidia.com/mig.config={value}")
        until(lambda: lab.labels().get("nvidia.com/mig.config.state") == answer, f"{value}: {answer}")

    answered("no-such", "failed")
    answered("all-disabled", "success")


@pytest.mark.parametrize("words", [("--node=node-1",), ()], ids=["node by node", "by the policy"])
def test_all_steps_and_all_ways_back_end_no_pod_and_give_no_gpu_twice(
    site: Site, before: dict[str, Any], words: tuple[str, ...]
) -> None:
    lab, shell = site.life.lab, site.life.shell
    steps = site.plan(*words)
    left: list[str] = []

    def settled() -> None:
        """After each step: its part alone is gone, the pod runs, and what pods see is as before."""
        site.operator.await_parts(*(part for part in PARTS if part not in left))
        assert site.life.containers() == before["containers"]

    for step in steps:
        shell.run(step["command"])
        left += [part for part, (label, _, _) in PARTS.items() if _switches(step["command"], part, label)]
        settled()
        if "devicePlugin" in left and "tessera-agent" in "".join(site.life.pods_of(NAMESPACE)):
            lab.await_amounts({GPU: GPUS})
    assert left == list(PARTS)
    site.await_seen(before)
    until(lambda: {pod for pod, _ in site.life.holders()} == {"holds"}, "the agent knows the pod from before")
    assert site.others("second") == before["others"]
    assert site.held("holds") == before["holds"]
    until(lambda: len(site.series()) == GPUS, "the agent's metrics have all GPUs")
    answers(site)
    shell.run("tessera migrate --check")

    for step in reversed(steps):
        shell.run(step["undo"])
        left = [part for part in left if not _switches(step["command"], part, PARTS[part][0])]
        settled()
    lab.await_amounts({GPU: GPUS})
    site.await_seen(before)
    assert site.others("third") == before["others"]
    assert site.held("holds") == before["holds"]
    assert lab.get(POLICY)["spec"] == before["spec"]
    deploy = {key: value for key, value in lab.labels().items() if key.startswith(DEPLOY)}
    assert deploy == {f"{DEPLOY}{label}": "true" for label, _, _ in PARTS.values()}
    until(lambda: not lab.get(f"/api/v1/namespaces/{NAMESPACE}"), "nothing of ours is left")
    assert site.operator.together == [], "two device plugins never own a resource of a node together"


def _switches(command: str, part: str, label: str) -> bool:
    return f"{DEPLOY}{label}=" in command or f'"{part}": {{"enabled": false}}' in command


def test_of_the_pod_that_held_gpus_all_along_nothing_has_changed(site: Site, before: dict[str, Any]) -> None:
    assert before["containers"]["holds"]["restarts"] == 0
    assert Pod(site.life.lab, "holds").device_nodes == [f"/dev/nvidia{uuid[-1]}" for uuid in before["holds"]]
