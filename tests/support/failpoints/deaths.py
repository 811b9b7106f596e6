"""Deaths of processes that run in this one: at an armed point everything of the process ends, without a word.

A real kill needs no more than the point itself. Here the rest of the process would still run its ``finally`` blocks: so
from its death on each of its steps ends at ``before``, until the test has seen it end and begins the next life.
"""

import asyncio
import threading
from collections import Counter

import pytest

from failpoints import points
from failpoints.names import Failpoint
from hack.failpoints.armed import Moment, Point
from tests.support.failpoints.wire import UNDER_WAY


class DiedError(BaseException):
    """Not an Exception: nothing of the product takes it for a failure that it can answer."""


class DeadError(Exception):
    """On a thread of the dead process: whoever waits for the thread is answered, and goes no further either."""


class Deaths:
    """``counts``: how often each point was reached in this life. ``point``: where it is to die; None: nowhere."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.point: Point | None = None
        self.counts: Counter[Point] = Counter()
        self.died = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._dead = False
        monkeypatch.setattr(points, "before", lambda failpoint: self._reached(failpoint, Moment.BEFORE))
        monkeypatch.setattr(points, "after", lambda failpoint: self._reached(failpoint, Moment.AFTER))

    def life(self, point: Point | None = None) -> None:
        """Another life begins; nothing of the one before runs any more."""
        self.point, self._dead = point, False
        self.counts.clear()
        self.died.clear()

    @property
    def is_dead(self) -> bool:
        return self._dead

    def die(self) -> None:
        """Now, wherever it is: no step of it begins any more."""
        self._dead = True
        self.died.set()

    def _reached(self, failpoint: Failpoint | None, moment: Moment) -> None:
        assert failpoint is not None, "a step without a name"
        point = Point(failpoint, moment)
        if not self._dead:
            self.counts[point] += 1
            if moment is Moment.BEFORE:
                UNDER_WAY.set(failpoint)
            if point != self.point:
                return
            self._dead = True
            self._loop.call_soon_threadsafe(self.died.set)
        if threading.get_ident() == self._thread:
            raise DiedError(str(point))
        raise DeadError(str(point))
