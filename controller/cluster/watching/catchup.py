"""A new leader waits until its watches show at least all that its predecessor wrote.

A watch may lag behind. Quota of a workload that another process admitted a moment ago would be given away again, and so
would the node of a pod. If there are few objects, they are listed once, by version alone, and the term waits until the
watch has brought each of them as far. If there are many, the list takes the API server seconds; a second watch, which
begins where the first one is, then shows all changes until now: the API server tells a watch how far it is some 2 s
before the end of the requested time (``timeoutSeconds``), which is then a second after it began.
"""

import asyncio
import logging
from contextlib import aclosing

import msgspec

from controller.cluster.watching.kinds import WORKLOADS
from controller.cluster.watching.ledger import version_number
from kube.client import EVERYTHING, Client, Selection
from kube.clock import Clock, sleep
from kube.errors import KubeError
from kube.objects import Head
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Reflector
from kube.resources import Resource

log = logging.getLogger(__name__)

_AGAIN_S = 0.5
_LOOK_S = 0.05
_MANY = 2_000
"""The number of objects from which a list takes as long as a short watch."""
_WATCH_S = 3
_GIVEN_UP_S = 6.0


_DECODE = msgspec.json.Decoder(Head).decode


async def catch_up(
    client: Client,
    followed: Reflector[object],
    clock: Clock,
    resource: Resource = WORKLOADS,
    selection: Selection = EVERYTHING,
) -> None:
    """Returns when ``followed`` shows every object of ``resource`` at least as it was when this was called."""
    if len(followed) >= _MANY and (newest := await _newest_change(client, followed, resource, selection)) is not None:
        while version_number(followed.resource_version) < newest:
            await sleep(clock, _LOOK_S)
        return
    while True:
        try:
            listing = await client.list_decoded(
                resource, lambda raw: _DECODE(raw).metadata, selection, metadata_only=True
            )
            break
        except KubeError as error:
            log.warning("%s cannot be listed, trying on: %s", resource.plural, error)
            await sleep(clock, _AGAIN_S)
    seen = version_number(listing.resource_version)
    behind = {ObjectKey(item.namespace, item.name): version_number(item.resource_version) for item in listing.items}
    while behind:
        for key, version in list(behind.items()):
            entry = followed.get(key)
            known = version_number(entry.resource_version) if entry is not None else 0
            # An object that the watch has passed by may be gone, or be unreadable: it is not awaited.
            if known >= version or version_number(followed.resource_version) >= seen:
                del behind[key]
        if behind:
            await asyncio.sleep(_LOOK_S)


async def _newest_change(
    client: Client, followed: Reflector[object], resource: Resource, selection: Selection
) -> int | None:
    """The version of the last change until now; 0 if there was none since ``followed`` was told anything. None if the
    API server does not tell.
    """
    newest = 0
    try:
        now = version_number(await newest_version(client, resource))
        events = client.watch_decoded(
            resource, _DECODE, resource_version=followed.resource_version, selection=selection, timeout_s=_WATCH_S
        )
        async with asyncio.timeout(_GIVEN_UP_S), aclosing(events):
            async for event in events:
                version = version_number(event.resource_version)
                newest = newest if event.object is None else version
                if version >= now:
                    return newest
    except (KubeError, TimeoutError, msgspec.MsgspecError) as error:
        log.info("what has become of %s is not known by a watch: %s", resource.plural, error)
    return None


async def newest_version(client: Client, resource: Resource) -> str:
    """The newest version of the resource: no change until now has a later one. Raises KubeError, msgspec.MsgspecError.

    The list of one page makes the API server bring its own copy up to the store: without it no watch would tell of this
    version before the next change.
    """
    raw = await client.text(resource.path(), params={"limit": "1"})
    return _DECODE(raw).metadata.resource_version
