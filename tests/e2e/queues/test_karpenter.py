"""Nodes that Karpenter brings for placeholders: its real core, with the provider whose nodes kwok plays.

The example is applied as it is, but for what names AWS. Scheduler, Job controller and API server are real.
"""

import json
import os
from collections.abc import Iterator

import pytest
import yaml

from controller.objects.core import CAPACITY_TYPE
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from inventory.api.names import NODE_TEMPLATE, SPOT
from tests.support.e2e.articles import GPU, Json, Scene
from tests.support.e2e.incluster import NAMESPACE, InCluster
from tests.support.e2e.karpenterlab import here, instance_type, karpenter
from tests.support.e2e.lab import EXAMPLES, until
from tests.support.e2e.podlab import refused
from tests.support.e2e.queueapi import Api

pytestmark = pytest.mark.e2e

EXAMPLE = EXAMPLES / "capacity" / "karpenter-nodepool.yaml"
POOL = "karpenter.sh/nodepool"
PORT = "net.example.com"
CONFIG = {
    "tessera": {"policy": "tessera", "pendingCondition": {"after": "1s"}},
    "resources": {"deviceClassMappings": [{"name": f"{PORT}/port", "deviceClassNames": [PORT]}]},
}
TYPES = (instance_type("p4d.24xlarge", 8, 32.0), instance_type("g5.12xlarge", 4, 6.0))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    for program in ("kubernetes", "kwok", "helm", "karpenter"):
        binaries.build(program)
    with Cluster.up(f"karpenter-{os.getpid()}", Spec(nodes=(), kwok_nodes=1)) as cluster:
        folder = tmp_path_factory.mktemp("karpenter")
        controller = InCluster(cluster, folder, CONFIG)
        controller.install()
        with karpenter(cluster, folder, *TYPES), controller.running():
            scene = Scene(cluster)
            scene.namespace("ml")
            for document in yaml.safe_load_all(EXAMPLE.read_text()):
                if document["kind"] != "Job":
                    scene.create(here(document, "5s") if document["kind"] == "NodePool" else document)
            yield scene
            scene.close()


def example_job() -> Json:
    return next(each for each in yaml.safe_load_all(EXAMPLE.read_text()) if each["kind"] == "Job")


class Fleet:
    """What the API server says of nodes and placeholders."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def nodes(self) -> dict[str, Json]:
        """Those of the pool that are not being deleted, by name."""
        found = self._api.ask("GET", f"/api/v1/nodes?labelSelector={POOL}=gpu-nodepool").body["items"]
        return {each["metadata"]["name"]: each for each in found if "deletionTimestamp" not in each["metadata"]}

    def there(self, name: str) -> bool:
        """Whether the API server has the node, which may be being deleted."""
        return self._api.ask("GET", f"/api/v1/nodes/{name}").accepted

    def placeholders(self) -> list[Json]:
        selector = "labelSelector=tessera.dev/placeholder-of"
        found: list[Json] = self._api.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?{selector}").body["items"]
        return found


@pytest.fixture
def fleet(scene: Scene) -> Iterator[Fleet]:
    api = Api(scene.cluster)
    yield Fleet(api)
    api.close()


def running(scene: Scene, name: str) -> list[Json]:
    return [each for each in scene.pods(name) if each["status"].get("phase") == "Running"]


def test_the_articles_node_pool_needs_both_repairs(scene: Scene) -> None:
    pool = next(each for each in yaml.safe_load_all(EXAMPLE.read_text()) if each["kind"] == "NodePool")
    del pool["spec"]["template"]["spec"]["nodeClassRef"]
    pool["spec"]["disruption"]["consolidationPolicy"] = "WhenUnderutilized"
    said = refused(scene.cluster, "apply", "--dry-run=server", "-f", "-", input=json.dumps(pool))
    assert "spec.template.spec.nodeClassRef: Required value" in said
    assert 'spec.disruption.consolidationPolicy: Unsupported value: "WhenUnderutilized"' in said


def test_karpenter_brings_nodes_for_placeholders_and_the_gang_lands_on_exactly_these(
    scene: Scene, fleet: Fleet
) -> None:
    assert fleet.nodes() == {}
    scene.create(example_job())
    until(lambda: len(fleet.placeholders()) == 2, "a placeholder for each pod")
    until(lambda: len(running(scene, "ml/finetune")) == 2, "the gang runs", 240)
    nodes = fleet.nodes()
    assert {each["spec"]["nodeName"] for each in running(scene, "ml/finetune")} == set(nodes)
    assert {each["status"]["allocatable"][GPU] for each in nodes.values()} == {"8"}
    until(lambda: fleet.placeholders() == [], "no placeholder is left")
    scene.finish("ml/finetune")
    until(lambda: fleet.nodes() == {}, "empty nodes go", 240)
    scene.delete_job("ml/finetune")


def gang(name: str, gpus: int, *, pods: int = 1, **notes: str) -> Json:
    """A job that runs until it is finished by hand; ``notes``: annotations of its pods, under tessera.dev/."""
    job = example_job()
    job["metadata"]["name"] = name
    job["spec"] |= {"parallelism": pods, "completions": pods}
    template = job["spec"]["template"]
    template["spec"]["containers"][0]["resources"] = {"limits": {GPU: gpus}}
    template["spec"]["terminationGracePeriodSeconds"] = 0
    template["metadata"] = {"annotations": {f"tessera.dev/{key}": value for key, value in notes.items()}}
    return job


def test_a_job_that_is_for_no_spot_node_gets_one_on_demand_from_a_pool_of_both(scene: Scene, fleet: Fleet) -> None:
    """Spot is the cheaper kind, so Karpenter brings it for a job that says nothing."""

    def kind_of(name: str, word: str) -> str:
        job = gang(name, 8)
        job["metadata"]["annotations"] = {SPOT: word}
        scene.create(job)
        until(lambda: len(running(scene, f"ml/{name}")) == 1, "the job runs", 240)
        labels = fleet.nodes()[running(scene, f"ml/{name}")[0]["spec"]["nodeName"]]["metadata"]["labels"]
        return str(labels[CAPACITY_TYPE])

    assert kind_of("cheap", "allowed") == "spot"
    assert kind_of("safe", "never") == "on-demand"
    assert len(fleet.nodes()) == 2, "no node came in vain"
    for name in ("cheap", "safe"):
        scene.finish(f"ml/{name}")
    until(lambda: fleet.nodes() == {}, "no node is left", 240)
    for name in ("cheap", "safe"):
        scene.delete_job(f"ml/{name}")


def with_ports(scene: Scene) -> None:
    """A queue of a flavor whose nodes have network ports by claim beside their GPUs, and a template of such a claim."""
    documents = {each["kind"]: each for each in yaml.safe_load_all(EXAMPLE.read_text())}
    flavor, queue, line = (documents[kind] for kind in ("ResourceFlavor", "ClusterQueue", "LocalQueue"))
    flavor["metadata"] |= {"name": PORT, "annotations": {NODE_TEMPLATE: ports()}}
    (group,) = queue["spec"]["resourceGroups"]
    group["coveredResources"].append(f"{PORT}/port")
    group["flavors"][0]["name"] = PORT
    group["flavors"][0]["resources"].append({"name": f"{PORT}/port", "nominalQuota": 32})
    queue["metadata"]["name"] = line["metadata"]["name"] = line["spec"]["clusterQueue"] = "ports"
    selects = {"cel": {"expression": f"device.driver == '{PORT}'"}}
    asked = {"devices": {"requests": [{"name": "port", "exactly": {"deviceClassName": PORT}}]}}
    dra = {"apiVersion": "resource.k8s.io/v1"}
    scene.create({**dra, "kind": "DeviceClass", "metadata": {"name": PORT}, "spec": {"selectors": [selects]}})
    template = {**dra, "kind": "ResourceClaimTemplate", "metadata": {"name": "port", "namespace": "ml"}}
    for document in (flavor, queue, line, {**template, "spec": {"spec": asked}}):
        scene.create(document)


def ports(**more: bool) -> str:
    template = {"gpus": 8, "allocatable": {"cpu": "30"}, "devices": [{"driver": PORT, "count": 4}], "max": 2, **more}
    return json.dumps(template | {"labels": {POOL: "gpu-nodepool"}})


def with_port(name: str) -> Json:
    job = gang(name, 8)
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "ports"
    spec = job["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "port", "resourceClaimTemplateName": "port"}]
    spec["containers"][0]["resources"]["claims"] = [{"name": "port"}]
    return job


def test_karpenter_brings_nodes_for_pods_with_claims_where_placeholders_have_none(scene: Scene, fleet: Fleet) -> None:
    """It refuses pods with claims unless it is told otherwise."""
    with_ports(scene)
    scene.create(with_port("refused"))
    until(lambda: len(fleet.placeholders()) == 1, "a placeholder")
    assert "resourceClaims" in fleet.placeholders()[0]["spec"]

    def told() -> bool:
        listed = json.loads(scene.kubectl("get", "events", "-n", NAMESPACE, "-o", "json"))["items"]
        return any("Dynamic Resource Allocation requirements" in each["message"] for each in listed)

    until(told, "Karpenter refuses it", 120)
    assert fleet.nodes() == {}
    scene.delete_job("ml/refused")
    until(lambda: fleet.placeholders() == [], "no placeholder is left")
    note = f"{NODE_TEMPLATE}={ports(placeholderClaims=False)}"
    scene.kubectl("annotate", "resourceflavors.kueue.x-k8s.io", PORT, "--overwrite", note)
    scene.create(with_port("brought"))
    until(lambda: len(fleet.nodes()) == 1, "a node comes", 240)
    (name,) = fleet.nodes()
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": PORT, "nodeName": name, "pool": pool, "devices": [{"name": f"port-{at}"} for at in range(4)]}
    scene.create(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
    )
    until(lambda: len(running(scene, "ml/brought")) == 1, "the job runs", 240)
    scene.finish("ml/brought")
    until(lambda: fleet.nodes() == {}, "no node is left", 240)
    scene.delete_job("ml/brought")
    scene.kubectl("delete", "resourceslices", name, "--ignore-not-found")


def beside_a_large_one(scene: Scene, name: str, **notes: str) -> str:
    """A gang of two pods of one GPU beside a job that needs the large machine, and then alone on it. The machine."""
    scene.create(gang("large", 6))
    until(lambda: len(running(scene, "ml/large")) == 1, "the large job runs", 240)
    scene.create(gang(name, 1, pods=2, **notes))
    until(lambda: len(running(scene, f"ml/{name}")) == 2, "the gang runs", 240)
    node = str(running(scene, f"ml/{name}")[0]["spec"]["nodeName"])
    assert node == running(scene, "ml/large")[0]["spec"]["nodeName"], "the gang takes what is free"
    scene.finish("ml/large")
    until(lambda: running(scene, "ml/large") == [], "the gang is alone on a machine of 8 GPUs")
    return node


def blocked(scene: Scene, node: str) -> list[str]:
    """What Karpenter says of why it leaves the node alone."""
    listed = json.loads(scene.kubectl("get", "events", "-A", "-o", "json"))["items"]
    return [
        str(each["message"])
        for each in listed
        if each["reason"] in ("DisruptionBlocked", "Unconsolidatable") and each["involvedObject"]["name"] == node
    ]


def uids(scene: Scene, name: str) -> set[str]:
    return {each["metadata"]["uid"] for each in running(scene, name)}


def test_consolidation_leaves_the_node_of_a_running_gang_alone(scene: Scene, fleet: Fleet) -> None:
    node = beside_a_large_one(scene, "stays")
    pods = uids(scene, "ml/stays")
    until(lambda: any("do-not-disrupt" in each for each in blocked(scene, node)), "Karpenter would take the node", 240)
    assert uids(scene, "ml/stays") == pods
    assert set(fleet.nodes()) == {node}
    scene.finish("ml/stays")
    until(lambda: fleet.nodes() == {}, "with the gang it goes", 240)
    for name in ("stays", "large"):
        scene.delete_job(f"ml/{name}")


def test_a_gang_that_yields_is_evicted_whole_before_its_node_goes_and_runs_on_a_smaller_one(
    scene: Scene, fleet: Fleet
) -> None:
    """Karpenter by itself takes no node whose pods it cannot place elsewhere; a person deletes its NodeClaim."""
    node = beside_a_large_one(scene, "yields", **{"yield": "when-checkpointed"})
    before = uids(scene, "ml/yields")
    until(
        lambda: any("kubernetes.io/hostname In" in each for each in blocked(scene, node)), "its pods name the node", 240
    )
    seen: list[tuple[bool, bool]] = []
    scene.kubectl("delete", "nodeclaims.karpenter.sh", "--all", "--wait=false")

    def gone() -> bool:
        """Whether the gang has been evicted by us, and whether the node is there no more."""
        told = f"Node {node} is taken away (being deleted)" in scene.message("ml/yields", "Evicted")
        seen.append((told, not fleet.there(node)))
        return seen[-1] == (True, True)

    until(gone, "the node goes", 240)
    assert next(evicted for evicted, deleted in seen if deleted), "the gang has left before"
    until(lambda: len(uids(scene, "ml/yields") - before) == 2, "the whole gang runs again", 240)
    (there,) = {each["spec"]["nodeName"] for each in running(scene, "ml/yields")}
    assert there != node
    assert fleet.nodes()[there]["status"]["allocatable"][GPU] == "4"
    assert not before & uids(scene, "ml/yields"), "no pod stayed behind"
    scene.finish("ml/yields")
    until(lambda: fleet.nodes() == {}, "no node is left", 240)
    for name in ("yields", "large"):
        scene.delete_job(f"ml/{name}")
