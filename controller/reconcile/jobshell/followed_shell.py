"""A kind that may not be there, followed in the version that is served, from when it is needed and while it is there.

Kinds of ``scheduling.k8s.io`` are off by default, and a cluster may switch them on or off while we run; CRDs of others
come and go. Without the kind there is no watch, and no request before somebody needs it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from controller.jobs.framework.raw import Json
from controller.objects.nativegroups import NATIVE, NATIVE_VERSIONS
from kube.client import EVERYTHING, Client, Selection
from kube.clock import Backoff, Clock, sleep
from kube.errors import ForbiddenError, KubeError, NotFoundError
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Change, Reflector, Synced, Undecodable
from kube.resources import Resource

log = logging.getLogger(__name__)

CHECK_S: Final = 30.0
"""Seconds between two checks for the API."""
_AGAIN_S: Final = 1.0
_SAID: Final[WeakKeyDictionary[Client, dict[str, str]]] = WeakKeyDictionary()
"""The last line about each kind, by client: jobs and pods follow PodGroups each for themselves."""
_NOWHERE: Final = Selection(field_selector="metadata.name=none")
GROUP_KINDS: Final = tuple(
    Resource(NATIVE, version, "podgroups", "PodGroup", namespaced=True) for version in NATIVE_VERSIONS
)


class Followed:
    """One kind in its versions, of which the first that is served is followed. ``changed`` gets the key of an object
    that changed, and None when all may have. ``selection``: the objects that are followed.
    """

    def __init__(
        self,
        client: Client,
        versions: tuple[Resource, ...],
        changed: Callable[[ObjectKey | None], None],
        *,
        clock: Clock,
        random: Callable[[], float],
        selection: Selection = EVERYTHING,
    ) -> None:
        self._client = client
        self._selection = selection
        self._versions = versions
        self._what = f"{versions[0].plural} of {versions[0].group}"
        self._changed = changed
        self._clock = clock
        self._random = random
        self._needed = asyncio.Event()
        self._absent = False
        self._reflector: Reflector[Json] | None = None
        self._version: Resource | None = None
        self._known = asyncio.Event()

    def need(self) -> bool:
        """Begins to look for the kind, and returns whether ``get`` knows all of its objects."""
        self._needed.set()
        return self._absent or (self._reflector is not None and self._reflector.synced)

    @property
    def served(self) -> Resource | None:
        """The version whose objects ``get`` knows all; None while there is none, or not all are known."""
        return self._version if self._reflector is not None and self._reflector.synced else None

    async def settle(self, within_s: float) -> None:
        """Begins to look for the kind, and returns when it is known whether it is there, and what objects are; the
        first time after ``within_s`` at the latest, then at once.
        """
        self._needed.set()
        if not self._known.is_set():
            await self._clock.wait(self._known, within_s)
            self._known.set()

    def get(self, key: ObjectKey) -> Json | None:
        entry = None if self._reflector is None else self._reflector.get(key)
        return None if entry is None else entry.object

    def of_namespace(self, namespace: str) -> Iterator[Json]:
        for key in () if self._reflector is None else self._reflector:
            if key.namespace == namespace and (found := self.get(key)) is not None:
                yield found

    async def run(self) -> None:
        await self._needed.wait()
        while True:
            try:
                version = await self._served()
            except KubeError as error:
                log.warning("it is not known whether %s are there: %s", self._what, error)
                self._known.set()
                await sleep(self._clock, _AGAIN_S)
                continue
            if version is None:
                self._is_absent()
                await sleep(self._clock, CHECK_S)
                continue
            self._absent, self._version = False, version
            self._say(f"following {version.plural} of {version.api_version}")
            backoff = Backoff(random=self._random, initial_s=0.2, maximum_s=10.0)
            self._reflector = Reflector(
                self._client,
                version,
                msgspec.json.decode,
                self._tell,
                clock=self._clock,
                backoff=backoff,
                selection=self._selection,
            )
            await self._reflector.run_while_served()
            self._reflector = None

    def _is_absent(self) -> None:
        self._known.set()
        if not self._absent:
            self._absent = True
            self._say(f"not there: {self._what}")
            self._changed(None)

    def _say(self, line: str) -> None:
        """Logs the line, unless another that follows the kind by this client has said it last."""
        said = _SAID.setdefault(self._client, {})
        if said.get(self._what) != line:
            said[self._what] = line
            log.info(line)

    async def _served(self) -> Resource | None:
        """The newest version that is served; None if there is none. Raises KubeError."""
        try:
            there = await self._client.group_versions()
        except ForbiddenError:
            there = frozenset(version.api_version for version in self._versions)
        for version in self._versions:
            if version.api_version in there and await self._is_listed(version):
                return version
        return None

    async def _is_listed(self, version: Resource) -> bool:
        """Whether the version has the kind: it has other kinds too, and a feature gate of its own."""
        try:
            await self._client.list_all(version, dict[str, Any], _NOWHERE)
        except NotFoundError:
            return False
        return True

    def _tell(self, change: Change[Json]) -> None:
        if isinstance(change, Synced):
            self._known.set()
        if not isinstance(change, Undecodable):
            self._changed(None if isinstance(change, Synced) else change.key)
