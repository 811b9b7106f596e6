"""How long a watch lasts, and when it is taken up again."""

from typing import Final

from msgspec import Struct


class Pace(Struct, frozen=True):
    """Of one watcher. ``lasts_s`` is asked of the server, which then ends the watch, and it is taken up at once.

    ``after_cut_s`` passes at least when a watch is cut, before the server is asked again, and ``begin_s`` before the
    first list. A fleet of watchers has many values of them, so that it does not come all at once.
    """

    lasts_s: int = 300
    after_cut_s: float = 0.0
    begin_s: float = 0.0


AT_ONCE: Final = Pace()
