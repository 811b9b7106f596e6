"""The chart, the CRD and the publisher against a real API server (no kubelet is needed for them)."""

import asyncio
import json
import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from agent.cluster.gpunode import GpuNode
from agent.cluster.publisher import KubePublisher
from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from kube.clock import SystemClock
from kube.kubeconfig import from_kubeconfig
from kube.testing import eventually
from tests.agent.cluster.test_gpunode import largest
from tests.support.e2e.agentrights import as_agent
from tests.support.e2e.lab import until

pytestmark = pytest.mark.e2e

CHART = Path(__file__).parents[3] / "charts" / "tessera"
NAMESPACE = "tessera-system"
AGENT = f"system:serviceaccount:{NAMESPACE}:t-tessera-agent"
COUNT, PRODUCT = "nvidia.com/gpu.count", "nvidia.com/gpu.product"
SIMULATED = {
    "config": {"map": {"one": "version: v1\n", "two": {"version": "v1"}}, "default": "one"},
    "deviceListStrategy": ["envvar", "cdi-cri"],
    "simulate": {"enabled": True, "fleet": "nodes:\n- {name: node-1, gpus: 2, product: Tesla T4}\n"},
    "metrics": {"serviceMonitor": {"enabled": False}},
}


def helm(*args: str) -> str:
    done = subprocess.run([binaries.binary("helm"), *args], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(tmp_path: Path, values: dict[str, Any]) -> str:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    return helm("template", "t", str(CHART), "--namespace", NAMESPACE, "--values", str(file))


def objects(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    found = [each for each in yaml.safe_load_all(text) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.up(f"chart-{os.getpid()}", Spec(nodes=())) as cluster:
        cluster.kubectl("create", "namespace", NAMESPACE)
        cluster.kubectl("apply", "--server-side", "-f", str(CHART / "crds"))
        text = rendered(tmp_path_factory.mktemp("chart"), {})
        cluster.kubectl("apply", "--server-side", "-f", "-", input=text)
        for name in ("node-1", "node-2"):
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"site": "lab"}}}
            cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(body))
        yield cluster


def labels(cluster: Cluster, node: str = "node-1") -> dict[str, str]:
    found: dict[str, str] = json.loads(cluster.kubectl("get", "node", node, "-o", "json"))["metadata"]["labels"]
    return found


def by_agent(cluster: Cluster, *args: str) -> str:
    return cluster.kubectl(*args, as_agent(cluster, "node-1"))


def test_helm_finds_nothing_to_complain_about() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize("values", [{}, SIMULATED, {"compatWithCPUManager": True, "mps": {"enabled": True}}], ids=str)
def test_the_api_server_takes_the_rendered_chart(cluster: Cluster, tmp_path: Path, values: dict[str, Any]) -> None:
    text = rendered(tmp_path, values)
    cluster.kubectl("apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-", input=text)


def test_the_container_gets_no_more_rights_than_its_strategies_need(tmp_path: Path) -> None:
    def context(values: dict[str, Any]) -> dict[str, Any]:
        pod = objects(rendered(tmp_path, values))["DaemonSet", "t-tessera-agent"]["spec"]["template"]["spec"]
        found: dict[str, Any] = pod["containers"][0]["securityContext"]
        return found

    plain = context({})
    assert plain["capabilities"] == {"drop": ["ALL"]}
    assert (plain["readOnlyRootFilesystem"], plain["allowPrivilegeEscalation"]) == (True, False)
    assert context({"migStrategy": "mixed"})["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert context({"compatWithCPUManager": True}) == {"privileged": True, "readOnlyRootFilesystem": True}


def test_an_agent_sees_the_hosts_processes_unless_it_is_told_not_to(tmp_path: Path) -> None:
    def pod(values: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = objects(rendered(tmp_path, values))["DaemonSet", "t-tessera-agent"]
        spec: dict[str, Any] = found["spec"]["template"]["spec"]
        return spec

    assert "hostPID" not in pod({"metrics": {"hostPID": False}})
    seeing = pod({})
    assert seeing["hostPID"] is True
    assert seeing["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_an_agent_that_runs_mps_gets_what_its_daemons_need(tmp_path: Path) -> None:
    pod = objects(rendered(tmp_path, {"mps": {"enabled": True}}))["DaemonSet", "t-tessera-agent"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert (pod["spec"]["hostPID"], container["securityContext"]["privileged"]) == (True, True)
    assert env["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == "mps")
    (volume,) = (one for one in pod["spec"]["volumes"] if one["name"] == "mps")
    assert mount["mountPath"] == volume["hostPath"]["path"] == env["MPS_ROOT"]
    assert mount["mountPropagation"] == "Bidirectional"


def test_an_agent_that_resets_gpus_gets_what_that_takes_and_no_other_does(tmp_path: Path) -> None:
    def pod(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], set[str]]:
        found = objects(rendered(tmp_path, values))["DaemonSet", "t-tessera-agent"]["spec"]["template"]["spec"]
        (container,) = found["containers"]
        env = {f"{one['name']}={one.get('value')}" for one in container["env"] if "REMEDIATION" in one["name"]}
        return found, container["securityContext"], env

    quiet = {"metrics": {"hostPID": False}}
    found, context, env = pod(quiet)
    assert (env, "hostPID" in found, "privileged" in context) == (set(), False, False)
    found, context, env = pod({**quiet, "remediation": {"reset": "drain", "reboot": "ask"}})
    assert env == {"TESSERA_REMEDIATION_RESET=drain", "TESSERA_REMEDIATION_REBOOT=ask"}
    assert (found["hostPID"], context) == (True, {"privileged": True, "readOnlyRootFilesystem": True})
    (mount,) = (one for one in found["containers"][0]["volumeMounts"] if one["name"] == "driver-root")
    assert mount["readOnly"]
    _, context, _ = pod({**SIMULATED, "remediation": {"reset": "when-free"}})
    assert "privileged" not in context, "simulated GPUs are reset without any right"


@pytest.mark.parametrize(
    ("driver", "mig"),
    [
        ("gpu.nvidia.com", "mig.nvidia.com"),
        ("gpu.example.com", "mig.example.com"),
        ("devices.example.com", "mig.devices.example.com"),
    ],
)
def test_classes_rights_and_folder_follow_the_drivers_name(
    driver: str, mig: str, cluster: Cluster, tmp_path: Path
) -> None:
    text = rendered(tmp_path, {"dra": {"enabled": True, "driver": driver}})
    found = objects(text)
    classes = {name for kind, name in found if kind == "DeviceClass"}
    assert classes == {driver, mig, "gpu-share.tessera.dev"}
    for name, device in ((driver, "gpu"), (mig, "mig"), ("gpu-share.tessera.dev", "share")):
        (selector,) = found["DeviceClass", name]["spec"]["selectors"]
        wanted = f"device.driver == '{driver}' && device.attributes['{driver}'].type == '{device}'"
        assert selector["cel"]["expression"] == wanted
    pod = found["DaemonSet", "t-tessera-agent"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    (mount,) = (one["mountPath"] for one in container["volumeMounts"] if one["name"] == "claims")
    assert (env["TESSERA_DRA_DRIVER"], mount) == (driver, f"{env['TESSERA_PLUGINS_DIR']}/{driver}")
    cluster.kubectl("apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-", input=text)


def test_an_upgrade_keeps_the_selector(tmp_path: Path) -> None:
    daemonset = objects(rendered(tmp_path, SIMULATED))["DaemonSet", "t-tessera-agent"]
    assert daemonset["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/name": "tessera",
        "app.kubernetes.io/instance": "t",
        "app.kubernetes.io/component": "agent",
    }


def test_the_agent_may_do_what_it_does_and_nothing_else(cluster: Cluster) -> None:
    wanted = {("get", "nodes"), ("patch", "nodes"), ("get", "gpunodes"), ("create", "gpunodes"), ("patch", "gpunodes")}
    wanted |= {(verb, kind) for verb in ("list", "watch") for kind in ("pods", "nodes", "gpulayouts", "gpunodes")}
    wanted |= {("patch", "nodes --subresource=status")}
    verbs = ("get", "list", "watch", "create", "update", "patch", "delete")
    for resource in ("nodes", "gpunodes", "gpulayouts", "pods", "secrets", "nodes --subresource=status"):
        for verb in verbs:
            question = ("auth", "can-i", verb, *resource.split(), f"--as={AGENT}", "--all-namespaces")
            command, environment = cluster.kubectl_command(*question)
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            assert done.stdout.strip() in ("yes", "no"), done.stderr
            assert (done.stdout.strip() == "yes") == ((verb, resource) in wanted), (verb, resource)


def test_an_agent_labels_its_own_node_only_and_changes_nothing_else(cluster: Cluster) -> None:
    async def denied(*args: str) -> str:
        try:
            await asyncio.to_thread(by_agent, cluster, *args)
        except ClusterError as error:
            return str(error)
        return ""

    async def all_of_it() -> None:
        # A policy takes effect a moment after it was made: until then the wrong write goes through.
        deadline = asyncio.get_running_loop().time() + 15
        while "may not change node" not in await denied("label", "node", "node-2", "nvidia.com/x=1", "--overwrite"):
            assert asyncio.get_running_loop().time() < deadline, "another node may be changed"
            await asyncio.to_thread(cluster.kubectl, "label", "node", "node-2", "nvidia.com/x-")
        assert await denied("label", "node", "node-1", f"{COUNT}=8") == ""
        assert "labels under" in await denied("label", "node", "node-1", "site=elsewhere", "--overwrite")
        assert "labels under" in await denied("label", "node", "node-1", "site-")
        assert "annotations" in await denied("annotate", "node", "node-1", "a=b")
        assert "spec" in await denied("patch", "node", "node-1", "-p", '{"spec":{"unschedulable":true}}')

    asyncio.run(all_of_it())
    assert labels(cluster)["site"] == "lab"
    cluster.kubectl("label", "node", "node-1", f"{COUNT}-")


def denied(cluster: Cluster, *args: str, by_agent: bool = True, **more: Any) -> str:
    """What the API server says to the agent of node-1, or to an administrator; empty if it does it."""
    credentials = (as_agent(cluster, "node-1"),) if by_agent else ()
    try:
        cluster.kubectl(*args, "--dry-run=server", *credentials, **more)
    except ClusterError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def guarded(cluster: Cluster) -> Cluster:
    """Policies take effect a moment after they were made."""
    label = ("label", "node", "node-2", "nvidia.com/x=1", "--overwrite")
    until(lambda: "may not change node" in denied(cluster, *label), "the policy of Nodes")
    gpunode = json.dumps(
        {
            "apiVersion": "tessera.dev/v1alpha1",
            "kind": "GpuNode",
            "metadata": {"name": "node-2"},
            "status": {"summary": {"gpus": 0, "healthy": 0, "product": ""}},
        }
    )
    apply = ("apply", "--server-side", "-f", "-")
    until(lambda: "may not write the GpuNode" in denied(cluster, *apply, input=gpunode), "the policy of GpuNodes")
    return cluster


def test_an_agents_token_changes_two_conditions_of_its_own_node_alone(guarded: Cluster) -> None:
    def patched(status: dict[str, Any], node: str = "node-1") -> str:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "status": status}
        # The agent applies on the server's side too: a patch by kubectl would read the status first.
        apply = ("apply", "--server-side", "--force-conflicts", "--subresource=status", "-f", "-")
        return denied(guarded, *apply, input=json.dumps(body))

    def condition(type_: str) -> dict[str, Any]:
        return {"conditions": [{"type": type_, "status": "True", "reason": "R", "message": "m"}]}

    until(lambda: "may not change the status" in patched(condition("tessera.dev/GPUsHealthy"), "node-2"), "the policy")
    assert patched(condition("nvidia.com/GPUReady")) == ""
    assert patched(condition("tessera.dev/GPUsHealthy")) == ""
    assert "the conditions nvidia.com/GPUReady and" in patched(condition("Ready"))
    assert "status.capacity" in patched({"capacity": {"nvidia.com/gpu": "8"}})


def test_an_agents_token_grants_itself_no_repair_and_takes_orders_off_alone(guarded: Cluster) -> None:
    summary = {"summary": {"gpus": 0, "healthy": 0, "product": ""}}
    order = {"annotations": {"tessera.dev/remediation-GPU-1": "start"}}
    body = {"apiVersion": "tessera.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": "node-1"}, "status": summary}
    apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    grant = {"gpu": "GPU-1", "generation": 1, "action": "reset", "granted": "2026-01-01T00:00:00Z"}
    granting = {**body, "status": {**summary, "remediationGrants": [grant]}}
    assert "grants itself nothing" in denied(guarded, *apply, input=json.dumps(granting))
    guarded.kubectl(*apply, input=json.dumps({**body, "metadata": {"name": "node-1", **order}}))
    patch = ("patch", "gpunode", "node-1", "--type=merge", "-p")
    try:
        assert denied(guarded, *patch, '{"metadata": {"annotations": null}}') == ""
        changed = '{"metadata": {"annotations": {"tessera.dev/remediation-GPU-1": "stop"}}}'
        assert "metadata.annotations" in denied(guarded, *patch, changed)
        assert "metadata.annotations" in denied(guarded, *patch, '{"metadata": {"annotations": {"a": "b"}}}')
        forged = json.dumps({"status": {"remediationGrants": [grant]}})
        assert "grants itself nothing" in denied(guarded, *patch, forged)
        until(lambda: "expected none but by" in denied(guarded, *patch, forged, by_agent=False), "the policy of grants")
        assert denied(guarded, *patch, '{"metadata": {"annotations": {"a": "b"}}}', by_agent=False) == ""
    finally:
        guarded.kubectl("delete", "gpunode", "node-1")


CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "4cdb5b8f-0000-4000-8000-000000000000"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ownerReferences", [CONFIG_MAP]),
        ("finalizers", ["example.com/held"]),
        ("annotations", {"a": "b"}),
        ("generateName", "other-"),
    ],
)
def test_an_agents_token_writes_nothing_of_its_nodes_metadata_but_labels(
    guarded: Cluster, field: str, value: Any
) -> None:
    """With an owner that is gone, the garbage collector would delete the Node."""
    patch = json.dumps({"metadata": {field: value}})
    assert f"not a node's {field}" in denied(guarded, "patch", "node", "node-1", "--type=merge", "-p", patch)


def test_an_agents_token_takes_no_finalizer_off_its_node(guarded: Cluster) -> None:
    held = ("patch", "node", "node-1", "--type=merge", "-p")
    guarded.kubectl(*held, '{"metadata": {"finalizers": ["example.com/held"]}}')
    assert "not a node's finalizers" in denied(guarded, *held, '{"metadata": {"finalizers": null}}')
    assert denied(guarded, "label", "node", "node-1", f"{COUNT}=8") == ""
    guarded.kubectl(*held, '{"metadata": {"finalizers": null}}')


def owner(name: str, kind: str = "Node", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "name": name, "uid": CONFIG_MAP["uid"], **more}


OWNED = [
    ({"ownerReferences": [owner("node-1")]}, ""),
    ({"ownerReferences": [owner("node-2", blockOwnerDeletion=True)]}, "belongs to its own Node alone"),
    ({"ownerReferences": [owner("node-1"), {**CONFIG_MAP, "uid": "0"}]}, "belongs to its own Node alone"),
    ({"finalizers": ["example.com/held"]}, "metadata.finalizers"),
    ({"labels": {"a": "b"}}, "metadata.labels"),
    ({"annotations": {"a": "b"}}, "metadata.annotations"),
]


@pytest.mark.parametrize(("meta", "said"), OWNED, ids=str)
def test_a_gpunode_belongs_to_its_own_node_and_has_nothing_else_in_its_metadata(
    guarded: Cluster, meta: dict[str, Any], said: str
) -> None:
    status = {"summary": {"gpus": 0, "healthy": 0, "product": ""}}
    body = {"apiVersion": "tessera.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": "node-1", **meta}}
    found = denied(guarded, "apply", "--server-side", "-f", "-", input=json.dumps({**body, "status": status}))
    assert said in found if said else found == ""


@pytest.mark.parametrize(("meta", "said"), OWNED, ids=str)
def test_a_slice_belongs_to_its_own_node_and_has_nothing_else_in_its_metadata(
    guarded: Cluster, tmp_path: Path, meta: dict[str, Any], said: str
) -> None:
    if not any("t-tessera-agent-slices" in line for line in policies(guarded)):
        text = rendered(tmp_path, {"dra": {"enabled": True}})
        guarded.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=text)
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": "node-2",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
    }
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s", **meta},
        "spec": spec,
    }
    create = ("create", "-f", "-")
    until(lambda: "of node" in denied(guarded, *create, input=json.dumps(body)), "the policy in effect")
    found = denied(guarded, *create, input=json.dumps({**body, "spec": {**spec, "nodeName": "node-1", "devices": []}}))
    assert said in found if said else found == ""


def policies(cluster: Cluster) -> list[str]:
    return cluster.kubectl("get", "validatingadmissionpolicies", "-o", "name").splitlines()


@pytest.mark.parametrize(
    ("meta", "about", "said"),
    [
        ({}, owner("node-1"), ""),
        ({}, owner("node-2"), "tells of its own Node only"),
        ({"finalizers": ["example.com/held"]}, owner("node-1"), "metadata.finalizers"),
        ({"ownerReferences": [owner("node-1", blockOwnerDeletion=True)]}, owner("node-1"), "metadata.ownerReferences"),
    ],
    ids=str,
)
def test_an_agents_events_are_about_its_own_node_and_hold_nothing_back(
    guarded: Cluster, meta: dict[str, Any], about: dict[str, Any], said: str
) -> None:
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default", **meta},
        "regarding": about,
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "action": "Probe",
        "reason": "GpuUnhealthy",
        "type": "Warning",
        "reportingController": "tessera.dev/agent",
        "reportingInstance": "a",
    }
    found = denied(guarded, "create", "-f", "-", input=json.dumps(body))
    assert said in found if said else found == ""


def test_an_agent_writes_its_own_gpunode_only(cluster: Cluster) -> None:
    def body(name: str) -> str:
        meta = {"name": name}
        status = {"summary": {"gpus": 0, "healthy": 0, "product": ""}}
        return json.dumps({"apiVersion": "tessera.dev/v1alpha1", "kind": "GpuNode", "metadata": meta, "status": status})

    for name in ("node-1", "node-2"):
        args = ("apply", "--server-side", "--dry-run=server", as_agent(cluster, "node-1"), "-f", "-")
        if name == "node-1":
            cluster.kubectl(*args, input=body(name))
        else:
            with pytest.raises(ClusterError, match="may not write the GpuNode node-2"):
                cluster.kubectl(*args, input=body(name))


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, "summary"),
        ({"summary": {"gpus": 1, "healthy": 2, "product": ""}}, "more healthy GPUs than GPUs"),
        ({"summary": {"gpus": 0, "healthy": 0, "product": ""}, "links": [{"a": 2, "b": 1}]}, "smaller index"),
    ],
)
def test_the_crd_refuses_what_cannot_be(cluster: Cluster, status: dict[str, Any], said: str) -> None:
    body = {"apiVersion": "tessera.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": "x"}, "status": status}
    with pytest.raises(ClusterError, match=said):
        cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(body))


def on_node_1(gpunode: GpuNode) -> GpuNode:
    return msgspec.structs.replace(gpunode, metadata=msgspec.structs.replace(gpunode.metadata, name="node-1"))


async def test_the_publisher_speaks_to_a_real_api_server(cluster: Cluster) -> None:
    config = from_kubeconfig(cluster.kubeconfig)
    publisher = KubePublisher(config, node_name="node-1", clock=SystemClock(), random=random.random)
    task = asyncio.create_task(publisher.run())
    # Another manager says one of our labels too: dropping ours is not enough to remove it.
    other = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": {COUNT: "16"}}}
    publisher.publish_labels({COUNT: "16", PRODUCT: "A100"})
    publisher.publish_gpunode(on_node_1(largest()))
    for _ in range(3):
        publisher.event(reason="GpuUnhealthy", action="Probe", note="GPU 3: XID 79", type_="Warning")
    await eventually(lambda: publisher.settled, within_s=20)
    apply = ("apply", "--server-side", "--field-manager=gfd", "-f", "-")
    await asyncio.to_thread(cluster.kubectl, *apply, input=json.dumps(other))
    publisher.publish_labels({PRODUCT: "A100"})
    await eventually(lambda: publisher.settled, within_s=20)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    found = labels(cluster)
    assert (found.get(PRODUCT), COUNT in found, found["site"]) == ("A100", False, "lab")
    gpunode = json.loads(cluster.kubectl("get", "gpunode", "node-1", "-o", "json"))
    owner = json.loads(cluster.kubectl("get", "node", "node-1", "-o", "json"))["metadata"]["uid"]
    assert gpunode["metadata"]["ownerReferences"][0]["uid"] == owner
    sent = msgspec.json.decode(msgspec.json.encode(largest().status))
    assert {key: value for key, value in gpunode["status"].items() if key != "observedAt"} == sent
    assert "GpuUnhealthy" in cluster.kubectl("describe", "node", "node-1")


async def test_a_node_that_is_gone_is_not_made_anew(cluster: Cluster) -> None:
    config = from_kubeconfig(cluster.kubeconfig)
    publisher = KubePublisher(config, node_name="node-9", clock=SystemClock(), random=random.random)
    task = asyncio.create_task(publisher.run())
    publisher.publish_labels({COUNT: "1"})
    with pytest.raises(AssertionError):
        await eventually(lambda: publisher.settled, within_s=2)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert "node-9" not in cluster.kubectl("get", "nodes", "-o", "name")
