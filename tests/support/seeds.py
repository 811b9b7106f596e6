"""Seeds of histories that a test draws with ``random``: the same ones in each run, others in each round of exploring.

Properties written with Hypothesis follow the same rule by the profiles in ``tests/conftest.py``.
"""

import os
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

ROUND: Final = os.environ.get("TESSERA_EXPLORE", "")
"""The seed of the round that ``make explore`` is in; empty in the tests."""


def drawn(pinned: Sequence[int]) -> list[int]:
    """``pinned``, or as many others. For loops inside a test, which is marked ``explored``."""
    if not ROUND:
        return list(pinned)
    rng = random.Random(ROUND)
    return [rng.randrange(2**32) for _ in pinned]


def histories(*pinned: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """One case of the test for each seed, its argument ``seed``. What exploring finds is pinned by adding it here."""

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        cases: Callable[..., Any] = pytest.mark.parametrize("seed", drawn(pinned))(pytest.mark.explored(test))
        return cases

    return decorate
