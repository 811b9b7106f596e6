"""The plan of ``tessera migrate`` on a real API server: its values fit the chart as they are, and all of its steps and
then all of their ways back leave what was there.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click.testing
import pytest
import yaml

from cli.main import tessera
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "migrate" / "clusterpolicy.yaml"
CRDS = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds" / "nvidia"
MONITORS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors", "singular": "servicemonitor"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}
"""The example's exporter has a ServiceMonitor, and so has the agent then."""
KINDS = (
    "clusterpolicies.nvidia.com",
    "nodes",
    "configmaps",
    "namespaces",
    "secrets",
    "daemonsets",
    "services",
    "customresourcedefinitions",
    "clusterroles",
    "clusterrolebindings",
    "serviceaccounts",
    "deviceclasses",
    "validatingadmissionpolicies",
    "mutatingwebhookconfigurations",
    "servicemonitors",
)
NODE = "gpu.deploy"


def plan(*words: str) -> dict[str, Any]:
    done = click.testing.CliRunner().invoke(tessera, ["migrate", *words, "-o", "json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Site:
    """A cluster without nodes' programs, as the GPU Operator left it, and a shell with kubectl and Helm."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        command, environment = cluster.kubectl_command()
        programs = folder / "bin"
        programs.mkdir()
        for name, words in (("kubectl", command), ("helm", [str(binaries.binary("helm"))])):
            (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            (programs / name).chmod(0o755)
        self.environment = environment | {"PATH": f"{programs}:{os.environ['PATH']}"}

    def run(self, line: str) -> str:
        done = subprocess.run(
            ["sh", "-c", line], cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout

    def objects(self) -> dict[tuple[str, str, str], Any]:
        """What people wrote, by kind, namespace and name: labels, spec and data. Of a Node the spec is Kubernetes' own:
        it taints those without a kubelet.
        """
        listed = json.loads(self.cluster.kubectl("get", ",".join(KINDS), "-A", "-o", "json"))["items"]
        return {
            (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): (
                each["metadata"].get("labels"),
                each.get("spec") if each["kind"] != "Node" else None,
                each.get("data"),
            )
            for each in listed
        }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    assert CRDS.is_dir(), f"NVIDIA's CRDs not found: {CRDS} is no folder; set TESSERA_SHARED"
    with Cluster.up(f"migrate-{os.getpid()}", Spec(nodes=())) as cluster:
        cluster.kubectl("apply", "--server-side", "-f", str(CRDS / "clusterpolicies.yaml"))
        cluster.kubectl("apply", "-f", "-", input=json.dumps(MONITORS))
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        cluster.kubectl("apply", "-f", str(EXAMPLE))
        cluster.kubectl("create", "namespace", "gpu-operator")
        cluster.kubectl(
            *("create", "configmap", "plugin-config", "-n", "gpu-operator", "--from-literal=whole=version: v1")
        )
        labels = dict.fromkeys(
            (f"nvidia.com/{NODE}.{part}" for part in ("device-plugin", "gpu-feature-discovery", "mig-manager",
                                                      "dcgm-exporter")), "true")  # fmt: skip
        for name in ("gpu-1", "gpu-2"):
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
            cluster.kubectl("apply", "-f", "-", input=json.dumps(body))
        yield Site(cluster, tmp_path_factory.mktemp("site"))


@pytest.mark.parametrize("strategy", ["single", "mixed"])
def test_the_values_fit_the_chart_as_they_are(tmp_path: Path, strategy: str) -> None:
    policy = yaml.safe_load(EXAMPLE.read_text())
    policy["spec"]["mig"]["strategy"] = strategy
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(policy))
    done = subprocess.run(
        [binaries.binary("helm"), "template", str(ROOT / "charts" / "tessera"), "-f", "-"],
        input=json.dumps(plan(str(file))["values"]), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (agent,) = (each for each in yaml.safe_load_all(done.stdout) if each and each["kind"] == "DaemonSet")
    env = {each["name"]: each.get("value") for each in agent["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert (env["MIG_STRATEGY"], env["DEVICE_LIST_STRATEGY"]) == (strategy, "cdi-annotations,cdi-cri")


@pytest.mark.parametrize("nodes", [(), ("gpu-1",)], ids=["by the policy", "node by node"])
def test_all_steps_and_then_all_ways_back_leave_what_was_there(site: Site, nodes: tuple[str, ...]) -> None:
    before = site.objects()
    steps = plan(str(EXAMPLE), *(f"--node={name}" for name in nodes))["steps"]
    for step in steps:
        site.run(step["command"])
    between = site.objects()
    assert ("DaemonSet", "tessera-system", "tessera-agent") in between
    assert (
        between["ConfigMap", "tessera-system", "plugin-config"] == before["ConfigMap", "gpu-operator", "plugin-config"]
    )
    spec = between["ClusterPolicy", "", "cluster-policy"][1]
    on = [spec[part]["enabled"] for part in ("devicePlugin", "gfd", "migManager", "dcgmExporter")]
    labels = {name: set(between["Node", "", name][0].values()) for name in ("gpu-1", "gpu-2")}
    if nodes:
        assert (on, labels) == ([True] * 4, {"gpu-1": {"false"}, "gpu-2": {"true"}})
    else:
        assert (on, labels) == ([False] * 4, {"gpu-1": {"true"}, "gpu-2": {"true"}})
    for step in reversed(steps):
        site.run(step["undo"])
    site.run("kubectl wait --for=delete namespace/tessera-system --timeout=60s")
    assert site.objects() == before
