"""Reads the fleet file: from YAML into a ``Fleet``.

The schema is an interface: every documented key is honoured, an unknown one is an error, and a mistake is told in one
line with file, line, key path, value found and value expected.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from simulator.boards.boards import Product
from simulator.boards.loads import LOAD_KEYS, Load, read_load
from simulator.boards.migstate import MigError, lay_out
from simulator.boards.products import PRODUCTS
from simulator.boards.wiring import LinkEnd
from simulator.fleet.fleet import Fleet, GpuSpec, InterruptionSpec, NodeSpec, PciAddress, PoolSpec
from simulator.fleet.orders import ORDER_KEYS, TimedOrders, read_orders
from simulator.fleet.poolfile import LONGEST_S, is_interruption, read_interruption, read_pools
from simulator.fleet.wiringfile import read_levels, read_links
from simulator.reading import Reader, read_yaml

MOST_GPUS = 32

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
    "taints",
    "migEnabled",
    "mig",
    "fabricClusterUuid",
    "cliqueId",
    "strayEvents",
    "drainAt",
)

_PCI = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.0")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class NodeDraft:
    """A node while its parts are gathered: GPUs come first, because events and loads name them.

    Values that the file leaves out come from the product or from a rule.
    """

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
        """The node, with its events and loads. Raises InputError."""
        products = [self._product(reader) for reader in self.gpus]
        links = read_links(self.reader.get("nvlink"), products)
        nodes = [reader.get("numaNode") if reader else None for reader in self.gpus]
        given = [node.integer(-1, 255) if node else None for node in nodes]
        levels, numa = read_levels(self.reader.get("pcie"), given, products)
        gpus = tuple(self._gpu(i, products[i], numa[i], links[i]) for i in range(len(self.gpus)))
        for what, values in (
            ("uuid", [gpu.uuid for gpu in gpus]),
            ("minor", [gpu.minor for gpu in gpus]),
            ("pciBusId", [gpu.pci for gpu in gpus]),
        ):
            if len(set(values)) != len(values):
                self.reader.need("gpus", "").fail(f"a {what} of its own for each GPU")
        mig_enabled, mig = self._mig(products)
        stray, drain = self.reader.get("strayEvents"), self.reader.get("drainAt")
        return NodeSpec(
            name=self.name,
            gpus=gpus,
            levels=levels,
            labels=self._texts("labels"),
            allocatable=self._texts("allocatable"),
            taints=tuple(self._taints()),
            mig_enabled=mig_enabled,
            mig=mig,
            events=events,
            loads=loads,
            stray_events=stray.truth() if stray else False,
            drain_at_s=drain.number(0, LONGEST_S) if drain else None,
        )

    def _texts(self, key: str) -> dict[str, str]:
        reader = self.reader.get(key)
        if reader is None:
            return {}
        return {str(name): _as_text(value) for name, value in reader.entries("a mapping of texts")}

    def _taints(self) -> Iterator[tuple[str, str, str]]:
        given = self.reader.get("taints")
        for reader in given.items("a list of taints") if given else []:
            reader.mapping(("key", "value", "effect"))
            value = reader.get("value")
            effect = reader.need("effect", "one of " + ", ".join(_EFFECTS)).word(_EFFECTS)
            yield reader.need("key", "a taint's key").text(), value.text() if value else "", effect

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


def _digest(name: str, purpose: str) -> int:
    """A stable 128-bit number for a name: default UUIDs and serials differ between nodes and never change."""
    return int.from_bytes(hashlib.blake2s(f"{purpose}/{name}".encode(), digest_size=16).digest())


DEFAULT_DRIVER = "570.124.06"
DEFAULT_CUDA = "12.8"

NOT_TIMED = ("status", "reboot")
"""Orders that are not events: a reboot starts the events' clock anew, so it would repeat for ever."""


def load_fleet(path: Path) -> Fleet:
    """Read and check a fleet file. Raises InputError."""
    root = read_yaml(path).mapping(("driver", "nodes", "nodePools", "events", "load"))
    driver, cuda = _driver(root)
    given = root.get("nodes") if root.get("nodePools") else root.need("nodes", "a list of nodes")
    readers = given.items("a list of nodes") if given else []
    sizes: dict[str, int] = {}
    drafts = []
    for reader in readers:
        draft = NodeDraft(reader)
        if draft.name in sizes:
            reader.need("name", "a name").fail("a name that no other node has")
        sizes[draft.name] = len(draft.gpus)
        drafts.append(draft)
    pools = read_pools(root, sizes, _of_pool)
    events, interruptions = _events(root, sizes, pools)
    loads = _loads(root, sizes)
    nodes = tuple(draft.finish(events.get(draft.name, ()), loads.get(draft.name, ())) for draft in drafts)
    return Fleet(path=path, driver=driver, cuda=cuda, nodes=nodes, pools=pools, interruptions=interruptions)


def _of_pool(entry: Reader) -> NodeSpec:
    """A node of a pool. Raises InputError."""
    draft = NodeDraft(entry)
    for reader in draft.gpus:
        if reader is not None and (uuid := reader.get("uuid")) is not None:
            uuid.fail("no uuid: each node of the pool has GPUs of its own")
    return draft.finish((), ())


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


def _events(
    root: Reader, sizes: dict[str, int], pools: tuple[PoolSpec, ...]
) -> tuple[dict[str, tuple[TimedOrders, ...]], tuple[InterruptionSpec, ...]]:
    """What happens to the hardware of each node, and the interruptions of nodes. Raises InputError."""
    orders: dict[str, list[TimedOrders]] = {}
    interruptions: list[InterruptionSpec] = []
    events = root.get("events")
    for reader in events.items("a list of events") if events else []:
        if is_interruption(reader):
            interruptions.append(read_interruption(reader, pools, sizes))
            continue
        reader.mapping(("at", "node", *(key for key in ORDER_KEYS if key not in NOT_TIMED)))
        at = reader.need("at", "seconds from the start").number(0, 1e9)
        name = _node_of(reader, sizes)
        orders.setdefault(name, []).append(TimedOrders(at=at, orders=read_orders(reader, sizes[name])))
    timed = {name: tuple(sorted(each, key=lambda event: event.at)) for name, each in orders.items()}
    return timed, tuple(sorted(interruptions, key=lambda each: each.at_s))


def _loads(root: Reader, sizes: dict[str, int]) -> dict[str, tuple[Load, ...]]:
    by_node: dict[str, list[Load]] = {}
    loads = root.get("load")
    for reader in loads.items("a list of loads") if loads else []:
        reader.mapping(("node", *LOAD_KEYS))
        name = _node_of(reader, sizes)
        gpu = reader.need("gpu", "a GPU's index").integer(0, sizes[name] - 1)
        by_node.setdefault(name, []).append(read_load(reader, gpu))
    return {name: tuple(entries) for name, entries in by_node.items()}
