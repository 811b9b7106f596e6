"""Volcano's PodGroups, followed from when the first pod names one. Where their CRD is not, there are none.

Only how many members a group asks for is read. Its queue and its status are Volcano's own affair.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from controller.jobframework.raw import Json
from controller.watching.kinds import POD_GROUPS
from kube.client import Client, Selection
from kube.clock import Backoff, Clock, sleep
from kube.errors import KubeError, NotFoundError
from kube.reading.reflector import Change, ObjectKey, Reflector, Synced, Undecodable

log = logging.getLogger(__name__)

_CHECK_S: Final = 30.0
"""Between two checks for the CRD."""
_AGAIN_S: Final = 1.0
_NOWHERE: Final = Selection(field_selector="metadata.name=none")


class PodGroups:
    """``changed`` gets the key of each group that changed, and None once it is known that there is no CRD."""

    def __init__(
        self,
        client: Client,
        changed: Callable[[ObjectKey | None], None],
        *,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self._client = client
        self._changed = changed
        self._clock = clock
        self._needed = asyncio.Event()
        self._absent = False
        backoff = Backoff(random=random, initial_s=0.2, maximum_s=10.0)
        self._reflector: Reflector[Json] = Reflector(
            client, POD_GROUPS, _read, self._tell, clock=clock, backoff=backoff
        )

    def need(self) -> bool:
        """Start to watch them. Whether ``get`` knows them all."""
        self._needed.set()
        return self._absent or self._reflector.synced

    def get(self, key: ObjectKey) -> Json | None:
        entry = self._reflector.get(key)
        return None if entry is None else entry.object

    async def run(self) -> None:
        await self._needed.wait()
        while not await self._is_served():
            await sleep(self._clock, _CHECK_S if self._absent else _AGAIN_S)
        await self._reflector.run()

    async def _is_served(self) -> bool:
        """Whether the API server knows the kind."""
        try:
            await self._client.list_all(POD_GROUPS, dict[str, Any], _NOWHERE)
        except NotFoundError:
            if not self._absent:
                self._absent = True
                self._changed(None)
            return False
        except KubeError as error:
            log.warning("PodGroups cannot be listed, trying on: %s", error)
            return False
        self._absent = False
        return True

    def _tell(self, change: Change[Json]) -> None:
        match change:
            case Synced():
                self._changed(None)
            case Undecodable():
                pass
            case _:
                self._changed(change.key)


def _read(raw: bytes) -> Json:
    found: Json = msgspec.json.decode(raw)
    return found
