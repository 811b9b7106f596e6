"""Kubernetes' own PodGroups and CompositePodGroups, ``scheduling.k8s.io``: followed in the version that is served, from
when a queued pod names one and for as long as the API is there.

The API is off by default, and a cluster may switch it on or off while we run. Without it there is no watch, and no
request before a pod names a group.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

import msgspec

from controller.foreign.podgroups.native import tree_of
from controller.jobs.framework.podview import GroupName
from controller.jobs.framework.raw import JobError, Json, text
from controller.objects.nativegroups import COMPOSITE_VERSION, DEEPEST_NATIVE, NATIVE, NATIVE_VERSIONS
from kube.client import Client, Selection
from kube.clock import Backoff, Clock, sleep
from kube.errors import ForbiddenError, KubeError, NotFoundError
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Change, Reflector, Synced, Undecodable
from kube.resources import Resource

log = logging.getLogger(__name__)

_CHECK_S: Final = 30.0
"""Seconds between two checks for the API."""
_AGAIN_S: Final = 1.0
_NOWHERE: Final = Selection(field_selector="metadata.name=none")
GROUP_KINDS: Final = tuple(
    Resource(NATIVE, version, "podgroups", "PodGroup", namespaced=True) for version in NATIVE_VERSIONS
)
COMPOSITE_KINDS: Final = (
    Resource(NATIVE, COMPOSITE_VERSION, "compositepodgroups", "CompositePodGroup", namespaced=True),
)


class _Followed:
    """One kind in its versions, of which the first that is served is followed. ``changed`` gets the key of an object
    that changed, and None when all may have.
    """

    def __init__(
        self,
        client: Client,
        versions: tuple[Resource, ...],
        changed: Callable[[ObjectKey | None], None],
        *,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self._client = client
        self._versions = versions
        self._changed = changed
        self._clock = clock
        self._random = random
        self._needed = asyncio.Event()
        self._absent = False
        self._reflector: Reflector[Json] | None = None

    def need(self) -> bool:
        """Begins to look for the kind, and returns whether ``get`` knows all of its objects."""
        self._needed.set()
        return self._absent or (self._reflector is not None and self._reflector.synced)

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
                found = await self._served()
            except KubeError as error:
                log.warning("it is not known whether %s of %s are there: %s", self._versions[0].plural, NATIVE, error)
                await sleep(self._clock, _AGAIN_S)
                continue
            if found is None:
                self._is_absent()
                await sleep(self._clock, _CHECK_S)
                continue
            self._absent = False
            log.info("following %s of %s", found.plural, found.api_version)
            backoff = Backoff(random=self._random, initial_s=0.2, maximum_s=10.0)
            self._reflector = Reflector(
                self._client, found, msgspec.json.decode, self._tell, clock=self._clock, backoff=backoff
            )
            await self._reflector.run_while_served()
            self._reflector = None

    def _is_absent(self) -> None:
        if not self._absent:
            self._absent = True
            log.info("not there: %s of %s", self._versions[0].plural, NATIVE)
            self._changed(None)

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
        if not isinstance(change, Undecodable):
            self._changed(None if isinstance(change, Synced) else change.key)


class NativeGroups:
    """PodGroups with the CompositePodGroups above them. ``changed`` gets the key of the Workload of a group that
    changed, None when any may have.
    """

    def __init__(
        self,
        client: Client,
        changed: Callable[[ObjectKey | None], None],
        *,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self._changed = changed
        self._groups = _Followed(client, GROUP_KINDS, self._group, clock=clock, random=random)
        self._composites = _Followed(client, COMPOSITE_KINDS, self._composite, clock=clock, random=random)

    def runs(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        yield "native-pod-groups", self._groups.run()
        yield "composite-pod-groups", self._composites.run()

    def known(self, namespace: str, name: GroupName) -> bool:
        """Whether ``get`` and ``find`` know all that the group is read from. From now on that is followed."""
        if not self._groups.need():
            return False
        group = None if name.composite else self._groups.get(ObjectKey(namespace, name.name))
        below_another = name.composite or (group is not None and bool(_parent(group)))
        return not below_another or self._composites.need()

    def get(self, namespace: str, name: GroupName) -> Json | None:
        """The group as ``native.read`` takes it; None if there is none."""
        if not name.composite:
            return self._groups.get(ObjectKey(namespace, name.name))
        composites = self._composites.of_namespace(namespace)
        return tree_of(name.name, self._groups.of_namespace(namespace), composites)

    def find(self, namespace: str) -> Callable[[str, bool], Json | None]:
        """A ``native.Find`` of the namespace."""
        return lambda name, composite: (self._composites if composite else self._groups).get(ObjectKey(namespace, name))

    def _group(self, key: ObjectKey | None) -> None:
        """Tells of the group's own Workload, and of those of all that it is below."""
        if key is None:
            self._changed(None)
            return
        self._changed(ObjectKey(key.namespace, GroupName(None, key.name).workload))
        at = self._groups.get(key)
        for _ in range(DEEPEST_NATIVE if at is not None else 0):
            parent = _parent(at)
            if not parent:
                return
            self._changed(ObjectKey(key.namespace, GroupName(None, parent, composite=True).workload))
            at = self._composites.get(ObjectKey(key.namespace, parent))

    def _composite(self, _key: ObjectKey | None) -> None:
        self._changed(None)  # trees are few, and a group in the middle changes all that are above and below it


def _parent(group: Json | None) -> str:
    try:
        return "" if group is None else text(group, "spec", "parentCompositePodGroupName")
    except JobError:
        return ""
