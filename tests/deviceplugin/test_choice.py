"""Devices that are planned for others are left to them, as far as a request for percents of one GPU can be met so."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from deviceplugin.choice import Preferrer
from deviceplugin.strategy import AllocationSpec, NodeAccess
from deviceplugin.view import ResourceView
from inventory.devices import DeviceId, ResourceName
from inventory.layout.entries import PERCENT_RESOURCE, Fractional
from inventory.layout.layout import plan
from inventory.layout.sharing import LayoutSpec, ReplicaPolicy
from inventory.preference.linktable import LinkTable
from inventory.preference.preference import Chooser
from tests.support.inventory.builders import gpu, node, uuid


class Advice(Struct, frozen=True):
    devices: tuple[DeviceId, ...] = ()
    avoid: frozenset[DeviceId] = frozenset()
    gpus: int = 1


class Planner:
    """Everything that is given away is planned for others."""

    def __init__(self, avoid: Iterable[DeviceId]) -> None:
        self._avoid = frozenset(avoid)

    async def advise(
        self,
        resource: ResourceName,  # noqa: ARG002 - the protocol's
        available: Sequence[DeviceId],  # noqa: ARG002
        required: Sequence[DeviceId],  # noqa: ARG002
        size: int,  # noqa: ARG002
    ) -> Advice:
        return Advice(avoid=self._avoid)

    def given(self, resource: ResourceName, devices: Iterable[DeviceId]) -> None: ...

    def gpus_asked(self, resource: ResourceName, size: int) -> frozenset[int]:  # noqa: ARG002
        return frozenset()


async def test_percents_planned_for_others_are_taken_only_where_no_gpu_has_room_beside_them() -> None:
    found = node([gpu(0), gpu(1)])
    resource = plan(found, LayoutSpec(), {uuid(0): Fractional(), uuid(1): Fractional()}).resource(PERCENT_RESOURCE)
    assert resource is not None
    view = ResourceView(
        resource,
        unhealthy={},
        spec=AllocationSpec(),
        access=NodeAccess(),
        chooser=Chooser(resource.devices, LinkTable.of(found)),
        policy=ReplicaPolicy.DISTRIBUTED,
    )
    every = [device.id for device in resource.devices]
    preferrer = Preferrer(planner=Planner([*every[:50], *every[100:140]]))
    kept = await preferrer.choose(view, every, [], 55)
    assert {one.partition("::")[0] for one in kept} == {uuid(1)}
    assert not set(kept) & set(every[100:140])
    pressed = await preferrer.choose(view, every, [], 70)
    assert len({one.partition("::")[0] for one in pressed}) == 1
