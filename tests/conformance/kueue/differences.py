"""Where we differ from the peer on purpose: rules over a case's input, each with its reason.

A rule never sees which case it is, so it cannot name one: what it lets pass it lets pass in every corpus.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.conformance.kueue.harness import Case


@dataclass(frozen=True, slots=True)
class Rule:
    """``applies`` is given the case's ``input``: gates, kinds, fields."""

    reason: str
    applies: Callable[[Mapping[str, Any]], bool]


RULES: tuple[Rule, ...] = ()


def declared(case: Case) -> Rule | None:
    return next((rule for rule in RULES if rule.applies(case.input)), None)
