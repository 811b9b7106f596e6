"""What one system adds to a plan, and how the parts become one: values, steps, what is lost, what stays."""

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct, field

Json = dict[str, Any]


class Step(Struct, frozen=True):
    """``command`` and ``undo`` are for a shell in a checkout of Tessera, with kubectl and Helm."""

    do: str
    command: str
    undo: str


class Told(Struct, frozen=True):
    """A thing that is lost or stays. ``what``: the path of a field, or an object."""

    what: str
    why: str


class Part(Struct):
    """What one system adds. ``first``: steps before the installation; ``last``: after it.

    ``queues``: the controller is needed. ``kueue``: Kueue's kinds are in the cluster and stay as they are.
    """

    values: Json = field(default_factory=dict)
    first: list[Step] = field(default_factory=list)
    last: list[Step] = field(default_factory=list)
    lost: list[Told] = field(default_factory=list)
    kept: list[Told] = field(default_factory=list)
    copies: list[tuple[str, str, str]] = field(default_factory=list)
    """ConfigMaps that the agent mounts: namespace, name, and what they are for people."""
    made: list[Step] = field(default_factory=list)
    """Steps that make objects in the release's namespace, before the installation."""
    agent: bool = False
    """What serves GPUs on nodes is replaced."""
    queues: bool = False
    kueue: bool = False
    is_empty: bool = False
    """Nothing of the system was read."""


_BY_NAME: Final = frozenset({"env", "volumes", "volumeMounts"})
"""Lists whose items have names: those of the first part win."""


def merged(values: Iterable[Json]) -> Json:
    """Values of several parts as one: the first part's win, maps are joined, so are lists of named items and of
    tolerations.
    """
    found: Json = {}
    for each in values:
        _into(found, each)
    return found


def _into(found: Json, more: Json) -> None:
    for key, value in more.items():
        there = found.get(key)
        if isinstance(there, dict) and isinstance(value, dict):
            _into(there, value)
        elif isinstance(there, list) and isinstance(value, list) and key in _BY_NAME:
            names = {each["name"] for each in there}
            there.extend(each for each in value if each["name"] not in names)
        elif isinstance(there, list) and isinstance(value, list) and key == "tolerations":
            there.extend(each for each in value if each not in there)
        elif key not in found:
            found[key] = _copied(value)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def set_value(values: Json, path: str, value: Any) -> None:
    """Sets a value by its dotted path, where none is set yet."""
    *heads, last = path.split(".")
    for key in heads:
        values = values.setdefault(key, {})
    values.setdefault(last, value)
