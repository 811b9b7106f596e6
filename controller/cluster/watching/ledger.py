"""The state beyond the watches: Workloads with this controller's own writes in them, and versions of other objects that
it wrote.

A watch shows the controller's own writes a little later than it knows them, and never anything older than the ledger
holds: versions of one object only grow.
"""

from collections.abc import Iterator

import msgspec

from controller.jobs.framework.podsets import first_slice
from controller.objects.meta import is_true
from controller.objects.workload import NO_STATUS, Workload
from controller.scheduler.decisions import reasons
from controller.scheduler.model.resources import WorkloadKey
from kube.reading.entries import ObjectKey


class LedgerEntry(msgspec.Struct, gc=False, eq=False):
    """One Workload. ``workload`` is its newest known state and ``whole`` whether only its spec has parts that
    ``workload`` lacks, so that its status may be put: ``Ledger`` alone writes the two, together. ``writing`` is whether
    a write of this controller is under way, and no other may be begun: ``WorkloadWrites`` alone sets it, and clears it
    once the write has ended, well or not.

    ``gc=False`` saves 16 bytes of each and the collector's walk: there are 120,000 in a large fleet.
    """

    workload: Workload
    writing: bool = False
    whole: bool = False

    @property
    def version(self) -> int:
        return version_number(self.workload.metadata.resource_version)

    @property
    def uid(self) -> str:
        return self.workload.metadata.uid


class Ledger:
    """The newest known state of every Workload, by ``namespace/name``.

    The core alone calls ``observe`` and ``forget`` for what the watch shows; WorkloadWrites calls ``wrote``, and
    ``observe`` for what it reads after a conflict. The version of one object (``uid``) only grows. Only WorkloadWrites
    sets ``entry.writing``, and only the ledger ``entry.whole``. ``_slices`` names workloads with an entry that hold
    quota and are not finished.
    """

    def __init__(self) -> None:
        self._entries: dict[WorkloadKey, LedgerEntry] = {}
        self._slices: dict[WorkloadKey, WorkloadKey] = {}
        """The slice of an elastic job that holds quota, by the first slice, where it is a later one."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[WorkloadKey]:
        return iter(self._entries)

    def values(self) -> Iterator[LedgerEntry]:
        return iter(self._entries.values())

    def get(self, key: WorkloadKey) -> LedgerEntry | None:
        return self._entries.get(key)

    def current(self, named: WorkloadKey) -> LedgerEntry | None:
        """The workload that pods mean which name ``named``: of an elastic job, the slice that holds quota."""
        return self._entries.get(self._slices.get(named, named))

    def observe(self, workload: Workload) -> LedgerEntry | None:
        """Notes the state that the watch shows. Returns None if this or a newer state is known already."""
        key = WorkloadKey(workload.key)
        entry = self._entries.get(key)
        if entry is None or entry.uid != workload.metadata.uid:
            entry = self._entries[key] = LedgerEntry(workload, whole=workload.status is NO_STATUS)
            self._note_slice(workload)
            return entry
        if version_number(workload.metadata.resource_version) <= entry.version:
            return None
        entry.workload, entry.whole = workload, workload.status is NO_STATUS
        self._note_slice(workload)
        return entry

    def wrote(
        self, key: WorkloadKey, after: Workload, resource_version: str, *, whole: bool = False
    ) -> LedgerEntry | None:
        """Notes that ``after`` is stored as this version, ``whole`` if the answer has shown no more than that. Returns
        None if the watch has shown a newer one, or the object's end.
        """
        entry = self._entries.get(key)
        if entry is None or entry.uid != after.metadata.uid or version_number(resource_version) <= entry.version:
            return None
        metadata = msgspec.structs.replace(after.metadata, resource_version=resource_version)
        entry.workload, entry.whole = msgspec.structs.replace(after, metadata=metadata), whole
        self._note_slice(entry.workload)
        return entry

    def forget(self, key: WorkloadKey, uid: str) -> LedgerEntry | None:
        """Forgets an object that is gone. Returns None if another of the same name has taken its place."""
        entry = self._entries.get(key)
        if entry is None or entry.uid != uid:
            return None
        self._note_slice(entry.workload, gone=True)
        return self._entries.pop(key)

    def _note_slice(self, workload: Workload, *, gone: bool = False) -> None:
        own, first = WorkloadKey(workload.key), first_slice(workload)
        if own == first:
            return
        finished = is_true(workload.status.conditions, reasons.FINISHED)
        if workload.status.admission is not None and not finished and not gone:
            self._slices[first] = own
        elif self._slices.get(first) == own:
            del self._slices[first]


class WrittenVersions:
    """The uid and version of this controller's last write to each object that no watch has shown: an older view decides
    nothing.

    It is for jobs and pods, whose writes are patches: unlike for a Workload, the patched object is not known.
    """

    def __init__(self) -> None:
        self._written: dict[ObjectKey, tuple[str, int]] = {}

    def wrote(self, key: ObjectKey, uid: str, resource_version: str) -> None:
        self._written[key] = (uid, version_number(resource_version))

    def behind(self, key: ObjectKey, uid: str, resource_version: str) -> bool:
        """Whether this view of the object is older than this controller's own last write to it."""
        written = self._written.get(key)
        if written is None:
            return False
        if written[0] == uid and version_number(resource_version) < written[1]:
            return True
        del self._written[key]
        return False

    def forget(self, key: ObjectKey) -> None:
        """Forgets an object that is gone."""
        self._written.pop(key, None)


def version_number(resource_version: str) -> int:
    """The version as a number. Versions of one resource can be compared so (Kubernetes API conventions since 1.35)."""
    return int(resource_version) if resource_version.isdigit() else 0
