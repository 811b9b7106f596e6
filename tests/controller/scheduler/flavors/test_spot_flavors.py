"""A job, or its ClusterQueue, may keep to flavors whose nodes no provider takes away."""

from typing import Any

import msgspec
import pytest

from controller.objects.core import SPOT_LABELS
from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from controller.scheduler.model.config import EngineConfig, Extensions
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import SPOT
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

TWO = ("spot", "fixed")


def noted(made: Any, word: str | None) -> Any:
    notes = {} if word is None else {SPOT: word}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=notes))


def world_of(*, labels: dict[str, str], of_queue: str | None = None, on: bool = True) -> World:
    world = World(EngineConfig(extensions=Extensions(spot_words=on)))
    queue: KubernetesObject = noted(cluster_queue("q", flavors=TWO), of_queue)
    world.put(flavor("spot", nodeLabels=labels), flavor("fixed"), queue, local_queue("q"))
    return world


def given(world: World, name: str, word: str | None) -> str:
    """The flavor that a job with this word gets."""
    made: Workload = noted(workload(name, "q"), word)
    world.put(made)
    world.settle()
    admission = world.workloads[WorkloadKey(f"ns/{name}")].status.admission
    return "" if admission is None else str(admission.pod_set_assignments[0].flavors["gpu"])


@pytest.mark.parametrize("label", SPOT_LABELS.items())
def test_a_flavor_is_spot_by_the_label_of_its_provider(label: tuple[str, str]) -> None:
    world = world_of(labels=dict([label]))
    assert given(world, "any", None) == "spot"
    assert given(world, "safe", "never") == "fixed"
    assert given(world, "cheap", "allowed") == "spot"


def test_the_word_of_the_job_counts_before_that_of_its_queue() -> None:
    world = world_of(labels={"karpenter.sh/capacity-type": "spot"}, of_queue="never")
    assert given(world, "as-the-queue", None) == "fixed"
    assert given(world, "own", "allowed") == "spot"
    world.put(noted(cluster_queue("q", flavors=TWO), None))
    assert given(world, "later", None) == "spot", "the queue has changed its word"


def test_a_flavor_on_demand_is_open_to_all() -> None:
    world = world_of(labels={"karpenter.sh/capacity-type": "on-demand"})
    assert given(world, "safe", "never") == "spot"


def test_under_kueues_policy_the_word_is_none() -> None:
    world = world_of(labels={"karpenter.sh/capacity-type": "spot"}, on=False)
    assert given(world, "safe", "never") == "spot"
