"""Kubeflow's training operator itself, a process beside the cluster: it serves four kinds of ``kubeflow.org/v1``.

It knows no ``managedBy``, and its MPIJob, which is v1, stays off. Its admission webhooks are real as well: whatever a
queue writes into a job has to pass them. No kubelet starts it, so two things are played: the mount of its Secret (a
mount namespace of its own has it in /tmp, where the operator wants it), and the Service's address.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.cluster import processes
from hack.cluster import state as states
from hack.cluster.cluster import Cluster
from hack.cluster.nodes import network
from hack.cluster.processes import Identity
from hack.cluster.programs import binaries
from hack.cluster.waiting import answers, until

Json = dict[str, Any]

PLURALS: Final = ("pytorchjobs", "tfjobs", "xgboostjobs", "paddlejobs")
NAMESPACE: Final = "kubeflow"
_NAME: Final = "training-operator"
_ADMISSION: Final = "admissionregistration.k8s.io/v1"
_HOOKS: Final = "validator.training-operator.kubeflow.org"
_SECRET: Final = "training-operator-webhook-cert"
_MOUNT: Final = Path("k8s-webhook-server/serving-certs")
"""Below /tmp; no flag changes it."""
_WITH_TMP: Final = 'mount --bind "$1" /tmp && shift && exec "$@"'
_READY_S: Final = 120.0


@dataclass(frozen=True)
class TrainingOperator:
    cluster: Cluster
    kubeconfig: str
    """Of an account that may do what the operator's own may; its text."""

    @property
    def _tmp(self) -> Path:
        """What it has in place of /tmp."""
        return self.cluster.paths.home / _NAME

    @contextmanager
    def running(self) -> Iterator[None]:
        """From its first answer to its end; its objects stay."""
        taken = states.claimed_ports(self.cluster.paths.home.parent)
        ports = network.choose_ports(["webhook", "probe"], claimed=taken)
        self._install(ports["webhook"])
        identity = self._start(ports)
        try:
            self._mount(identity)
            probe = f"http://127.0.0.1:{ports['probe']}/readyz"
            self._until(lambda: answers(probe), "the training operator ready", identity)
            yield
        finally:
            processes.end([identity], grace_s=5.0)

    def _install(self, port: int) -> None:
        service = {"spec": {"type": "ExternalName", "externalName": "127.0.0.1"}}
        hooks = {"webhooks": [webhook(plural, port) for plural in PLURALS]}
        place = {"namespace": NAMESPACE}
        bodies = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _SECRET, **place}},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": _NAME, **place}, **service},
            {"apiVersion": _ADMISSION, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": _HOOKS}, **hooks},
        ]
        for body in bodies:
            self.cluster.kubectl("create", "-f", "-", input=json.dumps(body))

    def _start(self, ports: dict[str, int]) -> Identity:
        (self._tmp / _MOUNT).mkdir(parents=True)
        (self._tmp / "kubeconfig").write_text(self.kubeconfig)
        schemes = [f"--enable-scheme={plural.removesuffix('s')}" for plural in PLURALS]
        addresses = ["--metrics-bind-address=0", f"--health-probe-bind-address=127.0.0.1:{ports['probe']}"]
        flags = [*schemes, *addresses, f"--webhook-server-port={ports['webhook']}", "--controller-threads=4"]
        binary = str(binaries.binary(_NAME))
        command = ["unshare", "--mount", "sh", "-c", _WITH_TMP, "sh", str(self._tmp), binary, *flags]
        environment = {"KUBECONFIG": "/tmp/kubeconfig", "MY_POD_NAMESPACE": NAMESPACE}
        return self.cluster.spawn(_NAME, command, extra_env=environment)

    def _mount(self, identity: Identity) -> None:
        """The certificate that it makes for itself is a file a moment later."""
        found: Json = {}

        def made() -> bool:
            text = self.cluster.kubectl("get", "secret", _SECRET, "-n", NAMESPACE, "-o", "json")
            found.update(json.loads(text).get("data", {}))
            return "tls.crt" in found

        self._until(made, "the training operator's certificate", identity)
        for name in ("ca.crt", "tls.key", "tls.crt"):
            (self._tmp / _MOUNT / name).write_bytes(b64decode(found[name]))

    def _until(self, condition: Callable[[], bool], what: str, identity: Identity) -> None:
        until(condition, what, timeout_s=_READY_S, watched={self.cluster.log(_NAME): identity})


def webhook(plural: str, port: int) -> Json:
    """As its own manifests have it (config/webhook), at this port of its Service."""
    kind = plural.removesuffix("s")
    path = f"/validate-kubeflow-org-v1-{kind}"
    of = {"apiGroups": ["kubeflow.org"], "apiVersions": ["v1"], "resources": [plural]}
    return {
        "name": f"validator.{kind}.{_NAME}.kubeflow.org",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "clientConfig": {"service": {"name": _NAME, "namespace": NAMESPACE, "path": path, "port": port}},
        "rules": [{**of, "operations": ["CREATE", "UPDATE"]}],
    }
