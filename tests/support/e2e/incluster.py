"""The controller as its pod runs it, beside a cluster: by its service account, called by the API server at its Service.

No kubelet starts it and no proxy leads to it, so two things are played: the account's mount (a mount namespace of its
own holds one), and the Service's address (its name stands for a loopback address of this run).
"""

import json
import os
import random
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from hack.cluster.cluster import Cluster
from hack.cluster.layout import MARK_ENV
from hack.cluster.programs import binaries
from kube.config import SERVICE_ACCOUNT_DIR
from tests.support.e2e.kubernetes import POLICIES, SUSPEND_BY
from tests.support.e2e.lab import ROOT, until

CHART: Final = ROOT / "charts" / "tessera"
NAMESPACE: Final = "tessera-system"
ACCOUNT: Final = "t-tessera-controller"
"""And the Service before what answers users."""
WEB_PORT: Final = 8082
SERVICE: Final = "t-tessera-controller-webhook"
_OURS: Final = "controller"
_PODS: Final = ("Deployment", "DaemonSet", "Job")
_AS_IN_A_POD: Final = 'mount -t tmpfs none /run && mkdir -p "$1" && cp "$2"/* "$1" && shift 2 && exec "$@"'
_OLD: Final = b"""
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: probe}
spec: {cohort: any}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Workload
metadata: {name: probe, namespace: default}
spec:
  queueName: any
  podSets:
  - {name: main, count: 1, template: {spec: {restartPolicy: Never, containers: [{name: main, image: none}]}}}
"""
_JOB: Final = b"""
apiVersion: batch/v1
kind: Job
metadata: {name: probe, namespace: default, labels: {kueue.x-k8s.io/queue-name: any}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: none}]}}}
"""

Json = dict[str, Any]


@dataclass
class InCluster:
    """One replica with the chart's own configuration, ``config`` laid over it."""

    cluster: Cluster
    folder: Path
    config: Json
    host: str = field(default_factory=lambda: f"127.{random.randint(1, 250)}.{random.randint(0, 250)}.1")
    """Where the API server finds it: the Service's port is 443, and others may run on this machine."""
    crds: Path = CHART / "crds"
    visible: bool = False
    """Whether users are answered, through the API server and at ``host``."""
    metrics_port: int = 0
    """Where its metrics are served, at 127.0.0.1; 0: nowhere."""
    values: Json = field(default_factory=dict)
    """More of the chart's values of ``controller``."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / "controller.log"

    def install(self) -> None:
        """CRDs and all of the chart but what makes pods; the Service stands for ``host``."""
        self.cluster.kubectl("apply", "--server-side", "-f", str(self.crds))
        self.cluster.kubectl("create", "namespace", NAMESPACE)
        objects = [one for one in rendered(self._values()) if one["kind"] not in _PODS]
        for one in objects:
            if one["kind"] == "Service" and one["metadata"]["name"] in (SERVICE, ACCOUNT):
                one["spec"] = {"type": "ExternalName", "externalName": self.host}
            if one["kind"] == "ConfigMap" and one["metadata"]["name"].endswith(_OURS):
                (self.folder / "controller.yaml").write_text(one["data"]["controller.yaml"])
        text = "---\n".join(json.dumps(one) + "\n" for one in objects)
        self.cluster.kubectl("apply", "--server-side", "-f", "-", input=text)

    def _values(self) -> Json:
        config = {"webhook": {"host": self.host, "port": 443}, **self.config}
        return {
            "jobs": {"suspendBy": SUSPEND_BY},
            "priorityClasses": {"create": True},
            "visibility": {"enabled": self.visible},
            "config": config,
            **self.values,
        }

    def start(self) -> None:
        account = self.folder / "account"
        account.mkdir(mode=0o700, exist_ok=True)
        config = json.loads(self.cluster.kubeconfig.read_text())
        (account / "ca.crt").write_bytes(b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]))
        token = self.cluster.kubectl("create", "token", ACCOUNT, "-n", NAMESPACE, "--duration=1h").strip()
        (account / "token").write_text(token)
        (account / "namespace").write_text(NAMESPACE)
        at = urlsplit(self.cluster.server)
        command = ["unshare", "--mount", "sh", "-c", _AS_IN_A_POD, "sh", str(SERVICE_ACCOUNT_DIR), str(account)]
        command += [sys.executable, "-m", "controller", "--config", str(self.folder / "controller.yaml")]
        web = f"{self.host}:{WEB_PORT}" if self.visible else "0"
        metrics = f"127.0.0.1:{self.metrics_port}" if self.metrics_port else "0"
        command += ["--metrics-address", metrics, "--web-address", web]
        given = {"KUBERNETES_SERVICE_HOST": str(at.hostname), "KUBERNETES_SERVICE_PORT": str(at.port)}
        env = {**os.environ, **given, MARK_ENV: str(self.cluster.paths.home), "TESSERA_NAMESPACE": NAMESPACE}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=out)

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(10) == 0, self.log.read_text()[-2000:]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Until both versions of Kueue's API are served by it, and Jobs are suspended, whoever does that here."""
        self.start()
        try:
            until(self._converts, f"conversion by the controller (log: {self.log})")
            until(lambda: POLICIES or self._suspends(), f"Jobs suspended by the controller (log: {self.log})")
            yield
        finally:
            assert self.process is not None
            if self.process.poll() is None:
                self.stop()

    def _converts(self) -> bool:
        """Whether the first and the last of the kinds that it tells the API server of are converted."""
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        return self._dry(_OLD).returncode == 0

    def _suspends(self) -> bool:
        """Not by a policy: the API server calls the controller's webhook."""
        return self._dry(_JOB, "-o", "jsonpath={.spec.suspend}").stdout == b"true"

    def _dry(self, objects: bytes, *words: str) -> subprocess.CompletedProcess[bytes]:
        command, env = self.cluster.kubectl_command("create", "--dry-run=server", "-f", "-", *words)
        return subprocess.run(command, env=env, input=objects, capture_output=True, check=False)


def rendered(controller: Json) -> list[Json]:
    """Everything of a release called ``t`` with these values of ``controller``."""
    command = [str(binaries.binary("helm")), "template", "t", str(CHART), "--namespace", NAMESPACE]
    command += ["--no-hooks", "--set-json", f"controller={json.dumps(controller)}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]
