"""The last reason why a workload waits, also for a workload that was not tried itself: workloads of one shape are
parked by the first of them.
"""

import msgspec

from controller.scheduler.decisions.records import DecisionRecord
from controller.scheduler.decisions.stories import Stories
from controller.scheduler.queues.pending import PendingWorkload


def last_found(stories: Stories, pending: PendingWorkload) -> DecisionRecord | None:
    """The latest record of the workload itself or of the workload that parked its shape; ``workload`` is then that
    one's key. The same object as before while nothing new was decided. None before the first try.
    """
    own = stories.last(pending.key)
    shapes = pending.at.found_for(pending) if pending.at is not None else None
    return shapes if own is None or (shapes is not None and shapes.at_s > own.at_s) else own


def found_of(record: DecisionRecord, pending: PendingWorkload) -> DecisionRecord:
    """The record as if this workload had been tried itself: the sentence made of it then names only what readers of its
    namespace may see.
    """
    return record if record.workload == pending.key else msgspec.structs.replace(record, workload=pending.key)
