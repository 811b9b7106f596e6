"""How a cost grows with size: the exponent of the power law that fits best. Pure."""

import math
from collections.abc import Sequence
from typing import Final

DEFECT: Final = 1.1
"""What grows faster than this with the fleet is a defect."""


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of the least squares line through (log size, log cost). Raises ValueError for fewer than two sizes, and
    for what is not positive: a cost of nothing has no exponent.
    """
    if len(set(sizes)) < 2 or len(sizes) != len(costs):  # noqa: PLR2004 - a line needs two points
        raise ValueError(f"sizes {sizes} and costs {costs}: expected a cost for each of two sizes or more")
    if min(*sizes, *costs) <= 0:
        raise ValueError(f"sizes {sizes} and costs {costs}: expected positive numbers")
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    covered = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return covered / sum((x - mean_x) ** 2 for x in xs)


def told(sizes: Sequence[float], costs: Sequence[float], unit: str) -> str:
    """Costs and exponent in a cell of a table."""
    found = exponent(sizes, costs)
    listed = ", ".join(f"{cost:.3g}" for cost in costs)
    return f"{listed} {unit}: exponent {found:.2f}{'  DEFECT' if found > DEFECT else ''}"
