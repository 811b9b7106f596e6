"""Keeps the quotas of ClusterQueues and Cohorts at their shares of live capacity (under ``tessera.quotaFromCapacity``).
Objects pass through here on their way in; when a node or flavor changes capacity, the objects are returned whose quotas
are shares of it.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction

from controller.objects.core import Node
from controller.objects.queues import ClusterQueue, Cohort, ResourceFlavor
from controller.scheduler.model.resources import FlavorName, FlavorResource
from controller.scheduler.quota.capacity import Capacity, QuotaShareError, resolved, shares_of

Owner = ClusterQueue | Cohort
_OwnerKey = tuple[type, str]


class QuotaShares:
    def __init__(self, *, coming: bool = False) -> None:
        """``coming``: nodes that flavors' templates say can come count."""
        self.capacity = Capacity(coming=coming)
        self.problems: dict[_OwnerKey, str] = {}
        """Annotations that cannot be used, by kind and name: their objects' nominal quotas count."""
        self._given: dict[_OwnerKey, Owner] = {}
        self._users: dict[FlavorName, set[_OwnerKey]] = {}

    def through(self, given: Owner) -> Owner:
        """The object with its shares as nominal quotas."""
        key = (type(given), given.metadata.name)
        self._forget(key)
        try:
            shares = shares_of(given.metadata.annotations)
            made = resolved(given, self.capacity)
        except QuotaShareError as error:
            self.problems[key] = str(error)
            return given
        if shares:
            self._given[key] = given
            for fr in shares:
                self._users.setdefault(fr.flavor, set()).add(key)
        return made

    def given(self) -> Iterator[tuple[Owner, Mapping[FlavorResource, Fraction]]]:
        """The objects whose quotas are shares, each with its shares of capacity."""
        for owner in self._given.values():
            yield owner, shares_of(owner.metadata.annotations)

    def gone(self, kind: type, name: str) -> list[Owner]:
        """Remove an object of any kind. Returns the ClusterQueues and Cohorts that the engine must take in again
        because of it.
        """
        self._forget((kind, name))
        if kind is Node:
            return list(self._again(self.capacity.remove_node(name)))
        if kind is ResourceFlavor:
            return list(self._again(self.capacity.remove_flavor(FlavorName(name))))
        return []

    def node(self, given: Node) -> list[Owner]:
        """Store a node. Returns the ClusterQueues and Cohorts that the engine must take in again because of it."""
        return list(self._again(self.capacity.set_node(given)))

    def flavor(self, given: ResourceFlavor) -> list[Owner]:
        return list(self._again(self.capacity.set_flavor(given)))

    def _again(self, flavors: frozenset[FlavorName]) -> Iterator[Owner]:
        keys = {key for flavor in flavors for key in self._users.get(flavor, ())}
        for key in sorted(keys, key=lambda pair: (pair[0].__name__, pair[1])):
            yield resolved(self._given[key], self.capacity)

    def _forget(self, key: _OwnerKey) -> None:
        self.problems.pop(key, None)
        if self._given.pop(key, None) is not None:
            for users in self._users.values():
                users.discard(key)
