"""What ``PendingQueues`` reports of evicted workloads that have gone."""

from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol

from controller.engine.model.resources import WorkloadKey


class Departed(NamedTuple):
    """Evicted workloads have gone. Their tree was woken just now, and for nothing else."""

    keys: AbstractSet[WorkloadKey]


class DepartureListener(Protocol):
    """``controller.engine.claims.claims.Claims``, as far as it is told here."""

    def apply(self, event: Departed, /) -> object: ...


class NoListener:
    """Keeps nothing that depends on departures."""

    def apply(self, event: Departed, /) -> None: ...
