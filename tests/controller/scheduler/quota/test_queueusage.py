"""Amounts in words: as people write them, not as the engine counts."""

import math

import pytest

from controller.scheduler.decisions.sentences import asked_for, shown
from controller.scheduler.model.resources import UNLIMITED, ResourceName
from controller.scheduler.quota.queueusage import written

CPU, MEMORY, GPU = ResourceName("cpu"), ResourceName("memory"), ResourceName("nvidia.com/gpu")


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        (CPU, 6000.0, "6"),
        (CPU, 500.0, "500m"),
        (CPU, 1333.4, "1333m"),
        (MEMORY, 6.0 * 2**30, "6Gi"),
        (MEMORY, 8 * 2**30 / 3, "2730Mi"),
        (MEMORY, 6e9, "6G"),
        (ResourceName("hugepages-2Mi"), 2.0**31, "2Gi"),
        (GPU, 3.0, "3"),
        (GPU, 0.25, "0.25"),
        (MEMORY, math.inf, "no limit"),
    ],
)
def test_a_part_is_written_in_cores_and_mebibytes(resource: ResourceName, amount: float, text: str) -> None:
    assert written(resource, amount) == text


def test_the_largest_amount_is_no_limit_of_a_bound_and_much_of_a_request() -> None:
    assert shown(MEMORY, UNLIMITED) == "no limit"
    assert asked_for(MEMORY, UNLIMITED) == "8Ei or more"
    assert asked_for(GPU, UNLIMITED) == "9223372036854775808 or more"
    assert asked_for(MEMORY, 2**33) == "8Gi"
