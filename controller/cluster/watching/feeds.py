"""The watches of all kinds: a typed copy of each, and one listener for the changes of all.

A follower keeps the copies warm and has no listener. A replica that begins to lead listens: it gets every existing
object as Added, and every change after that.

Some kinds may be missing: their CRD comes and goes with the system that brings it. While one is, the API server's
discovery is requested every few seconds. It costs one short request for all of them, needs no right, and unlike a watch
of CRDs it tells what is served: a CRD exists a while before its kind is served.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, Final, TypeVar

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import DECIDING, IF_SERVED, NEEDED_BY, TYPES, WORKLOADS, Labelled, reader
from kube.client import EVERYTHING, Client, Decode, Selection
from kube.clock import Backoff, Clock, sleep
from kube.errors import ForbiddenError, KubeError, NotFoundError, StartingError
from kube.reading.entries import CachedObject, ObjectKey
from kube.reading.reflector import Added, Change, Changed, Reflector, Synced, Undecodable
from kube.resources import Resource

log = logging.getLogger(__name__)

ASK_S: Final = 5.0
"""Seconds between two requests while a kind is missing."""
_AGAIN_S: Final = 1.0
"""Seconds after a request without an answer, or while the API server sets up the storage of a kind."""
_PATIENCE: Final = 10
"""The number of requests in a row for which a kind by which the engine decides is awaited that is served and cannot be
listed."""
_PATIENCE_AT_START: Final = 60
"""The number of requests in a row for which such a kind is awaited while the API server says that it sets up storage,
and not that it failed."""
_NOWHERE: Final = Selection(field_selector="metadata.name=none")


class _Readable(Enum):
    YES = "yes"
    NO = "no"
    NOT_YET = "not yet"
    STARTING = "starting"


_LATER: Final = {_Readable.NOT_YET: _PATIENCE, _Readable.STARTING: _PATIENCE_AT_START}
"""Answers after which a kind is requested again, and the number of requests for which it is awaited."""


class ServedKinds:
    """Tells which kinds are served. ``run`` until cancelled; ``appears`` returns once a kind is served and may be read.

    ``absent`` has the kinds that are known to be missing, or not listed yet since they came: nothing waits for them.
    Only ``_ask`` and ``gone`` add to it, only ``listed`` and ``remove`` take away. A kind that was served at the first
    answer is in it only once it is gone, so that a process that starts waits for it.
    """

    def __init__(self, client: Client, kinds: Collection[Resource], clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._there = {resource: asyncio.Event() for resource in kinds}
        self._refused: set[Resource] = set()
        self._not_yet: dict[Resource, int] = {}
        """Kinds that are served and could not be listed, with the number of requests in a row; ``_ask`` alone writes
        it."""
        self._missing = asyncio.Event()
        self.absent: set[Resource] = set()

    def __contains__(self, resource: Resource) -> bool:
        """Whether this is a kind that may be absent."""
        return resource in self._there

    async def run(self) -> None:
        while True:
            answered = await self._ask()
            await sleep(self._clock, ASK_S if answered else _AGAIN_S)
            if all(there.is_set() for there in self._there.values()):
                self._missing.clear()
                await self._missing.wait()

    async def add(self, resource: Resource) -> None:
        """Adds a kind. Returns when it is known whether it is served, or that the API server does not tell now."""
        self._there.setdefault(resource, asyncio.Event())
        self._missing.set()
        await self._ask()

    def remove(self, resource: Resource) -> None:
        """Removes a kind that was added."""
        self._there.pop(resource, None)
        self._refused.discard(resource)
        self.absent.discard(resource)

    async def appears(self, resource: Resource) -> None:
        await self._there[resource].wait()

    def listed(self, resource: Resource) -> None:
        """Notes that all objects of the kind are known."""
        self.absent.discard(resource)

    def gone(self, resource: Resource) -> None:
        log.info("%s are not served any more", resource.plural)
        self.absent.add(resource)
        self._there[resource].clear()
        self._missing.set()

    async def _ask(self) -> bool:
        missing = [resource for resource, there in self._there.items() if not there.is_set()]
        try:
            served = await self._served_versions() if missing else frozenset()
            candidates = [
                candidate
                for candidate in missing
                # Discovery of groups does not name the core group, which is always served.
                if served is None or not candidate.group or candidate.api_version in served
            ]
            readable = {candidate: await self._is_readable(candidate) for candidate in candidates}
        except KubeError as error:
            log.warning("it is not known which kinds are there, trying on: %s", error)
            return False
        self._not_yet = {each: self._not_yet.get(each, 0) + 1 for each, answer in readable.items() if answer in _LATER}
        impatient = {each for each, times in self._not_yet.items() if times >= _LATER[readable[each]]}
        there = [each for each, answer in readable.items() if answer is _Readable.YES and each in self._there]
        for resource in there:
            self._there[resource].set()
        if new := [each.plural for each in there if each in self.absent]:
            log.info("now there: %s", ", ".join(new))
        waited_for = {each for each in self._not_yet if each in DECIDING and each not in impatient}
        known = self.absent | waited_for | set(there)
        if lacking := [each for each in missing if each in self._there and each not in known]:
            log.info("not there: %s", ", ".join(each.plural for each in lacking))
            self.absent.update(lacking)
        return impatient == self._not_yet.keys()

    async def _served_versions(self) -> frozenset[str] | None:
        """The API groups and versions that are served; None if discovery is closed to this account: then each kind is
        tried. Raises KubeError.
        """
        try:
            return await self._client.group_versions()
        except ForbiddenError:
            return None

    async def _is_readable(self, resource: Resource) -> _Readable:
        """Whether the kind itself is in its group, and this account may list it.

        A kind that cannot be listed right now, as one whose storage is being set up, is requested again. A kind of jobs
        counts as absent meanwhile: decisions without its jobs do them no harm.
        """
        try:
            await self._client.list_all(resource, dict[str, Any], _NOWHERE)
        except NotFoundError:
            return _Readable.NO
        except ForbiddenError as error:
            if resource not in self._refused:
                log.warning("%s are there and cannot be read: %s", resource.plural, error)
                self._refused.add(resource)
            return _Readable.NO
        except KubeError as error:
            log.info("%s cannot be listed yet: %s", resource.plural, error)
            return _Readable.STARTING if isinstance(error, StartingError) else _Readable.NOT_YET
        return _Readable.YES


T = TypeVar("T")

FIRST = 10.0
"""Seconds after which a kind that is not listed yet is logged."""

_LOOK_S = 0.02

# Workloads come last: what they need (queues, flavors, classes) is known by then, so that nothing is tried twice.
ORDER = tuple(sorted(DECIDING, key=lambda resource: resource is WORKLOADS))


class Feeds:
    """The watches. ``readers``: the decoders of each kind. Open ``running`` and wait for ``synced``.

    A reflector alone writes the copy of its kind. There is at most one listener, set by the term that runs; the changes
    that it was given and the copies of ``_introduced`` kinds agree, because both change in one call. Kinds of
    ``may_lack`` are watched while the API server has them, and count as listed while it has not. A kind of NEEDED_BY is
    watched once ``_wanted`` is set for it, and never stops again.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        random: Callable[[], float],
        readers: dict[Resource, Decode[Any]] | None = None,
        may_lack: Collection[Resource] = IF_SERVED,
    ) -> None:
        self._client = client
        self._clock = clock
        self._listener: Callable[[ObjectChange], None] | None = None
        self._introduced: set[Resource] = set()
        """Kinds whose changes the listener gets; it gets nothing of others."""
        decoders = readers if readers is not None else {resource: reader(type_) for resource, type_ in TYPES.items()}
        self._reflectors: dict[Resource, Reflector[Any]] = {}
        self._wanted = {resource: asyncio.Event() for resource in NEEDED_BY if resource in decoders}
        self._served = ServedKinds(client, [optional for optional in decoders if optional in may_lack], clock)
        self._random = random
        self._noted: dict[Resource, Callable[[], None]] = {}
        self._added: dict[Resource, asyncio.Task[None] | None] = {}
        """Kinds that ``follow`` has added, and the tasks that watch them once ``running`` is open."""
        self._group: asyncio.TaskGroup | None = None
        self.undecodable_seen = 0
        for resource, decode in decoders.items():
            self._reflectors[resource] = self._reflector(resource, decode)

    def __getitem__(self, resource: Resource) -> Reflector[Any]:
        return self._reflectors[resource]

    def __contains__(self, resource: Resource) -> bool:
        return resource in self._reflectors

    @property
    def resources(self) -> tuple[Resource, ...]:
        return tuple(self._reflectors)

    def _reflector(self, resource: Resource, decode: Decode[Any]) -> Reflector[Any]:
        backoff = Backoff(random=self._random, initial_s=0.2, maximum_s=10.0)
        forward, selection = self._forwarder(resource), _selection(resource)
        return Reflector(
            self._client, resource, decode, forward, clock=self._clock, backoff=backoff, selection=selection
        )

    async def follow(self, resource: Resource, decode: Decode[Any]) -> None:
        """Watches one more kind, which may be absent, until ``drop``. Returns when it is known whether it is served."""
        if resource in self._reflectors:
            return
        self._reflectors[resource] = self._reflector(resource, decode)
        self._added[resource] = None
        if self._listener is not None:
            self._introduced.add(resource)
        self._start(resource)
        await self._served.add(resource)

    def want(self, resource: Resource) -> None:
        """Watches a kind of NEEDED_BY from now on, if it has a reader."""
        if resource in self._wanted:
            self._wanted[resource].set()

    def is_served(self, resource: Resource) -> bool:
        """Whether a kind that may be absent is served, by the last answer."""
        return resource not in self._served.absent

    def drop(self, resource: Resource) -> None:
        """Stops the watch of a kind that ``follow`` has added. No listener may read its objects any more."""
        task = self._added.pop(resource)
        if task is not None:
            task.cancel()
        self._served.remove(resource)
        self._introduced.discard(resource)
        del self._reflectors[resource]

    def note(self, resource: Resource, call: Callable[[], None]) -> None:
        """Calls ``call`` after every change of the kind's objects, whether or not there is a listener."""
        self._noted[resource] = call

    def _start(self, resource: Resource) -> None:
        if self._group is not None:
            follow = self._follow(resource, self._reflectors[resource])
            self._added[resource] = self._group.create_task(follow, name=f"follow-{resource.plural}")

    async def _follow_added(self) -> None:
        """Watches the added kinds until cancelled, or until one of the watches fails."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for resource in self._added:
                self._start(resource)
            await asyncio.Event().wait()

    def _want_for(self, resource: Resource, given: object) -> None:
        """Watches the kinds that this object needs."""
        for later, wanted in self._wanted.items():
            needs = NEEDED_BY[later].get(resource)
            if needs is not None and not wanted.is_set() and needs(given):
                wanted.set()

    def _forwarder(self, resource: Resource) -> Callable[[Change[Any]], None]:
        def forward(change: Change[Any]) -> None:
            if isinstance(change, Added | Changed):
                self._want_for(resource, change.new.object)
            if isinstance(change, Synced) and resource in self._served:
                self._served.listed(resource)
            if isinstance(change, Undecodable):
                self.undecodable_seen += 1
            elif self._listener is not None and resource in self._introduced and not isinstance(change, Synced):
                self._listener(ObjectChange(resource, change))
            if (noted := self._noted.get(resource)) is not None:
                noted()

        return forward

    @asynccontextmanager
    async def running(self) -> Any:
        """Watches all kinds until the block ends; yields the tasks, so that the caller sees one that failed."""
        tasks = [
            asyncio.create_task(self._follow(resource, reflector), name=f"follow-{resource.plural}")
            for resource, reflector in self._reflectors.items()
        ]
        tasks.append(asyncio.create_task(self._served.run(), name="served-kinds"))
        tasks.append(asyncio.create_task(self._follow_added(), name="added-kinds"))
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._group = None

    async def synced(self) -> None:
        """Returns when every kind has been listed once."""
        for resource in sorted(self._reflectors, key=lambda resource: resource in self._wanted):
            await self.listed(resource)

    async def listed(self, resource: Resource) -> None:
        """Returns when the kind has been listed once, or is known to be missing, or is not wanted."""
        if not self._follows(resource):
            return
        wait = asyncio.ensure_future(self._settled(resource, self._reflectors[resource]))
        done, _ = await asyncio.wait([wait], timeout=FIRST)
        if not done:
            log.warning("waiting for %s: not listed yet", resource.plural)
            await wait

    @property
    def unsynced(self) -> tuple[str, ...]:
        return tuple(resource.plural for resource in self._reflectors if not self._ready(resource))

    async def _follow(self, resource: Resource, reflector: Reflector[Any]) -> None:
        if resource in self._wanted:
            await self._wanted[resource].wait()
        if resource not in self._served:
            await reflector.run()
        while True:
            await self._served.appears(resource)
            await reflector.run_while_served()
            self._served.gone(resource)

    async def _settled(self, resource: Resource, reflector: Reflector[Any]) -> None:
        """Returns when the kind has been listed, or is known to be missing."""
        while resource in self._served and not reflector.synced:
            if resource in self._served.absent:
                return
            await sleep(self._clock, _LOOK_S)
        await reflector.wait_synced()

    def _follows(self, resource: Resource) -> bool:
        wanted = self._wanted.get(resource)
        if resource in self._served.absent:
            return False
        return wanted is None or wanted.is_set()

    def _ready(self, resource: Resource) -> bool:
        return self._reflectors[resource].synced or not self._follows(resource)

    async def introduce(self, listener: Callable[[ObjectChange], None]) -> None:
        """Gives the listener all objects as Added, kinds that others need first, each once it has been listed, and from
        then on every change. Replaces an earlier listener. Returns when every kind has been listed.

        Workloads are most of all objects: they are given as they come, while the server still lists the rest of the
        others.
        """
        self._listener = listener
        self._introduced.clear()
        for resource in self._ordered():
            if resource is not WORKLOADS:
                await self.listed(resource)
            self._introduced.add(resource)
            for observed in self._known(resource):
                listener(observed)
        await self.synced()

    def known(self) -> Iterator[ObjectChange]:
        """All present objects as Added, kinds that others need first."""
        for resource in self._ordered():
            yield from self._known(resource)

    def _known(self, resource: Resource) -> Iterator[ObjectChange]:
        reflector = self._reflectors[resource]
        for key in list(reflector):
            entry = reflector.get(key)
            if entry is not None:
                yield ObjectChange(resource, Added(key, entry))

    def silence(self) -> None:
        """Removes the listener."""
        self._listener = None
        self._introduced.clear()

    def lags(self) -> Iterator[tuple[str, float]]:
        """Seconds since each watch last got an event or a bookmark."""
        for resource, reflector in self._reflectors.items():
            lag_s = reflector.lag_s
            if lag_s is not None:
                yield f"{resource.word} {resource.plural}" if isinstance(resource, Labelled) else resource.plural, lag_s

    def entry(self, resource: Resource, key: ObjectKey) -> CachedObject[Any] | None:
        return self._reflectors[resource].get(key)

    def _ordered(self) -> Iterable[Resource]:
        return sorted(
            self._reflectors, key=lambda reflector: ORDER.index(reflector) if reflector in ORDER else len(ORDER)
        )


def _selection(resource: Resource) -> Selection:
    return Selection(label_selector=resource.selector) if isinstance(resource, Labelled) else EVERYTHING
