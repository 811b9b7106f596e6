"""Flavors whose nodes did not come in time (our own rule, ``coming_nodes``): none can come for a while, which doubles
each time, and the next flavor of the queue is tried meanwhile. A node that comes ends that. A new leader begins anew.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Final

from controller.scheduler.model.resources import FlavorName

FIRST_BACKOFF_S: Final = 300.0
LAST_BACKOFF_S: Final = 3600.0


class ComingBackoff:
    """``closed``: the flavors of which no node can come now. The engine alone changes it, outside of trials."""

    def __init__(self) -> None:
        self.closed: AbstractSet[FlavorName] = frozenset()
        self._until_s: dict[FlavorName, float] = {}
        self._times: dict[FlavorName, int] = {}

    def failed(self, flavors: Iterable[FlavorName], now_s: float) -> None:
        """Nodes of these flavors did not come in time."""
        for name in flavors:
            times = self._times.get(name, 0)
            self._times[name] = times + 1
            self._until_s[name] = now_s + min(FIRST_BACKOFF_S * 2.0 ** min(times, 16), LAST_BACKOFF_S)
        self.closed = frozenset(self._until_s)

    def came(self, flavors: Iterable[FlavorName]) -> list[FlavorName]:
        """A node of these flavors has come. Returns those that were closed."""
        closed = []
        for name in flavors:
            self._times.pop(name, None)
            if self._until_s.pop(name, None) is not None:
                closed.append(name)
        self.closed = frozenset(self._until_s)
        return closed

    def over(self, now_s: float) -> list[FlavorName]:
        """The flavors that may be tried again from now on."""
        reopened = sorted(name for name, until_s in self._until_s.items() if until_s <= now_s)
        for name in reopened:
            del self._until_s[name]
        if reopened:
            self.closed = frozenset(self._until_s)
        return reopened

    def until_s(self, name: FlavorName) -> float | None:
        """The time from which on the flavor may be tried again; None for one of which nodes can come."""
        return self._until_s.get(name)

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Makes all flavors open meanwhile, for a question about the time after the back-offs."""
        closed, self.closed = self.closed, frozenset()
        try:
            yield
        finally:
            self.closed = closed

    def next_due_s(self) -> float | None:
        return min(self._until_s.values(), default=None)

    def validate(self) -> None:
        """Recompute what is kept. AssertionError for a difference."""
        if self.closed != self._until_s.keys():
            raise AssertionError(f"closed are {sorted(self.closed)}, kept {sorted(self._until_s)}")
        if strange := self._until_s.keys() - self._times.keys():
            raise AssertionError(f"closed and never failed: {sorted(strange)}")
