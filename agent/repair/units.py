"""The GPUs that a reset takes together. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from agent.words import repairs as words
from inventory.devices import Gpu, GpuUuid, RemoteType

_BEFORE_AMPERE = frozenset({"kepler", "maxwell", "pascal", "volta", "turing"})


class ResetUnit(Struct, frozen=True):
    """GPUs that are reset in one step, the wanted one first. ``refused``: why none of them is, empty where they are."""

    gpus: tuple[Gpu, ...]
    refused: str = ""

    @property
    def uuids(self) -> frozenset[GpuUuid]:
        return frozenset(gpu.uuid for gpu in self.gpus)

    @property
    def devices(self) -> frozenset[str]:
        """The UUIDs of the GPUs and of their MIG instances."""
        return frozenset(uuid for gpu in self.gpus for uuid in (gpu.uuid, *(mig.uuid for mig in gpu.mig_instances)))


def reset_unit(gpus: Sequence[Gpu], wanted: Gpu) -> ResetUnit:
    """The unit of ``wanted`` among all GPUs of the node (NVIDIA's nvidia-smi, ``--gpu-reset``).

    A GPU is alone, but for boards before Ampere, which go with all that NVLinks join to them, and for an A100 behind an
    NVSwitch, whose reset the fabric manager must take part in. Hopper and later are alone behind a switch too.
    """
    remote = {link.remote_type for link in wanted.nvlinks}
    if RemoteType.SWITCH in remote and wanted.architecture in (*_BEFORE_AMPERE, "ampere"):
        return ResetUnit((wanted,), words.behind_switch())
    if wanted.architecture not in _BEFORE_AMPERE:
        return ResetUnit((wanted,))
    by_bus = {gpu.pci_bus_id: gpu for gpu in gpus}
    unit = {wanted.uuid: wanted}
    todo = [wanted]
    while todo:
        for link in todo.pop().nvlinks:
            other = by_bus.get(link.remote_pci_bus_id or "")
            if link.remote_type is RemoteType.GPU and other is not None and other.uuid not in unit:
                unit[other.uuid] = other
                todo.append(other)
    return ResetUnit(tuple(unit.values()))


def takes_along(gpus: Sequence[Gpu], uuid: GpuUuid) -> tuple[GpuUuid, ...]:
    """The other GPUs that a reset of this one takes along; none for a GPU that is not here."""
    wanted = next((gpu for gpu in gpus if gpu.uuid == uuid), None)
    unit = () if wanted is None else reset_unit(gpus, wanted).gpus
    return tuple(sorted(other.uuid for other in unit if other.uuid != uuid))
