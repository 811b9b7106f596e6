"""Foreign PodGroups: they are watched from when they are needed, and their status is written.

They are needed from when the first pod names one, or Tessera decides for their system. If their CRD is not installed,
there are none.
"""

from collections.abc import Callable

from controller.cluster.watching.ledger import WrittenVersions
from controller.cluster.writing.stampedwrites import stamped_write, written
from controller.foreign.podgroups.status import stamped
from controller.jobs.framework.raw import Json, text
from controller.objects.meta import to_json
from controller.reconcile.jobshell.followed_shell import Followed
from controller.scheduler.decisions.status import moment
from failpoints.names import Failpoint
from kube.client import Client
from kube.clock import Clock
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Change, Removed
from kube.resources import Resource
from kube.writing.writer import Writer
from kube.writing.writes import Conflicted, Missing, Verb


class PodGroups(Followed):
    """The PodGroups of one system. ``subresource``: whether the kind's status is a subresource."""

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
        super().__init__(client, (resource,), changed, clock=clock, random=random)
        self._resource = resource
        self._subresource = subresource
        self._written = WrittenVersions()

    async def write(self, writer: Writer, key: ObjectKey, status: Json) -> bool:
        """Writes the status, of which ``status`` is a merge patch, and returns whether it was written. Raises
        ActionFailedError and KubeError.
        """
        group = self.get(key)
        if not status or group is None:
            return False
        meta = {name: text(group, "metadata", name) for name in ("uid", "resourceVersion")}
        if self._written.behind(key, meta["uid"], meta["resourceVersion"]):
            return False  # the watch brings what was written, and with it the next reconciliation
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
            self._written.wrote(key, meta["uid"], answer.metadata.resource_version)
        return answer is not None

    def _tell(self, change: Change[Json]) -> None:
        if isinstance(change, Removed):
            self._written.forget(change.key)
        super()._tell(change)
