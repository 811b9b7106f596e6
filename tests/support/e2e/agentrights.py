"""An agent beside the node with the rights of the chart's service account, and no others."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml

from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from tests.support.e2e.lab import ROOT, Lab, until

NAMESPACE = "tessera-system"


def as_agent(cluster: Cluster, node: str) -> str:
    """kubectl's flag to be the agent of this node. Before 1.35 it has none for what a token says of the node."""
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] |= {
        "as": f"system:serviceaccount:{NAMESPACE}:t-tessera-agent",
        "as-user-extra": {"authentication.kubernetes.io/node-name": [node]},
    }
    path = cluster.paths.home / f"agent-of-{node}.kubeconfig"
    path.write_text(json.dumps(config))
    return f"--kubeconfig={path}"


def _may(lab: Lab, *words: str) -> bool:
    with suppress(ClusterError):  # kubectl ends with 1 for a no
        return lab.cluster.kubectl("auth", "can-i", *words).strip() == "yes"
    return False


@contextmanager
def chart_token(lab: Lab, folder: Path, *values: str) -> Iterator[str]:
    """The account's token, bound to the node as the kubelet binds it; roles and admission policies are there meanwhile.

    Written below ``folder``. ``values``: more of the chart's.
    """
    binaries.build("helm")
    chart = ROOT / "charts/tessera"
    command: list[str | Path] = [binaries.binary("helm"), "template", "t", str(chart), "--namespace", NAMESPACE]
    command += ["--set", ",".join(("controller.enabled=false", "dra.enabled=true", *values))]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    objects = [one for one in yaml.safe_load_all(text) if one and one["kind"] != "DaemonSet"]
    (account,) = [one["metadata"]["name"] for one in objects if one["kind"] == "ServiceAccount"]
    file = folder / "chart.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    lab.cluster.kubectl("create", "namespace", NAMESPACE)
    try:
        lab.apply(file)
        # Rights and policies take effect a moment after they were made.
        user = f"--as=system:serviceaccount:{NAMESPACE}:{account}"
        until(lambda: _may(lab, "patch", "gpunodes", user), f"rights of {account}")
        bound = ("--bound-object-kind", "Node", "--bound-object-name", lab.host.name)
        yield lab.cluster.kubectl("create", "token", account, "--namespace", NAMESPACE, *bound).strip()
    finally:
        lab.cluster.kubectl("delete", "-f", str(file), "--ignore-not-found")
        lab.cluster.kubectl("delete", "namespace", NAMESPACE)
