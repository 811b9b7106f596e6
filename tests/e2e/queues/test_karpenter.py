"""Nodes that Karpenter brings for placeholders: its real core, with the provider whose nodes kwok plays.

The example is applied as it is, but for what names AWS. Scheduler, Job controller and API server are real.
"""

import json
import os
from collections.abc import Iterator

import pytest
import yaml

from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.support.e2e.articles import GPU, Json, Scene
from tests.support.e2e.incluster import NAMESPACE, InCluster
from tests.support.e2e.karpenterlab import here, instance_type, karpenter
from tests.support.e2e.lab import EXAMPLES, until
from tests.support.e2e.podlab import refused
from tests.support.e2e.queueapi import Api

pytestmark = pytest.mark.e2e

EXAMPLE = EXAMPLES / "capacity" / "karpenter-nodepool.yaml"
POOL = "karpenter.sh/nodepool"
CONFIG = {"tessera": {"policy": "tessera", "pendingCondition": {"after": "1s"}}}
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
