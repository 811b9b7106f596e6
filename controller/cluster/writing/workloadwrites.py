"""Writes of Workloads, one at a time for each, every one tied to the version it was made from.

``after`` is the workload as it should become; the write's outcome comes back through ``then``. After a conflict the
object is read anew before ``then`` is called: a write whose answer was lost may have been stored, and only the API
server knows. Until then the write counts as under way.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import msgspec

from controller.cluster.watching.kinds import WORKLOADS, has_more, reader
from controller.cluster.watching.ledger import Ledger, LedgerEntry
from controller.cluster.writing.mergepatch import Json, may_replace, status_body, status_of, status_patch
from controller.cluster.writing.stampedwrites import Stamped, Version, stamped_write, why_not
from controller.objects.workload import Workload
from controller.scheduler.model.resources import WorkloadKey
from failpoints.names import Failpoint
from kube.client import Client
from kube.errors import ForbiddenError, KubeError, NotFoundError
from kube.resources import Resource
from kube.writing.writer import Writer
from kube.writing.writes import Abandoned, Conflicted, Missing, Outcome, Refused, Verb, Write, Written

log = logging.getLogger(__name__)


class _Answer(msgspec.Struct, frozen=True):
    """The parts of the answer to a write of a status that are read."""

    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    status: Any = None


class Result(Enum):
    WRITTEN = auto()
    UNCHANGED = auto()
    """The write was unnecessary."""
    LOST = auto()
    """Another client wrote first; the ledger holds what it wrote."""
    REFUSED = auto()
    """The API server refused the write."""
    GONE = auto()
    ABANDONED = auto()
    """This replica may not lead any more: nothing was sent."""


Then = Callable[[Result, str], None]
"""Called with the result, and the reason in one line unless it is WRITTEN."""


_AGAIN_S = 1.0
_read_version = msgspec.json.Decoder(Version).decode
_read_workload = reader(Workload)


async def outcome_of(begin: Callable[[Then], None]) -> tuple[Result, str]:
    """The result of the write that ``begin`` begins, and why it is no other. Whoever is cancelled meanwhile leaves the
    write to itself.
    """
    done: asyncio.Future[tuple[Result, str]] = asyncio.get_running_loop().create_future()

    def then(result: Result, why: str) -> None:
        if not done.done():
            done.set_result((result, why))

    begin(then)
    return await done


class WorkloadWrites:
    """Writes Workloads. ``changed`` is called with the states before and after each write, or reading after a conflict;
    ``freed`` at the end of every write, after ``then``.

    ``kept.writing`` is True from ``_begin`` to the outcome, and only here is it set: at most one write of a Workload is
    under way, whose body names the version in the ledger. So a write is either stored on top of what the ledger holds,
    or it is refused as a conflict. A replica that lost its lease sends nothing: the writer asks ``may_write`` before
    each attempt, and a request is given up before the lease can have passed to another (``Process.run``).
    """

    def __init__(
        self,
        client: Client,
        writer: Writer,
        ledger: Ledger,
        *,
        changed: Callable[[Workload, Workload], None],
        gone: Callable[[WorkloadKey, str], None],
        freed: Callable[[WorkloadKey, Result], None],
    ) -> None:
        self._client = client
        self._writer = writer
        self._ledger = ledger
        self._changed = changed
        self._gone = gone
        self._freed = freed
        self._tasks: set[asyncio.Task[None]] = set()
        self._may_update = True

    def status(self, entry: LedgerEntry, after: Workload, then: Then, failpoint: Failpoint) -> None:
        """Writes ``after.status`` in place of what the ledger holds. No write of the workload may be under way.

        A status that is known as a whole is put: that costs the API server a sixth less than a patch, for which it
        makes a text of the whole object.
        """
        before = entry.workload
        if self._may_update and entry.whole and may_replace(before):
            self._begin(entry, after, Verb.UPDATE, status_body(before, after), "status", then, failpoint)
        else:
            self._begin(entry, after, Verb.MERGE_PATCH, status_patch(before, after), "status", then, failpoint)

    def spec(self, entry: LedgerEntry, after: Workload, changes: Json, then: Then, failpoint: Failpoint) -> None:
        """Writes a merge patch of everything but the status."""
        meta = entry.workload.metadata
        patch = {**changes, "metadata": {**changes.get("metadata", {}), **_identity(meta.uid, meta.resource_version)}}
        self._begin(entry, after, Verb.MERGE_PATCH, patch, None, then, failpoint)

    def _begin(
        self,
        entry: LedgerEntry,
        after: Workload,
        verb: Verb,
        body: Json,
        subresource: str | None,
        then: Then,
        failpoint: Failpoint,
    ) -> None:
        assert not entry.writing, "one write at a time"
        if not body:
            then(Result.UNCHANGED, "")
            return
        entry.writing = True
        before = entry.workload
        meta = before.metadata
        future: asyncio.Future[Outcome[Any]] = self._writer.put(
            Write(
                verb=verb,
                resource=WORKLOADS,
                namespace=meta.namespace,
                name=meta.name,
                subresource=subresource,
                body=body,
                kind=_Answer if subresource == "status" else Stamped,
                failpoint=failpoint,
            )
        )

        def ended(result: Result, why: str) -> None:
            then(result, why)
            self._freed(WorkloadKey(after.key), result)

        def done(future: "asyncio.Future[Outcome[Any]]") -> None:
            outcome = future.result()
            if verb is Verb.UPDATE and _not_allowed(outcome):
                log.warning("workloads/status is patched: without the right to update it the API server has more to do")
                self._may_update = entry.writing = False
                patch = status_patch(before, after)
                self._begin(entry, after, Verb.MERGE_PATCH, patch, subresource, then, failpoint)
            else:
                self._done(entry, after, outcome, ended)

        future.add_done_callback(done)

    def _done(self, entry: LedgerEntry, after: Workload, outcome: Outcome[Any], then: Then) -> None:
        key = WorkloadKey(after.key)
        match outcome:
            case Written(object=answer):
                entry.writing = False
                version, whole = _stored(answer, after)
                before = entry.workload
                if self._ledger.wrote(key, after, version, whole=whole) is not None:
                    self._changed(before, entry.workload)
                then(Result.WRITTEN, "")
            case Conflicted(error=error):
                task = asyncio.get_running_loop().create_task(self._read(entry, key, str(error), then))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case Missing(error=error):
                entry.writing = False
                self._gone(key, entry.uid)
                then(Result.GONE, str(error))
            case Abandoned(why=why):
                entry.writing = False
                then(Result.ABANDONED, why)
            case _:
                entry.writing = False
                why = why_not(outcome)
                log.warning("workload %s: not written: %s", key, why)
                then(Result.REFUSED, why)

    async def _read(self, entry: LedgerEntry, key: WorkloadKey, why: str, then: Then) -> None:
        """Reads the workload after a conflict, for as long as it takes. Until then the outcome is not known."""
        namespace, _, name = key.partition("/")
        stored: Workload | None = None
        while True:
            try:
                raw = await self._client.get(WORKLOADS, name, msgspec.Raw, namespace=namespace)
                stored = _read_workload(bytes(raw))
                break
            except NotFoundError:
                break
            except (KubeError, ValueError) as error:
                log.warning("workload %s cannot be read after a conflict, trying on: %s", key, error)
                await asyncio.sleep(_AGAIN_S)
        entry.writing = False
        if stored is None or stored.metadata.uid != entry.uid:
            self._gone(key, entry.uid)
            then(Result.GONE, why)
            return
        before = entry.workload
        if self._ledger.observe(stored) is not None:
            self._changed(before, stored)
        then(Result.LOST, why)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


def _stored(answer: _Answer | Stamped | None, after: Workload) -> tuple[str, bool]:
    """The version that was stored, and whether it equals ``after``: a webhook may have added something, and another
    writer a field that is not read.
    """
    if not isinstance(answer, _Answer):
        return ("" if answer is None else answer.metadata.resource_version), False
    metadata = bytes(answer.metadata)
    try:
        version = _read_version(metadata).resource_version
    except msgspec.MsgspecError:
        return "", False
    return version, answer.status == status_of(after) and not has_more(metadata)


def _not_allowed(outcome: Outcome[Any]) -> bool:
    """Whether this account lacks the right to do this. A webhook that refuses it answers 403 too, with another
    message.
    """
    error = outcome.error if isinstance(outcome, Refused) else None
    return isinstance(error, ForbiddenError) and "cannot update resource" in str(error)


def _identity(uid: str, resource_version: str) -> dict[str, str]:
    return {"uid": uid, "resourceVersion": resource_version}


def status_write(
    resource: Resource, namespace: str, name: str, status: Any, failpoint: Failpoint, *, tied: Json | None = None
) -> Write[Stamped]:
    """A merge patch of another kind's ``status``; a newer one replaces one that still waits. ``tied``: the metadata
    without which it does not hold.
    """
    body = {"status": status} if tied is None else {"metadata": tied, "status": status}
    meta = {"namespace": namespace, "name": name}
    return stamped_write(Verb.MERGE_PATCH, resource, meta, body, failpoint, subresource="status", slot="status")
