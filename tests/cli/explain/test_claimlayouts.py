"""Of a claim that no node serves the layout is named that would, or what the hardware lacks."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.explain.claimlayouts import for_claim
from cli.explain.claims import ClaimAsk
from controller.objects.decode import GpuNode
from tests.support.controller.gpunodes import observed

ROOT = Path(__file__).parents[3]
PLACEMENT = {"profile": "1g.10gb", "profileId": 19, "slices": 1, "size": 1, "starts": [0, 1]}
WHOLE, MIG, SHARE = (
    f"device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == '{type_}'"
    for type_ in ("gpu", "mig", "share")
)


def node(gpus: int, *, mig: bool = False) -> GpuNode:
    more: dict[str, Any] = {"mig": {"placements": [PLACEMENT]}} if mig else {}
    devices = [{"uuid": f"GPU-{at}", "index": at, "minor": at, "product": "L4", **more} for at in range(gpus)]
    return observed(f"node-{gpus}", devices=devices)


def ask(name: str = "gpu.nvidia.com", count: str = "1", *selectors: str) -> ClaimAsk:
    return ClaimAsk(claim="c", state="pending", request="r", device_class=name, count=count, selectors=selectors)


@pytest.mark.parametrize(
    ("asked", "class_", "nodes", "sentence"),
    [
        (ask(), WHOLE, [node(2)], "A layout with mode: dra (on node-2, for one) offers it"),
        (ask(), WHOLE, [node(1)], "A layout with mode: dra and gpus: {any: 1} (on node-1, for one) offers it"),
        (ask(count="4"), WHOLE, [node(2), node(8)], "A layout with mode: dra and gpus: {any: 4} (on node-8, for one)"),
        (ask(count="4"), WHOLE, [node(2)], "No node has 4 devices that DeviceClass gpu.nvidia.com selects: node-2 has"),
        (ask("mig.nvidia.com"), MIG, [node(2, mig=True)], "A layout with mode: dra (on node-2, for one) offers it"),
        (ask("mig.nvidia.com"), MIG, [node(2)], "No GPU here can do MIG, and DeviceClass mig.nvidia.com selects MIG"),
        (ask("gpu-share.tessera.dev"), SHARE, [node(2)], "A layout with mode: dra and shares (on node-2, for one)"),
        (ask("intel"), "device.driver == 'gpu.intel.com'", [node(2)], "No GPU here fits DeviceClass intel, whatever"),
        (ask(), WHOLE, [], "No agent has told of a GPU: see docs/install.md"),
        (ask(), "(", [node(2)], "A selector is no CEL"),
        (
            ask("gpu.nvidia.com", "1", "device.attributes['gpu.nvidia.com'].productName == 'H100'"),
            WHOLE,
            [node(2)],
            "No GPU here fits the selectors of request r: device.attributes['gpu.nvidia.com'].productName == 'H100'",
        ),
        (
            ask("gpu.nvidia.com", "1", "device.attributes['gpu.nvidia.com'].architecture == 'Ada'"),
            WHOLE,
            [node(2)],
            "A layout with mode: dra (on node-2, for one) offers it where a GPU fits the request's selectors",
        ),
        (
            ask("mig.nvidia.com", "1", "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"),
            MIG,
            [node(2, mig=True)],
            "A layout with mode: dra (on node-2, for one) offers it",
        ),
    ],
)
def test_a_layout_is_named_only_where_it_would_offer_what_is_asked_for(
    asked: ClaimAsk, class_: str, nodes: list[GpuNode], sentence: str
) -> None:
    found = for_claim(asked, [class_], nodes, [])
    assert found.sentence.startswith(sentence)
    assert bool(found.file) == found.sentence.startswith("A layout")


def test_a_driver_of_another_name_is_known_by_its_slices() -> None:
    own = WHOLE.replace("gpu.nvidia.com", "gpu.mine.com")
    assert not for_claim(ask("mine"), [own], [node(2)], []).file
    assert for_claim(ask("mine"), [own], [node(2)], ["gpu.mine.com"]).file


@pytest.mark.parametrize(("class_", "shares"), [(WHOLE, False), (SHARE, True)])
def test_the_example_that_is_named_gives_gpus_out_by_claim(class_: str, shares: bool) -> None:
    found = yaml.safe_load((ROOT / for_claim(ask(), [class_], [node(2)], []).file).read_text())
    (entry,) = found["spec"]["layout"]
    assert (entry["mode"], "shares" in entry) == ("dra", shares)
