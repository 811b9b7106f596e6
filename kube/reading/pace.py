"""The length of a watch, and the pauses before it is taken up again."""

from typing import Final

from msgspec import Struct


class Pace(Struct, frozen=True):
    """The pace of one watcher. ``lasts_s`` is asked of the server, which then ends the watch, and it is taken up at
    once.

    ``after_cut_s`` passes at least when a watch is cut, before the server is asked again, and ``begin_s`` before the
    first list. The watchers of a fleet have different values, so that they do not come all at once.
    """

    lasts_s: int = 300
    after_cut_s: float = 0.0
    begin_s: float = 0.0


AT_ONCE: Final = Pace()
