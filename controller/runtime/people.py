"""Events about workloads and jobs, so many a second at most: each is a write, and an admission is worth more."""

from typing import Final

from controller.engine.decisions import Event
from controller.objects.decode import KUEUE
from controller.runtime.ledger import Ledger
from kube.clock import Clock
from kube.events import EventRecorder, Occurrence
from kube.objects import ObjectReference

ACTION: Final = "Queue"
_RATE: Final = 10.0
_BURST: Final = 200.0


class People:
    """``dropped``: Events that were never written."""

    def __init__(self, recorder: EventRecorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._tokens = _BURST
        self._filled_s = clock.monotonic()
        self._refused = 0

    @property
    def dropped(self) -> int:
        return self._refused + self._recorder.dropped

    def of_workloads(self, events: tuple[Event, ...], ledger: Ledger) -> None:
        for event in events:
            kept = ledger.get(event.workload)
            if kept is None:
                continue
            meta = kept.workload.metadata
            about = ObjectReference(KUEUE, "Workload", meta.name, meta.uid, meta.namespace)
            self.tell(about, event.type.value, event.reason, event.message)

    def tell(self, about: ObjectReference, type_: str, reason: str, note: str) -> None:
        if not self._room():
            self._refused += 1
            return
        self._recorder.record(
            Occurrence(
                regarding=about,
                reason=reason,
                action=ACTION,
                note=note,
                type="Warning" if type_ == "Warning" else "Normal",
            )
        )

    def _room(self) -> bool:
        now_s = self._clock.monotonic()
        self._tokens = min(_BURST, self._tokens + (now_s - self._filled_s) * _RATE)
        self._filled_s = now_s
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
