"""Rows of the lists: what becomes of a field."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Served:
    """``by``: what it does here. ``module``: the code that reads or writes it by its name."""

    by: str
    module: str


@dataclass(frozen=True, kw_only=True)
class Refused:
    """``sentence`` is what is said of an object that has it."""

    sentence: str


@dataclass(frozen=True, kw_only=True)
class Unrelated:
    """A field that decides neither which pods there are, nor when and where they run."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class NotYet:
    """A field that bears on scheduling, and nothing reads or writes it. ``instead``: what to write."""

    instead: str = ""


Row = Served | Refused | Unrelated | NotYet
Rows = dict[str, Row]


def served(by: str, module: str, paths: str) -> Rows:
    """Fields, in one text, that share what becomes of them."""
    return {path: Served(by=by, module=module) for path in paths.split()}


def unrelated(reason: str, paths: str) -> Rows:
    return {path: Unrelated(reason=reason) for path in paths.split()}


def not_yet(paths: str, instead: str = "") -> Rows:
    return {path: NotYet(instead=instead) for path in paths.split()}


def below(prefix: str, rows: Rows) -> Rows:
    return {f"{prefix}.{path}": row for path, row in rows.items()}


def told(row: Row) -> str:
    """What the page says of it."""
    if isinstance(row, Served):
        return row.by
    if isinstance(row, Refused):
        return f"refused: `{row.sentence}`"
    if isinstance(row, Unrelated):
        return f"without bearing: {row.reason}"
    return "not yet served" + (f": {row.instead}" if row.instead else "")
