"""The identity of a cycle's try of a workload: equal tries have the same outcome while nothing changes."""

from controller.scheduler.model.resources import ResourceName, WorkloadKey
from controller.scheduler.queues.entry import Entry

Try = tuple[WorkloadKey, tuple[tuple[tuple[ResourceName, int], ...], ...]]


def try_of(entry: Entry) -> Try:
    """The workload, and where its search among flavors resumes."""
    pending = entry.pending
    bookmark = pending.bookmark if pending is not None else None
    tried = bookmark.tried if bookmark is not None else ()
    return entry.key, tuple([tuple(sorted(indexes.items())) for indexes in tried]) if tried else ()
