"""Removes this controller's finalizers when it is uninstalled: otherwise no object that has one could be deleted. And
its placeholders with their claim templates, which nothing else would remove.
"""

import logging
from typing import Final

from controller.cluster.watching.kinds import CLAIM_TEMPLATES, DECLARATIONS, PODS, QUEUED_PODS, WORKLOADS
from controller.cluster.writing.finalizers import KINDS
from controller.cluster.writing.stampedwrites import Stamped
from controller.jobs.framework.names import RESOURCE_IN_USE
from controller.jobs.framework.podview import MANAGED
from controller.objects.meta import Labelled, ObjectMeta
from failpoints import points
from failpoints.names import Failpoint
from inventory.api.names import PLACEHOLDER_OF
from kube.client import EVERYTHING, Client, Selection
from kube.errors import ConflictError, ForbiddenError, NotFoundError
from kube.resources import Resource

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 5
_OURS: Final = frozenset({RESOURCE_IN_USE, MANAGED})


async def remove_finalizers(client: Client) -> int:
    """Removes the controller's finalizers from all objects, and returns how many objects had one. Raises KubeError."""
    count = 0
    marked = Selection(label_selector=QUEUED_PODS.selector)
    # Pods come first: their workloads are deleted with them.
    for resource, selection in ((PODS, marked), *((kind, EVERYTHING) for kind in (WORKLOADS, *KINDS, DECLARATIONS))):
        try:
            listing = await client.list_all(resource, Labelled, selection)
        except NotFoundError:
            continue  # its CRD is gone, and its objects with it
        except ForbiddenError:
            if resource is not PODS:
                raise
            continue  # this release does not queue pods
        for item in listing.items:
            if _OURS & set(item.metadata.finalizers):
                await _remove(client, resource, item.metadata)
                count += 1
    log.info("took our finalizers off %d objects", count)
    return count


async def remove_placeholders(client: Client, namespace: str) -> int:
    """Removes the pods that make an autoscaler bring nodes, and copies of claim templates for them. Returns how many
    there were: no owner's end takes them along. ``namespace``: the controller's. Raises KubeError.
    """
    count = 0
    # Claims of a pod go with it; those of a template that is gone would not be made anew.
    for resource, selection in (
        (PODS, Selection(label_selector=PLACEHOLDER_OF)),
        (CLAIM_TEMPLATES, Selection(namespace=namespace, label_selector=PLACEHOLDER_OF)),
    ):
        try:
            listing = await client.list_all(resource, Labelled, selection)
        except (ForbiddenError, NotFoundError):
            continue  # an older chart, or a cluster that serves no claims
        for item in listing.items:
            meta = item.metadata
            try:
                await client.delete(resource, meta.name, namespace=meta.namespace, uid=meta.uid)
            except (NotFoundError, ConflictError, ForbiddenError):
                continue  # in another namespace it is none of ours
            count += 1
    log.info("removed %d placeholders and claim templates of theirs", count)
    return count


async def _remove(client: Client, resource: Resource, meta: ObjectMeta) -> None:
    namespace = meta.namespace or None
    for _ in range(_ATTEMPTS):
        left = [finalizer for finalizer in meta.finalizers if finalizer not in _OURS]
        tied = {"uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": left or None}
        try:
            points.before(Failpoint.UNINSTALLED)
            await client.merge_patch(resource, meta.name, {"metadata": tied}, Stamped, namespace=namespace)
            points.after(Failpoint.UNINSTALLED)
        except NotFoundError:
            return
        except ConflictError:
            try:
                meta = (await client.get(resource, meta.name, Labelled, namespace=namespace)).metadata
            except NotFoundError:
                return
        else:
            return
