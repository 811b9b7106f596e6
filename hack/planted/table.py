"""What came of planted faults, as lines, as JSON and as the table of a page."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from hack.planted.running import Trial

NETS: Final = ("history", "outside", "hardware", "kubelet", "account")
_MARKS: Final = ("<!-- planted: table -->", "<!-- planted: end -->")


def line(trial: Trial) -> str:
    """Of one fault, as soon as it is known."""
    if trial.is_found:
        said = f"found by {', '.join(trial.found_by)}: {trial.ran.findings[0].message}"
    else:
        said = trial.ran.error or "NOT FOUND"
    return f"{trial.fault.name}: {said} ({trial.ran.seconds:.0f} s)"


def lines(trials: Sequence[Trial]) -> list[str]:
    """The table for a terminal."""
    width = max((len(each.fault.name) for each in trials), default=0)
    head = f"{'fault':{width}}  " + "  ".join(NETS)
    return [head, *(f"{each.fault.name:{width}}  " + "  ".join(_cells(each)) for each in trials)]


def _cells(trial: Trial) -> list[str]:
    return [f"{'found' if net in trial.found_by else '-':{len(net)}}" for net in NETS]


def last_line(trials: Sequence[Trial]) -> str:
    return f"planted: {sum(each.is_found for each in trials)} of {len(trials)} found from outside"


def as_json(trials: Sequence[Trial]) -> str:
    rows = [
        {
            "fault": trial.fault.name,
            "function": trial.fault.function,
            "foundBy": trial.found_by,
            "findings": [finding.message for finding in trial.ran.findings],
            "error": trial.ran.error,
            "seconds": round(trial.ran.seconds, 1),
        }
        for trial in trials
    ]
    return msgspec.json.format(msgspec.json.encode(rows), indent=1).decode()


def with_table(page: str, trials: Sequence[Trial]) -> str:
    """The page with another table. Raises ValueError where it has no place for one."""
    first, last = _MARKS
    table = re.search(f"{re.escape(first)}\n.*{re.escape(last)}", page, re.DOTALL)
    if table is None:
        raise ValueError(f"found no {first} and {last}, expected both")
    rows = [
        f"| {each.fault.name} | `{each.fault.function}` | {each.fault.says} | "
        + " | ".join("found" if net in each.found_by else "" for net in NETS)
        + " |"
        for each in trials
    ]
    head = f"| fault | in | what a user would suffer | {' | '.join(NETS)} |"
    body = "\n".join([first, "", head, "| --- | --- | --- |" + " --- |" * len(NETS), *rows, "", last])
    return page[: table.start()] + body + page[table.end() :]
