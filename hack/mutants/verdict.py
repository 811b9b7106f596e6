"""What became of each mutant, whether that is enough, and the report."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct

from hack.mutants.planting import Mutant

Name = tuple[str, str, str, str, int]
"""Of a mutant."""
ENOUGH: Final = 0.85
FEW: Final = 20
"""Of fewer mutants than these a share says nothing; that each survivor is listed says enough."""
PASSED, SHORT, UNKNOWN = 0, 1, 2
"""Exit codes."""


class Outcome(StrEnum):
    KILLED = "killed"
    """A test failed."""
    TIMED_OUT = "timeout"
    """A test did not end; counted as dead."""
    LISTED = "listed"
    """Survived, and the list has the reason."""
    SURVIVED = "survived"


_DEAD: Final = (Outcome.KILLED, Outcome.TIMED_OUT)


class Result(Struct, frozen=True):
    room: str
    mutant: Mutant
    outcome: Outcome
    by: str
    """The test that failed, the reason on the list, or nothing."""
    seconds: float


def exit_code(results: Sequence[Result]) -> int:
    if any(result.outcome is Outcome.SURVIVED for result in results):
        return SHORT
    return SHORT if len(results) >= FEW and share(results) < ENOUGH else PASSED


def share(results: Sequence[Result]) -> float:
    """The share that died; 1 when there are none."""
    return sum(result.outcome in _DEAD for result in results) / len(results) if results else 1.0


def line(result: Result) -> str:
    """One mutant, as progress shows it."""
    mutant, by = result.mutant, f"  ({result.by})" if result.by else ""
    where = f"{mutant.module}:{mutant.line} {mutant.function}"
    return f"{result.outcome:8} {result.seconds:5.1f} s  {where}: {mutant.mutation}{by}"


def summary(results: Sequence[Result], known: Mapping[Name, str]) -> list[str]:
    """Rooms, total, then what is to be done. ``known`` has the reasons of the list by name."""
    rooms = dict.fromkeys(result.room for result in results)
    lines = [f"{room:14}{_counted([result for result in results if result.room == room])}" for room in rooms]
    lines.append(f"{'all':14}{_counted(results)}")
    for result in results:
        if result.outcome is Outcome.SURVIVED:
            lines += ["", f"Add a test, or list it in survivors.toml with a reason: {line(result)}"]
            lines += _entry(result.mutant)
        elif result.outcome is Outcome.KILLED and result.mutant.name in known:
            lines += ["", f"Killed, so delete its entry in survivors.toml: {line(result)}"]
    return lines


def as_json(results: Sequence[Result]) -> bytes:
    document = {"results": results, "share": share(results), "exitCode": exit_code(results)}
    return msgspec.json.format(msgspec.json.encode(document), indent=2)


def _counted(results: Sequence[Result]) -> str:
    counts = Counter(result.outcome for result in results)
    outcomes = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    return f"{len(results):4} mutants, {share(results):4.0%} died: {outcomes}"


def _entry(mutant: Mutant) -> Iterable[str]:
    """As it would stand in the list."""
    fields: dict[str, str | int] = {
        "module": mutant.module,
        "function": mutant.function,
        "line": mutant.text,
        "mutation": mutant.mutation,
        **({"nth": mutant.nth} if mutant.nth else {}),
        "reason": "",
    }
    return ["  [[survivor]]", *(f"  {name} = {_toml(value)}" for name, value in fields.items())]


def _toml(value: str | int) -> str:
    """A basic string of TOML escapes as JSON does."""
    return msgspec.json.encode(value).decode()
