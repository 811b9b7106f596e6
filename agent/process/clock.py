"""Seconds since the epoch that never jump: the wall clock at the start, carried on by the monotonic one."""

import time


def until_poll(interval_s: float) -> float:
    """Seconds to the next whole multiple of ``interval_s``: polls that fall together cost the process one wake-up."""
    return interval_s - time.monotonic() % interval_s


class SteadyClock:
    """Call it for the time. Within one process it only grows, whatever an administrator or NTP does to the clock."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._offset_s + time.monotonic()
