"""The owners above a child, by UID: from the watches' copies, else read from the API. A name alone proves nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from controller.cluster.watching.kinds import PODS
from controller.jobs.framework.marks import MAX_DEPTH, controller_of
from controller.jobs.framework.names import is_object_name
from controller.jobs.framework.raw import Json, text
from controller.jobs.framework.settings import ClusterObjects
from controller.messages import jobs as words
from controller.objects.meta import OwnerReference
from kube.client import Client
from kube.errors import ForbiddenError, NotFoundError
from kube.resources import Resource

_REMEMBERED: Final = 1024


@dataclass(frozen=True)
class Above:
    """The owners above a child. ``cluster`` knows the owners that were read, too. ``unread``: the missing right, in a
    sentence.
    """

    cluster: ClusterObjects
    unread: str = ""


class Owners:
    """Reads owners. ``resources``: kinds that jobs may be above, besides pods: a driver makes executors.

    ``_read``: the metadata of owners that were read, by uid. The owners of an object never change.
    """

    def __init__(self, client: Client, resources: Iterable[Resource]) -> None:
        self._client = client
        self._resources = {(one.api_version, one.kind): one for one in (PODS, *resources)}
        self._read: dict[str, Json] = {}

    async def above(self, child: Json, cluster: ClusterObjects) -> Above:
        """Follows the owners of ``child`` for as long as they are of these kinds."""
        namespace, owners_read, current = text(child, "metadata", "namespace"), dict[str, Json](), child
        for _ in range(MAX_DEPTH):
            reference = controller_of(current)
            if reference is None or cluster.has_workload(reference.uid):
                break
            owner = cluster.owner(namespace, reference)
            if owner is None:
                try:
                    owner = await self._get(namespace, reference)
                except ForbiddenError:
                    return Above(cluster, self._missing(namespace, reference))
                if owner is None:
                    break
                owners_read[reference.uid] = owner
            current = owner
        return Above(_knowing(cluster, owners_read))

    async def _get(self, namespace: str, reference: OwnerReference) -> Json | None:
        resource = self._resources.get((reference.api_version, reference.kind))
        if resource is None or not is_object_name(reference.name):
            return None
        if reference.uid in self._read:
            return self._read[reference.uid]
        try:
            owner = await self._client.get(resource, reference.name, dict[str, Any], namespace=namespace)
        except NotFoundError:
            return None
        if text(owner, "metadata", "uid") != reference.uid:
            return None
        if len(self._read) >= _REMEMBERED:
            self._read.pop(next(iter(self._read)))
        self._read[reference.uid] = {"metadata": owner["metadata"]}
        return self._read[reference.uid]

    def _missing(self, namespace: str, reference: OwnerReference) -> str:
        resource = self._resources[reference.api_version, reference.kind]
        right = f"get {resource.plural}{f'.{resource.group}' if resource.group else ''} in namespace {namespace}"
        return words.owner_is_not_readable(f"{reference.kind} {reference.name}", right)


def _knowing(cluster: ClusterObjects, found: Mapping[str, Json]) -> ClusterObjects:
    if not found:
        return cluster

    def owner(namespace: str, reference: OwnerReference) -> Json | None:
        return found.get(reference.uid) or cluster.owner(namespace, reference)

    return replace(cluster, owner=owner)
