"""The simulated fleet file: its schema as structs, and the reader that turns YAML into them.

The schema is an interface: every documented key is honoured, an unknown one is an error, and a mistake is told in
one line with file, line, key path, value found and value expected.
"""

import hashlib
import re
from pathlib import Path

from msgspec import Struct

from simulator import topology
from simulator.boards import Product, Wiring
from simulator.loads import LOAD_KEYS, Load, read_load
from simulator.orders import ORDER_KEYS, TimedOrders, read_orders
from simulator.products import PRODUCTS
from simulator.reading import InputError, Reader, read_yaml
from simulator.topology import LinkEnd, Matrix

MOST_GPUS = 32
MOST_LINKS = 36
MAX_BUS = 0xFF

DEFAULT_DRIVER = "570.124.06"
DEFAULT_CUDA = "12.8"

GPU_KEYS = (
    "product",
    "uuid",
    "index",
    "minor",
    "pciBusId",
    "numaNode",
    "serial",
    "memoryMiB",
    "fabricClusterUuid",
    "cliqueId",
    "present",
)

NODE_KEYS = (
    "name",
    "labels",
    "gpus",
    "product",
    "uuidPrefix",
    "nvlink",
    "pcie",
    "allocatable",
    "migEnabled",
    "mig",
    "fabricClusterUuid",
    "cliqueId",
)

NOT_TIMED = ("status", "reboot")
"""Orders that are no events: a reboot starts the events' clock anew, so it would repeat for ever."""

_PCI = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.0")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class PciAddress(Struct, frozen=True):
    """A PCI address; function is always 0."""

    domain: int
    bus: int
    device: int

    @property
    def nvml(self) -> str:
        """As NVML writes it: ``00000000:07:00.0``, upper case."""
        return f"{self.domain:08X}:{self.bus:02X}:{self.device:02X}.0"

    @property
    def legacy(self) -> str:
        """NVML's old, 16-character form."""
        return f"{self.domain & 0xFFFF:04X}:{self.bus:02X}:{self.device:02X}.0"

    @property
    def sysfs(self) -> str:
        """The folder's name below /sys/bus/pci/devices."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.0"


class GpuSpec(Struct, frozen=True, kw_only=True):
    """One GPU as the fleet describes it; ``index`` is its place in the node and what events call it."""

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
    """One simulated node; ``levels`` are NVML_TOPOLOGY_* between GPUs, ``mig`` profile names by GPU index."""

    name: str
    gpus: tuple[GpuSpec, ...]
    levels: Matrix
    labels: dict[str, str]
    allocatable: dict[str, str]
    mig_enabled: frozenset[int]
    mig: dict[int, tuple[str, ...]]
    events: tuple[TimedOrders, ...]
    loads: tuple[Load, ...]


class Fleet(Struct, frozen=True):
    """A whole fleet file; ``cuda`` is NVML's number (12080 for 12.8)."""

    path: Path
    driver: str
    cuda: int
    nodes: tuple[NodeSpec, ...]

    def node(self, name: str | None) -> NodeSpec:
        """The node of that name, or the only one. Raises InputError that lists the names."""
        names = ", ".join(node.name for node in self.nodes[:20]) + (", ..." if len(self.nodes) > 20 else "")  # noqa: PLR2004 - enough for a line
        if name is None:
            if len(self.nodes) == 1:
                return self.nodes[0]
            raise InputError(f"{self.path}: found {len(self.nodes)} nodes and no node name, expected one of {names}")
        found = next((node for node in self.nodes if node.name == name), None)
        if found is None and len(self.nodes) == 1:
            return self.nodes[0]
        if found is None:
            raise InputError(f"{self.path}: found no node {name!r}, expected one of {names}")
        return found


def load_fleet(path: Path) -> Fleet:
    """Read and check a fleet file. Raises InputError."""
    root = read_yaml(path).mapping(("driver", "nodes", "events", "load"))
    driver, cuda = _driver(root)
    readers = root.need("nodes", "a list of nodes").items("a list of nodes")
    sizes: dict[str, int] = {}
    drafts = []
    for reader in readers:
        draft = _Draft(reader)
        if draft.name in sizes:
            reader.need("name", "a name").fail("a name that no other node has")
        sizes[draft.name] = len(draft.gpus)
        drafts.append(draft)
    events = _events(root, sizes)
    loads = _loads(root, sizes)
    nodes = tuple(draft.finish(events.get(draft.name, ()), loads.get(draft.name, ())) for draft in drafts)
    return Fleet(path=path, driver=driver, cuda=cuda, nodes=nodes)


def _driver(root: Reader) -> tuple[str, int]:
    driver = root.get("driver")
    if driver is None:
        return DEFAULT_DRIVER, cuda_number(DEFAULT_CUDA)
    driver.mapping(("version", "cuda"))
    version, cuda = driver.get("version"), driver.get("cuda")
    if version and not re.fullmatch(r"\d+(\.\d+)+", str(version.value)):
        version.fail('a driver version such as "570.124.06"')
    text = DEFAULT_CUDA if cuda is None else str(cuda.value)
    if cuda and not re.fullmatch(r"\d+\.\d+", text):
        cuda.fail('a CUDA version such as "12.8"')
    return str(version.value) if version else DEFAULT_DRIVER, cuda_number(text)


def cuda_number(text: str) -> int:
    """NVML's number of a CUDA version: 12080 for 12.8."""
    major, minor = text.split(".")
    return int(major) * 1000 + int(minor) * 10


def _node_of(reader: Reader, sizes: dict[str, int]) -> str:
    node = reader.get("node")
    if node is None and len(sizes) == 1:
        return next(iter(sizes))
    if node is None:
        node = reader.need("node", "a node's name")
    return node.word(sizes)


def _events(root: Reader, sizes: dict[str, int]) -> dict[str, tuple[TimedOrders, ...]]:
    found: dict[str, list[TimedOrders]] = {}
    events = root.get("events")
    for reader in events.items("a list of events") if events else []:
        reader.mapping(("at", "node", *(key for key in ORDER_KEYS if key not in NOT_TIMED)))
        at = reader.need("at", "seconds from the start").number(0, 1e9)
        name = _node_of(reader, sizes)
        found.setdefault(name, []).append(TimedOrders(at=at, orders=read_orders(reader, sizes[name])))
    return {name: tuple(sorted(timed, key=lambda event: event.at)) for name, timed in found.items()}


def _loads(root: Reader, sizes: dict[str, int]) -> dict[str, tuple[Load, ...]]:
    found: dict[str, list[Load]] = {}
    loads = root.get("load")
    for reader in loads.items("a list of loads") if loads else []:
        reader.mapping(("node", *LOAD_KEYS))
        name = _node_of(reader, sizes)
        gpu = reader.need("gpu", "a GPU's index").integer(0, sizes[name] - 1)
        found.setdefault(name, []).append(read_load(reader, gpu))
    return {name: tuple(entries) for name, entries in found.items()}


class _Draft:
    """A node while its parts are gathered: GPUs first, because events and loads name them."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader.mapping(NODE_KEYS)
        name = reader.need("name", "a node's name")
        self.name = name.text()
        if not _NAME.fullmatch(self.name):
            name.fail("a node's name: lower case letters, digits, - and .")
        self.gpus = self._gpus()

    def _gpus(self) -> list[Reader | None]:
        """A reader per GPU, in index order; None where only their number is given."""
        gpus = self.reader.need("gpus", "a number of GPUs or a list of them")
        if not isinstance(gpus.value, list):
            expected = f"a number of GPUs from 0 to {MOST_GPUS}, or a list of them"
            return [None] * gpus.integer(0, MOST_GPUS, expected)
        readers = gpus.items("")
        if len(readers) > MOST_GPUS:
            gpus.fail(f"at most {MOST_GPUS} GPUs")
        placed: dict[int, Reader] = {}
        for i, reader in enumerate(readers):
            index = reader.mapping(GPU_KEYS).get("index")
            number = index.integer(0, len(readers) - 1) if index else i
            if number in placed:
                (index or reader).fail(f"each index from 0 to {len(readers) - 1} once")
            placed[number] = reader
        return [placed[i] for i in range(len(readers))]

    def finish(self, events: tuple[TimedOrders, ...], loads: tuple[Load, ...]) -> NodeSpec:
        products = [self._product(reader) for reader in self.gpus]
        links = self._links(products)
        levels, numa = self._levels(products)
        gpus = tuple(self._gpu(i, products[i], numa[i], links[i]) for i in range(len(self.gpus)))
        for what, values in (
            ("uuid", [gpu.uuid for gpu in gpus]),
            ("minor", [gpu.minor for gpu in gpus]),
            ("pciBusId", [gpu.pci for gpu in gpus]),
        ):
            if len(set(values)) != len(values):
                self.reader.need("gpus", "").fail(f"a {what} of its own for each GPU")
        mig_enabled, mig = self._mig(products)
        return NodeSpec(
            name=self.name,
            gpus=gpus,
            levels=levels,
            labels=self._texts("labels"),
            allocatable=self._texts("allocatable"),
            mig_enabled=mig_enabled,
            mig=mig,
            events=events,
            loads=loads,
        )

    def _texts(self, key: str) -> dict[str, str]:
        reader = self.reader.get(key)
        if reader is None:
            return {}
        return {str(name): _as_text(value) for name, value in reader.entries("a mapping of texts")}

    def _product(self, reader: Reader | None) -> Product:
        own = reader.get("product") if reader else None
        product = own or self.reader.need("product", "a product: " + ", ".join(PRODUCTS))
        return PRODUCTS[product.word(PRODUCTS)]

    def _gpu(self, i: int, product: Product, numa: int, links: tuple[LinkEnd, ...]) -> GpuSpec:
        empty = Reader({}, self.reader.source, self.reader.path)
        reader = self.gpus[i] or empty
        minor, serial, memory, present = (reader.get(k) for k in ("minor", "serial", "memoryMiB", "present"))
        cluster = reader.get("fabricClusterUuid") or self.reader.get("fabricClusterUuid")
        clique = reader.get("cliqueId") or self.reader.get("cliqueId")
        if cluster and not _UUID.fullmatch(str(cluster.value)):
            cluster.fail("a UUID")
        return GpuSpec(
            index=i,
            product=product,
            uuid=self._uuid(reader, i),
            minor=minor.integer(0, 255) if minor else i,
            pci=self._pci(reader, i),
            numa_node=numa,
            serial=str(serial.value) if serial else f"{_digest(self.name, 'serial') % 10**9:09d}{i:04d}",
            memory_mib=memory.integer(1, 10**7) if memory else product.memory_mib,
            cluster_uuid=str(cluster.value).lower() if cluster else None,
            clique_id=clique.integer(0, 2**31) if clique else 0,
            links=links,
            present=present.truth() if present else True,
        )

    def _uuid(self, reader: Reader, i: int) -> str:
        own, prefix = reader.get("uuid"), self.reader.get("uuidPrefix")
        if own:
            uuid = own.text("a GPU's UUID")
            if not uuid.startswith("GPU-"):
                own.fail("a UUID that starts with GPU-")
            return uuid
        if prefix:
            return f"{prefix.text('a prefix of UUIDs')}{i:012d}"
        digest = f"{_digest(self.name, 'uuid'):032x}"
        return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{i:012d}"

    def _pci(self, reader: Reader, i: int) -> PciAddress:
        own = reader.get("pciBusId")
        if own is None:
            return PciAddress(domain=0, bus=0x07 + 7 * i, device=0)
        match = _PCI.fullmatch(str(own.value))
        if match is None:
            own.fail('a PCI bus id such as "0000:07:00.0"')
        domain, bus, device = (int(part or "0", 16) for part in match.groups())
        return PciAddress(domain=domain, bus=bus, device=device)

    def _links(self, products: list[Product]) -> tuple[tuple[LinkEnd, ...], ...]:
        """Each GPU's link ends. A word that the product has no links for takes 4 links a pair, 12 to switches."""
        count = len(products)
        reader = self.reader.get("nvlink")
        if reader is None:
            return self._default_links(products)
        if isinstance(reader.value, list):
            return topology.link_ends(self._matrix(reader, count), 0)
        word = Wiring(reader.word([wiring.value for wiring in Wiring]))
        if word is Wiring.DGX1 and count > topology.DGX1_GPUS:
            reader.fail(f"a word for {count} GPUs: dgx1 has {topology.DGX1_GPUS}")
        known = min((product.nvlinks for product in products), default=0)
        if word is Wiring.FULL:
            ends = [topology.link_ends(((0,),), product.nvlinks or known or 12)[0] for product in products]
            return tuple(ends)
        return topology.link_ends(topology.direct_links(word, count, known or 4), 0)

    @staticmethod
    def _default_links(products: list[Product]) -> tuple[tuple[LinkEnd, ...], ...]:
        """The products' own wiring; a node of mixed products is only linked through switches, where it has any."""
        count = len(products)
        if len({product.name for product in products}) == 1:
            product = products[0]
            wiring = product.wiring
            if wiring is Wiring.DGX1 and count > topology.DGX1_GPUS:
                wiring = Wiring.NONE
            switched = product.nvlinks if wiring is Wiring.FULL else 0
            return topology.link_ends(topology.direct_links(wiring, count, product.nvlinks), switched)
        alone: Matrix = ((0,),)
        return tuple(
            topology.link_ends(alone, product.nvlinks if product.wiring is Wiring.FULL else 0)[0]
            for product in products
        )

    def _matrix(self, reader: Reader, count: int) -> Matrix:
        expected = f"a word or a symmetric matrix of link counts, {count} x {count}"
        rows = [row.items(expected) for row in reader.items(expected)]
        if len(rows) != count or any(len(row) != count for row in rows):
            reader.fail(expected)
        matrix = tuple(tuple(cell.integer(0, MOST_LINKS) for cell in row) for row in rows)
        for i in range(count):
            for j in range(count):
                if matrix[i][j] != matrix[j][i]:
                    rows[i][j].fail(f"{matrix[j][i]}, as in row {j}, column {i}: links have two ends")
            if sum(matrix[i]) - matrix[i][i] > MOST_LINKS:
                reader.fail(f"at most {MOST_LINKS} links a GPU")
        return matrix

    def _levels(self, products: list[Product]) -> tuple[Matrix, tuple[int, ...]]:
        """PCIe levels and NUMA nodes: from ``pcie``, else from each GPU's ``numaNode``, else the product's usual."""
        count = len(products)
        nodes = [reader.get("numaNode") if reader else None for reader in self.gpus]
        given = [node.integer(-1, 255) if node else None for node in nodes]
        reader = self.reader.get("pcie")
        if reader is None:
            groups = topology.default_groups(count, max((p.gpus_per_numa for p in products), default=1))
            if any(node is not None for node in given):
                groups = topology.groups_of_numa(tuple(0 if node is None else node for node in given))
            levels = topology.levels_of_groups(groups, count)
        elif reader.value and all(
            isinstance(cell, str) for row in reader.value if isinstance(row, list) for cell in row
        ):
            levels = self._level_matrix(reader, count)
        else:
            levels = self._level_groups(reader, count)
        numa = topology.numa_of_levels(levels)
        return levels, tuple(numa[i] if node is None else node for i, node in enumerate(given))

    def _level_groups(self, reader: Reader, count: int) -> Matrix:
        expected = f"lists of GPU indexes, one for each NUMA node, that hold each of 0 to {count - 1} once"
        groups = tuple(
            tuple(gpu.integer(0, count - 1, expected) for gpu in group.items(expected))
            for group in reader.items(expected)
        )
        if sorted(gpu for group in groups for gpu in group) != list(range(count)):
            reader.fail(expected)
        return topology.levels_of_groups(groups, count)

    def _level_matrix(self, reader: Reader, count: int) -> Matrix:
        words = (*topology.LEVELS, topology.SELF)
        expected = f"a symmetric matrix of {', '.join(words)}, {count} x {count}"
        rows = [row.items(expected) for row in reader.items(expected)]
        if len(rows) != count or any(len(row) != count for row in rows):
            reader.fail(expected)
        levels = [[topology.LEVELS.get(cell.word(words), 0) for cell in row] for row in rows]
        for i in range(count):
            for j in range(count):
                if (rows[i][j].value == topology.SELF) != (i == j):
                    rows[i][j].fail("X on the diagonal and nowhere else")
                if levels[i][j] != levels[j][i]:
                    rows[i][j].fail(f"{rows[j][i].value}, as in row {j}, column {i}")
        return tuple(tuple(row) for row in levels)

    def _mig(self, products: list[Product]) -> tuple[frozenset[int], dict[int, tuple[str, ...]]]:
        """MIG mode and first instances; a GPU that has instances has the mode on."""
        count = len(products)
        enabled = set()
        listed, layouts = self.reader.get("migEnabled"), self.reader.get("mig")
        for item in listed.items("a list of GPU indexes") if listed else []:
            index = item.integer(0, count - 1)
            if not products[index].mig:
                item.fail(f"a GPU with MIG: {products[index].name} has none")
            enabled.add(index)
        mig: dict[int, tuple[str, ...]] = {}
        for key, reader in layouts.entries("a mapping of GPU index to profiles") if layouts else ():
            if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < count:
                reader.fail(f"under the index of a GPU, 0 to {count - 1}")
            mig[key] = self._profiles(reader, products[key])
            enabled.add(key)
        return frozenset(enabled), mig

    @staticmethod
    def _profiles(reader: Reader, product: Product) -> tuple[str, ...]:
        from simulator.migstate import MigError, lay_out

        names = tuple(item.text("a MIG profile") for item in reader.items("a list of MIG profiles"))
        try:
            lay_out(product, names)
        except MigError as error:
            reader.fail(str(error))
        return names


def _as_text(reader: Reader) -> str:
    """A plain value as YAML writes it."""
    if isinstance(reader.value, bool):
        return "true" if reader.value else "false"
    if not isinstance(reader.value, str | int | float):
        reader.fail("a text")
    return str(reader.value)


def _holds_words(value: object) -> bool:
    """Whether this is a list of lists with a text in it: a matrix of levels, not lists of indexes."""
    rows = value if isinstance(value, list) else []
    return any(isinstance(cell, str) for row in rows if isinstance(row, list) for cell in row)


def _digest(name: str, purpose: str) -> int:
    """A stable 128-bit number for a name: default UUIDs and serials differ between nodes and never change."""
    return int.from_bytes(hashlib.blake2s(f"{purpose}/{name}".encode(), digest_size=16).digest())
