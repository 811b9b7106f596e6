"""The plan of ``tessera migrate`` on a real API server: its values fit the chart as they are, and all of its steps and
then all of their ways back leave what was there.
"""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click.testing
import pytest
import yaml

from cli.main import tessera
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.stages import COMPLETE_AFTER
from hack.cluster.programs import binaries
from hack.cluster.state import Spec

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "migrate" / "clusterpolicy.yaml"
EXAMPLES = EXAMPLE.parent
SHARED = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds"
CRDS = SHARED / "nvidia"
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
    "deployments",
    "services",
    "customresourcedefinitions",
    "clusterroles",
    "clusterrolebindings",
    "serviceaccounts",
    "deviceclasses",
    "validatingadmissionpolicies",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "apiservices",
    "servicemonitors",
)
NODE = "gpu.deploy"


def plan(*words: str) -> dict[str, Any]:
    done = click.testing.CliRunner().invoke(tessera, ["migrate", *words, "-o", "json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Site:
    """A cluster whose pods are played, as the GPU Operator left it, and a shell with kubectl and Helm."""

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
        done = self._done(line)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout

    def fails(self, line: str) -> None:
        done = self._done(line)
        assert done.returncode != 0, f"{line}: {done.stdout}"

    def _done(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", line], cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False, timeout=300
        )

    @contextmanager
    def jobs_played(self) -> Iterator[None]:
        """Has pods of the chart's uninstall Job end well: nobody runs their program."""
        pods = "--namespace=tessera-system --selector=app.kubernetes.io/component=uninstall"
        line = (
            f"while :; do kubectl get pods {pods} --watch -o name | while read -r name; do"
            f" kubectl annotate --namespace=tessera-system --overwrite $name {COMPLETE_AFTER}=1s; done; done"
        )
        process = subprocess.Popen(
            ["sh", "-c", line], env=self.environment, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def objects(self) -> dict[tuple[str, str, str], Any]:
        """What people wrote, by kind, namespace and name: labels, spec and data. Of a Node the spec is Kubernetes' own:
        it taints those without a kubelet.
        """
        listed = json.loads(self.cluster.kubectl("get", ",".join(KINDS), "-A", "-o", "json"))["items"]
        kept = [each for each in listed if "-before" in str(each["metadata"].get("annotations"))]
        assert not kept, kept
        return {
            (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): (
                each["metadata"].get("labels"),
                each.get("spec") if each["kind"] != "Node" else None,
                each.get("data"),
                each.get("webhooks"),
            )
            for each in listed
        }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    assert CRDS.is_dir(), f"NVIDIA's CRDs not found: {CRDS} is no folder; set TESSERA_SHARED"
    with Cluster.up(f"migrate-{os.getpid()}", Spec(nodes=(), kwok_nodes=1)) as cluster:
        cluster.kubectl("apply", "--server-side", "-f", str(CRDS / "clusterpolicies.yaml"))
        cluster.kubectl("apply", "-f", "-", input=json.dumps(MONITORS))
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        cluster.kubectl("apply", "-f", str(EXAMPLE))
        cluster.kubectl("create", "namespace", "gpu-operator")
        for name, file in (
            ("plugin-config", "whole=version: v1"),
            ("team-mig-config", "config.yaml=version: v1"),
            ("team-metrics", "dcgm-metrics.csv=DCGM_FI_DEV_GPU_UTIL, gauge, use"),
        ):
            cluster.kubectl("create", "configmap", name, "-n", "gpu-operator", f"--from-literal={file}")
        labels = dict.fromkeys(
            (f"nvidia.com/{NODE}.{part}" for part in ("device-plugin", "gpu-feature-discovery", "mig-manager",
                                                      "dcgm-exporter")), "true")  # fmt: skip
        for name in ("gpu-1", "gpu-2"):
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
            cluster.kubectl("apply", "-f", "-", input=json.dumps(body))
        found = Site(cluster, tmp_path_factory.mktemp("site"))
        with found.jobs_played():
            yield found


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


SCENES = (
    "gpucluster.yaml",
    "device-plugin.yaml",
    "dra-driver-values.yaml",
    "volcano-scheduler.conf.yaml",
    "../kai/queues.yaml",
    "kueue.yaml",
)


@pytest.mark.parametrize("name", SCENES)
def test_the_values_of_each_example_fit_the_chart_as_they_are(name: str) -> None:
    done = subprocess.run(
        [binaries.binary("helm"), "template", str(ROOT / "charts" / "tessera"), "-f", "-"],
        input=json.dumps(plan(str(EXAMPLES / name))["values"]), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kinds = {each["kind"] for each in yaml.safe_load_all(done.stdout) if each}
    assert ("Deployment" in kinds) is (name not in ("gpucluster.yaml", "device-plugin.yaml", "dra-driver-values.yaml"))


def stood_in(site: Site, name: str) -> None:
    """Has what the example is about in the cluster: objects with the names that its programs have."""
    kubectl = site.cluster.kubectl
    folders = {"gpucluster.yaml": "nvidia/gpuclusters.yaml", "kueue.yaml": "kueue", "../kai/queues.yaml": "kai"}
    folder = folders.get(name)
    if folder:
        kubectl("apply", "--server-side", "-f", str(SHARED / folder))
        kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    spaces = {"nvidia-device-plugin", "nvidia-dra-driver-gpu", "kueue-system", "volcano-system", "kai-scheduler"}
    there = {each["metadata"]["name"] for each in json.loads(kubectl("get", "ns", "-o", "json"))["items"]}
    for space in sorted(spaces - there):
        kubectl("create", "namespace", space)
    if name != "dra-driver-values.yaml":
        kubectl("apply", "-f", str(EXAMPLES / name))
    if name == "gpucluster.yaml":
        for node, label in (("gpu-1", "true"), ("gpu-2", "paused")):
            kubectl("label", "node", node, "--overwrite", f"nvidia.com/gpu.deploy.dra-driver={label}")
    if name == "dra-driver-values.yaml":
        kubectl("apply", "-f", "-", input=json.dumps(workload("DaemonSet", "nvidia-dra-driver-gpu-kubelet-plugin", "nvidia-dra-driver-gpu")))  # noqa: E501  # fmt: skip
    if name == "kueue.yaml":
        kueue_asked(site)
    if name == "../kai/queues.yaml":
        kubectl("apply", "-f", "-", input=json.dumps(webhook("validating-kai-admission", "kai-scheduler", "admission")))
        for each, replicas in (("kai-operator", 1), ("kai-scheduler-default", 2)):
            kubectl("apply", "-f", "-", input=json.dumps(workload("Deployment", each, "kai-scheduler", replicas)))
    if name == "volcano-scheduler.conf.yaml":
        kubectl(
            "apply",
            "-f",
            "-",
            input=json.dumps(webhook("prod-jobs-validate", "volcano-system", "volcano-admission-service")),
        )
        for each, replicas in (("volcano-scheduler", 2), ("volcano-admission", 1)):
            kubectl("apply", "-f", "-", input=json.dumps(workload("Deployment", each, "volcano-system", replicas)))


def workload(kind: str, name: str, namespace: str, replicas: int = 1) -> dict[str, Any]:
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "example.com/x"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": pod} | (
        {"replicas": replicas} if kind == "Deployment" else {}
    )
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def webhook(name: str, namespace: str, service: str) -> dict[str, Any]:
    rule = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}
    one = {
        "name": "things.example.com",
        "clientConfig": {"service": {"name": service, "namespace": namespace}},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    return {**head, "metadata": {"name": name}, "webhooks": [one]}


@contextmanager
def refused_deployments(site: Site) -> Iterator[None]:
    """The API server asks a webhook without a server about the release's Deployments and DaemonSets: an installation
    fails halfway.
    """
    body = webhook("refuses", "tessera-system", "nobody")
    chosen = {"matchLabels": {"kubernetes.io/metadata.name": "tessera-system"}}
    rule = body["webhooks"][0]["rules"][0] | {"apiGroups": ["apps"], "resources": ["deployments", "daemonsets"]}
    body["webhooks"][0] |= {"namespaceSelector": chosen, "rules": [rule]}
    site.cluster.kubectl("apply", "-f", "-", input=json.dumps(body))
    try:
        yield
    finally:
        site.cluster.kubectl("delete", "validatingwebhookconfiguration", "refuses")


def kueue_asked(site: Site) -> None:
    """Has the API server ask Kueue, which is ready before its webhooks are there."""
    kubectl = site.cluster.kubectl
    kubectl("rollout", "status", "deployment/kueue-controller-manager", "-n", "kueue-system", "--timeout=60s")
    for body in (*kueues_webhooks(), APISERVICE):
        kubectl("apply", "-f", "-", input=json.dumps(body))


def kueues_webhooks() -> list[dict[str, Any]]:
    """Kueue's Service and its webhooks, which are asked about Deployments, Pods and Jobs of all namespaces but two:
    where nobody answers, the API server refuses these objects.
    """
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kueue-webhook-service", "namespace": "kueue-system"},
        "spec": {"selector": {"control-plane": "controller-manager"}, "ports": [{"port": 443, "targetPort": 9443}]},
    }
    found = [service]
    for kind, path in (("Mutating", "mutate"), ("Validating", "validate")):
        body = webhook(f"kueue-{kind.lower()}-webhook-configuration", "kueue-system", "kueue-webhook-service")
        (one,) = body["webhooks"]
        exempt = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kueue-system"]}
        asked = (("apps", "deployments"), ("", "pods"), ("batch", "jobs"))
        body["kind"] = f"{kind}WebhookConfiguration"
        body["webhooks"] = [
            one
            | {
                "name": f"m{resource[:-1]}.kb.io",
                "clientConfig": {"service": one["clientConfig"]["service"] | {"path": f"/{path}-{resource}"}},
                "failurePolicy": "Fail",
                "namespaceSelector": {"matchExpressions": [exempt]},
                "rules": [one["rules"][0] | {"apiGroups": [group], "resources": [resource]}],
            }
            for group, resource in asked
        ]
        found.append(body)
    return found


# An APIService without a service is available: one that does not answer keeps namespaces from being deleted.
APISERVICE = {
    "apiVersion": "apiregistration.k8s.io/v1",
    "kind": "APIService",
    "metadata": {"name": "v1beta1.visibility.kueue.x-k8s.io"},
    "spec": {
        "group": "visibility.kueue.x-k8s.io",
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    },
}


@pytest.mark.parametrize("name", SCENES)
def test_the_steps_of_each_example_can_be_taken_again_and_taken_back_again(site: Site, name: str) -> None:
    """Kueue's, which have steps of all sorts, are taken twice each way; the others once."""
    stood_in(site, name)
    before = site.objects()
    steps, is_twice = plan(str(EXAMPLES / name))["steps"], name == "kueue.yaml"
    for step in steps:
        if is_twice and "helm install" in step["command"]:
            with refused_deployments(site):
                site.fails(step["command"])
        elif is_twice:
            site.run(step["command"])
        site.run(step["command"])
    for step in reversed(steps):
        site.run(step["undo"])
        if is_twice and step is not steps[0]:
            site.run(step["undo"])
    site.run("kubectl wait --for=delete namespace/tessera-system --timeout=120s")
    after = site.objects()
    assert set(after) == set(before)
    assert {key: value for key, value in after.items() if value != before[key]} == {}
