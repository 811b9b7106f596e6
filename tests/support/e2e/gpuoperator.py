"""A stand-in for NVIDIA's GPU Operator on a real cluster: DaemonSets by its ClusterPolicy and by labels of nodes.

Its operands are programs of ours under the names of NVIDIA's images. What they write is theirs: the device plugin's
socket and CDI spec, the file of feature discovery, the answer of the MIG manager, the exporter's series. Node feature
discovery is played too: it makes labels of the file, and takes them away with it.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from hack.image import agentimage
from tests.support.e2e import nvidiaoperands, nvidiaplugin
from tests.support.e2e.lab import Lab, until
from tests.support.e2e.lifelab import NAMESPACE, PRESENT

Json = dict[str, Any]

SPACE: Final = "gpu-operator"
POLICY: Final = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"
DEPLOY: Final = "nvidia.com/gpu.deploy."
PARTS: Final = {
    "migManager": ("mig-manager", "nvidia-mig-manager", "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.13.0"),
    "devicePlugin": ("device-plugin", "nvidia-device-plugin-daemonset", "nvcr.io/nvidia/k8s-device-plugin:v0.19.0"),
    "gfd": ("gpu-feature-discovery", "gpu-feature-discovery", "nvcr.io/nvidia/gpu-feature-discovery:v0.19.0"),
    "dcgmExporter": ("dcgm-exporter", "nvidia-dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4.4.1"),
}
"""By the field of the ClusterPolicy, in the order in which a careful person lets them go: the end of the node's label,
the DaemonSet with the label ``app`` of its pods, and the image.
"""
_SETS: Final = f"/apis/apps/v1/namespaces/{SPACE}/daemonsets"
_ENDS_S: Final = 3
"""The seconds that the device plugin's pod takes to end, in which it still serves."""
_LOOK_S: Final = 0.3


class GpuOperator:
    """``uuids``: of the node's GPUs. ``look`` is called by one thread alone."""

    def __init__(self, lab: Lab, uuids: list[str]) -> None:
        self._lab = lab
        self._uuids = uuids
        self._features = lab.host.paths.home / "features.d"
        self._features.mkdir()
        self._labelled: set[str] = set()
        self._over = threading.Event()
        self.failed: list[str] = []
        """What the thread could not do."""
        self.together: list[tuple[str, str]] = []
        """Pods that served the node's GPUs at the same moment: the operator's device plugin, and an agent."""

    def install(self, crd: Path, policy: Json) -> None:
        """The operator's CRD, ClusterPolicy, namespace, RuntimeClass and images, and the labels that it gives nodes."""
        kubectl = self._lab.cluster.kubectl
        for _, _, image in PARTS.values():
            self._lab.host.tag_image(f"{agentimage.REPOSITORY}:{PRESENT}", image)
        kubectl("apply", "--server-side", "-f", str(crd))
        until(lambda: self._lab.get("/apis/nvidia.com/v1").get("resources") is not None, "ClusterPolicies are served")
        kubectl("create", "namespace", SPACE)
        runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
        kubectl("create", "-f", "-", input=json.dumps({**runtime, "handler": "runc"}))
        kubectl("create", "-f", "-", input=json.dumps(policy))
        labels = {"nvidia.com/gpu.present": "true", **{f"{DEPLOY}{label}": "true" for label, _, _ in PARTS.values()}}
        kubectl("label", "node", self._lab.host.name, *(f"{key}={value}" for key, value in labels.items()))

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
        assert not self.failed, self.failed

    def _run(self) -> None:
        while not self._over.wait(_LOOK_S):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - told at the end of the scene, and tried again as an operator does
                self.failed.append(repr(error))

    def look(self) -> None:
        """One pass of the operator, of node feature discovery and of the MIG manager's answer."""
        spec = self._lab.get(POLICY)["spec"]
        there = {one["metadata"]["name"]: one for one in self._lab.get(_SETS)["items"]}
        for part, (label, name, image) in PARTS.items():
            on = spec.get(part, {}).get("enabled") is not False
            if on and name not in there:
                body = self._daemon_set(label, name, image)
                self._lab.cluster.kubectl("create", "-f", "-", input=json.dumps(body))
            if not on and name in there:
                self._lab.cluster.kubectl("delete", "daemonset", name, "-n", SPACE, "--wait=false")
        self._watch()
        self._discover()
        manager = there.get(PARTS["migManager"][1], {}).get("status", {})
        wanted = self._lab.labels().get("nvidia.com/mig.config")
        if manager.get("numberReady") and wanted:
            self._label({"nvidia.com/mig.config.state": "success"})

    def _watch(self) -> None:
        def named(space: str, word: str) -> list[str]:
            pods = self._lab.get(f"/api/v1/namespaces/{space}/pods")["items"]
            return [name for pod in pods if word in (name := pod["metadata"]["name"])]

        self.together += zip(named(SPACE, "device-plugin"), named(NAMESPACE, "agent"), strict=False)

    def _discover(self) -> None:
        file = self._features / "gfd"
        text = file.read_text() if file.exists() else ""
        found = dict(line.split("=", 1) for line in text.splitlines())
        gone = self._labelled - found.keys()
        if gone or self._labelled != found.keys():
            self._label({**found, **dict.fromkeys(gone, None)})
            self._labelled = set(found)

    def _label(self, labels: Mapping[str, str | None]) -> None:
        there = self._lab.labels()
        if any(there.get(key) != value for key, value in labels.items()):
            patch = json.dumps({"metadata": {"labels": labels}})
            self._lab.cluster.kubectl("patch", "node", self._lab.host.name, "--type=merge", "-p", patch)

    def _daemon_set(self, label: str, name: str, image: str) -> Json:
        plugin = label == "device-plugin"
        program = Path(nvidiaplugin.__file__ if plugin else str(nvidiaoperands.__file__)).read_text()
        folders = {
            "plugins": (str(nvidiaplugin.FOLDER), str(nvidiaplugin.FOLDER)),
            "cdi": ("/var/run/cdi", "/var/run/cdi"),
            "features": (str(self._features), str(nvidiaoperands.FEATURES.parent)),
        }
        container: Json = {
            "name": label,
            "image": image,
            "imagePullPolicy": "Never",
            "command": [str(agentimage.PYTHON), "-c", program, "--cdi" if plugin else label, *self._uuids],
            "volumeMounts": [{"name": key, "mountPath": inside} for key, (_, inside) in folders.items()],
        }
        if plugin:
            container["lifecycle"] = {"preStop": {"sleep": {"seconds": _ENDS_S}}}
        pod = {
            "nodeSelector": {f"{DEPLOY}{label}": "true"},
            "containers": [container],
            "volumes": [{"name": key, "hostPath": {"path": path}} for key, (path, _) in folders.items()],
        }
        labels = {"app": name}
        spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
        metadata = {"name": name, "namespace": SPACE}
        return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}

    def parts(self) -> set[str]:
        """Parts that have a pod on the node, ending ones too."""
        apps = {name: part for part, (_, name, _) in PARTS.items()}
        pods = self._lab.get(f"/api/v1/namespaces/{SPACE}/pods")["items"]
        return {apps[pod["metadata"]["labels"]["app"]] for pod in pods}

    def await_parts(self, *parts: str) -> None:
        until(lambda: self.parts() == set(parts), f"pods of the operator's {parts or 'no parts'}: {self.parts()}")
