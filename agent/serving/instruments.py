"""Counters, gauges and histograms, and their text. A client library for the agent's dozen would take more than 1 MiB.

Names, types and values are those that prometheus_client writes, ``process_*`` included. Used from the event loop alone.
"""

import os
import resource
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from msgspec import Struct

from agent.telemetry.exposition import Family, labels, number

Labels = tuple[str, ...]
Pairs = tuple[tuple[str, str], ...]
Sample = tuple[str, Pairs, float]
"""Name, labels with their values, value."""
_PROC = Path("/proc")


class Instrument:
    """One family. ``label_names`` is the order in which its methods take label values."""

    kind = ""

    def __init__(self, name: str, help_text: str, label_names: Sequence[str] = ()) -> None:
        self.family = Family(name, self.kind, help_text)
        self._label_names = tuple(label_names)

    def samples(self) -> Iterator[Sample]:
        """Every series, in the order in which they came to be."""
        raise NotImplementedError

    def _pairs(self, values: Labels) -> Pairs:
        return tuple(zip(self._label_names, values, strict=True))


class Gauge(Instrument):
    """A number that moves; without labels it is there from the start, as 0."""

    kind = "gauge"

    def __init__(self, name: str, help_text: str, label_names: Sequence[str] = ()) -> None:
        super().__init__(name, help_text, label_names)
        self._values: dict[Labels, float] = {} if label_names else {(): 0.0}

    def set(self, *values: str, to: float) -> None:
        self._values[values] = float(to)

    def add(self, *values: str, by: float = 1.0) -> None:
        self._values[values] = self._values.get(values, 0.0) + by

    def remove(self, *values: str) -> None:
        """The series is no more. Raises KeyError where it never was."""
        del self._values[values]

    def samples(self) -> Iterator[Sample]:
        for values, value in self._values.items():
            yield self.family.name, self._pairs(values), value


class Counter(Gauge):
    """A number that only grows."""

    kind = "counter"


class Histogram(Instrument):
    """How often a value was at most each of ``buckets`` (ascending)."""

    kind = "histogram"

    def __init__(self, name: str, help_text: str, label_names: Sequence[str], buckets: Sequence[float]) -> None:
        super().__init__(name, help_text, label_names)
        self._buckets = tuple(buckets)
        self._seen: dict[Labels, _Seen] = {}

    def observe(self, *values: str, value: float) -> None:
        seen = self._seen.get(values)
        if seen is None:
            seen = self._seen[values] = _Seen([0] * (len(self._buckets) + 1))
        seen.counts[bisect_left(self._buckets, value)] += 1
        seen.total += value

    def samples(self) -> Iterator[Sample]:
        name = self.family.name
        bounds = [*(repr(bound) for bound in self._buckets), "+Inf"]
        for values, seen in self._seen.items():
            pairs = self._pairs(values)
            for bound, count in zip(bounds, accumulate(seen.counts), strict=True):
                yield f"{name}_bucket", (*pairs, ("le", bound)), count
            yield f"{name}_count", pairs, sum(seen.counts)
            yield f"{name}_sum", pairs, seen.total


class _Seen(Struct):
    """``counts`` are of single buckets; the text adds them up."""

    counts: list[int]
    total: float = 0.0


class Panel:
    """The instruments of one agent."""

    def __init__(self, instruments: Iterable[Instrument]) -> None:
        self.instruments = tuple(instruments)

    def value(self, name: str, by: Mapping[str, str] | None = None) -> float | None:
        """The series with exactly these labels; None where there is none."""
        wanted = sorted((by or {}).items())
        for one in self.instruments:
            for sample, pairs, value in one.samples():
                if sample == name and sorted(pairs) == wanted:
                    return value
        return None

    def text(self) -> bytes:
        """The text format, version 0.0.4."""
        return b"".join(_text(one.family, one.samples()) for one in self.instruments)


PROCESS = (
    Family("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes."),
    Family("process_resident_memory_bytes", "gauge", "Resident memory size in bytes."),
    Family("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds."),
    Family("process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds."),
    Family("process_max_fds", "gauge", "Maximum number of open file descriptors."),
    Family("process_open_fds", "gauge", "Number of open file descriptors."),
)


def process_text(proc: Path = _PROC) -> bytes:
    """What every process tells of itself; nothing where there is no such /proc."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    try:
        # Without the name, which may hold anything: fields[0] is the state, field 3 of proc_pid_stat(5).
        fields = (proc / "self/stat").read_bytes().rpartition(b")")[2].split()
        booted = next(line for line in (proc / "stat").read_bytes().splitlines() if line.startswith(b"btime "))
        values = (
            int(fields[20]),
            int(fields[21]) * page,
            int(booted.split()[1]) + int(fields[19]) / ticks,
            (int(fields[11]) + int(fields[12])) / ticks,
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            sum(1 for _ in (proc / "self/fd").iterdir()),
        )
    except (OSError, StopIteration):
        return b""
    return b"".join(_text(one, [(one.name, (), value)]) for one, value in zip(PROCESS, values, strict=True))


def _text(family: Family, samples: Iterable[Sample]) -> bytes:
    lines = [
        f"{name}{{{labels(pairs)}}} {number(value)}" if pairs else f"{name} {number(value)}"
        for name, pairs, value in samples
    ]
    if not lines:
        return b""
    return "\n".join(
        (f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}", *lines, "")
    ).encode()
