"""Figures from what programs say of themselves: their metrics as text, their logs, the kernel's counts of sockets. Pure
but for ``received_bytes``.
"""

import re
import subprocess
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

Buckets = Mapping[float, float]
"""Upper bound to the number of observations at most as large."""
_SAMPLE: Final = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LE: Final = re.compile(r'\ble="([^"]+)"')
_SOCKET: Final = re.compile(r"\bbytes_received:(\d+)")


def buckets(exposition: str, name: str) -> dict[float, float]:
    """Of the histogram, all of its label sets together."""
    by_bound: dict[float, float] = {}
    for value, labels in _samples(exposition, f"{name}_bucket"):
        if (bound := _LE.search(labels)) is not None:
            at = float(bound[1])
            by_bound[at] = by_bound.get(at, 0.0) + value
    return by_bound


def total(exposition: str, name: str, *within: str) -> float:
    """The sum of the samples of that name whose labels have all of these texts."""
    return sum(value for value, labels in _samples(exposition, name) if all(text in labels for text in within))


def _samples(exposition: str, name: str) -> Iterable[tuple[float, str]]:
    for line in exposition.splitlines():
        if line.startswith(name) and (found := _SAMPLE.match(line)) is not None and found["name"] == name:
            yield float(found["value"]), found["labels"] or ""


def between(before: Buckets, after: Buckets) -> dict[float, float]:
    """What was observed between two readings."""
    return {bound: count - before.get(bound, 0.0) for bound, count in after.items()}


def quantile(found: Buckets, share: float) -> float:
    """Interpolated in its bucket, as Prometheus does it; the last bound but infinity where it lies above. Raises
    ValueError where nothing was observed.
    """
    bounds = sorted(found)
    if not bounds or found[bounds[-1]] <= 0:
        raise ValueError("no observations")
    rank, low, below = share * found[bounds[-1]], 0.0, 0.0
    for bound in bounds:
        if found[bound] >= rank:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (rank - below) / (found[bound] - below)
        low, below = bound, found[bound]
    raise AssertionError("the last bucket has everything")


def logged_at(log: str, text: str) -> float | None:
    """Unix seconds of the last line of a controller's log with this text; None while there is none."""
    lines = [line for line in log.splitlines() if text in line]
    if not lines:
        return None
    return datetime.fromisoformat(lines[-1].partition(" ")[0].removeprefix("ts=")).timestamp()


def socket_bytes(listed: str, pid: int) -> int:
    """Of the output of ``ss -tiOnpH``, one line a socket: what this process has received on those it has open."""
    mine = [line for line in listed.splitlines() if f"pid={pid}," in line]
    return sum(int(found[1]) for line in mine if (found := _SOCKET.search(line)) is not None)


def received_bytes(pid: int) -> int:
    """What the process has received over the TCP connections that it has open now."""
    return socket_bytes(subprocess.run(["ss", "-tiOnpH"], capture_output=True, text=True, check=True).stdout, pid)
