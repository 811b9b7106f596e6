"""Writes the PodGroups of Volcano Jobs, if Tessera decides for Volcano: whole, by server-side apply.

Each is tied to the version before it, so that what a former leader wrote does not come after it. A new group is made
without anything in it first: apply cannot say that nothing may be there.

PodGroups are not watched: nothing is decided by them, and one that a user deletes comes back with the job's next
change.
"""

import logging

from controller.cluster.watching.kinds import POD_GROUPS
from controller.cluster.writing.stampedwrites import Stamped, failure, stamped_write
from controller.foreign.jobs.gang import Seen
from controller.foreign.jobs.podgroup import differs, is_over, pod_group
from controller.foreign.objects.volcanojob import VolcanoJobStatus
from controller.jobs.framework.raw import Json, text
from failpoints.names import Failpoint
from kube.writing.writer import Writer
from kube.writing.writes import Missing, Outcome, Refused, Verb, Written

log = logging.getLogger(__name__)


class JobGroups:
    """Writes PodGroups. ``_written`` has what was applied last, by the uid of the job, ``_versions`` the version of
    that; both begin empty with each process.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._written: dict[str, Json] = {}
        self._versions: dict[str, str] = {}
        self._why = ""

    def forget(self, uid: str) -> None:
        """Forgets a job that is gone."""
        self._written.pop(uid, None)
        self._versions.pop(uid, None)

    async def keep(self, job: Json, seen: Seen, status: VolcanoJobStatus) -> None:
        """Writes the job's group, if it differs from what was written. Raises ActionFailedError and JobError."""
        uid = text(job, "metadata", "uid")
        before = self._written.get(uid)
        if before is None and is_over(seen.status):
            return  # its group says so since it ended
        wanted = pod_group(job, seen, status)
        if not differs(before, wanted):
            return
        outcome = await self._put(uid, wanted)
        match outcome:
            case Written(object=Stamped(metadata=version)):
                self._versions[uid] = version.resource_version
            case Missing() | Refused():
                self._say(str(outcome.error))
            case _:
                self._versions.pop(uid, None)
                raise failure(outcome)
        self._written[uid] = wanted

    async def _put(self, uid: str, wanted: Json) -> Outcome[Stamped]:
        """Up to three requests: of a group that this process has not written yet the version is asked for first."""
        meta = wanted["metadata"]
        bare = {**wanted, "metadata": {key: meta[key] for key in ("name", "namespace", "ownerReferences")}}
        bare = {key: value for key, value in bare.items() if key not in ("spec", "status")}
        for verb in (Verb.MERGE_PATCH, Verb.CREATE, Verb.APPLY):
            if verb is not Verb.APPLY and uid in self._versions:
                continue
            body = {} if verb is Verb.MERGE_PATCH else bare
            if verb is Verb.APPLY:
                body = {**wanted, "metadata": {**meta, "resourceVersion": self._versions[uid]}}
            outcome = await self._writer.put(stamped_write(verb, POD_GROUPS, meta, body, Failpoint.VOLCANO_GROUP))
            if isinstance(outcome, Written) and outcome.object is not None:
                self._versions[uid] = outcome.object.metadata.resource_version
            elif verb is not Verb.MERGE_PATCH or not isinstance(outcome, Missing):
                break
        return outcome

    def _say(self, why: str) -> None:
        """Logs a failure, once for as long as it stays the same: the jobs run without their groups."""
        if why != self._why:
            log.warning("PodGroups of Volcano Jobs cannot be written: %s", why)
            self._why = why
