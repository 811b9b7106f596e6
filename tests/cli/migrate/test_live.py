"""``tessera migrate`` on a cluster: the plan of its objects, by lists alone; and what is left afterwards."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click.testing
import pytest
import yaml

from cli.main import tessera
from cli.migrate.check import Cluster, checked
from cli.migrate.live import KINDS
from kube.resources import Resource
from kube.testing import FakeApiServer
from tests.cli.migrate.conftest import fits_the_chart
from tests.support.cli.frontdoor import kubeconfig

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "migrate"
BY_KIND = {(each.api_version.partition("/")[0], each.kind): each for each in KINDS}


class Site:
    def __init__(self, server: FakeApiServer, folder: Path) -> None:
        self.server = server
        self._kubeconfig = kubeconfig(folder, server.config.server)

    def put(self, *files: str) -> None:
        """Creates the objects of the files, in the versions that are read."""
        for name in files:
            for each in yaml.safe_load_all((ROOT / "examples" / name).read_text()):
                kind = BY_KIND[each["apiVersion"].partition("/")[0], each["kind"]]
                space = each["metadata"].get("namespace")
                resource = Resource(kind.group, kind.version, kind.plural, kind.kind, namespaced=space is not None)
                body = {key: value for key, value in each.items() if key not in ("apiVersion", "kind")}
                self.server.create(resource, each["metadata"]["name"], body, **({"namespace": space} if space else {}))

    async def run(self, *words: str) -> click.testing.Result:
        args = ["migrate", "--kubeconfig", str(self._kubeconfig), *words]
        return await asyncio.to_thread(lambda: click.testing.CliRunner().invoke(tessera, args))

    async def plan(self) -> dict[str, Any]:
        done = await self.run("-o", "json")
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        fits_the_chart(found["values"])
        return found


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with FakeApiServer() as server:
        yield Site(server, tmp_path)


@pytest.mark.parametrize(
    "files",
    [("migrate/clusterpolicy.yaml",), ("migrate/device-plugin.yaml", "migrate/kueue.yaml")],
)
async def test_the_plan_of_a_cluster_is_that_of_its_objects_files(site: Site, files: tuple[str, ...]) -> None:
    site.put(*files)
    paths = [str(ROOT / "examples" / each) for each in files]
    by_files = click.testing.CliRunner().invoke(tessera, ["migrate", *paths, "-o", "json"])
    assert await site.plan() == json.loads(by_files.stdout)
    assert {each.method for each in site.server.requests} == {"GET"}


async def test_an_empty_cluster_has_nothing_to_migrate(site: Site) -> None:
    assert await site.plan() == {"values": {}, "steps": [], "lost": [], "kept": []}


async def test_tesseras_own_objects_are_no_part_of_a_plan(site: Site) -> None:
    config_maps = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
    site.server.create(config_maps, "c", {"data": {"default": "version: v1"}}, namespace="tessera-system")
    assert (await site.plan())["steps"] == []


async def test_a_tessera_that_a_cluster_has_is_upgraded(site: Site) -> None:
    site.put("migrate/kueue.yaml")
    sets = Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True)
    notes = {
        f"meta.helm.sh/release-{key}": word for key, word in (("name", "tessera"), ("namespace", "tessera-system"))
    }
    pod = {"spec": {"containers": [{"name": "c", "image": "example.com/tessera-agent"}]}}
    metadata = {"name": "a", "annotations": notes, "labels": {"helm.sh/chart": "tessera-0.9.0"}}
    site.server.create(sets, "a", {"metadata": metadata, "spec": {"template": pod}}, namespace="tessera-system")
    commands = [each["command"] for each in (await site.plan())["steps"]]
    assert [each for each in commands if "helm upgrade tessera" in each]
    assert not [each for each in commands if "helm install" in each]


async def test_what_may_not_be_listed_leaves_no_plan_of_a_fragment(site: Site) -> None:
    site.put("kai/queues.yaml")
    site.server.refuse = lambda _, path: 403 if path.endswith(("/configmaps", "/nodes")) else None
    done = await site.run("-o", "json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert [each.partition(": found")[0] for each in done.stderr.splitlines()] == [
        "Error: cluster: configmaps",
        "Error: cluster: nodes",
    ]


@pytest.mark.parametrize("kind", ["daemonsets", "pods", "gpunodes", "validatingwebhookconfigurations"])
async def test_a_check_that_may_not_look_says_that_it_does_not_know(site: Site, kind: str) -> None:
    site.server.refuse = lambda _, path: 403 if path.endswith(f"/{kind}") else None
    done = await site.run("--check", "-o", "json")
    found = json.loads(done.stdout)
    assert (done.exit_code, [each["what"] for each in found["unknown"]]) == (2, [kind])
    text = await site.run("--check")
    assert (text.exit_code, text.stdout.splitlines()[0]) == (2, "Not known:")
    assert "nothing\n" not in text.stdout


NAMESPACES = Resource("", "v1", "namespaces", "Namespace")


@pytest.mark.parametrize(
    ("labels", "steps"),
    [
        ({"pod-security.kubernetes.io/enforce": "baseline"}, ("enforce=privileged", "enforce=baseline")),
        ({}, ("enforce=privileged", "enforce-")),
        ({"pod-security.kubernetes.io/enforce": "privileged"}, None),
    ],
)
async def test_a_namespace_that_is_there_is_labelled_and_never_deleted(
    site: Site, labels: dict[str, str], steps: tuple[str, str] | None
) -> None:
    site.put("migrate/clusterpolicy.yaml")
    site.server.create(NAMESPACES, "tessera-system", {"metadata": {"name": "tessera-system", "labels": labels}})
    found = [each for each in (await site.plan())["steps"] if " namespace" in each["undo"]]
    assert [(each["command"].split()[-1], each["undo"].split()[-1]) for each in found] == [
        tuple(f"pod-security.kubernetes.io/{each}" for each in steps or ())
    ] * bool(steps)


async def test_controllers_that_a_cluster_does_not_have_are_not_stopped(site: Site) -> None:
    site.put("kai/queues.yaml")
    queues = Resource("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue")
    site.server.create(queues, "research", {"spec": {}})
    found = await site.plan()
    assert found["values"]["controller"]["kai"] == {"enabled": True}
    assert not [each for each in found["steps"] if "kubectl scale" in each["command"]]


async def test_a_node_that_the_cluster_does_not_have_is_refused(site: Site) -> None:
    site.put("migrate/clusterpolicy.yaml")
    done = await site.run("--node=nosuchnode")
    assert done.exit_code == 2
    assert "found 'nosuchnode', expected the name of a node of the cluster" in done.stderr.replace('"', "'")


async def test_the_check_of_a_cluster_with_the_old_parts_exits_with_1(site: Site) -> None:
    site.put("migrate/kueue.yaml")
    before = await site.run("--check")
    assert (before.exit_code, before.stdout.splitlines()[0]) == (0, "Left of the old parts: nothing")
    deployments = Resource("apps", "v1", "deployments", "Deployment", namespaced=True)
    body = yaml.safe_load((EXAMPLES / "kueue.yaml").read_text().split("---")[0])
    site.server.create(deployments, "runs", {"spec": body["spec"], "status": {"replicas": 2}}, namespace="kueue-system")
    after = await site.run("--check", "-o", "json")
    assert after.exit_code == 1
    assert json.loads(after.stdout) == {
        "left": [{"what": "Deployment kueue-system/runs", "why": "it still has pods: 2"}],
        "lacking": [],
        "unknown": [],
    }


def test_the_check_takes_no_files() -> None:
    done = click.testing.CliRunner().invoke(tessera, ["migrate", "--check", "file.yaml"])
    assert done.exit_code == 2
    assert "found FILES, expected none" in done.stderr


def pod(name: str, node: str = "gpu-1", phase: str = "Running", **limits: str) -> dict[str, Any]:
    asked = {f"nvidia.com/{key.replace('_', '-')}": value for key, value in limits.items()}
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": asked}}]}
    return {"metadata": {"name": name, "namespace": "team"}, "spec": spec, "status": {"phase": phase}}


def node(name: str, **allocatable: str) -> dict[str, Any]:
    found = {f"nvidia.com/{key}": value for key, value in allocatable.items()}
    return {"metadata": {"name": name}, "status": {"allocatable": found}}


def gpu_node(name: str, *pods: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"holders": [{"namespace": "team", "pod": each} for each in pods]}}


def test_pods_that_hold_what_they_asked_for_lack_nothing() -> None:
    found = checked(
        Cluster(
            pods=[pod("a", gpu="1"), pod("b", gpu="1"), pod("c"), pod("d", phase="Succeeded", gpu="8")],
            nodes=[node("gpu-1", gpu="2")],
            gpu_nodes=[gpu_node("gpu-1", "a", "b")],
        )
    )
    assert (found.left, found.lacking) == ([], [])


def test_pods_without_a_holder_nodes_without_an_agent_and_fewer_devices_are_told() -> None:
    found = checked(
        Cluster(
            pods=[pod("a", gpu="2"), pod("b", gpu="1"), pod("c", node="gpu-2", gpu="1")],
            nodes=[node("gpu-1", gpu="2"), node("gpu-2", gpu="8")],
            gpu_nodes=[gpu_node("gpu-1", "a")],
        )
    )
    assert [each.what for each in found.lacking] == ["pod team/b", "node gpu-2", "node gpu-1: nvidia.com/gpu"]


def agents(count: int) -> dict[str, Any]:
    """The agents' DaemonSet, which fits so many nodes."""
    head = {"kind": "DaemonSet", "metadata": {"name": "tessera", "namespace": "tessera-system"}}
    template = {"metadata": {"labels": {"app.kubernetes.io/component": "agent"}}}
    return {**head, "spec": {"template": template}, "status": {"desiredNumberScheduled": count}}


def test_nodes_and_pods_without_any_agent_are_told_where_the_daemon_set_fits_no_node() -> None:
    waiting = pod("w", node="", phase="Pending", gpu="1")
    found = checked(
        Cluster(sets=[agents(0)], nodes=[node("was", gpu="0"), node("has", gpu="8"), node("n")], pods=[waiting])
    )
    assert [each.what for each in found.lacking] == ["node was", "DaemonSet tessera-system/tessera"]
    found = checked(
        Cluster(sets=[agents(1)], nodes=[node("was", gpu="0")], gpu_nodes=[gpu_node("was")], pods=[waiting])
    )
    assert found.lacking == []


def test_parts_that_a_policy_has_on_are_left_where_nodes_have_their_label() -> None:
    policy = {"metadata": {"name": "cluster-policy"}, "spec": {"devicePlugin": {"enabled": False}}}
    labelled = {"metadata": {"name": "n", "labels": {"nvidia.com/gpu.deploy.device-plugin": "true"}}}
    (left,) = checked(Cluster(policies=[policy], nodes=[labelled], sets=[agents(1)])).left
    assert left.what == "ClusterPolicy cluster-policy"
    assert left.why.startswith("MIG manager, feature discovery, dcgm-exporter: on")
    assert checked(Cluster(policies=[policy], nodes=[node("n")], sets=[agents(1)])).left == []
    assert checked(Cluster(policies=[policy], nodes=[labelled])).left == []
    off = {"metadata": {"name": "p"}, "spec": {each: {"enabled": False} for each in ("devicePlugin", "gfd", "migManager", "dcgmExporter")}}  # noqa: E501  # fmt: skip
    assert checked(Cluster(policies=[off], nodes=[labelled])).left == []


def webhooks(service: str, namespace: str = "q", group: str = "batch") -> dict[str, Any]:
    one = {"clientConfig": {"service": {"namespace": namespace, "name": service}}, "rules": [{"apiGroups": [group]}]}
    return {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "prod"}, "webhooks": [one]}


@pytest.mark.parametrize(
    ("one", "is_left"),
    [
        (webhooks("prod-webhook-service"), True),
        (webhooks("another"), False),
        (webhooks("gone", group="kueue.x-k8s.io"), True),
        (webhooks("tessera", "tessera-system", "kueue.x-k8s.io"), False),
    ],
    ids=["of a stopped Deployment", "of somebody else", "of a Deployment that is gone", "ours"],
)
def test_webhooks_of_old_controllers_are_left(one: dict[str, Any], is_left: bool) -> None:
    pod = {"spec": {"containers": [{"name": "c", "image": "registry/kueue:v1"}]}}
    stopped = {"kind": "Deployment", "metadata": {"name": "prod-controller-manager", "namespace": "q"}, "spec": {"template": pod}}  # noqa: E501  # fmt: skip
    assert bool(checked(Cluster(sets=[stopped], webhooks=[one])).left) is is_left


async def test_queues_of_an_older_version_are_read_where_the_newer_one_is_not_served(site: Site) -> None:
    queues = Resource("kueue.x-k8s.io", "v1beta1", "clusterqueues", "ClusterQueue")
    site.server.create(queues, "research", {"spec": {}})
    site.server.refuse = lambda _, path: 404 if "/v1beta2/" in path else None
    assert "ClusterQueue research" in {each["what"] for each in (await site.plan())["kept"]}
