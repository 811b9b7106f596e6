"""Why a workload waits as far as it is known without a try: workloads of one shape are parked by the first of them."""

import msgspec

from controller.engine.conditions.records import DecisionRecord
from controller.engine.conditions.stories import Stories
from controller.engine.queues.pending import PendingWorkload


def last_found(stories: Stories, pending: PendingWorkload) -> DecisionRecord | None:
    """The latest record of the workload, or of the one that parked its shape: then ``workload`` is that one's key.

    The same object while nothing new was found. None before the first try.
    """
    own = stories.last(pending.key)
    shapes = pending.at.found_for(pending) if pending.at is not None else None
    return shapes if own is None or (shapes is not None and shapes.at_s > own.at_s) else own


def found_of(record: DecisionRecord, pending: PendingWorkload) -> DecisionRecord:
    """The record as if the workload had been tried itself: its words then name what its namespace's readers may see."""
    return record if record.workload == pending.key else msgspec.structs.replace(record, workload=pending.key)
