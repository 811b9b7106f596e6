"""Which windows of calendars a simulation has to stop at: those that may let something start."""

from typing import Final

from controller.scheduler.engine import Engine
from controller.scheduler.quota.calendars import OpenEntries

_YEAR_S: Final = 366 * 86_400.0
_LOOKED_AT: Final = 3_000
"""Changes that are looked at between two stops: four years of nights, in about a second."""


class Windows:
    """``_seen`` has the combinations of open windows under which the engine has decided since the timeline grew last,
    at ``_since_s``: while nothing else happens, none of them lets anything start another time.
    """

    def __init__(self, now_s: float) -> None:
        self._entries, self._since_s = 0, now_s
        self._seen: set[OpenEntries] = set()

    def next_s(self, engine: Engine, now_s: float, entries: int) -> float | None:
        """The next change of a calendar under which something that waits may start; None within a year. ``entries``:
        the length of the timeline.
        """
        calendars = engine.state.calendars
        if not calendars:
            return None
        if entries != self._entries:
            self._entries, self._since_s = entries, now_s
            self._seen.clear()
        self._seen.add(calendars.open_at(now_s))
        if not any(True for _ in engine.state.queues):
            return None
        at_s = calendars.next_change_s(now_s)
        for _ in range(_LOOKED_AT):
            if at_s is None or at_s - self._since_s > _YEAR_S:
                return None
            if calendars.open_at(at_s) not in self._seen:
                return at_s
            at_s = calendars.next_change_s(at_s)
        return None
