"""The record of interruptions is written into its flavor, rarely, and again where a write does not go through."""

import asyncio
import json
from typing import Any

import pytest

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import FLAVORS, NODES, reader
from controller.objects.core import Node
from controller.objects.queues import ResourceFlavor
from controller.reconcile.failures.interruptioncounts import read_record
from controller.reconcile.failures.interruptioncounts_shell import FlavorInterruptions
from controller.scheduler.model.config import InterruptionRules
from controller.scheduler.topology.nodes import LEAVING
from inventory.api.names import INTERRUPTION_RATE, INTERRUPTIONS
from kube.errors import KubeError
from kube.reading.entries import CachedObject, ObjectKey
from kube.reading.reflector import Added, Removed
from kube.testing import VirtualClock
from kube.writing.writes import Conflicted, Outcome, Refused, Write, Written


class Alone:
    """The controller without a process: flavor f of all nodes, and writes whose outcomes are given."""

    def __init__(self, outcome: Outcome[Any]) -> None:
        self.outcome = outcome
        self.clock = VirtualClock()
        self.notes: dict[str, str] = {}
        self.counted: list[str] = []
        self.written: list[Write[Any]] = []
        self.version = 0
        self.shell = FlavorInterruptions(
            InterruptionRules(), LEAVING, self.put, clock=self.clock, count=self.counted.append
        )
        self.flavor()
        for name in ("n1", "n2"):
            self.node(name)

    def put(self, write: Write[Any]) -> "asyncio.Future[Outcome[Any]]":
        self.written.append(write)
        future: asyncio.Future[Outcome[Any]] = asyncio.get_running_loop().create_future()
        future.set_result(self.outcome)
        return future

    def flavor(self) -> None:
        """The flavor is seen as it was written last."""
        self.version += 1
        meta = {"name": "f", "uid": "u", "resourceVersion": str(self.version), "annotations": self.notes}
        self._hear(FLAVORS, "f", {"metadata": meta, "spec": {}}, ResourceFlavor)

    def node(self, name: str, *taints: str) -> None:
        listed = [{"key": key, "effect": "NoSchedule"} for key in taints]
        self._hear(NODES, name, {"metadata": {"name": name}, "spec": {"taints": listed}}, Node)

    def _hear(self, resource: Any, name: str, body: dict[str, Any], type_: Any) -> None:
        entry = CachedObject(reader(type_)(json.dumps(body).encode()), "u", str(self.version))
        self.shell.hear(ObjectChange(resource, Added(ObjectKey("", name), entry)))

    async def step(self) -> list[str]:
        """The versions that the writes of this step are tied to."""
        before = len(self.written)
        self.shell.reconcile()
        await asyncio.sleep(0)
        new = self.written[before:]
        for write in new if isinstance(self.outcome, Written) else ():
            said = {**self.notes, **write.body["metadata"]["annotations"]}
            self.notes = {key: text for key, text in said.items() if text is not None}
        return [write.body["metadata"]["resourceVersion"] for write in new]


async def test_what_was_written_is_not_written_again_before_it_could_be_seen() -> None:
    alone = Alone(Written(None))
    assert await alone.step() == []
    alone.shell.served("n1")
    assert await alone.step() == ["1"]
    assert await alone.step() == [], "an older one may still be told"
    alone.flavor()
    assert await alone.step() == []
    alone.shell.served("n2")
    assert await alone.step() == ["2"]
    assert alone.counted == ["f", "f"]
    alone.clock.advance(5.0)
    assert await alone.step() == ["2"], "it is not there yet"


@pytest.mark.parametrize("outcome", [Conflicted(KubeError("changed")), Refused(KubeError("no"))])
async def test_what_could_not_be_written_is_tried_again_a_second_later_or_once_the_flavor_has_changed(
    outcome: Outcome[Any],
) -> None:
    alone = Alone(outcome)
    alone.shell.served("n1")
    assert await alone.step() == ["1"]
    assert await alone.step() == []
    alone.clock.advance(1.0)
    assert await alone.step() == ["1"]
    alone.flavor()
    alone.outcome = Written(None)
    assert await alone.step() == ["2"]
    assert alone.notes[INTERRUPTION_RATE] == "1.00"


async def test_what_time_alone_changes_is_written_once_a_step_of_the_window() -> None:
    alone = Alone(Written(None))
    alone.clock.advance(1800.0)
    alone.shell.hear(ObjectChange(NODES, Removed(ObjectKey("", "n2"), CachedObject(None, "u", "1"))))
    assert await alone.step() == []
    alone.clock.advance(1800.0)
    assert await alone.step() == ["1"]
    assert sum(gone_s for _, gone_s in read_record(alone.notes[INTERRUPTIONS]).steps.values()) == 1800.0
    assert INTERRUPTION_RATE not in alone.notes


async def test_a_node_that_stays_after_all_may_leave_again() -> None:
    alone = Alone(Written(None))
    (sign,) = sorted(LEAVING)[:1]
    alone.node("n1", sign)
    for _ in range(2):
        alone.shell.served("n1")
    assert alone.counted == ["f"]
    alone.node("n1")
    alone.node("n1", sign)
    alone.shell.served("n1")
    assert alone.counted == ["f", "f"]
