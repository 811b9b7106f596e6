"""Every validator of inventory sees the fault it is there for."""

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from inventory.devices import DeviceId, Gpu, MigProfile, NodeInventory, ResourceName
from inventory.layout.entries import PERCENT_RESOURCE
from inventory.layout.layout import Layout, LogicalDevice, Resource, Share
from inventory.layout.sharing import SharingMode
from inventory.links import UNKNOWN_LINK
from inventory.mig import plan as migplan
from inventory.mig.parts import Part
from inventory.mig.plan import Slot
from tests.support.inventory.builders import gpu, node, replicas, uuid, whole

GPU = ResourceName("nvidia.com/gpu")
TIMES = Share(SharingMode.TIME_SLICING)
SMALL = MigProfile("1g.5gb", 19, 1, 1, tuple(range(7)), 7, 4864, 14)
LARGE = MigProfile("3g.20gb", 9, 3, 4, (0, 4), 1, 19968, 42)
SOUND = (Slot("3g.20gb", 0, 4, (Part(0, 1), Part(1, 2))), Slot("1g.5gb", 4, 1, (Part(0, 1),)))


def test_a_sound_target_passes() -> None:
    migplan.validate([SMALL, LARGE], SOUND)


@pytest.mark.parametrize(
    ("slots", "said"),
    [
        ([replace(SOUND[0], size=3)], "3g.20gb of 3 slices"),
        ([replace(SOUND[0], start=2)], "3g.20gb at 2"),
        ([SOUND[0], replace(SOUND[1], start=3)], "1g.5gb at 3 overlaps another"),
        ([replace(SOUND[0], parts=(Part(0, 2), Part(1, 2)))], "compute instances of 3g.20gb at 0 overlap"),
        ([replace(SOUND[0], parts=(Part(2, 2),))], "outside of its GPU instance"),
        ([SOUND[0], replace(SOUND[0], start=4)], "2 x 3g.20gb"),
    ],
)
def test_an_impossible_target_is_seen(slots: Sequence[Slot], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        migplan.validate([SMALL, LARGE], slots)


def twin_instances(one: Gpu) -> Gpu:
    return replace(one, mig_instances=(one.mig_instances[0], replace(one.mig_instances[1], uuid="MIG-00-0")))


def spoilt_link(one: NodeInventory) -> NodeInventory:
    first, second = one.links
    return replace(one, links=((first[0], UNKNOWN_LINK), second))


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (lambda one: replace(one, gpus=(one.gpus[0], replace(one.gpus[1], uuid=uuid(0)))), "share a UUID"),
        (lambda one: replace(one, links=one.links[:1]), "another size"),
        (lambda one: replace(one, links=(one.links[0], one.links[1][:1])), "not square"),
        (spoilt_link, "link 0-1 differs from 1-0"),
        (lambda one: replace(one, gpus=(twin_instances(one.gpus[0]), one.gpus[1])), "two MIG instances"),
    ],
)
def test_a_node_that_contradicts_itself_is_seen(plant: Callable[[NodeInventory], NodeInventory], said: str) -> None:
    sound = node([gpu(0, mig=["3g.20gb", "3g.20gb"]), gpu(1)])
    sound.validate()
    with pytest.raises(AssertionError, match=said):
        plant(sound).validate()


def shared(*devices: LogicalDevice) -> Resource:
    return Resource(GPU, tuple(replace(one, share=TIMES) for one in devices), SharingMode.TIME_SLICING)


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ([Resource(GPU, (whole(0),)), Resource(GPU, (whole(1),))], "planned twice"),
        ([Resource(GPU, (whole(0), whole(0)))], "advertised twice"),
        ([Resource(GPU, (replace(whole(0), id=DeviceId("GPU-99")),))], "does not name its device"),
        ([Resource(GPU, tuple(replicas(0, 1)))], "unshared replica"),
        ([Resource(GPU, (replace(whole(0), share=TIMES),), SharingMode.TIME_SLICING)], "a share without a replica"),
        ([replace(shared(*replicas(0, 99)), name=PERCENT_RESOURCE)], "more or less than 100 percents"),
    ],
)
def test_a_layout_that_cannot_be_is_seen(resources: Sequence[Resource], said: str) -> None:
    Layout((Resource(GPU, (whole(0),)), replace(shared(*replicas(1, 100)), name=PERCENT_RESOURCE))).validate()
    with pytest.raises(AssertionError, match=said):
        Layout(tuple(resources)).validate()
