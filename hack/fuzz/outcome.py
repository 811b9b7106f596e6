"""What a run came to. Pure: libFuzzer's words in, rows out."""

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

_EXECUTED: Final = re.compile(r"^stat::number_of_executed_units:\s*(\d+)", re.MULTILINE)
_MEMORY: Final = re.compile(r"^stat::peak_rss_mb:\s*(\d+)", re.MULTILINE)
_SLOWEST: Final = re.compile(r"^stat::slowest_unit_time_sec:\s*(\d+)", re.MULTILINE)
_DEFECT: Final = re.compile(r"^defect: (?P<key>.*): (?P<path>\S+)$", re.MULTILINE)
_ENDED: Final = re.compile(r"^==\d+== ?ERROR: libFuzzer: (.*)", re.MULTILINE)


class Row(Struct, frozen=True, kw_only=True):
    """One target's run. ``executions`` as libFuzzer counted them; ``defects``: one line each, with the input's file."""

    target: str
    executions: int
    seconds: float
    peak_mib: int
    defects: tuple[str, ...] = ()
    complete: bool = True

    @property
    def line(self) -> str:
        rate = self.executions / self.seconds if self.seconds else 0.0
        ended = "" if self.complete else ", did not run to its end"
        count = f"{len(self.defects)} defects" if self.defects else "nothing found"
        return (
            f"{self.target:20} {self.executions:>10,} executions, {rate:7,.0f}/s, {self.peak_mib:4} MiB: {count}{ended}"
        )


def row(target: str, said: str, seconds: float) -> Row:
    """``said``: all that the worker printed."""
    executed, memory = _EXECUTED.search(said), _MEMORY.search(said)
    ended = [f"libFuzzer: {found[1]}" for found in _ENDED.finditer(said)]
    return Row(
        target=target,
        executions=int(executed[1]) if executed else 0,
        seconds=round(seconds, 1),
        peak_mib=int(memory[1]) if memory else 0,
        defects=(*(f"{found['key']}: {found['path']}" for found in _DEFECT.finditer(said)), *ended),
        complete=executed is not None,
    )


def exit_code(rows: Iterable[Row]) -> int:
    """0: nothing was found. 1: something was. 2: a worker did not run."""
    every = list(rows)
    if any(each.defects for each in every):
        return 1
    return 0 if every and all(each.complete for each in every) else 2
