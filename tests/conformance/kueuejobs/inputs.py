"""What rules look at in a case's input, wherever it stands."""

from collections.abc import Iterator, Mapping
from typing import Any


def annotations(value: Any) -> Iterator[Mapping[str, str]]:
    """All annotations anywhere in a case's input."""
    if isinstance(value, Mapping):
        if isinstance(value.get("annotations"), Mapping):
            yield value["annotations"]
        for item in value.values():
            yield from annotations(item)
    elif isinstance(value, list):
        for item in value:
            yield from annotations(item)


def workloads(given: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(given.get("workloads") or ())
