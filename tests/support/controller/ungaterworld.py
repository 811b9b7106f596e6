"""What the worlds of the ungater share: its watch of pods, and its writes, which wait until the world answers them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import PODS
from controller.cluster.watching.ledger import Ledger
from controller.objects.core import Pod
from controller.reconcile.placing.ungating_shell import TopologyUngater
from kube.reading.entries import CachedObject, ObjectKey
from kube.reading.reflector import Added, Change, Changed, Removed
from kube.testing import VirtualClock
from kube.writing.writes import Outcome, Write


@dataclass(kw_only=True)
class UngaterWorld:
    """``shown``: pods by name as the ungater has seen them. ``writes``: those that are under way."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    ledger: Ledger = field(default_factory=Ledger)
    shown: dict[str, Pod] = field(default_factory=dict)
    writes: list[tuple[Write[Any], asyncio.Future[Outcome[Any]]]] = field(default_factory=list)
    ungater: TopologyUngater = field(init=False)

    def begin(self, **more: Callable[..., Any]) -> None:
        """A process that has seen no pod yet."""
        self.shown.clear()
        self.ungater = TopologyUngater(
            self.ledger,
            self.put,
            clock=self.clock,
            ready=lambda: True,
            count=lambda _result: None,
            tell=lambda *_said: None,
            **more,
        )

    def put(self, write: Write[Any]) -> asyncio.Future[Outcome[Any]]:
        future: asyncio.Future[Outcome[Any]] = asyncio.get_running_loop().create_future()
        self.writes.append((write, future))
        return future

    def see(self, name: str, new: Pod | None) -> None:
        """The watch shows the pod as it is; None where it has gone. One of another uid is another pod."""
        key, old = ObjectKey("team", name), self.shown.pop(name, None)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._hear(Removed(key, _entry(old)))
            old = None
        if new is not None:
            self.shown[name] = new
            self._hear(Added(key, _entry(new)) if old is None else Changed(key, _entry(old), _entry(new)))

    def _hear(self, change: Change[Pod]) -> None:
        self.ungater.hear(ObjectChange(PODS, change))


def _entry(pod: Pod) -> CachedObject[Pod]:
    return CachedObject(object=pod, uid=pod.metadata.uid, resource_version="1")
