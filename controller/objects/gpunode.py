"""The GpuNode, ``tessera.dev/v1alpha1``: what the agent of one node found of its GPUs, read as the controller needs it.

The agent alone writes it, and whatever arrives is hostile until read: every text and list is bounded, as in the CRD,
and two devices of one identifier are refused. Fields that only people and other tools look at are skipped.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec

from controller.objects.decode import DecodeError, decode
from controller.objects.meta import KubernetesObject, Struct, Time

API_VERSION: Final = "tessera.dev/v1alpha1"
KIND: Final = "GpuNode"
HANDED_OUT: Final = ("Healthy", "Suspect")
"""States in which the agent gives a device to containers; a device without a state is healthy."""
MAX_GPUS: Final = 64
MAX_REPLICAS: Final = 4096

Word = Annotated[str, msgspec.Meta(max_length=253)]
Text = Annotated[str, msgspec.Meta(max_length=512)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Number = Annotated[int, msgspec.Meta(ge=0, le=4096)]
Starts = Annotated[tuple[Number, ...], msgspec.Meta(max_length=32)]


class DeviceHealth(Struct, frozen=True, kw_only=True):
    """``since`` is when the state last changed."""

    state: Word = ""
    reasons: Annotated[tuple[Text, ...], msgspec.Meta(max_length=32)] = ()
    since: Time | None = None

    @property
    def handed_out(self) -> bool:
        return not self.state or self.state in HANDED_OUT


class Offer(Struct, frozen=True, kw_only=True):
    """Under which resource a device is advertised, how many containers may hold it at once, and in which multiples."""

    resource: Word
    replicas: Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLICAS)] = 1
    granularity: Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLICAS)] = 1
    spread: bool = False
    """Of a fractional GPU: the emptiest is given first."""


class MigInstance(Struct, frozen=True, kw_only=True):
    uuid: Word
    profile: Word = ""
    memory_mib: Count = msgspec.field(default=0, name="memoryMiB")
    offers: Annotated[tuple[Offer, ...], msgspec.Meta(max_length=8)] = ()
    health: DeviceHealth | None = None
    """None where it is the GPU's own."""


class MigPlacement(Struct, frozen=True, kw_only=True):
    """A GPU instance profile and where it may start; ``free`` is None where the driver does not tell placements."""

    profile: Word
    size: Number = 0
    starts: Starts = ()
    free: Starts | None = None


class Mig(Struct, frozen=True, kw_only=True):
    enabled: bool = False
    placements: Annotated[tuple[MigPlacement, ...], msgspec.Meta(max_length=32)] = ()
    instances: Annotated[tuple[MigInstance, ...], msgspec.Meta(max_length=16)] = ()


class Device(Struct, frozen=True, kw_only=True):
    """One physical GPU. ``clique`` is that of a fabric beyond the node; ``mig`` is None where it cannot do MIG."""

    uuid: Word
    index: Number
    product: Word = ""
    memory_mib: Count = msgspec.field(default=0, name="memoryMiB")
    numa_node: Number | None = None
    clique: Word = ""
    offers: Annotated[tuple[Offer, ...], msgspec.Meta(max_length=8)] = ()
    mig: Mig | None = None
    health: DeviceHealth | None = None

    @property
    def healthy(self) -> bool:
        return self.health is None or self.health.handed_out


class LinkEntry(Struct, frozen=True, kw_only=True):
    """What connects the GPUs of two indexes; a pair that is not listed has nothing that is known."""

    a: Number
    b: Number
    pcie: Word = ""
    nvlinks: Number = 0
    nvswitch: Number = 0


class HolderEntry(Struct, frozen=True, kw_only=True):
    """A container that holds a device: a UUID, or a replica of one, ``UUID::n``."""

    device: Word
    namespace: Word
    pod: Word
    container: Word = ""

    @property
    def physical(self) -> str:
        return self.device.partition("::")[0]

    @property
    def pod_key(self) -> str:
        return f"{self.namespace}/{self.pod}"


class GpuNodeStatus(Struct, frozen=True, kw_only=True):
    observed_at: Time | None = None
    devices: Annotated[tuple[Device, ...], msgspec.Meta(max_length=MAX_GPUS)] = ()
    links: Annotated[tuple[LinkEntry, ...], msgspec.Meta(max_length=MAX_GPUS * (MAX_GPUS - 1) // 2)] = ()
    holders: Annotated[tuple[HolderEntry, ...], msgspec.Meta(max_length=4096)] = ()


class GpuNode(KubernetesObject, frozen=True, kw_only=True):
    """Named as its node."""

    status: GpuNodeStatus = GpuNodeStatus()

    def __post_init__(self) -> None:
        for what, found in (("uuid", self._identifiers()), ("index", (one.index for one in self.status.devices))):
            seen: set[object] = set()
            for one in found:
                if one in seen:
                    raise ValueError(f"status.devices: expected each {what} once, found {str(one)[:80]!r} twice")
                seen.add(one)

    def _identifiers(self) -> Iterator[str]:
        for device in self.status.devices:
            yield device.uuid
            if device.mig is not None:
                yield from (instance.uuid for instance in device.mig.instances)


def read_gpu_node(given: bytes | str | dict[str, Any]) -> GpuNode:
    """Raises DecodeError: one line with the field, what was found and what is expected."""
    found = decode(given, GpuNode)
    if not found.metadata.name:
        raise DecodeError(f"{KIND}: metadata.name: expected a node's name, found none")
    return found
