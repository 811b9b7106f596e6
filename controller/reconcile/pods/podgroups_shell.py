"""Foreign PodGroups: they are watched from when they are needed, and their status is written.

They are needed from when the first pod names one, or Tessera decides for their system. If their CRD is not installed,
there are none.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from controller.cluster.watching.ledger import WrittenVersions
from controller.cluster.writing.stampedwrites import stamped_write, written
from controller.foreign.podgroups.status import stamped
from controller.jobs.framework.raw import Json
from controller.objects.meta import to_json
from controller.scheduler.decisions.status import moment
from failpoints.names import Failpoint
from kube.client import Client, Selection
from kube.clock import Backoff, Clock, sleep
from kube.errors import KubeError, NotFoundError
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Change, Reflector, Removed, Synced, Undecodable
from kube.resources import Resource
from kube.writing.writer import Writer
from kube.writing.writes import Conflicted, Missing, Verb

log = logging.getLogger(__name__)

_CHECK_S: Final = 30.0
"""Seconds between two checks for the CRD."""
_AGAIN_S: Final = 1.0
_NOWHERE: Final = Selection(field_selector="metadata.name=none")


class PodGroups:
    """The PodGroups of one system. ``changed`` gets the key of each group that changed, and None once it is known that
    there is no CRD.

    ``subresource``: whether the kind's status is a subresource.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        changed: Callable[[ObjectKey | None], None],
        *,
        clock: Clock,
        random: Callable[[], float],
        subresource: bool,
    ) -> None:
        self._client = client
        self._resource = resource
        self._subresource = subresource
        self._written = WrittenVersions()
        self._changed = changed
        self._clock = clock
        self._needed = asyncio.Event()
        self._absent = False
        backoff = Backoff(random=random, initial_s=0.2, maximum_s=10.0)
        self._reflector: Reflector[Json] = Reflector(client, resource, _read, self._tell, clock=clock, backoff=backoff)

    def need(self) -> bool:
        """Starts the watch, and returns whether ``get`` knows all of them."""
        self._needed.set()
        return self._absent or self._reflector.synced

    def get(self, key: ObjectKey) -> Json | None:
        entry = self._reflector.get(key)
        return None if entry is None else entry.object

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(self._reflector)

    async def write(self, writer: Writer, key: ObjectKey, status: Json) -> bool:
        """Writes the status, of which ``status`` is a merge patch, and returns whether it was written. Raises
        ActionFailedError and KubeError.
        """
        entry = self._reflector.get(key)
        if not status or entry is None or self._written.behind(key, entry.uid, entry.resource_version):
            return False  # the watch brings what was written, and with it the next reconciliation
        meta = {"uid": entry.uid, "resourceVersion": entry.resource_version}
        at = to_json(moment(self._clock.wall()))
        write = stamped_write(
            Verb.MERGE_PATCH,
            self._resource,
            {"namespace": key.namespace, "name": key.name},
            {"metadata": meta, "status": stamped(status, at)},
            Failpoint.POD_GROUP_STATUS,
            subresource="status" if self._subresource else None,
        )
        answer = await written(writer.put, write, Missing, Conflicted)
        if answer is not None:
            self._written.wrote(key, entry.uid, answer.metadata.resource_version)
        return answer is not None

    async def run(self) -> None:
        await self._needed.wait()
        while not await self._is_served():
            await sleep(self._clock, _CHECK_S if self._absent else _AGAIN_S)
        await self._reflector.run()

    async def _is_served(self) -> bool:
        """Whether the API server knows the kind."""
        try:
            await self._client.list_all(self._resource, dict[str, Any], _NOWHERE)
        except NotFoundError:
            if not self._absent:
                self._absent = True
                self._changed(None)
            return False
        except KubeError as error:
            log.warning("%s of %s cannot be listed, trying on: %s", self._resource.kind, self._resource.group, error)
            return False
        self._absent = False
        return True

    def _tell(self, change: Change[Json]) -> None:
        match change:
            case Synced():
                self._changed(None)
            case Undecodable():
                pass
            case Removed(key=key):
                self._written.forget(key)
                self._changed(key)
            case _:
                self._changed(change.key)


def _read(raw: bytes) -> Json:
    found: Json = msgspec.json.decode(raw)
    return found
