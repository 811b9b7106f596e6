"""What an armed failpoint does, and the words that arm one.

    file.checkpoint.before=die              the process is killed when it comes there
    api.workload-admitted.after=error#2     the second time only, the step fails: after it was done, its answer is lost
    kubelet.registered.before=stall:3       everything in the process stands still for three seconds

Several are separated by commas. An error is of the class that the step itself can raise (``failure``).
"""

import contextlib
import errno
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

from failpoints.names import Failpoint

VARIABLE: Final = "TESSERA_FAILPOINT"


class Moment(StrEnum):
    BEFORE = "before"
    AFTER = "after"


class Point(NamedTuple):
    """A place where something can happen: before or after a step."""

    failpoint: Failpoint
    moment: Moment

    def __str__(self) -> str:
        return f"{self.failpoint}.{self.moment}"


ALL: Final = tuple(Point(failpoint, moment) for failpoint in Failpoint for moment in Moment)


class Armed:
    """``before`` and ``after`` in place of those of ``failpoints.points``. ``counts`` is how often each was reached."""

    def __init__(self, acts: dict[Point, tuple[int, Callable[[Point], None]]]) -> None:
        """Each act with the time at which it happens, counted from 1; 0: each time."""
        self._acts = acts
        self.counts: Counter[Point] = Counter()

    def before(self, failpoint: Failpoint | None) -> None:
        self._reached(failpoint, Moment.BEFORE)

    def after(self, failpoint: Failpoint | None) -> None:
        self._reached(failpoint, Moment.AFTER)

    def _reached(self, failpoint: Failpoint | None, moment: Moment) -> None:
        if failpoint is None:
            return
        point = Point(failpoint, moment)
        self.counts[point] += 1
        time_, act = self._acts.get(point, (0, _nothing))
        if time_ in (0, self.counts[point]):
            act(point)


def armed(text: str) -> Armed:
    """By the words above. Raises ValueError: what was found, and what was expected."""
    points = {str(point): point for point in ALL}
    acts: dict[Point, tuple[int, Callable[[Point], None]]] = {}
    for word in filter(None, text.split(",")):
        name, _, order = word.strip().partition("=")
        if name not in points:
            raise ValueError(
                f"{VARIABLE}: found {name!r}, expected a name of failpoints/names.py with .before or .after"
            )
        what, _, number = order.partition("#")
        if number and not (number.isdigit() and int(number)):
            raise ValueError(f"{VARIABLE}: {name}: found #{number}, expected a number from 1 on")
        acts[points[name]] = int(number or 0), _act(name, what)
    return Armed(acts)


def _act(name: str, what: str) -> Callable[[Point], None]:
    kind, _, seconds = what.partition(":")
    if what == "die":
        return _die
    if what == "error":
        return _fail
    if kind == "stall":
        with contextlib.suppress(ValueError):
            return partial(_stall, float(seconds))
    raise ValueError(f"{VARIABLE}: {name}: found {what!r}, expected die, error or stall:SECONDS")


def _nothing(_: Point) -> None:
    pass


def _stall(seconds: float, _: Point) -> None:
    time.sleep(seconds)


def _die(_: Point) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fail(point: Point) -> None:
    raise failure(point)


def failure(point: Point) -> Exception:
    """What a step of that kind raises when it fails, or when its answer is lost."""
    message = f"failpoint {point}"
    kind = point.failpoint.partition(".")[0]
    if kind == "hardware":
        from agent.hardware.query import CallFailed

        return CallFailed(message)
    if kind == "mps":
        from agent.mps.control import MpsError

        return MpsError(message)
    if point.failpoint is Failpoint.REGISTERED:
        from deviceplugin.kubelet import RegistrationError

        return RegistrationError(message)
    if point.failpoint is Failpoint.ALLOCATED:
        from deviceplugin.answer import AllocationError

        return AllocationError(message)
    if kind == "api":
        from kube.errors import UnavailableError

        return UnavailableError(message)
    return OSError(errno.EIO, message)
