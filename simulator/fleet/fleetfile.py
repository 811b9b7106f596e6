"""The simulated fleet file, read: from YAML into a ``Fleet``.

The schema is an interface: every documented key is honoured, an unknown one is an error, and a mistake is told in
one line with file, line, key path, value found and value expected.
"""

import re
from pathlib import Path

from simulator.boards.loads import LOAD_KEYS, Load, read_load
from simulator.fleet.fleet import Fleet
from simulator.fleet.nodefile import NodeDraft
from simulator.fleet.orders import ORDER_KEYS, TimedOrders, read_orders
from simulator.reading import Reader, read_yaml

DEFAULT_DRIVER = "570.124.06"
DEFAULT_CUDA = "12.8"

NOT_TIMED = ("status", "reboot")
"""Orders that are no events: a reboot starts the events' clock anew, so it would repeat for ever."""


def load_fleet(path: Path) -> Fleet:
    """Read and check a fleet file. Raises InputError."""
    root = read_yaml(path).mapping(("driver", "nodes", "events", "load"))
    driver, cuda = _driver(root)
    readers = root.need("nodes", "a list of nodes").items("a list of nodes")
    sizes: dict[str, int] = {}
    drafts = []
    for reader in readers:
        draft = NodeDraft(reader)
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
