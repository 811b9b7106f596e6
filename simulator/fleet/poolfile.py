"""Node pools of a fleet file, and the interruptions of its nodes: what ``tessera simulate`` reads beside nodes.

A pool's nodes are named ``POOL-1`` to ``POOL-MAX``, or after the ``name`` of its template where that has one; each is
the template with its own name. Times are seconds.
"""

from collections.abc import Callable, Collection
from typing import Final

from simulator.fleet.fleet import InterruptionSpec, NodeSpec, PoolSpec
from simulator.reading import Reader

POOL_KEYS: Final = (
    "name",
    "template",
    "min",
    "max",
    "delay",
    "removeAfter",
    "capacity",
    "pricePerHour",
    "cooldown",
)
CAPACITIES: Final = ("spot", "on-demand")
INTERRUPT: Final = "interrupt"

MOST_NODES: Final = 5000
LONGEST_S: Final = 1e9
_DEAREST: Final = 1e9
_REMOVE_AFTER_S: Final = 600.0
_COOLDOWN_S: Final = 3600.0


def read_pools(root: Reader, taken: Collection[str], finished: Callable[[Reader], NodeSpec]) -> tuple[PoolSpec, ...]:
    """The pools of a fleet file. ``taken``: the names of its nodes. ``finished`` makes a node of its entry.

    Raises InputError.
    """
    given = root.get("nodePools")
    names = set(taken)
    pools: list[PoolSpec] = []
    for reader in given.items("a list of node pools") if given else []:
        pool = _pool(reader.mapping(POOL_KEYS), finished)
        own = {node.name for node in pool.nodes}
        if own & names or any(pool.name == other.name for other in pools):
            reader.need("name", "a name").fail("a name that no other pool has, and whose nodes have names of their own")
        names |= own
        pools.append(pool)
    return tuple(pools)


def _pool(reader: Reader, finished: Callable[[Reader], NodeSpec]) -> PoolSpec:
    name = reader.need("name", "a pool's name").text()
    most = reader.need("max", "the number of nodes that the pool may have").integer(1, MOST_NODES)
    least, capacity, price = (reader.get(key) for key in ("min", "capacity", "pricePerHour"))
    template = reader.need("template", "a node, as an entry of nodes")
    if not isinstance(template.value, dict):
        template.fail("a node, as an entry of nodes")
    if (prefix := template.get("uuidPrefix")) is not None:
        prefix.fail("no uuidPrefix: each node of the pool has GPUs of its own")
    named = template.get("name")
    first = named.text() if named else name
    return PoolSpec(
        name=name,
        nodes=tuple(
            finished(_Entry(template, f"{first}-{at}", named or reader.need("name", ""))) for at in range(1, most + 1)
        ),
        min_nodes=least.integer(0, most) if least else 0,
        delay_s=_seconds(reader, "delay", 0.0),
        remove_after_s=_seconds(reader, "removeAfter", _REMOVE_AFTER_S),
        capacity=capacity.word(CAPACITIES) if capacity else "",
        price_per_hour=price.number(0, _DEAREST) if price else 0.0,
        cooldown_s=_seconds(reader, "cooldown", _COOLDOWN_S),
    )


class _Entry(Reader):
    """The template as the entry of one node. A wrong name is reported where the name comes from."""

    def __init__(self, template: Reader, name: str, named: Reader) -> None:
        super().__init__({**template.value, "name": name}, template.source, template.path)
        self._named = named

    def get(self, key: str) -> Reader | None:
        if key == "name":
            return Reader(self.value[key], self.source, self._named.path)
        return super().get(key)


def _seconds(reader: Reader, key: str, otherwise: float) -> float:
    found = reader.get(key)
    return found.number(0, LONGEST_S) if found else otherwise


def is_interruption(reader: Reader) -> bool:
    """Whether an event of a fleet file interrupts nodes; all others concern the hardware of one node."""
    return isinstance(reader.value, dict) and INTERRUPT in reader.value


def read_interruption(reader: Reader, pools: tuple[PoolSpec, ...], nodes: Collection[str]) -> InterruptionSpec:
    """One interruption. ``nodes``: the names of the file's own nodes. Raises InputError."""
    reader.mapping(("at", "pool", "node", INTERRUPT))
    at_s = reader.need("at", "seconds from the start").number(0, LONGEST_S)
    notice_s = reader.need(INTERRUPT, "seconds of notice").number(0, LONGEST_S)
    pool, node = reader.get("pool"), reader.get("node")
    if pool is not None and node is not None:
        node.fail("no node beside a pool")
    if pool is not None:
        return InterruptionSpec(at_s=at_s, notice_s=notice_s, pool=pool.word([each.name for each in pools]))
    if node is None:
        reader.fail("a pool or a node that is interrupted")
    every = {*nodes, *(each.name for one in pools for each in one.nodes)}
    if not isinstance(node.value, str) or node.value not in every:
        of_pools = ", ".join(f"{one.nodes[0].name} to {one.nodes[-1].name}" for one in pools)
        node.fail(f"the name of a node: {', '.join(filter(None, (*sorted(nodes)[:20], of_pools)))}")
    return InterruptionSpec(at_s=at_s, notice_s=notice_s, node=node.value)
