"""Events about workloads, jobs and pods, at a bounded rate: each is a write, and an admission is worth more.

If there is room for some only, bad news comes before good: the last part of the allowance is kept for Events other than
reservations and admissions.
"""

from typing import Final

from controller.cluster.watching.ledger import Ledger
from controller.cluster.writing.pace import Allowance, Pace
from controller.objects.decode import KUEUE
from controller.scheduler.decisions.decisions import Event
from kube.clock import Clock
from kube.objects import ObjectReference
from kube.writing.events import EventRecorder, Occurrence

ACTION: Final = "Queue"
_ROUTINE: Final = ("QuotaReserved", "Admitted")
_KEPT: Final = 20.0
"""The part of the allowance that Events of ``_ROUTINE`` leave to other Events."""


class EventPublisher:
    """Publishes Events. ``dropped``: the number of Events that were never written."""

    def __init__(self, recorder: EventRecorder, clock: Clock, pace: Pace) -> None:
        self._recorder = recorder
        self._clock = clock
        self._allowance = Allowance(pace, rate=10.0, quick_rate=1.0, burst=60.0)
        self._refused = 0

    @property
    def dropped(self) -> int:
        return self._refused + self._recorder.dropped

    def publish_all(self, events: tuple[Event, ...], ledger: Ledger) -> None:
        for event in events:
            entry = ledger.get(event.workload)
            if entry is None:
                continue
            meta = entry.workload.metadata
            about = ObjectReference(KUEUE, "Workload", meta.name, meta.uid, meta.namespace)
            self.publish(about, event.type.value, event.reason, event.message)

    def publish(self, about: ObjectReference, type_: str, reason: str, note: str) -> None:
        if self._allowance.left(self._clock.wall()) < 1.0 + (_KEPT if reason in _ROUTINE else 0.0):
            self._refused += 1
            return
        self._allowance.take()
        self._recorder.record(
            Occurrence(
                regarding=about,
                reason=reason,
                action=ACTION,
                note=note,
                type="Warning" if type_ == "Warning" else "Normal",
            )
        )
