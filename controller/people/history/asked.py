"""One question of the page about the past, checked. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from controller.people.history.queries import HistoryError, cohort, fleet, hours, name, node, queue, workload
from controller.people.visibility.routes import FLEET, QUEUES, Attributes, node_right
from inventory.api.names import VIEW_GROUP, VIEW_VERSION

_WHAT: Final = ("queue", "cohort", "workload", "fleet", "node")
_A_DAY: Final = "24"


class Asked(NamedTuple):
    """A question. ``name``: ``NAMESPACE/NAME`` of a workload, the name of a queue, cohort or node, empty for the fleet.
    ``back``: hours.
    """

    what: str
    name: str
    back: int

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Asked":
        """The question in the parameters of a request. Raises HistoryError."""
        what, named, back = query.get("what", ""), query.get("name", ""), hours(query.get("hours", _A_DAY))
        if what not in _WHAT:
            raise HistoryError(f"what: found {what[:20]!r}, expected one of {', '.join(_WHAT)}")
        if what == "fleet":
            return cls(what, "", back)
        namespace, slash, last = named.partition("/")
        if bool(slash) != (what == "workload"):
            expected = "NAMESPACE/NAME" if what == "workload" else "a name"
            raise HistoryError(f"name: found {named[:60]!r}, expected {expected}")
        return cls(what, f"{name(namespace)}/{name(last)}" if slash else name(named), back)

    @property
    def of_pods(self) -> bool:
        return self.what == "workload"

    @property
    def in_gpus(self) -> bool:
        """Whether all series are of GPUs, and have no label that says so."""
        return self.what in ("workload", "fleet", "node")

    @property
    def right(self) -> Attributes:
        """The right that a question takes: to get the workload's or the node's view, or to list those of its kind."""
        if self.what == "fleet":
            return FLEET
        if self.what in ("queue", "cohort"):
            return QUEUES
        if self.what == "node":
            return node_right(self.name)
        namespace, _, named = self.name.partition("/")
        return Attributes("get", VIEW_GROUP, VIEW_VERSION, "workloadviews", namespace=namespace, name=named)

    def key(self, pods: Sequence[str]) -> str:
        """The cache key: equal for questions that make equal queries."""
        of = hashlib.sha256("/".join(pods).encode()).hexdigest()[:16] if pods else ""
        return f"{self.what}/{self.name}/{of}"

    def queries(self, pods: Sequence[str]) -> dict[str, str]:
        """The PromQL of each series by its name; empty for a workload without pods."""
        match self.what:
            case "queue":
                return queue(self.name)
            case "cohort":
                return cohort(self.name)
            case "fleet":
                return fleet()
            case "node":
                return node(self.name)
        return workload(self.name.partition("/")[0], pods) if pods else {}
