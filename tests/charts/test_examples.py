"""Every example, checked against what reads it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec import structs

from agent.cluster.gpulayouts import read
from agent.config.load import load
from cli.fleetnodes import hardware
from hack.cluster.programs.images import PUBLIC_CUDA_IMAGE
from inventory.devices import GpuUuid, NodeInventory, ResourceName
from inventory.layout.entries import GpuLayoutSpec, GpuMode, resolve
from inventory.layout.layout import plan
from inventory.layout.sharing import LayoutSpec
from simulator.fleet.fleetfile import load_fleet
from tests.agent.cluster.test_gpunode import gpu, instance, node

EXAMPLES = Path(__file__).parents[2] / "examples"
FLEETS = sorted((EXAMPLES / "fleets").glob("*.yaml"))
CONFIGS = sorted((EXAMPLES / "configs").glob("*.yaml"))
LAYOUTS = sorted((EXAMPLES / "layouts").glob("*.yaml"))
PODS = sorted(EXAMPLES.glob("pod-*.yaml"))

EIGHT = node(*(gpu(index) for index in range(8)))
CUT = node(gpu(0), gpu(1, *(instance("1g.10gb", slot, slot + 1, 1) for slot in range(7))))

H100S = hardware(load_fleet(EXAMPLES / "fleets/h100-8.yaml"), load_fleet(EXAMPLES / "fleets/h100-8.yaml").nodes[0])

NEEDS: dict[str, tuple[NodeInventory, str | None]] = {
    "pod-one-gpu.yaml": (EIGHT, None),
    "pod-four-gpus.yaml": (EIGHT, None),
    "pod-shared-gpu.yaml": (EIGHT, "time-slicing.yaml"),
    "pod-mps-client.yaml": (EIGHT, "mps.yaml"),
    "pod-mig.yaml": (CUT, "mig-mixed.yaml"),
    "pod-gpu-fraction.yaml": (H100S, "layout.yaml"),
}
"""On which node, with which config, a pod finds its resource."""


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def spec(config: str | None) -> LayoutSpec:
    return load(EXAMPLES / "configs" / config, {}, {}).settings.layout if config else LayoutSpec()


def modes(found: NodeInventory, config: str | None) -> Mapping[GpuUuid, GpuMode]:
    """What the config's layout makes of the node's GPUs."""
    layout = load(EXAMPLES / "configs" / config, {}, {}).settings.gpu_layout if config else GpuLayoutSpec()
    resolved = resolve(found, layout)
    assert resolved.problems == ()
    return resolved.modes


@pytest.mark.parametrize("path", LAYOUTS, ids=names(LAYOUTS))
def test_every_gpulayout_is_read_and_cuts_some_node(path: Path) -> None:
    found = read(msgspec.json.encode(yaml.safe_load(path.read_text())))
    assert found.problem == ""
    assert found.layout is not None
    mixed = node(*H100S.gpus[:2], *(structs.replace(gpu(index), mig_capable=True) for index in (2, 3)))
    assert resolve(mixed, found.layout).problems == ()


@pytest.mark.parametrize("path", FLEETS, ids=names(FLEETS))
def test_every_fleet_is_read(path: Path) -> None:
    fleet = load_fleet(path)
    assert fleet.node("node-1").gpus


@pytest.mark.parametrize("path", CONFIGS, ids=names(CONFIGS))
def test_every_config_is_read_without_a_warning(path: Path) -> None:
    assert load(path, {}, {}).warnings == ()


@pytest.mark.parametrize("path", PODS, ids=names(PODS))
def test_every_pod_asks_for_what_its_node_offers(path: Path) -> None:
    found, config = NEEDS[path.name]
    (container,) = yaml.safe_load(path.read_text())["spec"]["containers"]
    ((name, count),) = container["resources"]["limits"].items()
    resource = plan(found, spec(config), modes(found, config)).resource(ResourceName(name))
    assert resource is not None, name
    assert len(resource.devices) >= count


@pytest.mark.parametrize("path", PODS, ids=names(PODS))
def test_every_pod_runs_as_it_is_in_tests_and_ends_at_once(path: Path) -> None:
    pod: dict[str, Any] = yaml.safe_load(path.read_text())
    (container,) = pod["spec"]["containers"]
    assert container["image"] == PUBLIC_CUDA_IMAGE, "it has a shell, and a stand-in on test clusters"
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert "trap 'exit 0' TERM" in container["args"][0]
    assert pod["spec"]["terminationGracePeriodSeconds"] <= 5


def test_the_time_slicing_examples_say_what_they_do() -> None:
    everything = plan(EIGHT, spec("time-slicing.yaml"))
    assert [(each.name, len(each.devices)) for each in everything.resources] == [("nvidia.com/gpu.shared", 80)]
    some = plan(EIGHT, spec("time-slicing-some.yaml"))
    assert {each.name: len(each.devices) for each in some.resources} == {
        "nvidia.com/gpu.shared": 8,
        "nvidia.com/gpu": 6,
    }
