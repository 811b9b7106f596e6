"""Seconds since the epoch that never jump: the wall clock at the start, carried on by the monotonic one."""

import time


class SteadyClock:
    """Call it for the time. Within one process it only grows, whatever an administrator or NTP does to the clock."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._offset_s + time.monotonic()
