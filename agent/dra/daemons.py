"""The MPS daemons that claims ask for: one for the devices of each such config of a claim. Pure.

    claims of the ledger, what their devices are -> daemon_specs -> agent.mps

A daemon lives as long as its claim is in the ledger, and serves the containers of that claim alone. Its limits are the
daemon's own: no container can lift them.
"""

from collections.abc import Callable, Iterable
from typing import Final

from agent.dra.ledger import GivenDevice, Prepared
from agent.mps.specs import DaemonSpec
from inventory.devices import GpuUuid, NodeInventory

READY_WITHIN_S: Final = 30.0
"""The longest wait in seconds for a daemon. The kubelet waits 45 s for a whole prepare, and asks again."""
ENDED_WITHIN_S: Final = 10.0

Unit = Callable[[GivenDevice], str | None]


def members(claim: Prepared, device: GivenDevice) -> tuple[GivenDevice, ...]:
    """The devices of the claim that have one daemon with ``device``, each once."""
    by_device = {
        each.device: each
        for each in claim.devices
        if not each.admin and each.mps is not None and device.mps is not None and each.mps.group == device.mps.group
    }
    return tuple(by_device.values())


def daemon_of(claim: Prepared, device: GivenDevice, unit: Unit) -> str | None:
    """The daemon's key: the UUID of the first of its devices that exists; None while none does."""
    return next((unit(each) for each in members(claim, device)), None)


def daemon_specs(claims: Iterable[Prepared], node: NodeInventory, unit: Unit) -> tuple[DaemonSpec, ...]:
    """The specs of the daemons whose devices exist: a whole GPU does while it is not cut. A daemon of several GPUs
    keeps its spec when some of them are gone: the claim's containers on the others are its clients still.
    """
    by_device: dict[str, DaemonSpec] = {}
    for claim in claims:
        for device in claim.devices:
            spec = _spec(claim, members(claim, device), node, unit) if device.mps is not None else None
            if spec is not None:
                by_device[spec.device] = spec
    return tuple(by_device.values())


def devices_of(claim: Prepared, unit: Unit) -> frozenset[str]:
    """The UUIDs of all devices that the claim has daemons for, as far as they exist."""
    units = (unit(device) for device in claim.devices if device.mps is not None and not device.admin)
    return frozenset(uuid for uuid in units if uuid is not None)


def _spec(claim: Prepared, devices: tuple[GivenDevice, ...], node: NodeInventory, unit: Unit) -> DaemonSpec | None:
    units = [unit(device) for device in devices]
    gpus = [gpu for device in devices if (gpu := node.gpu(device.gpu)) is not None]
    whole = all(device.slot is None for device in devices)
    if not gpus or None in units or (whole and any(gpu.mig_enabled for gpu in gpus)):
        return None
    first = devices[0]
    return DaemonSpec(
        device=str(units[0]),
        gpu=first.gpu,
        name=f"claim {claim.key}",
        clients=1,
        threads_percent=None if first.mps is None else first.mps.threads,
        exclusive=whole,
        several=tuple(GpuUuid(str(uuid)) for uuid in units) if len(units) > 1 else (),
        each_mib=tuple(None if device.mps is None else device.mps.memory_mib for device in devices),
    )
