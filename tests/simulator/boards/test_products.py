"""The product tables agree with themselves and with the arithmetic that names MIG profiles."""

import math

import pytest

from simulator.boards.boards import Product
from simulator.boards.products import PRODUCTS

REQUIRED = {
    "NVIDIA A100-SXM4-40GB",
    "NVIDIA A100-SXM4-80GB",
    "NVIDIA A30",
    "NVIDIA H100 80GB HBM3",
    "NVIDIA H200",
    "NVIDIA B200",
    "NVIDIA GB200",
    "NVIDIA L40S",
    "Tesla T4",
    "NVIDIA RTX A6000",
    "Tesla V100-SXM2-16GB",
    "Tesla V100-SXM3-32GB",
}

every_mig_product = pytest.mark.parametrize("product", [p for p in PRODUCTS.values() if p.mig], ids=lambda p: p.name)


def driver_gb(product: Product, memory_mib: int) -> int:
    """The GB number that tools compute from an instance's memory and the board's."""
    eighths = math.ceil(memory_mib / product.memory_mib * 8)
    return math.floor(eighths / 8 * math.ceil(product.memory_mib / 1024) + 0.5)


def test_the_promised_products_are_there() -> None:
    assert set(PRODUCTS) >= REQUIRED


def test_device_ids_are_distinct() -> None:
    assert len({product.device_id for product in PRODUCTS.values()}) == len(PRODUCTS)


@every_mig_product
def test_a_profile_s_name_follows_from_its_memory(product: Product) -> None:
    for profile in product.mig:
        text, _, _ = profile.name.partition("+")
        assert text == f"{profile.slices}g.{driver_gb(product, profile.memory_mib)}gb"


@every_mig_product
def test_placements_lie_on_the_board_and_hold_the_promised_count(product: Product) -> None:
    for profile in product.mig:
        assert all(start + profile.size <= product.memory_slices for start in profile.starts)
        disjoint = len({start // profile.size for start in profile.starts})
        assert profile.count <= disjoint
        assert profile.memory_mib * profile.count <= product.memory_mib
        assert profile.sms * profile.count <= product.sms


@every_mig_product
def test_profiles_differ_in_name_id_and_number(product: Product) -> None:
    for field in ("name", "id", "enum"):
        values = [getattr(profile, field) for profile in product.mig]
        assert len(set(values)) == len(values)
