"""The history of each workload, newest record last: a bounded log of decision records."""

from collections import OrderedDict
from collections.abc import Iterable

from controller.scheduler.decisions.records import DecisionRecord
from controller.scheduler.model.resources import WorkloadKey


class Stories:
    """Holds at most ``workloads`` stories of ``length`` records each; the story without a new record for longest is
    dropped first.

    A record with the same rule and queue as the one before replaces it: a story tells changes.
    """

    def __init__(self, *, workloads: int = 10_000, length: int = 16) -> None:
        self._workloads = workloads
        self._length = length
        self._stories: OrderedDict[WorkloadKey, tuple[DecisionRecord, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._stories)

    def tell(self, record: DecisionRecord) -> DecisionRecord | None:
        """Append a record. Returns the record of the workload that was the last one before."""
        story = self._stories.get(record.workload)
        if story is None:
            self._stories[record.workload] = (record,)
            if len(self._stories) > self._workloads:
                self._stories.popitem(last=False)
            return None
        self._stories.move_to_end(record.workload)
        last = story[-1]
        same = last.rule is record.rule and last.cluster_queue == record.cluster_queue
        if same:
            story = story[:-1]
        elif len(story) == self._length:
            story = story[1:]
        self._stories[record.workload] = (*story, record)
        return last

    def of(self, workload: WorkloadKey) -> Iterable[DecisionRecord]:
        """The records of a workload, oldest first; empty for a workload that was never decided on."""
        return self._stories.get(workload, ())

    def last(self, workload: WorkloadKey) -> DecisionRecord | None:
        story = self._stories.get(workload)
        return story[-1] if story else None

    def forget(self, workload: WorkloadKey) -> None:
        self._stories.pop(workload, None)
