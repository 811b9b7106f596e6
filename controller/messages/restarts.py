"""Sentences that tell a victim of preemption when it is likely to start again, and what they follow."""

from typing import Final

from inventory.words.catalog import Kind, Place, said

_evicted = said(Place.EVICTED, Kind.NOTE)

STARTS_AGAIN: Final = "starts again"
"""The words that each of the sentences has: a condition with them has been told."""


@_evicted
def starts_again_between(first: str, last: str) -> str:
    return f"It likely starts again between {first} and {last}, as in four of five cases"


@_evicted
def starts_again_by(last: str) -> str:
    return f"It likely starts again by {last}"


@_evicted
def starts_again_after(first: str) -> str:
    return f"It starts again after {first}, and nobody knows how long after"


@_evicted
def starts_again_never(clause: str) -> str:
    return f"It never starts again, {clause}"


@_evicted
def starts_again_not_before(clause: str) -> str:
    return f"It starts again not before {clause}"


@_evicted
def starts_again_unknown() -> str:
    return "Nobody knows yet when it starts again"
