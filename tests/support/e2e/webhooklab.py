"""Jobs, pods and the controller's webhook before a real API server, which calls it at this machine's address.

The service is the controller's own, as its process has it, with certificates by the rights of the chart's account.
"""

import asyncio
import contextlib
import json
import random
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import yaml

from controller.cluster.config.load import default, parse
from controller.cluster.config.settings import ControllerConfig
from controller.cluster.config.settings import Webhook as Address
from controller.cluster.webhooks import dryrun
from controller.cluster.webhooks.apart.answers import webhook_server
from controller.cluster.webhooks.claims import PATH
from controller.cluster.webhooks.claims_shell import ClaimAnswers
from controller.cluster.webhooks.injection import MUTATING, VALIDATING, UrlTarget
from controller.cluster.webhooks.jobs import SuspendPaths
from controller.cluster.webhooks.keeper import OwnCertificates, SecretName
from controller.cluster.webhooks.service import WebhookService
from controller.jobs.kinds.table import JOB_KINDS
from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.nodes.network import choose_ports
from hack.cluster.programs import binaries
from hack.cluster.state import claimed_ports
from kube.client import Client
from kube.clock import Backoff, SystemClock
from kube.kubeconfig import from_kubeconfig
from tests.support.e2e.charttext import CHART, NAMESPACE, rendered
from tests.support.e2e.editorroles import cluster_role
from tests.support.e2e.lab import until

CONTROLLER: Final = f"system:serviceaccount:{NAMESPACE}:t-tessera-controller"
JOBSET: Final = "system:serviceaccount:jobset-system:jobset-controller-manager"
BUILDER: Final = "system:serviceaccount:plain:builder"
"""With the roles that people have in their namespace: Kubernetes' own, and those for editors of each kind."""
QUEUE: Final = "kueue.x-k8s.io/queue-name"
_MUTATING: Final = ("job-suspend", "pod-gate", "serving-queue", "foreign", "fractions", "claims")
CONFIGURATIONS: Final = (
    *((MUTATING, f"t-tessera-controller-{name}") for name in _MUTATING),
    (VALIDATING, "t-tessera-controller-forecast"),
)


def prepared(cluster: Cluster) -> None:
    for name in (NAMESPACE, "team", "plain"):
        cluster.kubectl("create", "namespace", name)
    cluster.kubectl("apply", "--server-side", "-f", str(CHART / "crds"))
    # The other controller may do everything here: what holds it back is admission alone.
    cluster.kubectl("create", "clusterrolebinding", "jobset", "--clusterrole=cluster-admin", f"--user={JOBSET}")
    cluster.kubectl("create", "serviceaccount", "builder", "-n", "plain")
    created(cluster, cluster_role("editors"))
    for role in ("admin", "edit", "editors"):
        cluster.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={BUILDER}", "-n", "plain")
    # Ours has what the chart's webhook templates give it, and may start Jobs.
    cluster.kubectl("create", "serviceaccount", "t-tessera-controller", "-n", NAMESPACE)
    cluster.kubectl("create", "clusterrole", "starter", "--verb=get,patch", "--resource=jobs")
    cluster.kubectl("create", "clusterrolebinding", "starter", "--clusterrole=starter", f"--user={CONTROLLER}")
    queue = {"kind": "LocalQueue", "metadata": {"name": "default", "namespace": "team"}, "spec": {"clusterQueue": "q"}}
    created(cluster, {"apiVersion": "kueue.x-k8s.io/v1beta2", **queue})


def created(cluster: Cluster, body: dict[str, Any], *args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        cluster.kubectl("create", "-f", "-", "-o", "json", *args, input=json.dumps(body))
    )
    return found


def job(name: str = "", namespace: str = "plain", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}
    metadata: dict[str, Any] = {"namespace": namespace, "labels": {"app": "x", **(labels or {})}}
    metadata |= {"name": name} if name else {"generateName": "job-"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template, **spec}}


def tried(cluster: Cluster, body: dict[str, Any], *args: str) -> dict[str, Any]:
    """What would be made of it."""
    return created(cluster, body, "--dry-run=server", *args)


def suspended(found: dict[str, Any]) -> bool:
    return bool(found["spec"].get("suspend"))


def effective(cluster: Cluster, *, by_policy: bool) -> None:
    """A policy takes effect a moment after it was made."""

    def acts() -> bool:
        if by_policy:
            try:
                if not suspended(tried(cluster, job(labels={QUEUE: "a"}))):
                    return False
            except ClusterError:
                return False  # the policy that refuses Jobs that run acts before the one that suspends them
        with contextlib.suppress(ClusterError):
            tried(cluster, job(labels={QUEUE: "No_Queue"}, suspend=True))
            return False
        return not by_policy or "default" in str(tried(cluster, job(namespace="team"))["metadata"]["labels"])

    until(acts, "the policies in effect")


def _configured(values: tuple[str, ...], files: tuple[Path, ...]) -> ControllerConfig:
    found = yaml.safe_load_all(rendered("controller", values=values, files=files, policies=False))
    return parse(next(each for each in found if each and each["kind"] == "ConfigMap")["data"]["controller.yaml"])


async def _foretold(body: bytes) -> bytes:
    """Without a controller: the name of what would be created, as the webhook read it."""
    asked = dryrun.read(body)
    return dryrun.allowed(asked.uid, [] if asked.created is None else [f"foretold {asked.created['metadata']['name']}"])


class Webhook:
    """The real service in a thread of its own, called by the API server at this machine's address.

    ``values`` and ``files``: of the chart, which writes the configuration; without any it is the default one.
    ``defaults``: namespaces with a LocalQueue ``default``; ``paths``: of kinds of a site's own.
    """

    def __init__(
        self,
        cluster: Cluster,
        *values: str,
        files: tuple[Path, ...] = (),
        defaults: tuple[str, ...] = ("team",),
        paths: SuspendPaths | None = None,
    ) -> None:
        self.cluster = cluster
        self._paths = {**{(kind.group, kind.kind): kind.suspend_path for kind in JOB_KINDS}, **(paths or {})}
        self._defaults = defaults
        self._config = _configured(values, files) if values or files else default()
        self._token = cluster.kubectl("create", "token", "t-tessera-controller", "-n", NAMESPACE).strip()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="webhook")
        self.service: WebhookService | None = None

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner, contextlib.suppress(asyncio.CancelledError):
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._task = asyncio.current_task()
        (port,) = choose_ports(["webhook"], claimed=claimed_ports(self.cluster.paths.home.parent)).values()
        config = msgspec.structs.replace(self._config, webhook=Address(host="127.0.0.1", port=port))
        account = replace(from_kubeconfig(self.cluster.kubeconfig), token=self._token)
        async with Client(account) as client:
            clock = SystemClock()
            claims = ClaimAnswers(client, lambda _namespace, _name: None)
            asking = {PATH: claims.answer, dryrun.PATH: _foretold}
            server = webhook_server(config, self._paths, has_default_queue=self._defaults.__contains__, asking=asking)
            secret = SecretName(NAMESPACE, "t-tessera-controller-webhook")
            certificates = OwnCertificates(client, secret, names=("127.0.0.1",), clock=clock)
            self.service = WebhookService(
                client, server, certificates, UrlTarget(f"https://127.0.0.1:{port}"), clock=clock,
                backoff=Backoff(random=random.random, initial_s=0.1), configurations=CONFIGURATIONS,
                serve_old_workloads=self._config.serve_old_workloads,
            )  # fmt: skip
            try:
                await self.service.run()
            finally:
                await asyncio.sleep(0.2)  # the API server's side of each TLS connection

    def __enter__(self) -> Self:
        self._thread.start()
        until(lambda: self.service is not None and self.service.ready, "the webhook serving")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._task is not None
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(timeout=30)


def refusal(cluster: Cluster, *args: str, **more: Any) -> str:
    """What the API server says to it; empty if it does it."""
    try:
        cluster.kubectl(*args, **more)
    except ClusterError as error:
        return str(error)
    return ""


def started(cluster: Cluster, name: str) -> bool:
    found = json.loads(cluster.kubectl("get", "job", name, "-n", "plain", "-o", "json"))
    return bool(found["status"].get("active"))


def chosen_by_helm(cluster: Cluster) -> set[str]:
    """What suspends Jobs on this cluster: the mutating kinds of a dry run."""
    command = [str(binaries.binary("helm")), "install", "other", str(CHART), "--dry-run=server", "--skip-crds"]
    command += ["--kubeconfig", str(cluster.kubeconfig), "--namespace", NAMESPACE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    kinds = ("MutatingAdmissionPolicy", "MutatingWebhookConfiguration")
    # Claims have a webhook on every API server: no policy can ask what was planned.
    made = [document for document in done.stdout.split("\n---\n") if "/mutate-claim" not in document]
    return {kind for kind in kinds if any(f"kind: {kind}\n" in document for document in made)}
