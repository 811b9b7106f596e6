"""MIG instances that nobody has made yet: where a layout could make one that is asked for. The queue cuts nothing."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from controller.engine.devices.rooms import Rooms
from controller.engine.model.resources import ResourceName
from inventory.layout.layout import mig_resource_name

_PREFIX: Final = mig_resource_name("")


class Makeable(NamedTuple):
    """One instance could be made on that GPU, at any of these memory slices. ``mode``: MIG mode is on already."""

    node: str
    gpu: int
    starts: tuple[int, ...]
    mode: bool


def could_be_made(rooms: Rooms, resource: ResourceName) -> Iterator[Makeable]:
    """Where there is room beside the instances that exist; of GPUs without MIG mode those that nobody has."""
    if not resource.startswith(_PREFIX):
        return
    for name, state in rooms.nodes.items():
        for device in state.given.devices:
            mig = device.mig
            if mig is None or not device.healthy or (not mig.enabled and rooms.held(state, device.uuid)):
                continue
            for one in mig.placements:
                if one.free and str(mig_resource_name(one.profile)) == resource:
                    yield Makeable(name, device.index, one.free, mig.enabled)
