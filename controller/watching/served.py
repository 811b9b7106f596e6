"""Which kinds are there, of those that a cluster may lack: their CRD comes and goes with the system that brings it.

The API server's discovery is asked every few seconds while a kind is missing. It costs one short request for all of
them, needs no right, and unlike a watch of CRDs it tells what is served: a CRD is there a while before its kind is.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Any, Final

from kube.client import Client, Selection
from kube.clock import Clock, sleep
from kube.errors import ForbiddenError, KubeError, NotFoundError
from kube.resources import Resource

log = logging.getLogger(__name__)

ASK_S: Final = 5.0
"""Between two questions while a kind is missing."""
_AGAIN_S: Final = 1.0
"""After a question without an answer, while nothing is known yet."""
_NOWHERE: Final = Selection(field_selector="metadata.name=none")


class ServedKinds:
    """``run`` until cancelled. Then ``appears`` returns once a kind is served and may be read.

    ``absent`` has those known not to be there, or not read for the first time since they came: nothing waits for them.
    Only ``_ask`` and ``gone`` add to it, only ``listed`` removes. A kind that was there at the first answer is in it
    only once it is gone, so that a process that starts waits for it.
    """

    def __init__(self, client: Client, kinds: Collection[Resource], clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._there = {resource: asyncio.Event() for resource in kinds}
        self._refused: set[Resource] = set()
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

    async def appears(self, resource: Resource) -> None:
        await self._there[resource].wait()

    def listed(self, resource: Resource) -> None:
        """All of its objects are known."""
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
            candidates = [candidate for candidate in missing if served is None or candidate.api_version in served]
            found = [candidate for candidate in candidates if await self._is_readable(candidate)]
        except KubeError as error:
            log.warning("it is not known which kinds are there, trying on: %s", error)
            return False
        for resource in found:
            self._there[resource].set()
        if new := [candidate.plural for candidate in found if candidate in self.absent]:
            log.info("now there: %s", ", ".join(new))
        if lacking := [candidate for candidate in missing if candidate not in found and candidate not in self.absent]:
            log.info("not there: %s", ", ".join(candidate.plural for candidate in lacking))
            self.absent.update(lacking)
        return True

    async def _served_versions(self) -> frozenset[str] | None:
        """None where discovery is closed to this account: then each kind is tried. Raises KubeError."""
        try:
            return await self._client.group_versions()
        except ForbiddenError:
            return None

    async def _is_readable(self, resource: Resource) -> bool:
        """Whether the kind itself is in its group, and this account may list it.

        A kind that cannot be listed right now, as a new one whose storage is being set up, is asked for again like one
        that is not there: it must not keep the others waiting, and what is decided without its jobs is no harm to them.
        """
        try:
            await self._client.list_all(resource, dict[str, Any], _NOWHERE)
        except NotFoundError:
            return False
        except ForbiddenError as error:
            if resource not in self._refused:
                log.warning("%s are there and cannot be read: %s", resource.plural, error)
                self._refused.add(resource)
            return False
        except KubeError as error:
            log.info("%s cannot be listed yet: %s", resource.plural, error)
            return False
        return True
