"""Decides whether Tessera decides for foreign systems: for each that is switched on, and whose Queues the API server
has.

Two schedulers must never decide about one queue. So with ``auto`` a system is left alone while one of its own leases is
held; a lease that cannot be read counts as held. Leases are read before each term and every few seconds in it: a change
ends the term, as a change of kinds of jobs does. A system is switched off at once, and on a while after the last
renewal: a rollout of its own parts leaves its leases free for seconds.
"""

import logging
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import Any, Final

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.kinds import FOREIGN_QUEUES, PODS, QUEUES_OF, reader
from controller.scheduler.mirror.specs import System
from kube.client import Client, Decode
from kube.clock import Clock, sleep
from kube.election.candidate import Lease, LeaseSpec
from kube.errors import ForbiddenError, KubeError, NotFoundError
from kube.resources import LEASES, Resource

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""Seconds between two readings of leases."""
_LEASE_S: Final = 15
"""The duration of a lease that does not tell one: client-go's default."""
FREE_S: Final = 60.0
"""The time after its last renewal for which a lease keeps its system off, whether it is given back or not."""


def is_held(lease: LeaseSpec, now_s: float, *, free_s: float = 0.0) -> bool:
    """Whether the lease's holder has renewed it within its duration, or any holder within ``free_s``.

    A time that cannot be read counts as just now.
    """
    if not lease.renew_time:
        return False
    try:
        age_s = now_s - datetime.fromisoformat(lease.renew_time).timestamp()
    except ValueError:
        age_s = 0.0
    lasts_s = lease.lease_duration_seconds or _LEASE_S
    return age_s < free_s or (bool(lease.holder_identity) and age_s < lasts_s)


class ForeignSystems:
    """The systems that are decided for. ``adopt`` before each term; the coroutine of ``changes`` returns in it when
    other systems are to be decided for.

    ``in_force`` changes in ``adopt`` alone. Queues are watched from the first reading at which their system is on,
    until ``adopt`` finds it off. ``readers``: what else is watched while a system is decided for.
    """

    def __init__(
        self,
        config: ControllerConfig,
        client: Client,
        feeds: Feeds,
        clock: Clock,
        readers: Mapping[System, Mapping[Resource, Decode[Any]]] | None = None,
    ) -> None:
        self._switched = {system: each for system, each in config.foreign.items() if each.enabled is not False}
        self._client = client
        self._feeds = feeds
        self._clock = clock
        self._readers = readers or {}
        self._unreadable: set[str] = set()
        self.in_force: frozenset[System] = frozenset()

    async def adopt(self) -> None:
        systems = await self._look()
        for system in self._switched.keys() - systems:
            for resource in (QUEUES_OF[system], *self._readers.get(system, ())):
                if resource in self._feeds:
                    self._feeds.drop(resource)
        for system in sorted(systems):
            for resource, decode in self._readers.get(system, {}).items():
                await self._feeds.follow(resource, decode)
        if systems:
            self._feeds.want(PODS)  # mirrored queues place pods on nodes, where those of others take room
        if systems != self.in_force:
            log.info("queues of other systems: %s", ", ".join(sorted(systems)) or "none")
        self.in_force = systems

    @property
    def changes(self) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """A coroutine that returns when other systems are to be in force; None if none ever is."""
        return self._change if self._switched else None

    async def _change(self) -> None:
        await sleep(self._clock, LOOK_S)
        while await self._look() == self.in_force:
            await sleep(self._clock, LOOK_S)

    async def _look(self) -> frozenset[System]:
        """The systems that are on now; the present ones if the API server does not answer."""
        try:
            served = await self._served_versions() if self._switched else frozenset()
            return frozenset([system for system in self._switched if await self._is_on(system, served)])
        except KubeError as error:
            log.warning("it is not known which queues of other systems are there, trying on: %s", error)
            return self.in_force

    async def _served_versions(self) -> frozenset[str] | None:
        """The API groups and versions that the API server serves; None if discovery is closed to this account."""
        try:
            return await self._client.group_versions()
        except ForbiddenError:
            return None

    async def _is_on(self, system: System, served: frozenset[str] | None) -> bool:
        queues, switch = QUEUES_OF[system], self._switched[system]
        if served is not None and queues.api_version not in served:
            return False
        if switch.enabled is None:
            free_s = 0.0 if system in self.in_force else FREE_S
            for lease in switch.leases:
                if await self._is_held(lease, free_s):
                    return False
        await self._feeds.follow(queues, reader(FOREIGN_QUEUES[queues]))
        return self._feeds.is_served(queues)

    async def _is_held(self, lease: str, free_s: float) -> bool:
        namespace, _, name = lease.partition("/")
        try:
            lease_object = await self._client.get(LEASES, name, Lease, namespace=namespace)
        except NotFoundError:
            return False
        except ForbiddenError as error:
            if lease not in self._unreadable:
                log.warning("lease %s counts as held: it cannot be read: %s", lease, error)
                self._unreadable.add(lease)
            return True
        return is_held(lease_object.spec, self._clock.wall(), free_s=free_s)
