"""``helm install`` without a value, on a node that has NVIDIA's driver and the NVIDIA container runtime; then with the
one value that the agent needs where there is no such runtime.

Both are stand-ins: the driver is our library in C, and the runtime shows it, and device files of nothing, to containers
that name GPUs. The image is on the node under the name that the chart's defaults have, for there is no registry.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cli.access.local import fetch
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from tests.support.e2e import gpuhost
from tests.support.e2e.incluster import CHART
from tests.support.e2e.lab import GPU, Pod, until
from tests.support.e2e.lifelab import FILES, NAMESPACE, PRESENT, QUEUES, SPEC, Life, Thing

pytestmark = pytest.mark.e2e

AGENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/tessera-agent"
CONTROLLER = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/tessera-controller"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/tessera-controller"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    binaries.build("helm")
    with Cluster.up(f"defaults-{os.getpid()}", SPEC) as cluster:
        gpuhost.furnish(cluster.node())
        site = Life.beside(cluster, tmp_path_factory.mktemp("site"))
        name = yaml.safe_load((CHART / "values.yaml").read_text())["image"]["repository"]
        site.load(PRESENT, repository=f"docker.io/library/{name}")
        yield site


@pytest.fixture(scope="module")
def before(site: Life) -> tuple[set[Thing], set[str]]:
    """Of a cluster that nothing was installed in: its objects, and the files of its node."""
    return site.before()


@pytest.fixture(scope="module")
def installed(site: Life, before: tuple[set[Thing], set[str]]) -> Life:  # noqa: ARG001 - before it
    """By the page, but for the registry; ``helm test`` comes once there is an agent."""
    otherwise = {" --set image.repository=REGISTRY/tessera-agent": "", "helm test ": "true "}
    site.shell.follow("install.md", "Installing", otherwise, leave="docker")
    return site


@pytest.fixture(scope="module")
def marked(installed: Life) -> Life:
    """As the chart's notes tell where nothing discovers the features of nodes."""
    installed.shell.run(f"kubectl label node {installed.lab.host.name} nvidia.com/gpu.present=true")
    installed.lab.await_amounts({GPU: len(gpuhost.UUIDS)})
    return installed


def status(site: Life, path: str) -> dict[str, Any]:
    found: dict[str, Any] = site.lab.get(path)["status"]
    return found


def test_no_agent_runs_where_nothing_says_that_there_is_a_gpu(installed: Life) -> None:
    assert status(installed, AGENT)["desiredNumberScheduled"] == 0
    assert "nvidia.com/gpu.present=true" in installed.shell.run(f"helm get notes tessera -n {NAMESPACE}")


def test_on_a_marked_node_the_agent_offers_the_drivers_gpus(marked: Life) -> None:
    until(lambda: status(marked, AGENT).get("numberReady") == 1, "the agent is ready")
    until(lambda: marked.agents() == {PRESENT}, "it has written the GpuNode")
    gpunode = marked.lab.gpunode()
    assert {one["uuid"] for one in gpunode["devices"]} == set(gpuhost.UUIDS)
    assert gpunode["summary"] == {"gpus": 2, "healthy": 2, "product": "Stub GPU"}
    until(lambda: marked.lab.labels().get("nvidia.com/gpu.count") == "2", "the agent's labels")


def test_both_replicas_of_the_controller_are_ready_and_one_leads(marked: Life) -> None:
    until(lambda: status(marked, CONTROLLER).get("readyReplicas") == 2, "both are ready")
    assert marked.lab.get(LEASE)["spec"]["holderIdentity"].startswith("tessera-controller-")


def test_the_first_pod_and_the_first_queues_of_the_page_work_and_go(marked: Life) -> None:
    """The page's own commands, in their order, where nothing else was made yet."""
    marked.shell.follow("install.md", "The first pod, and the first queues")
    assert any(uuid in marked.shell.run("kubectl logs one-gpu") for uuid in gpuhost.UUIDS)
    listed = marked.shell.run("tessera queue list")
    assert all(f"team-{team}" in listed for team in "abc")
    marked.shell.run("kubectl delete -f examples/pod-one-gpu.yaml -f examples/queues/team-quotas.yaml --timeout=120s")


def test_the_pods_of_a_queued_job_get_a_gpu_each(marked: Life) -> None:
    marked.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(QUEUES))
    marked.job("trains", 2)
    until(lambda: sum(bool(one["since"]) for one in marked.containers().values()) == 2, "both pods run")
    assert marked.admissions()["trains"] is not None
    pods = {name: Pod(marked.lab, name) for name in marked.containers()}
    until(lambda: marked.holders() == {(name, *pod.visible) for name, pod in pods.items()}, "the agent knows them")
    assert {uuid for _, uuid in marked.holders()} == set(gpuhost.UUIDS)
    for pod in pods.values():
        number = gpuhost.UUIDS.index(pod.visible[0])
        assert pod.device_nodes == [f"/dev/nvidia{number}", "/dev/nvidiactl"]


def test_helm_test_passes(marked: Life) -> None:
    assert "Phase:          Succeeded" in marked.shell.run(f"helm test tessera --namespace {NAMESPACE}")


def test_without_the_runtime_the_agent_finds_the_driver_below_its_root(marked: Life) -> None:
    gpuhost.take_runtime(marked.lab.host)
    marked.shell.run(f"helm upgrade tessera charts/tessera -n {NAMESPACE} --set compatWithCPUManager=true")
    marked.rolled_out()
    socket = marked.lab.host.paths.lib / "tessera/agent.sock"
    until(lambda: bool(json.loads(fetch(socket, "/v1/node"))["driver_up"]), "the new agent has the driver")
    marked.lab.await_amounts({GPU: len(gpuhost.UUIDS)})


@pytest.mark.usefixtures("marked")
def test_an_uninstall_leaves_what_the_page_names(site: Life, before: tuple[set[Thing], set[str]]) -> None:
    site.cluster.kubectl("delete", "job", "--all", "--cascade=foreground", "--timeout=120s")
    site.shell.follow("upgrade.md", "Uninstalling")
    site.lab.await_amounts({GPU: 0})
    theirs = {("ClusterQueue", "", "team"), ("ResourceFlavor", "", "any"), ("LocalQueue", "default", "team")}
    objects, files = before
    site.await_left(objects, site.left() | theirs)
    assert site.files() - files <= FILES
