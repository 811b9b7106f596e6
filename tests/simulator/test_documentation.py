from collections.abc import Callable
from pathlib import Path

from simulator.boards.loads import LOAD_KEYS
from simulator.boards.products import PRODUCTS
from simulator.fleet.fleetfile import load_fleet
from simulator.fleet.orders import KINDS
from simulator.fleet.poolfile import POOL_KEYS

PAGE = Path(__file__).parents[2] / "docs/simulator.md"
POOLS, SPOT = (PAGE.parent / f"{name}.md" for name in ("capacity", "spot"))


def test_the_documented_fleet_is_a_fleet(fleet: Callable[[str], Path]) -> None:
    example = PAGE.read_text().partition("```yaml\n")[2].partition("```")[0]
    read = load_fleet(fleet(example))
    assert [(node.name, len(node.gpus)) for node in read.nodes] == [("node-1", 8), ("node-2", 2)]
    assert len(read.nodes[0].events) == 8


def test_every_product_and_key_is_documented() -> None:
    text = PAGE.read_text()
    for product in PRODUCTS.values():
        profiles = ", ".join(profile.name for profile in product.mig) or "-"
        row = f"| {product.name} | {product.memory_mib} | {product.nvlinks or '-'} | {product.wiring} | {profiles} |"
        assert row in text
    for key in (*LOAD_KEYS, *(kind for kind in KINDS if kind != "status")):
        assert f"`{key}" in text


def test_the_documented_pools_are_a_fleet_and_every_key_has_its_row(fleet: Callable[[str], Path]) -> None:
    text = POOLS.read_text()
    pools = text.partition("```yaml\n")[2].partition("```")[0]
    _, begins, rest = SPOT.read_text().partition("```yaml\nevents:")
    events = begins.removeprefix("```yaml\n") + rest.partition("```")[0]
    (pool,) = load_fleet(fleet(pools)).pools
    assert [node.name for node in pool.nodes] == [f"gpu-{at}" for at in range(1, 5)]
    assert [key for key in POOL_KEYS if f"\n| `{key}` | " not in text] == []
    spot = pools.partition("events:")[0].replace("name: gpu", "name: spot")
    assert len(load_fleet(fleet(spot + events)).interruptions) == 2
