"""The priority of Workloads follows the value of their class, and only its changes."""

from typing import Any, cast

import pytest

from controller.cluster.watching.kinds import WORKLOAD_CLASSES, WORKLOADS
from controller.cluster.watching.ledger import Ledger
from controller.cluster.writing.priorities import Priorities, changes_value, names_class
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites
from controller.objects.decode import decode
from controller.objects.queues import WorkloadPriorityClass
from controller.objects.workload import Workload
from kube.testing import eventually
from tests.support.controller.stage import stage

REFERENCE = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}


def priority_class(value: int) -> WorkloadPriorityClass:
    return decode({"metadata": {"name": "high"}, "value": value}, WorkloadPriorityClass)


def workload(**reference: str) -> Workload:
    raw = {"metadata": {"namespace": "team", "name": "w"}, "spec": {"priority": 1, "priorityClassRef": reference}}
    return decode(raw, Workload)


class Refusing:
    """An API server that refuses the first write."""

    def __init__(self) -> None:
        self.asked = 0

    def spec(self, kept: Any, _after: Any, changes: Any, then: Any, _failpoint: object) -> None:
        self.asked += 1
        if self.asked > 1:
            assert changes == {"spec": {"priority": 9}}
            kept.workload = decode({"metadata": {"namespace": "team", "name": "w"}, "spec": {"priority": 9}}, Workload)
        then(Result.REFUSED if self.asked == 1 else Result.WRITTEN, "")


def test_only_another_value_of_a_class_that_was_there_is_a_change() -> None:
    assert changes_value(priority_class(1), priority_class(2))
    assert not changes_value(priority_class(1), priority_class(1))
    assert not changes_value(None, priority_class(1))


@pytest.mark.parametrize("key", ["group", "kind", "name"])
def test_a_reference_to_another_class_is_not_to_this_one(key: str) -> None:
    assert names_class(workload(**REFERENCE), "high")
    assert not names_class(workload(**{**REFERENCE, key: "other"}), "high")


def test_a_refused_write_is_made_again_a_while_later() -> None:
    ledger, server = Ledger(), Refusing()
    ledger.observe(workload(**REFERENCE))
    priorities = Priorities(ledger, cast("WorkloadWrites", server), backlog=lambda: 0)
    priorities.changed(priority_class(1), priority_class(9))
    priorities.write(100.0)
    priorities.write(101.0)
    assert server.asked == 1
    due_s = priorities.next_due_s(101.0)
    assert due_s is not None
    priorities.write(due_s)
    priorities.write(due_s)
    assert (server.asked, priorities.waiting, priorities.next_due_s(due_s)) == (2, (), None)


def test_others_go_first_while_much_is_written() -> None:
    ledger, server = Ledger(), Refusing()
    ledger.observe(workload(**REFERENCE))
    priorities = Priorities(ledger, cast("WorkloadWrites", server), backlog=lambda: 100)
    priorities.changed(priority_class(1), priority_class(9))
    priorities.write(100.0)
    assert server.asked == 0
    assert priorities.waiting == ("team/w",)


async def test_in_the_controller_a_waiting_workload_gets_the_new_value() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        scene.make(WORKLOAD_CLASSES, "high", {}, value=5)
        async with scene.controller():
            scene.workload("a", 2, priority=5, priorityClassRef=REFERENCE)
            await eventually(lambda: bool(scene.condition("a", "QuotaReserved")))
            scene.server.merge(WORKLOAD_CLASSES, "high", {"value": 7})
            await eventually(
                lambda: scene.server.get(WORKLOADS, "a", namespace="team")["spec"]["priority"] == 7, what="raised"
            )
