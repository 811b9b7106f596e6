"""Reads a job's JSON. Each value is checked when it is read: one sentence names the field that is wrong.

A job is handled as the JSON that it came in, because changes to its pod template must lose nothing, and typed structs
keep only what they know.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from yamlfile.parsers import Unfit, go_duration

Json = dict[str, Any]
T = TypeVar("T")

_MAX_SHOWN = 63
_MAX_COUNT = 2**31 - 1
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class JobError(ValueError):
    """The job cannot be queued as it is: one sentence for its owner, with field, value found and value expected."""


class PriorityClassMissingError(JobError):
    """The priority class that the job names does not exist."""


def at(job: Json, *path: str) -> Any:
    """The value at ``path``; None if it, or anything on the way to it, is absent or null."""
    value: Any = job
    for index, key in enumerate(path):
        if value is None:
            return None
        if not isinstance(value, dict):
            raise JobError(f"{'.'.join(path[:index])}: expected an object, found {type(value).__name__}")
        value = value.get(key)
    return value


def mapping(job: Json, *path: str) -> Json:
    value = at(job, *path)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise JobError(f"{'.'.join(path)}: expected an object, found {type(value).__name__}")
    return value


def sequence(job: Json, *path: str) -> list[Any]:
    value = at(job, *path)
    if value is None:
        return []
    if not isinstance(value, list):
        raise JobError(f"{'.'.join(path)}: expected a list, found {type(value).__name__}")
    return value


def strings(job: Json, *path: str) -> dict[str, str]:
    """A map of strings at ``path``, such as labels, annotations and selectors. Raises JobError."""
    value = mapping(job, *path)
    wrong = next((key for key, item in value.items() if not isinstance(item, str)), None)
    if wrong is not None:
        raise JobError(f"{'.'.join(path)}[{shown(wrong)}]: expected a string, found {type(value[wrong]).__name__}")
    return value


def text(job: Json, *path: str) -> str:
    value = at(job, *path)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise JobError(f"{'.'.join(path)}: expected a string, found {type(value).__name__}")
    return value


def integer(job: Json, *path: str, default: int) -> int:
    value = at(job, *path)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise JobError(f"{'.'.join(path)}: expected an integer, found {type(value).__name__}")
    return value


def parallel_pods(job: Json, *path: str) -> int:
    """The number of pods that a ``batch/v1`` Job runs at a time; ``path`` leads to its spec."""
    parallelism = integer(job, *path, "parallelism", default=1)
    return min(parallelism, integer(job, *path, "completions", default=_MAX_COUNT))


def flag(job: Json, *path: str) -> bool:
    value = at(job, *path)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise JobError(f"{'.'.join(path)}: expected true or false, found {type(value).__name__}")
    return value


def labels(job: Json) -> dict[str, str]:
    return strings(job, "metadata", "labels")


def annotations(job: Json) -> dict[str, str]:
    return strings(job, "metadata", "annotations")


def condition(job: Json, type_: str) -> Json:
    """The condition of that type; empty if there is none."""
    for item in sequence(job, "status", "conditions"):
        if isinstance(item, dict) and item.get("type") == type_:
            return item
    return {}


def has_condition(job: Json, type_: str) -> bool:
    return condition(job, type_).get("status") == "True"


def shown(value: object) -> str:
    """A value for a sentence: quoted, on one line, cut to a label's length."""
    return repr(value if not isinstance(value, str) else value[:_MAX_SHOWN])


def missing_class(where: str, kind: str, name: str) -> "PriorityClassMissingError":
    """``kind``: PriorityClass or WorkloadPriorityClass."""
    return PriorityClassMissingError(f"{where}: found {shown(name)}, expected a {kind} that exists")


def parsed_integer(value: str, where: str) -> int:
    """A whole number written as text. Raises JobError."""
    if _INTEGER.fullmatch(value) is None:
        raise JobError(f"{where}: expected an integer, found {shown(value)}")
    return int(value)


def parsed_flag(value: str, where: str) -> bool:
    """A truth value in one of the spellings that Go's strconv.ParseBool takes. Raises JobError."""
    if value in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if value in {"0", "f", "F", "false", "FALSE", "False"}:
        return False
    raise JobError(f"{where}: expected true or false, found {shown(value)}")


def parsed_duration(value: str, where: str) -> float:
    """Seconds of a duration as Go writes it, which may be negative. Raises JobError."""
    sign = -1.0 if value.startswith("-") else 1.0
    try:
        return sign * go_duration(value.removeprefix("-"))
    except Unfit:
        raise JobError(f"{where}: expected a duration such as 60s, found {shown(value)}") from None


def map_patch(now: Mapping[str, Any], wanted: Mapping[str, Any]) -> Json:
    """The merge patch (RFC 7386) that makes a flat map ``now`` into ``wanted``; empty if they are equal."""
    changed = {key: value for key, value in wanted.items() if now.get(key) != value}
    return {**changed, **{key: None for key in now if key not in wanted}}


def copied(value: T) -> T:
    """A copy that shares no object and no list with ``value``: copy.deepcopy of JSON at a third of its cost."""
    if isinstance(value, dict):
        return cast("T", {key: copied(item) for key, item in value.items()})
    return cast("T", [copied(item) for item in value]) if isinstance(value, list) else value


def merged(target: Any, patch: Any) -> Any:
    """A copy of ``target`` with ``patch`` merged into it (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return copied(patch)
    before = target if isinstance(target, Mapping) else {}
    result: Json = {}
    for key, value in before.items():
        if key not in patch:
            result[key] = copied(value)
        elif patch[key] is not None:
            result[key] = merged(value, patch[key])
    return result | {
        key: merged(None, value) for key, value in patch.items() if key not in before and value is not None
    }
