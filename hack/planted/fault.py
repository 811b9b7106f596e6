"""What a planted fault is."""

from msgspec import Struct


class Fault(Struct, frozen=True):
    """One rewrite of one function. ``before`` and ``after`` are source; which layout they have does not matter.

    ``before``: a statement, several in a row, or an expression, that is there exactly once in all functions of this
    qualified name in the product; ``after``: what stands there instead, empty for a statement that is left out.
    ``nets``: those that find it from outside, as in ``hack.planted.nets``; ``program``: which of its programs runs
    them.
    """

    name: str
    function: str
    before: str
    after: str
    program: str
    nets: tuple[str, ...]
    says: str
    """In a sentence: what a user would suffer."""
