"""A simulated fleet as structs: the fleet file's content, with everything filled in that it leaves out."""

from pathlib import Path

from msgspec import Struct

from simulator.boards.boards import Product
from simulator.boards.loads import Load
from simulator.boards.wiring import LinkEnd, Matrix
from simulator.fleet.orders import TimedOrders
from simulator.reading import InputError

NAMED = 20
"""The most node names that a message lists."""


class PciAddress(Struct, frozen=True):
    """A PCI address; function is always 0."""

    domain: int
    bus: int
    device: int

    @property
    def nvml(self) -> str:
        """The address as NVML writes it: ``00000000:07:00.0``, upper case."""
        return f"{self.domain:08X}:{self.bus:02X}:{self.device:02X}.0"

    @property
    def legacy(self) -> str:
        """The address in NVML's old, 16-character form."""
        return f"{self.domain & 0xFFFF:04X}:{self.bus:02X}:{self.device:02X}.0"

    @property
    def sysfs(self) -> str:
        """The folder's name below /sys/bus/pci/devices."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.0"


class GpuSpec(Struct, frozen=True, kw_only=True):
    """One GPU as the fleet describes it; ``index`` is its place in the node and its name in events."""

    index: int
    product: Product
    uuid: str
    minor: int
    pci: PciAddress
    numa_node: int
    serial: str
    memory_mib: int
    cluster_uuid: str | None
    clique_id: int
    links: tuple[LinkEnd, ...]
    present: bool = True


class NodeSpec(Struct, frozen=True, kw_only=True):
    """One simulated node; ``levels`` are NVML_TOPOLOGY_* between GPUs, ``mig`` profile names by GPU index, ``taints``
    each a key, a value and an effect.
    """

    name: str
    gpus: tuple[GpuSpec, ...]
    levels: Matrix
    labels: dict[str, str]
    allocatable: dict[str, str]
    taints: tuple[tuple[str, str, str], ...]
    mig_enabled: frozenset[int]
    mig: dict[int, tuple[str, ...]]
    events: tuple[TimedOrders, ...]
    loads: tuple[Load, ...]
    stray_events: bool = False
    """Whether an event reaches only one set, that of another GPU where there is one; else it reaches every set that is
    registered for its GPU.
    """
    drain_at_s: float | None = None
    """Seconds from the start of a simulation until the node is to be empty; None for never."""

    @property
    def taint_objects(self) -> list[dict[str, str]]:
        """The taints as a Node has them."""
        return [{"key": key, "value": value, "effect": effect} for key, value, effect in self.taints]


class PoolSpec(Struct, frozen=True, kw_only=True):
    """A pool. ``nodes``: all that it may have at once. ``capacity`` is empty where the file does not say it.

    ``delay_s``: from the order of a node until the node is there. ``remove_after_s``: from a node's last pod until the
    node goes. ``cooldown_s``: from the end of an interruption until nodes come again.
    """

    name: str
    nodes: tuple[NodeSpec, ...]
    min_nodes: int
    delay_s: float
    remove_after_s: float
    capacity: str
    price_per_hour: float
    cooldown_s: float


class InterruptionSpec(Struct, frozen=True, kw_only=True):
    """An interruption of a pool, or of one node: ``notice_s`` after ``at_s`` the nodes are gone."""

    at_s: float
    notice_s: float
    pool: str = ""
    node: str = ""


class Fleet(Struct, frozen=True):
    """A whole fleet file; ``cuda`` is NVML's number (12080 for 12.8)."""

    path: Path
    driver: str
    cuda: int
    nodes: tuple[NodeSpec, ...]
    pools: tuple[PoolSpec, ...] = ()
    interruptions: tuple[InterruptionSpec, ...] = ()
    """The interruptions in the order of their times."""

    def node(self, name: str | None) -> NodeSpec:
        """The node of that name, or the only one. Raises InputError that lists the names."""
        if not self.nodes:
            raise InputError(f"{self.path}: found no nodes, expected some: nodePools are for tessera simulate alone")
        names = ", ".join(node.name for node in self.nodes[:NAMED]) + (", ..." if len(self.nodes) > NAMED else "")
        if name is None:
            if len(self.nodes) == 1:
                return self.nodes[0]
            raise InputError(f"{self.path}: found {len(self.nodes)} nodes and no node name, expected one of {names}")
        named = next((node for node in self.nodes if node.name == name), None)
        if named is None and len(self.nodes) == 1:
            return self.nodes[0]
        if named is None:
            raise InputError(f"{self.path}: found no node {name!r}, expected one of {names}")
        return named
