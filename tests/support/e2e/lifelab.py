"""A release of the chart through its life on a real kubelet: what was before it, what runs beside it, what it leaves.

Its programs run in pods as the chart has them. The API server finds them by their Services' endpoints, for there is no
kube-proxy here.
"""

import json
import tarfile
import threading
import urllib.error
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.state import Spec
from hack.image import agentimage
from hack.release import RELEASES
from tests.support.e2e.lab import CRDS, EXAMPLES, GPU, ROOT, Lab, until
from tests.support.e2e.typed import Shell

Json = dict[str, Any]
Thing = tuple[str, str, str]
"""Kind, namespace and name."""

NAMESPACE: Final = "tessera-system"
PREVIOUS: Final = "0.1.0"
PRESENT: Final = str(yaml.safe_load((ROOT / "charts/tessera/Chart.yaml").read_text())["appVersion"])
SAID: Final[Mapping[str, str]] = {PREVIOUS: "", PRESENT: PRESENT}
"""What an agent of a release says in its GpuNode: the previous one tells no version."""
SPEC: Final = Spec(apiserver_args=("--enable-aggregator-routing=true",))
_FLEET: Final = (EXAMPLES / "fleets" / "dgx1.yaml").read_text()
_SITE: Final = {"image": {"pullPolicy": "Never"}, "affinity": None, "deviceListStrategy": ["cdi-cri"]}
_VALUES: Final[Mapping[str, Json]] = {
    PREVIOUS: {**_SITE, "simulate": _FLEET},
    PRESENT: {**_SITE, "simulate": {"enabled": True, "fleet": _FLEET}},
}
"""Of this site by release: one value has changed."""
_KUEUE: Final = "kueue.x-k8s.io/v1beta2"
QUEUES: Final[tuple[dict[str, Any], ...]] = (
    {"apiVersion": _KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "any"}},
    {
        "apiVersion": _KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": "team"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": [GPU],
                    "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 2}]}],
                }
            ],
        },
    },
    {
        "apiVersion": _KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": "team", "namespace": "default"},
        "spec": {"clusterQueue": "team"},
    },
)
FILES: Final = frozenset(
    {
        "/var/lib/cni",  # the network's and the kubelet's own
        "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
        "/var/lib/kubelet/plugins/gpu.nvidia.com",
        "/var/lib/tessera",
        "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json",
    }
)
"""What an uninstall may leave on a node."""
LAYOUT: Final = EXAMPLES / "layouts" / "notebooks.yaml"
"""Of nodes that are not there."""


@dataclass(frozen=True)
class Life:
    lab: Lab
    shell: Shell
    folder: Path

    @classmethod
    def beside(cls, cluster: Cluster, folder: Path) -> "Life":
        """Of a release in this cluster; ``folder`` is for files."""
        for version, values in _VALUES.items():
            (folder / f"{version}.yaml").write_text(json.dumps(values))
        return cls(Lab(cluster, cluster.node()), Shell.at(cluster, folder), folder)

    @property
    def cluster(self) -> Cluster:
        return self.lab.cluster

    def load(self, *versions: str, repository: str = agentimage.REPOSITORY) -> None:
        """The images of these releases, onto the node."""
        for version in versions:
            image = self.folder / f"{version}.tar"
            agentimage.write(image, rooms=self._sources(version), tag=f"{repository}:{version}")
            self.lab.host.load_image(image)
            image.unlink()

    def _sources(self, version: str) -> Path:
        if version == PRESENT:
            return ROOT
        found = self.folder / version
        with tarfile.open(RELEASES / version / "programs.tar.xz") as packed:
            packed.extractall(found, filter="data")
        return found

    def install(self, version: str) -> None:
        """As the page says, but for the image, which is on the node."""
        site = {**self.site(version), "tessera charts/tessera ": f"tessera {self._chart(version)} "}
        self.shell.follow("install.md", "Installing", site, leave="docker")
        self.rolled_out()

    def _chart(self, version: str) -> str:
        return "charts/tessera" if version == PRESENT else str(RELEASES / version / "chart.tgz")

    def site(self, version: str = PRESENT) -> dict[str, str]:
        """What is typed here in place of the pages' capitals, and with the values of this site."""
        values = self.folder / f"{version}.yaml"
        charts = (f"{verb} tessera charts/tessera " for verb in ("helm install", "helm upgrade"))
        registry = agentimage.REPOSITORY.partition("/")[0]
        return {each: f"{each}--values {values} " for each in charts} | {
            "REGISTRY": registry,
            "NODE": self.lab.host.name,
        }

    def rolled_out(self) -> None:
        for what in ("daemonset/tessera-agent", "deployment/tessera-controller"):
            self.cluster.kubectl("-n", NAMESPACE, "rollout", "status", what, "--timeout=300s")

    def controllers(self) -> dict[str, int]:
        """Ready replicas of the controller by the kind that makes them."""
        found = {}
        for kind, path in (("Deployment", "deployments"), ("StatefulSet", "statefulsets")):
            for one in self.lab.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/{path}")["items"]:
                found[kind] = int(one["status"].get("readyReplicas", 0))
        return found

    # What runs beside it.

    def job(self, name: str, pods: int) -> None:
        """In the queue: so many pods of one GPU each, which run until they are deleted."""
        container = self.lab.pod_body("any", {GPU: 1})["spec"]["containers"][0]
        pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
        spec = {"parallelism": pods, "completions": pods, "template": {"spec": pod}}
        metadata = {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "team"}}
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        self.cluster.kubectl("create", "-f", "-", input=json.dumps(body))

    def suspended(self, job: str) -> bool:
        return bool(self.lab.get(f"/apis/batch/v1/namespaces/default/jobs/{job}")["spec"].get("suspend"))

    def containers(self) -> dict[str, Any]:
        """Id, start and restarts of the running ones of the default namespace, by pod."""
        pods = self.lab.get("/api/v1/namespaces/default/pods")["items"]
        return {pod["metadata"]["name"]: _container(pod) for pod in pods}

    def admissions(self) -> dict[str, Any]:
        """Of each workload since when it is admitted, by its job; None for one that waits."""
        found = self.lab.get("/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads")["items"]
        return {one["metadata"]["ownerReferences"][0]["name"]: _admitted(one) for one in found}

    def workloads(self) -> list[str]:
        found = self.lab.get("/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads")["items"]
        return [one["metadata"]["name"] for one in found]

    def pods_of(self, namespace: str) -> list[str]:
        return [one["metadata"]["name"] for one in self.lab.get(f"/api/v1/namespaces/{namespace}/pods")["items"]]

    def agents(self) -> set[str]:
        """Versions that the agents have written of themselves."""
        found = self.lab.get("/apis/tessera.dev/v1alpha1/gpunodes")["items"]
        return {one.get("status", {}).get("agentVersion", "") for one in found}

    def holders(self) -> set[tuple[str, str]]:
        """Pod and device, as the node's agent says."""
        return {(one["pod"], one["device"]) for one in self.lab.gpunode().get("holders", [])}

    # What was before it, and what is left.

    def before(self) -> tuple[set[Thing], set[str]]:
        """Objects of the cluster and files of its node, once the kubelet has made its own."""
        own = {("Lease", "kube-node-lease", self.lab.host.name), ("CSINode", "", self.lab.host.name)}
        until(lambda: own <= self.everything(), "the objects of the kubelet")
        return self.everything(), self.files()

    def everything(self) -> set[Thing]:
        """All objects of all kinds, but Events and what has no life of its own. A kind may go between the list of kinds
        and that of objects: then both are asked for again.
        """
        found: set[Thing] = set()

        def listed() -> bool:
            nonlocal found
            try:
                found = self._everything()
            except ClusterError as failed:
                if "doesn't have a resource type" in str(failed):
                    return False
                raise
            return True

        until(listed, "the kinds that are listed are served")
        return found

    def _everything(self) -> set[Thing]:
        kinds = self.cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
        wanted = ",".join(kind for kind in kinds if kind.partition(".")[0] not in ("events", "componentstatuses"))
        columns = "custom-columns=KIND:.kind,IN:.metadata.namespace,NAME:.metadata.name"
        lines = self.cluster.kubectl("get", wanted, "-A", "--no-headers", "-o", columns).splitlines()
        return {(kind, "" if place == "<none>" else place, name) for kind, place, name in map(str.split, lines)}

    def left(self) -> set[Thing]:
        """Of everything that an installation brought, what the page says an uninstall leaves, but objects of queues."""
        served = ("v1alpha1.tessera.dev", "v1beta1.kueue.x-k8s.io", "v1beta2.kueue.x-k8s.io")
        kept = ("Secret tessera-controller-web", "Secret tessera-controller-webhook", "Lease tessera-controller")
        of_namespaces = ("ServiceAccount default", "ConfigMap kube-root-ca.crt")
        found = {(kind, NAMESPACE, name) for kind, name in map(str.split, (*kept, *of_namespaces))}
        found |= {("CustomResourceDefinition", "", path.stem) for path in CRDS.glob("*.yaml")}
        found |= {("APIService", "", name) for name in served}
        return found | {("Namespace", "", NAMESPACE), ("GpuNode", "", self.lab.host.name)}

    def await_left(self, before: set[Thing], left: set[Thing]) -> None:
        """Return once what there is more than ``before`` is just this. ClusterError with what differs."""
        more: set[Thing] = set()

        def is_left() -> bool:
            nonlocal more
            more = self.everything() - before
            return more == left

        try:
            until(is_left, "what is left is what the page names")
        except ClusterError as error:
            raise ClusterError(f"{error}\nbeside it: {sorted(more - left)}\ngone: {sorted(left - more)}") from error

    def files(self) -> set[str]:
        """What lies where the agent writes on the node, by its path there."""
        host = self.lab.host
        places = {
            "/var/lib": host.paths.lib,
            "/var/run/cdi": host.cdi_dir,
            "/var/lib/kubelet/device-plugins": host.kubelet_dir / "device-plugins",
            "/var/lib/kubelet/plugins": host.kubelet_dir / "plugins",
            "/var/lib/kubelet/plugins_registry": host.kubelet_dir / "plugins_registry",
        }
        return {f"{name}/{each.name}" for name, at in places.items() if at.exists() for each in at.iterdir()}


def _container(pod: Json) -> Json:
    (status,) = pod["status"].get("containerStatuses", [{}])
    return {
        "id": status.get("containerID"),
        "since": status.get("state", {}).get("running", {}).get("startedAt"),
        "restarts": status.get("restartCount"),
    }


def _admitted(workload: Json) -> str | None:
    for condition in workload.get("status", {}).get("conditions", []):
        if (condition["type"], condition["status"]) == ("Admitted", "True"):
            return str(condition["lastTransitionTime"])
    return None


@contextmanager
def answered_all_the_time(lab: Lab, path: str) -> Iterator[None]:
    """Asked again and again meanwhile, the API server has an answer each time. AssertionError with the others."""
    over, refused, asked = threading.Event(), [], 0

    def ask() -> None:
        nonlocal asked
        while not over.is_set():
            asked += 1
            try:
                if not lab.get(path):
                    refused.append("not found")
            except urllib.error.HTTPError as failed:
                refused.append(f"{failed.code}")
            over.wait(0.1)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()
    assert asked > 10
    assert not refused, f"{len(refused)} of {asked}: {refused[:3]}"
