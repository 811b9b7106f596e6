"""Follows the kinds that the judge reads at an API server, with the caller's rights: list, then watch, until
the end.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import IO, Any, Final

from msgspec import Struct

from cli.audit.recorder import Recorder
from cli.printing.console import Json
from controller.cluster.watching.kinds import (
    CLAIM_TEMPLATES,
    CLUSTER_QUEUES,
    COHORTS,
    DEVICE_CLAIMS,
    LOCAL_QUEUES,
    PODS,
    WORKLOADS,
)
from controller.jobs.kinds.table import JOB_KINDS
from history.settings import Settings
from kube.client import Client, Listing, decoder
from kube.clock import Backoff, Clock, pause_s, sleep
from kube.errors import ForbiddenError, KubeError, NotFoundError
from kube.resources import Resource

NEEDED: Final = (CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, PODS)
"""The kinds that are judged: without one of them there is no record."""
JOBS: Final = tuple(Resource(kind.group, kind.version, kind.plural, kind.kind, namespaced=True) for kind in JOB_KINDS)
OWNERS: Final = (
    Resource("apps", "v1", "replicasets", "ReplicaSet", namespaced=True),
    Resource("apps", "v1", "deployments", "Deployment", namespaced=True),
    Resource("apps", "v1", "statefulsets", "StatefulSet", namespaced=True),
    Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet", namespaced=True),
)
ALSO: Final = (COHORTS, *JOBS, *OWNERS, DEVICE_CLAIMS, CLAIM_TEMPLATES)
"""Further kinds. One that is not served is not missed; one that may not be read is reported."""
FLUSHED_S: Final = 1.0
"""What a recorder has heard is in its file after so long: a recorder that is killed leaves a record of that."""
_SHORT_S: Final = 1.0
_JSON: Final = decoder(Json)


class First(Struct):
    """The objects that exist when the record begins."""

    listed: dict[Resource, Listing[Json]]
    unseen: list[str]
    """What cannot be seen, one line each: kinds that ``first`` may not list, and settings that ``_record`` does not
    know.
    """


async def first(client: Client) -> First:
    """List all kinds. Raises KubeError where a needed kind cannot be listed, or the API server cannot be reached."""
    initial = First({}, [])
    for resource in (*NEEDED, *ALSO):
        try:
            initial.listed[resource] = await client.list_decoded(resource, _JSON)
        except (ForbiddenError, NotFoundError) as refused:
            if resource in NEEDED:
                raise
            if isinstance(refused, ForbiddenError):
                initial.unseen.append(f"{resource.plural}: may not be listed")
    return initial


async def follow(
    client: Client, resource: Resource, version: str, recorder: Recorder, clock: Clock, backoff: Backoff
) -> None:
    """Follow the kind from ``version`` on, until cancelled. While a watch or list fails the record is blind for the
    kind; after that it gets the differences. A kind that is refused is given up, unless it is needed: it would stay
    blind for ever.

    Raises KubeError where the first watch of a needed kind is refused: the account may list it and not watch it. A
    later refusal is waited for: an API server that has just started refuses whatever its roles allow.
    """
    known: str | None = version
    is_first = True
    while True:
        try:
            if known is None:
                listing = await client.list_decoded(resource, _JSON)
                recorder.relisted(resource, listing.items, clock.monotonic())
                known = listing.resource_version
            began_s = clock.monotonic()
            async with aclosing(client.watch_decoded(resource, _JSON, resource_version=known)) as events:
                async for event in events:
                    known = event.resource_version or known
                    backoff.reset()
                    if event.object is not None:
                        recorder.changed(resource, event.type, event.object, clock.monotonic())
            if clock.monotonic() - began_s < _SHORT_S:
                await sleep(clock, backoff.next())
        except KubeError as failed:
            known = None
            refused = isinstance(failed, ForbiddenError | NotFoundError)
            if refused and is_first and resource in NEEDED:
                raise
            (recorder.lost if refused and resource not in NEEDED else recorder.blinded)(resource, clock.monotonic())
            await sleep(clock, pause_s(failed, backoff))
        is_first = False


async def record(
    client: Client,
    found: First,
    recorder: Recorder,
    settings: Settings,
    backoffs: Sequence[Backoff],
    clock: Clock,
    end: asyncio.Event,
    for_s: float,
) -> None:
    """Record from the beginning until ``for_s`` seconds are over or ``end`` is set. ``backoffs``: one for each kind.

    Raises KubeError where a needed kind may not be watched.
    """
    listed = {resource: listing.items for resource, listing in found.listed.items()}
    recorder.begin(listed, settings, found.unseen)
    tasks = [
        asyncio.create_task(follow(client, resource, listing.resource_version, recorder, clock, backoff))
        for (resource, listing), backoff in zip(found.listed.items(), backoffs, strict=True)
    ]
    over = asyncio.create_task(clock.wait(end, for_s))
    every: tuple[asyncio.Task[Any], ...] = (over, *tasks)
    try:
        await asyncio.wait(every, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for each in every:
            each.cancel()
        await asyncio.gather(*every, return_exceptions=True)
    recorder.end(clock.monotonic())


@asynccontextmanager
async def flushed(file: IO[bytes], every_s: float = FLUSHED_S) -> AsyncIterator[None]:
    """Meanwhile what is written to ``file`` is handed to the kernel every ``every_s``. gzip ends a block then, so that
    what was written can be unpacked. Raises OSError at the end.
    """

    async def flush() -> None:
        while True:
            await asyncio.sleep(every_s)
            file.flush()

    task = asyncio.create_task(flush())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
