"""Rows of the table of fields: what becomes of a field of a kind's CRD, and how that is tried."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cli.migrate.foreign.rows import Unrelated

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Served:
    """``by``: what reads it. Written with ``tried`` in place of what an example has there, something else follows.

    ``beside``: other fields, by their paths, without which it means nothing.
    """

    by: str
    tried: Any
    beside: Json = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Refused:
    """``sentence`` is what is said of ``tried``."""

    sentence: str
    tried: Any


@dataclass(frozen=True, kw_only=True)
class Told:
    """It bears on scheduling and is not served. ``page``, below ``docs``, says so with ``sentence``."""

    page: str
    sentence: str


Row = Served | Refused | Unrelated | Told
Rows = dict[str, Row]


def unrelated(reasons: dict[str, str]) -> Rows:
    """Fields, in one text, by the reason that they share."""
    return {path: Unrelated(reason=reason) for reason, paths in reasons.items() for path in paths.split()}


def below(prefix: str, rows: Rows) -> Rows:
    """Rows, and what stands beside them, of what lies at ``prefix``."""
    return {f"{prefix}.{path}": _moved(prefix, row) for path, row in rows.items()}


def _moved(prefix: str, row: Row) -> Row:
    if isinstance(row, Served):
        beside = {f"{prefix}.{path}": value for path, value in row.beside.items()}
        return Served(by=row.by, tried=row.tried, beside=beside)
    return row


POD: Final[Json] = {"spec": {"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "7"}}}]}}
SMALL: Final[Json] = {
    "spec": {"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "1m"}}}]}
}

COUNT: Final = "the number of pods that are charged"
TEMPLATE: Final = "the pod set's template"
SUSPEND: Final = Served(by="a start clears it, a stop sets it", tried=False)
MANAGED_BY: Final = Told(page="job-kinds.md", sentence="`managedBy` is not read")
SMALLER: Final = Told(page="job-kinds.md", sentence="Gangs that are smaller than the whole")
AFTER: Final = "after the end, or what brings it about: the quota is held until the kind says that it has finished"
RETRIES: Final = "retries and restarts keep the quota"
OTHERS: Final = "of another scheduler's PodGroup, which is made only where that scheduler is the operator's"
RUNS: Final = "what runs in containers, and no part of a request"
NETWORK: Final = "names, addresses and rights, and no pod"
STORAGE: Final = "volumes"
RAY: Final = "what Ray makes of its pods: its own resources, labels and ports"


def written(data: Json, path: str, value: Any) -> Json:
    """A copy with ``value`` at ``path``: in a list its first item, in a map of objects its last."""
    made = copy.deepcopy(data)
    *steps, last = path.split(".")
    at = made
    for step in steps:
        at = at.setdefault(step.rstrip("[]{}"), [{}] if step.endswith("[]") else {})
        if step.endswith("[]"):
            at = at[0]
        elif step.endswith("{}"):
            at = at[list(at)[-1]]
    at[last] = value
    return made


def uncovered(paths: list[str], rows: Mapping[str, object]) -> list[str]:
    """Fields with nothing below them that no row stands for: a row is about all below it, unless rows lie there."""
    parents = {_parent(path) for path in paths}
    closed = {
        path for path in rows if not any(other.startswith((f"{path}.", f"{path}[", f"{path}{{")) for other in rows)
    }
    return [path for path in paths if path not in parents and not (set(_up(path)) & closed)]


def _up(path: str) -> list[str]:
    found = [path]
    while "." in found[-1]:
        found.append(_parent(found[-1]))
    return found


def _parent(path: str) -> str:
    return path.rpartition(".")[0].removesuffix("[]").removesuffix("{}")
