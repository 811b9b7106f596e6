"""What the end-to-end tests work with: a real cluster, agents on its node, pods, and what the API server holds.

Agents run on the machine beside the node (see hack.cluster), each with a state folder of its own. They carry the
cluster's mark, so that taking the cluster down ends them whatever happened to the test.
"""

import contextlib
import json
import os
import re
import signal
import ssl
import threading
import time
import urllib.error
import urllib.request
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import click
import grpc
import yaml
from prometheus_client.parser import text_string_to_metric_families

from agent.report import DeviceReport, NodeReport
from hack.agents import AgentProcess
from hack.cluster import waiting
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.render import TEST_IMAGE
from hack.cluster.errors import ClusterError
from hack.cluster.layout import MARK_ENV
from hack.cluster.nodes.node import NodeHost
from kubeletapi import podresources_v1_pb2 as pb
from kubeletapi import podresources_v1_pb2_grpc as pb_grpc

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
CRDS = ROOT / "charts" / "tessera" / "crds"
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
WAIT_S = 120.0
"""Reached only where something fails: what takes a second here may take a minute on a machine that others keep busy."""
FAST = "{probationSeconds: 1, probeIntervalSeconds: 0.5}"
"""The ``health`` section of tests: a GPU that was reset is back after a second."""

STEPS: list[Callable[[], None]] = []
"""Called after each wait that ended well, which is a step of a scene: they raise AssertionError where something may not
be as it is.
"""

_serial = count()


def until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Return once ``condition`` holds. ClusterError that says ``what`` was waited for."""
    waiting.until(condition, what, timeout_s=timeout_s, every_s=0.1)
    for look in STEPS:
        look()


def fleet(path: Path, **node: Any) -> Path:
    """A fleet file of one node, ``node-1`` if it has no name of its own, written to ``path``."""
    path.write_text(yaml.safe_dump({"nodes": [{"name": "node-1", **node}]}))
    return path


class Agent(AgentProcess):
    """An agent with what tests ask it."""

    def answers(self) -> bool:
        with contextlib.suppress(click.ClickException):
            self.report()
            return True
        return False

    def serves(self) -> bool:
        """Whether it is up, knows its driver, and the kubelet listens to all its resources."""
        with contextlib.suppress(click.ClickException):
            found = self.report()
            return bool(found.driver_up and found.servers) and all(s.registered and s.streams for s in found.servers)
        return False

    def until(self, condition: Callable[[NodeReport], bool], what: str, timeout_s: float = WAIT_S) -> NodeReport:
        """The first report that fulfils ``condition``."""
        found: list[NodeReport] = []

        def holds() -> bool:
            with contextlib.suppress(click.ClickException):
                found[:] = [self.report()]
                return condition(found[0])
            return False

        until(holds, f"{what} (log: {self.log_path})", timeout_s)
        return found[0]

    def take_up(self, config: str) -> None:
        """Another config file, also for its next start; returns when it is in use.

        The node may say for a moment yet what it offered before: amounts that are the same are no sign of it.
        """
        before = self._reloads()
        self.config = config
        self.reload(config)
        self.until(lambda _: self._reloads() > before, "the configuration is in use")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """It does nothing meanwhile: what it mends at once can be taken from it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def _reloads(self) -> int:
        return int(self.metric('tessera_agent_config_reloads_total{result="ok"}'))

    @property
    def hears_pods(self) -> bool:
        """Whether it is up and told at once which pods end."""
        return self.process is not None and self.kubeconfig != "none"

    def health(self, index: int) -> DeviceReport:
        """Of a whole GPU."""
        return next(one for one in self.report().health if one.gpu_index == index and one.mig is None)

    def resets(self) -> list[int]:
        """The number of resets of each GPU, by whomever, as the hardware counts them."""
        return [gpu["resets"] for gpu in self.sim(status=True)["status"]["gpus"]]

    def sockets(self) -> dict[str, str]:
        """Socket by resource."""
        return {status.resource: status.socket for status in self.report().servers}

    def registrations(self, resource: str) -> int:
        return int(self.metric(f'tessera_agent_registrations_total{{resource="{resource}",result="ok"}}'))

    def metric(self, series: str) -> float:
        """The value of one series, written with its labels in any order; 0 where there is none."""
        status, text = self.get("/metrics")
        assert status == 200
        name, _, labels = series.partition("{")
        wanted = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return next((sample.value for sample in samples if sample.name == name and sample.labels == wanted), 0.0)


@contextlib.contextmanager
def least(lab: "Lab") -> Iterator[Counter[str]]:
    """The smallest allocatable amounts of the node that the API server tells until the block ends."""
    found, ended = Counter(lab.amounts()), threading.Event()

    def look() -> None:
        while not ended.wait(0.1):
            with contextlib.suppress(ClusterError, OSError):
                now = lab.amounts()
                for name in found:
                    found[name] = min(found[name], now.get(name, 0))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


@dataclass(frozen=True)
class Lab:
    """A running cluster and its one node that counts."""

    cluster: Cluster
    host: NodeHost
    agents: list[Agent] = field(default_factory=list)

    # What the API server holds.

    def get(self, path: str) -> dict[str, Any]:
        """An object by its path below the server's address; empty where there is none.

        A server that has no room, or that still sets up the storage of a kind, is asked again.
        """
        config = json.loads(self.cluster.kubeconfig.read_text())
        (entry,), (user,) = config["clusters"], config["users"]
        authority = b64decode(entry["cluster"]["certificate-authority-data"]).decode()
        https = urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=authority))
        token = user["user"]["token"]
        request = urllib.request.Request(self.cluster.server + path, headers={"Authorization": f"Bearer {token}"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
        until_s = time.monotonic() + WAIT_S
        while True:
            try:
                with opener.open(request, timeout=60) as answer:
                    found: dict[str, Any] = json.load(answer)
                    return found
            except urllib.error.HTTPError as refused:
                with refused:
                    if refused.code == 404:
                        return {}
                    if refused.code != 429 or time.monotonic() > until_s:
                        raise
            time.sleep(0.5)

    @property
    def node(self) -> dict[str, Any]:
        return self.get(f"/api/v1/nodes/{self.host.name}")

    def amounts(self, kind: str = "allocatable") -> dict[str, int]:
        """Our extended resources in the node's ``allocatable`` or ``capacity``, those without a device left out."""
        found = self.node["status"].get(kind, {})
        return {name: int(found[name]) for name in found if name.startswith("nvidia.com/") and int(found[name])}

    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self.node["metadata"]["labels"]
        return {name: value for name, value in found.items() if name.startswith("nvidia.com/")}

    def gpunode(self) -> dict[str, Any]:
        """Status of the node's GpuNode; empty where there is none."""
        found: dict[str, Any] = self.get(f"/apis/tessera.dev/v1alpha1/gpunodes/{self.host.name}").get("status", {})
        return found

    def device(self, index: int) -> dict[str, Any]:
        """One GPU in the GpuNode; empty while it is not there."""
        return next((one for one in self.gpunode().get("devices", []) if one["index"] == index), {})

    def device_state(self, index: int) -> str:
        return str(self.device(index).get("health", {}).get("state", ""))

    def kubeconfig(self, path: Path, *, server: str | None = None, token: str | None = None) -> Path:
        """The cluster's own kubeconfig with another server or token, written to ``path``."""
        config = json.loads(self.cluster.kubeconfig.read_text())
        if server is not None:
            config["clusters"][0]["cluster"]["server"] = server
        if token is not None:
            config["users"][0]["user"] = {"token": token}
        path.write_text(json.dumps(config))
        return path

    def events(self) -> list[dict[str, Any]]:
        """Those about the node, by whoever writes."""
        found = self.get("/apis/events.k8s.io/v1/events")["items"]
        return [one for one in found if one["regarding"].get("name") == self.host.name]

    def await_amounts(self, wanted: Mapping[str, int], timeout_s: float = WAIT_S) -> None:
        """Return once the kubelet has these amounts (0: none) of these resources to give, and the node's allocatable
        says so. It does a second later: while it says what was there before, the scheduler binds pods that the kubelet
        then refuses.
        """
        seen: dict[str, Mapping[str, int]] = {}

        def equal() -> bool:
            seen["the kubelet"], seen["allocatable"] = self.offered(), self.amounts()
            return all(found.get(name, 0) == wanted[name] for found in seen.values() for name in wanted)

        try:
            until(equal, f"allocatable {dict(wanted)}", timeout_s)
        except ClusterError as late:
            raise AssertionError(f"{late}; last seen {seen}") from None

    def offered(self) -> Counter[str]:
        """What the kubelet itself may give to containers; empty while it does not answer."""
        found: Counter[str] = Counter()
        with (
            contextlib.suppress(grpc.RpcError),
            grpc.insecure_channel(f"unix:{self.host.kubelet_dir}/pod-resources/kubelet.sock") as channel,
        ):
            stub = pb_grpc.PodResourcesListerStub(channel)
            for group in stub.GetAllocatableResources(pb.AllocatableResourcesRequest(), timeout=10).devices:
                found[group.resource_name] += len(group.device_ids)
        return found

    def given(self) -> dict[str, dict[str, list[str]]]:
        """What each pod has, as the kubelet lists it: the device ids by resource."""
        found: dict[str, dict[str, list[str]]] = {}
        with grpc.insecure_channel(f"unix:{self.host.kubelet_dir}/pod-resources/kubelet.sock") as channel:
            for pod in pb_grpc.PodResourcesListerStub(channel).List(pb.ListPodResourcesRequest()).pod_resources:
                for group in (group for container in pod.containers for group in container.devices):
                    found.setdefault(pod.name, {}).setdefault(group.resource_name, []).extend(group.device_ids)
        return found

    # Agents.

    @contextlib.contextmanager
    def agent(self, fleet: Path | None, config: str | None = None, *, api: bool = True, **more: Any) -> Iterator[Agent]:
        """An agent of the node from its start to a clean end, serving. ``more`` goes to AgentProcess."""
        agent = self.make_agent(fleet, config, api=api, **more)
        agent.start()
        try:
            until(agent.serves, f"registered (log: {agent.log_path}: {agent.log()[-2000:]})")
            yield agent
        finally:
            self.delete_pods()
            self.end(agent)

    def make_agent(self, fleet: Path | None, config: str | None = None, *, api: bool = True, **more: Any) -> Agent:
        """One that is not started yet; ``end`` it."""
        wiring: dict[str, Any] = {
            "node_name": self.host.name,
            "kubelet_dir": self.host.kubelet_dir,
            "cdi_dir": self.host.cdi_dir,
            "kubeconfig": str(self.cluster.kubeconfig) if api else "none",
            **more,
        }
        home, number = self.cluster.paths.home, next(_serial)
        # A state folder here is too deep for the sockets of MPS, which have a UUID in their paths.
        own = {MARK_ENV: str(home), "MPS_ROOT": str(home / f"mps{number}")}
        wiring["environment"] = {**own, **wiring.get("environment", {})}
        agent = Agent(folder=self.host.agent_dir / f"{os.getpid()}-{number}", fleet=fleet, config=config, **wiring)
        self.agents.append(agent)
        return agent

    def end(self, agent: Agent) -> None:
        """Stop it if it runs, and wait until nothing of it is allocatable any more."""
        if agent not in self.agents:
            return
        self.agents.remove(agent)
        served = {status.resource for status in agent.report().servers} if agent.answers() else set()
        code = agent.stop()
        self.await_amounts(dict.fromkeys(served, 0))
        assert code == 0, agent.log()[-2000:]

    # Pods.

    def pod_body(self, name: str, limits: Mapping[str, int]) -> dict[str, Any]:
        """A pod of one container that asks for ``limits`` and waits; it ends at once when it is deleted."""
        container = {
            "name": "main",
            "image": TEST_IMAGE,
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 86400 & wait"],
            "resources": {"limits": {key: str(value) for key, value in limits.items()}},
        }
        spec = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "nodeSelector": {"kubernetes.io/hostname": self.host.name},
            "containers": [container],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    def run(self, name: str, limits: Mapping[str, int], *, wait: bool = True) -> "Pod":
        """As ``pod_body``, created, and ready unless ``wait`` is False."""
        self.cluster.kubectl("create", "-f", "-", input=json.dumps(self.pod_body(name, limits)))
        pod = Pod(self, name)
        if wait:
            pod.await_ready()
        return pod

    def apply(self, *files: Path) -> None:
        self.cluster.kubectl("apply", "--server-side", *(word for file in files for word in ("-f", str(file))))

    def delete_pods(self, *names: str) -> None:
        """All of the default namespace, or these; returns when their containers have ended."""
        if names or self.get("/api/v1/namespaces/default/pods")["items"]:
            self.cluster.kubectl("delete", "pod", *(names or ["--all"]), "--now", "--wait", "--timeout=180s")

    def await_no_holders(self) -> None:
        """Return once the agents too know that all pods are gone: the next may have their names, or their devices."""
        for agent in filter(lambda one: one.hears_pods, self.agents):
            agent.until(lambda report: not report.holders, "it knows of no holder")


def ready(cluster: Cluster) -> Lab:
    """The first node of it, with our CRDs and no pod."""
    lab = Lab(cluster, cluster.node("node-1"))
    lab.apply(*sorted(CRDS.glob("*.yaml")))
    lab.delete_pods()
    return lab


@dataclass(frozen=True)
class Pod:
    lab: Lab
    name: str

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.lab.get(f"/api/v1/namespaces/default/pods/{self.name}")["status"]
        return found

    @property
    def container(self) -> str:
        """The running container's id: another one after a restart. Empty while there is none."""
        (found,) = self.status.get("containerStatuses", [{}])
        return str(found.get("containerID", "")) if "running" in found.get("state", {}) else ""

    def await_ready(self) -> None:
        """Return once it runs; AssertionError at once when the kubelet refused it."""

        def ready() -> bool:
            status = self.status
            assert status["phase"] != "Failed", f"{status.get('reason')}: {status.get('message')}"
            return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", []))

        until(ready, f"pod {self.name} running")

    def sh(self, script: str) -> str:
        """What a shell inside its container prints."""
        return self.lab.cluster.kubectl("exec", self.name, "--", "sh", "-c", script)

    @property
    def environment(self) -> dict[str, str]:
        """NVIDIA's variables of its first process."""
        pairs = (line.partition("=") for line in self.sh("env").splitlines())
        return {name: value for name, _, value in pairs if name.startswith("NVIDIA")}

    @property
    def visible(self) -> list[str]:
        """The devices that the container toolkit would inject."""
        return self.environment["NVIDIA_VISIBLE_DEVICES"].split(",")

    @property
    def device_nodes(self) -> list[str]:
        return self.sh("find /dev -name 'nvidia*' -type c | sort").split()


def holders(report: NodeReport) -> dict[str, str]:
    """Pod name by device id."""
    return {held.device: held.holder.pod for held in report.holders}


def held_by(report: NodeReport, pod: str) -> list[str]:
    """The device ids that a pod holds, in the order of the GPUs."""
    order: Sequence[str] = [device.id for resource in report.resources for device in resource.devices]
    return sorted((device for device, holder in holders(report).items() if holder == pod), key=order.index)
