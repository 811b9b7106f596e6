"""Writes the PodGroups of Volcano Jobs, if Tessera decides for Volcano: whole, by server-side apply.

PodGroups are not watched: nothing is decided by them, and one that a user deletes comes back with the job's next
change.
"""

import logging

from controller.jobframework.raw import Json, text
from controller.objects.volcanojob import VolcanoJobStatus
from controller.volcanojobs.gang import Seen
from controller.volcanojobs.podgroup import differs, is_over, pod_group
from controller.watching.kinds import POD_GROUPS
from controller.watching.workqueue import ActionFailedError
from controller.writing.workloadwrites import Stamped
from failpoints.names import Failpoint
from kube.writing.writer import Writer
from kube.writing.writes import Missing, Refused, Verb, Write, Written

log = logging.getLogger(__name__)


class JobGroups:
    """Writes PodGroups. ``_written`` has what was applied last, by the uid of the job; it begins empty with each
    process.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._written: dict[str, Json] = {}
        self._why = ""

    def forget(self, uid: str) -> None:
        """Forgets a job that is gone."""
        self._written.pop(uid, None)

    async def keep(self, job: Json, seen: Seen, status: VolcanoJobStatus) -> None:
        """Writes the job's group, if it differs from what was written. Raises ActionFailedError and JobError."""
        uid = text(job, "metadata", "uid")
        before = self._written.get(uid)
        if before is None and is_over(seen.status):
            return  # its group says so since it ended
        wanted = pod_group(job, seen, status)
        if not differs(before, wanted):
            return
        write = Write(
            verb=Verb.APPLY,
            resource=POD_GROUPS,
            namespace=wanted["metadata"]["namespace"],
            name=wanted["metadata"]["name"],
            body=wanted,
            kind=Stamped,
            failpoint=Failpoint.VOLCANO_GROUP,
        )
        outcome = await self._writer.put(write)
        if isinstance(outcome, Missing | Refused):
            self._say(str(outcome.error))
        elif not isinstance(outcome, Written):
            raise ActionFailedError(str(getattr(outcome, "error", outcome)))
        self._written[uid] = wanted

    def _say(self, why: str) -> None:
        """Logs a failure, once for as long as it stays the same: the jobs run without their groups."""
        if why != self._why:
            log.warning("PodGroups of Volcano Jobs cannot be written: %s", why)
            self._why = why
