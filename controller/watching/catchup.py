"""A new leader waits until its watches show at least all that its predecessor wrote.

A watch may lag behind. Quota of a workload that another process admitted a moment ago would be given away again, and
so would the node of a pod; so the objects are listed once, by version alone, and the term waits until the watch has
brought each of them as far.
"""

import asyncio
import logging

import msgspec

from controller.watching.kinds import WORKLOADS
from controller.watching.ledger import version_number
from kube.client import EVERYTHING, Client, Selection
from kube.clock import Clock, sleep
from kube.errors import KubeError
from kube.reading.reflector import ObjectKey, Reflector
from kube.resources import Resource

log = logging.getLogger(__name__)

_AGAIN_S = 0.5
_LOOK_S = 0.05


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct):
    metadata: _Meta


async def catch_up(
    client: Client,
    followed: Reflector[object],
    clock: Clock,
    resource: Resource = WORKLOADS,
    selection: Selection = EVERYTHING,
) -> None:
    """Return when ``followed`` shows every object of ``resource`` at least as it was when this was called."""
    decode = msgspec.json.Decoder(_Head).decode
    while True:
        try:
            listing = await client.list_decoded(
                resource, lambda raw: decode(raw).metadata, selection, metadata_only=True
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
            # An object that the watch has passed by may be gone, or be unreadable: it is not waited for.
            if known >= version or version_number(followed.resource_version) >= seen:
                del behind[key]
        if behind:
            await asyncio.sleep(_LOOK_S)
