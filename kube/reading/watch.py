"""Following a kind: list, then watch, for ever.

The caller sees ``Listed`` whenever all objects are known anew (at start, and after a gap too old to be watched), so
that it notices objects that vanished in between; then ``Upserted`` and ``Deleted``. Outages are waited for here.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Final, Generic, TypeVar

from msgspec import Struct

from kube.client import EVERYTHING, Client, Decode, Selection, decoder
from kube.clock import Backoff, Clock, pause_s, sleep
from kube.errors import ExpiredError, KubeError, NotFoundError, StartingError
from kube.resources import Resource

log = logging.getLogger(__name__)
T = TypeVar("T")

_SHORT_S = 1.0
"""The seconds below which a watch that the server ends is not taken up again at once: proxies do that when they are
unwell.
"""

_EARLY_S = 10.0

_GONE_AFTER = 3
"""The number of answers in a row that there is no such kind: one of several API servers may not know a new kind yet."""


class Pace(Struct, frozen=True):
    """The pace of one watcher. ``lasts_s`` is asked of the server, which then ends the watch, and it is taken up at
    once.

    ``after_cut_s`` passes at least when a watch is cut, before the server is asked again, and ``begin_s`` before the
    first list. The watchers of a fleet have different values, so that they do not come all at once.
    """

    lasts_s: int = 300
    after_cut_s: float = 0.0
    begin_s: float = 0.0


AT_ONCE: Final = Pace()


class Arrived(Struct, Generic[T], frozen=True):
    """Some of the objects that exist now: a page of a list whose end comes as ``Listed``, or never."""

    items: tuple[T, ...]


class Listed(Struct, Generic[T], frozen=True):
    """All objects that exist now: the caller forgets those that are not in it."""

    items: tuple[T, ...]


class Upserted(Struct, Generic[T], frozen=True):
    """One object came or changed."""

    item: T


class Deleted(Struct, Generic[T], frozen=True):
    """One object went; ``item`` is its last state."""

    item: T


async def follow(
    client: Client,
    resource: Resource,
    kind: type[T],
    *,
    clock: Clock,
    backoff: Backoff,
    selection: Selection = EVERYTHING,
) -> AsyncIterator[Listed[T] | Upserted[T] | Deleted[T]]:
    """Yield changes until cancelled. Every KubeError is followed by a back-off: a watcher outlives missing rights and
    kinds.
    """
    decoded = follow_decoded(
        client, resource, decoder(kind), clock=clock, backoff=backoff, selection=selection, heard=_nobody
    )
    async with aclosing(decoded) as changes:
        async for change in changes:
            if not isinstance(change, Arrived):
                yield change


async def follow_decoded(  # noqa: PLR0913
    client: Client,
    resource: Resource,
    decode: Decode[T],
    *,
    clock: Clock,
    backoff: Backoff,
    heard: Callable[[str], None],
    selection: Selection = EVERYTHING,
    may_go: bool = False,
    pace: Pace = AT_ONCE,
) -> AsyncGenerator[Arrived[T] | Listed[T] | Upserted[T] | Deleted[T]]:
    """``follow`` by pages, with objects as ``decode`` makes them, which raises UnavailableError or nothing.

    ``heard`` gets the version after every list, change and bookmark, up to which every change is known. ``may_go``: the
    kind may be removed from the API server, which ends this with NotFoundError.
    """
    version: str | None = None
    trouble = _Trouble(resource)
    missing = 0
    while True:
        try:
            if version is None:
                items: list[T] = []
                async with aclosing(client.list_pages(resource, decode, selection)) as pages:
                    async for page in pages:
                        items += page.items
                        yield Arrived(page.items)
                version = page.resource_version
                missing = 0
                trouble.end()
                heard(version)
                yield Listed(tuple(items))
            started_s = clock.monotonic()
            async for event in client.watch_decoded(
                resource, decode, resource_version=version, selection=selection, timeout_s=pace.lasts_s
            ):
                version = event.resource_version or version
                backoff.reset()
                trouble.end()
                heard(version)
                if event.object is not None:
                    yield Deleted(event.object) if event.type == "DELETED" else Upserted(event.object)
            await sleep(clock, _after_end_s(clock.monotonic() - started_s, pace, backoff))
        except ExpiredError:
            version = None
            # A server that always answers 410 must not be listed in a tight loop.
            await sleep(clock, backoff.next())
        except NotFoundError as error:
            version, missing = None, missing + 1
            if may_go and missing == _GONE_AFTER:
                raise
            if not may_go:
                trouble.tell(error)
            await sleep(clock, backoff.next())
        except KubeError as error:
            cut_s = 0.0 if trouble.is_there or version is None else pace.after_cut_s
            trouble.tell(error)
            await sleep(clock, max(pause_s(error, backoff), cut_s))


def _after_end_s(lasted_s: float, pace: Pace, backoff: Backoff) -> float:
    """The pause in seconds after a watch that the server ended: a server that is shut down ends all of them, long
    before time.
    """
    if lasted_s < _SHORT_S:
        return max(backoff.next(), pace.after_cut_s)
    return pace.after_cut_s if lasted_s < pace.lasts_s - _EARLY_S else 0.0


class _Trouble:
    """The error that keeps a kind from being followed, logged once until it can be followed again. A server that is
    starting does not hide a later error: a refusal after it is logged too.
    """

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._young = self._failing = False

    @property
    def is_there(self) -> bool:
        return self._young or self._failing

    def tell(self, error: KubeError) -> None:
        young = isinstance(error, StartingError)
        if not (self._failing or (young and self._young)):
            level = logging.INFO if young else logging.WARNING
            log.log(level, "cannot follow %s, trying on: %s", self._resource.plural, error)
        self._young, self._failing = self._young or young, self._failing or not young

    def end(self) -> None:
        if self.is_there:
            log.info("following %s again", self._resource.plural)
        self._young = self._failing = False


def _nobody(_version: str) -> None:
    pass
