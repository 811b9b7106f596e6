from collections.abc import Callable
from pathlib import Path

from simulator.boards.loads import LOAD_KEYS
from simulator.boards.products import PRODUCTS
from simulator.fleet.fleetfile import load_fleet
from simulator.fleet.orders import KINDS

PAGE = Path(__file__).parents[2] / "docs/simulator.md"


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
