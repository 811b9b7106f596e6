"""Changes the modes of GPUs to those that a layout wants, without taking a device from a container that runs.

    node, modes in force, Resolved, held devices -> advance() -> the modes to be in force now, and who is in the way

A held device stays with its container where the wanted modes still offer it: same id, same resource, same share. Any
other held device is *in the way* of its GPU's change. The MIG planner cuts MIG instances and removes them: here a GPU
that changes from one set of instances to another offers those that exist.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from inventory.devices import DeviceId, GpuUuid, NodeInventory, ResourceName
from inventory.layout.entries import Dra, Fractional, GpuMode, Mig, Mps, Resolved, WhenBusy, Whole
from inventory.layout.layout import Layout, Share, physical_id, plan
from inventory.layout.sharing import LayoutSpec


class Blocked(Struct, frozen=True):
    """A GPU that keeps its mode for now: ``devices`` are held and would go. ``wanted`` None: no entry names the GPU."""

    gpu: GpuUuid
    wanted: GpuMode | None
    devices: tuple[DeviceId, ...]
    when_busy: WhenBusy


class Advance(Struct, frozen=True):
    """One step of a change. ``modes`` are to be in force now. While any of ``blocked`` says refuse, they are those in
    force before.
    """

    modes: Mapping[GpuUuid, GpuMode]
    blocked: tuple[Blocked, ...] = ()

    @property
    def refused(self) -> bool:
        return any(blocking.when_busy is WhenBusy.REFUSE for blocking in self.blocked)

    @property
    def withheld(self) -> tuple[GpuUuid, ...]:
        """GPUs withheld from new containers, so that their change can be made."""
        return () if self.refused else tuple(blocking.gpu for blocking in self.blocked)


def advance(
    node: NodeInventory,
    spec: LayoutSpec,
    now: Mapping[GpuUuid, GpuMode],
    resolved: Resolved,
    held: Iterable[DeviceId],
    claimed: Iterable[DeviceId] = (),
) -> Advance:
    """One step towards ``resolved``. Where a GPU in the way says refuse no mode changes; else every free GPU changes.

    With problems in ``resolved`` everything stays as it is. GPUs that are gone are in no mode. ``claimed`` are those of
    ``held`` that containers have by claim: their GPU is given out by claim, whatever mode is remembered for it.
    """
    present = {gpu.uuid for gpu in node.gpus}
    current = {uuid: mode for uuid, mode in now.items() if uuid in present}
    current |= _by_claim(node, current, resolved.modes, claimed)
    if resolved.problems:
        return Advance(current)
    wanted = wanted_modes(node, current, resolved.modes)
    blocked = in_the_way(node, spec, current, wanted, resolved.when_busy, held)
    if any(blocking.when_busy is WhenBusy.REFUSE for blocking in blocked):
        return Advance(current, blocked)
    waiting = {blocking.gpu for blocking in blocked}
    modes = {uuid: mode for uuid, mode in wanted.items() if uuid not in waiting}
    modes |= {uuid: current[uuid] for uuid in waiting if uuid in current}
    return Advance({gpu.uuid: modes[gpu.uuid] for gpu in node.gpus if gpu.uuid in modes}, blocked)


def wanted_modes(
    node: NodeInventory, now: Mapping[GpuUuid, GpuMode], named: Mapping[GpuUuid, GpuMode]
) -> dict[GpuUuid, GpuMode]:
    """The named modes, and whole for each GPU that a layout once cut and no entry names any more, until MIG is off
    there.
    """
    wanted = dict(named)
    for gpu in node.gpus:
        mode = now.get(gpu.uuid)
        was_cut = isinstance(mode, Mig | Dra) or mode == Whole()
        if gpu.uuid not in named and gpu.mig_enabled and was_cut:
            wanted[gpu.uuid] = Whole()
    return wanted


def _by_claim(
    node: NodeInventory,
    now: Mapping[GpuUuid, GpuMode],
    named: Mapping[GpuUuid, GpuMode],
    claimed: Iterable[DeviceId],
) -> dict[GpuUuid, GpuMode]:
    """The mode of GPUs of which claims hold a device, where ``now`` has forgotten it."""
    owner = _owners(node)
    found = {owner[physical_id(device)] for device in claimed if physical_id(device) in owner}
    forgotten = sorted(gpu for gpu in found if not isinstance(now.get(gpu), Dra))
    return {gpu: mode if isinstance(mode := named.get(gpu), Dra) else Dra() for gpu in forgotten}


def _owners(node: NodeInventory) -> dict[str, GpuUuid]:
    """The GPU of each UUID of a GPU or a MIG instance."""
    owner = {str(mig.uuid): gpu.uuid for gpu in node.gpus for mig in gpu.mig_instances}
    return owner | {str(gpu.uuid): gpu.uuid for gpu in node.gpus}


def in_the_way(
    node: NodeInventory,
    spec: LayoutSpec,
    now: Mapping[GpuUuid, GpuMode],
    wanted: Mapping[GpuUuid, GpuMode],
    when_busy: Mapping[GpuUuid, WhenBusy],
    held: Iterable[DeviceId],
) -> tuple[Blocked, ...]:
    """The held devices of each GPU that ``wanted`` has no longer, in the node's order. GPUs of one MPS daemon change
    together: a device that is in the way of one of them is in the way of all.
    """
    owner = _owners(node)
    changing = {gpu.uuid for gpu in node.gpus if now.get(gpu.uuid) != wanted.get(gpu.uuid)}
    at_stake = [device for device in sorted(held) if owner.get(physical_id(device)) in changing]
    if not at_stake:
        return ()
    before, after = _terms(node, plan(node, spec, now), now), _terms(node, plan(node, spec, wanted), wanted)
    going: dict[GpuUuid, list[DeviceId]] = {}
    for device in at_stake:
        stays = after.get(device)
        if stays is None or before.get(device, stays) != stays:
            going.setdefault(owner[physical_id(device)], []).append(device)
    _keep_together(going, {gpu: now.get(gpu) for gpu in changing}, {gpu: wanted.get(gpu) for gpu in changing})
    return tuple(
        Blocked(gpu.uuid, wanted.get(gpu.uuid), tuple(going[gpu.uuid]), when_busy.get(gpu.uuid, WhenBusy.REFUSE))
        for gpu in node.gpus
        if gpu.uuid in going
    )


def _keep_together(
    going: dict[GpuUuid, list[DeviceId]],
    now: Mapping[GpuUuid, GpuMode | None],
    wanted: Mapping[GpuUuid, GpuMode | None],
) -> None:
    """Add to ``going`` the GPUs that change together with those in it, before or after: with the devices of the first
    such.
    """
    groups = {mode.together for mode in (*now.values(), *wanted.values()) if isinstance(mode, Fractional)} - {()}
    settled = False
    while not settled:
        settled = True
        for group in groups:
            first = next((gpu for gpu in group if gpu in going), None)
            rest = [gpu for gpu in group if gpu in now and gpu not in going] if first is not None else []
            for gpu in rest:
                going[gpu] = going[first] if first is not None else []
                settled = False


_Terms = tuple[ResourceName, Share | None, int]
_BY_CLAIM: Final = ResourceName("")


def _terms(node: NodeInventory, layout: Layout, modes: Mapping[GpuUuid, GpuMode]) -> dict[DeviceId, _Terms]:
    """The share that a container got with each device. It has the number of a daemon's equal shares, from which their
    size follows. A GPU that is given out by claim, and each MIG instance of it, is a device of no resource, and another
    one where claims get shares: those are given out beside devices that a claim holds whole.
    """
    claimed = {
        DeviceId(unit): (_BY_CLAIM, None, mode.shares or 0)
        for gpu in node.gpus
        if isinstance(mode := modes.get(gpu.uuid), Dra)
        for unit in (gpu.uuid, *(mig.uuid for mig in gpu.mig_instances))
    }
    return claimed | {
        device.id: (resource.name, device.share, _parts(modes.get(device.gpu)))
        for resource in layout.resources
        for device in resource.devices
    }


def _parts(mode: GpuMode | None) -> int:
    return len(mode.clients) if isinstance(mode, Mps) and mode.equal else 0
