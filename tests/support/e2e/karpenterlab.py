"""The real Karpenter core on a real control plane, with its own provider whose nodes kwok plays.

Its nodes carry GPUs as instance types of a file of ours have them. NodePools are applied as users write them.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from hack.cluster import processes
from hack.cluster.cluster import Cluster
from hack.cluster.nodes.network import choose_ports
from hack.cluster.programs import binaries
from hack.cluster.state import claimed_ports
from hack.cluster.waiting import answers, until
from tests.support.e2e.podlab import GPU

ZONES: Final = ("us-east-1a", "us-east-1b")
NODE_CLASS: Final = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
    "spec": {"nodeRegistrationDelay": "1s"},
}


def instance_type(name: str, gpus: int, price: float) -> dict[str, Any]:
    """One of the provider's file, offered on demand and as spot in all zones."""
    offerings = [
        {
            "Price": price * (0.3 if kind == "spot" else 1.0),
            "Available": True,
            "Requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [kind]},
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
            ],
        }
        for kind in ("spot", "on-demand")
        for zone in ZONES
    ]
    resources = {"cpu": "96", "memory": "1Ti", "ephemeral-storage": "500Gi", "pods": "110", GPU: str(gpus)}
    return {
        "name": name,
        "offerings": offerings,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": resources,
    }


def here(node_pool: dict[str, Any], empty_after: str) -> dict[str, Any]:
    """A NodePool that was written for AWS, for this provider: its node class, its name of families, and a time after
    which empty nodes go that a test can wait for.
    """
    text = json.dumps(node_pool).replace("karpenter.k8s.aws/instance-family", "karpenter.kwok.sh/instance-family")
    found: dict[str, Any] = json.loads(text)
    found["spec"]["template"]["spec"]["nodeClassRef"] = {
        "group": "karpenter.kwok.sh",
        "kind": "KWOKNodeClass",
        "name": "default",
    }
    found["spec"]["disruption"]["consolidateAfter"] = empty_after
    return found


@contextmanager
def karpenter(cluster: Cluster, folder: Path, *types: dict[str, Any]) -> Iterator[Path]:
    """Karpenter runs with these instance types until the block ends. The file is its log."""
    built = binaries.build("karpenter")
    crds = processes.child_environment(cluster.paths.home)
    text = _printed([str(built / "karpentercrds")], crds)
    cluster.kubectl("apply", "--server-side", "-f", "-", input=text)
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    cluster.kubectl("apply", "-f", "-", input=json.dumps(NODE_CLASS))
    offered = folder / "instance-types.json"
    offered.write_text(json.dumps(types))
    ports = choose_ports(["metrics", "healthz"], claimed=claimed_ports(cluster.paths.home.parent))
    settings = {
        "KUBECONFIG": str(cluster.kubeconfig),
        "SYSTEM_NAMESPACE": "kube-system",
        "KUBERNETES_MIN_VERSION": "1.19.0-0",
        "KARPENTER_SERVICE": "karpenter",
        "DISABLE_LEADER_ELECTION": "true",
        "METRICS_PORT": str(ports["metrics"]),
        "HEALTH_PROBE_PORT": str(ports["healthz"]),
        "BATCH_MAX_DURATION": "2s",
        "BATCH_IDLE_DURATION": "500ms",
        "INSTANCE_TYPES_FILE_PATH": str(offered),
    }
    running = cluster.spawn("karpenter", [str(built / "kwok")], extra_env=settings)
    log = cluster.log("karpenter")
    try:
        url = f"http://127.0.0.1:{ports['healthz']}/healthz"
        until(lambda: answers(url), "Karpenter", timeout_s=120, watched={log: running})
        yield log
    finally:
        processes.end([running], grace_s=5.0)


def _printed(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
