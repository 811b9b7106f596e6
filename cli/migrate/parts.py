"""What one system adds to a plan, and how the parts become one: values, steps, what is lost, what stays."""

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct, field

from inventory.api.names import REPAIR_TAINT

Json = dict[str, Any]

TOLERATIONS: Final[list[Json]] = [
    {"key": "CriticalAddonsOnly", "operator": "Exists"},
    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    {"key": REPAIR_TAINT, "operator": "Exists", "effect": "NoSchedule"},
]
"""The chart's own: a list in the values replaces them, so they are repeated."""


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
    """What one system adds. ``first``: steps before the installation; ``last``: after it; ``made``: those that make
    objects in the release's namespace, before all of them.

    ``agent``: what serves GPUs on nodes is replaced. ``queues``: the controller is needed. ``kueue``: Kueue's kinds are
    in the cluster and stay as they are. ``values``: of the chart; ``take``, ``drop``,
    ``runs_with`` and ``_containers`` write it.
    """

    values: Json = field(default_factory=dict)
    agent: bool = False
    queues: bool = False
    kueue: bool = False
    first: list[Step] = field(default_factory=list)
    last: list[Step] = field(default_factory=list)
    made: list[Step] = field(default_factory=list)
    lost: list[Told] = field(default_factory=list)
    kept: list[Told] = field(default_factory=list)
    followers: list[tuple[str, Step]] = field(default_factory=list)
    """Steps that stop what the agents do besides serving GPUs, each with the name of what it stops: after the
    installation where agents come to nodes; else what they would stop goes on.
    """
    copies: list[tuple[str, str, str]] = field(default_factory=list)
    """ConfigMaps that the agent mounts: namespace, name, and what they are for people."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the system was read."""
        steps = self.first or self.last or self.made or self.followers
        return not (self.values or steps or self.lost or self.kept or self.copies)

    def lose(self, what: str, why: str) -> None:
        self.lost.append(Told(what, why))

    def keep(self, what: str, why: str) -> None:
        self.kept.append(Told(what, why))

    def loses(self, found: Iterable[Told]) -> None:
        self.lost.extend(found)

    def keeps(self, found: Iterable[Told]) -> None:
        self.kept.extend(found)

    def before(self, *steps: Step) -> None:
        self.first.extend(steps)

    def after(self, *steps: Step) -> None:
        self.last.extend(steps)

    def follow(self, what: str, step: Step) -> None:
        """Has a step stop ``what`` where agents take its place."""
        self.followers.append((what, step))

    def make(self, step: Step) -> None:
        self.made.append(step)

    def copied(self, space: str, name: str, what: str) -> None:
        """Has a ConfigMap of another namespace copied."""
        self.copies.append((space, name, what))

    def take(self, path: str, value: Any) -> None:
        """Sets a value by its dotted path, where none is set yet."""
        set_value(self.values, path, value)

    def drop(self, key: str) -> bool:
        """Takes a value away again; whether it said something."""
        return bool(self.values.pop(key, None))

    def tolerates(self, found: Iterable[Json] | None) -> None:
        """Sets the agents' tolerations: the chart's own, and these."""
        ours = [{key: value for key, value in each.items() if value is not None} for each in found or ()]
        if ours:
            self.take("tolerations", [*TOLERATIONS, *(each for each in ours if each not in TOLERATIONS)])

    def runs_with(self, variables: Iterable[Json]) -> None:
        """Adds variables of the agent's; one that is there stays as it is."""
        _into(self.values, {"env": list(variables)})
        if not self.values["env"]:
            del self.values["env"]


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
            found[key] = _cloned(value)


def _cloned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cloned(each) for key, each in value.items()}
    return [_cloned(each) for each in value] if isinstance(value, list) else value


def set_value(values: Json, path: str, value: Any) -> None:
    """Sets a value by its dotted path, where none is set yet."""
    *heads, last = path.split(".")
    for key in heads:
        values = values.setdefault(key, {})
    values.setdefault(last, value)
