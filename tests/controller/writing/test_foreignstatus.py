"""What ``kubectl get`` shows of Volcano's and KAI's Queues."""

from typing import Any

import pytest

from controller.engine.model.config import EngineConfig, QueueUsage
from controller.engine.proportion.division import QueueName
from controller.objects.decode import decode
from controller.objects.kai import KaiQueue
from controller.watching.kinds import KAI_QUEUES
from controller.writing.foreignstatus import loads, status
from controller.writing.pace import Pace
from controller.writing.queuestatus import QueueStatuses
from inventory.api.names import GPU_PERCENT, QUEUE_USAGE
from kube.writing.writes import Write
from tests.support.engine.foreignqueues import GPU, asks, kai_queue, volcano_queue, world
from tests.support.engine.world import World, requesting, workload


def shown(lab: World, given: Any) -> dict[str, Any]:
    return status(lab.engine, given, loads(lab.engine))


def gpus(amounts: dict[str, str]) -> str:
    return amounts[GPU]


def test_a_queue_has_the_sums_of_those_below_it() -> None:
    dept, one, two = kai_queue("dept"), kai_queue("one", "dept"), kai_queue("two", "dept", limit=2)
    lab = world(dept, one, two)
    for queue, number in (("one", 3), ("two", 4)):
        for at in range(number):
            lab.put(asks(f"{queue}{at}", queue, created_s=at))
    lab.settle()
    assert (gpus(shown(lab, one)["allocated"]), gpus(shown(lab, one)["requested"])) == ("3", "3")
    assert (gpus(shown(lab, two)["allocated"]), gpus(shown(lab, two)["requested"])) == ("2", "4")
    assert (gpus(shown(lab, dept)["allocated"]), gpus(shown(lab, dept)["requested"])) == ("5", "7")
    assert (shown(lab, dept)["childQueues"], shown(lab, one)["childQueues"]) == (["one", "two"], [])


def test_what_is_held_no_more_is_shown_as_none() -> None:
    queue = kai_queue("q")
    body = {"metadata": {"name": "q"}, "spec": {}, "status": {"allocated": {GPU: "2", "other": "1"}}}
    found = shown(world(queue), decode(body, KaiQueue))["allocated"]
    assert found == {"cpu": "0", "memory": "0", GPU: "0", "other": "0"}


def test_kais_queue_counts_parts_of_gpus_as_gpus_and_says_what_is_never_preempted() -> None:
    queue = kai_queue("q", quota=8)
    lab = world(queue)
    lab.put(asks("train", "q", 3, priority=50), asks("build", "q", 2, priority=100))
    lab.put(requesting(workload("part", "q", priority=50), {GPU_PERCENT: "50"}))
    lab.settle()
    found = shown(lab, queue)
    assert found["requested"] == {"cpu": "0", "memory": "0", GPU: "5500m"}
    assert found["allocated"] == {"cpu": "0", "memory": "0", GPU: "5"}
    assert found["allocatedNonPreemptible"] == {"cpu": "0", "memory": "0", GPU: "2"}


def test_a_queue_that_cannot_be_used_says_why_until_it_can() -> None:
    lost = kai_queue("lost", "nowhere")
    (refused,) = shown(world(lost), lost)["conditions"]
    assert (refused["type"], refused["status"]) == ("Refused", "True")
    assert refused["message"] == "spec.parentQueue: expected a Queue that is there, found 'nowhere'"
    body = {"metadata": {"name": "lost"}, "status": {"conditions": [refused, {"type": "Own", "status": "True"}]}}
    known = decode({**body, "spec": {"parentQueue": "nowhere"}}, KaiQueue)
    assert "conditions" not in shown(world(known), known), "it says so already"
    mended = decode({**body, "spec": {}}, KaiQueue)
    assert [each["type"] for each in shown(world(mended), mended)["conditions"]] == ["Own"]


@pytest.mark.parametrize(
    ("state", "jobs", "after"),
    [
        ("", 0, "Open"),
        ("Unknown", 0, "Open"),
        ("Closed", 0, "Closed"),
        ("Closing", 0, "Closed"),
        ("Closing", 1, "Closing"),
    ],
)
def test_volcanos_queue_is_open_unless_somebody_closes_it(state: str, jobs: int, after: str) -> None:
    lab = world(volcano_queue("q"))
    for at in range(jobs):
        lab.put(asks(f"j{at}", "q"))
    lab.settle()
    given = volcano_queue("q", state=state)
    lab.put(given)
    found = shown(lab, given)
    assert (found["state"], found["running"], found["pending"]) == (after, jobs, 0)


def test_a_job_that_was_evicted_and_still_runs_is_of_unknown_state() -> None:
    first = volcano_queue("first", weight=1, state="Closing")
    lab = world(volcano_queue("first", weight=1), volcano_queue("second", weight=3))
    for at in range(20):
        lab.put(asks(f"f{at}", "first", created_s=at))
    lab.settle()
    ran = shown(lab, first)["running"]
    for at in range(20):
        lab.put(asks(f"s{at}", "second", created_s=100 + at))
    lab.settle()
    going, found = len(lab.leaving()), shown(lab, first)
    assert going > 0
    assert (found["unknown"], found["running"], found["inqueue"]) == (going, ran - going, 0)
    lab.stop_evicted()
    assert shown(lab, first)["unknown"] == 0


def test_volcanos_queue_that_cannot_be_used_is_of_unknown_state() -> None:
    lost = volcano_queue("q", parent="nowhere")
    assert shown(world(lost), lost)["state"] == "Unknown"


@pytest.mark.parametrize(("window_s", "every_s"), [(7 * 24 * 3600.0, 300.0), (4000.0, 100.0), (60.0, 10.0)])
def test_past_use_is_written_into_an_annotation_now_and_then(window_s: float, every_s: float) -> None:
    lab, sent = World(EngineConfig(queue_usage=QueueUsage(window_s=window_s))), list[Write[Any]]()
    statuses = QueueStatuses(lab.engine, sent.append, pace=Pace(), backlog=lambda: 0)
    statuses.observed(KAI_QUEUES, kai_queue("q"))
    name = QueueName("q")

    def records(now_s: float, text: str, other: str = "default-queue") -> list[str]:
        sent.clear()
        statuses.recorded({name: text, QueueName(other): "no object"}, now_s)
        statuses.write(now_s)
        notes = [write for write in sent if "metadata" in write.body]
        assert {write.name for write in notes} <= {"q"}
        return [write.body["metadata"]["annotations"][QUEUE_USAGE] for write in notes]

    assert records(1000.0, "at once") == []
    assert records(999.0 + every_s, "too soon") == []
    assert records(1000.0 + every_s, "first") == ["first"]
    assert records(1001.0 + every_s, "too soon again") == []
    assert statuses.next_due_s(1001.0 + every_s) != 1001.0 + every_s
    assert records(1000.0 + 2 * every_s, "second") == ["second"]


def test_nothing_is_recorded_where_past_use_does_not_count() -> None:
    sent = list[Write[Any]]()
    statuses = QueueStatuses(world().engine, sent.append, pace=Pace(), backlog=lambda: 0)
    statuses.observed(KAI_QUEUES, kai_queue("q"))
    for now_s in (1000.0, 2000.0):
        statuses.recorded({QueueName("q"): "text"}, now_s)
        statuses.write(now_s)
    assert not any("metadata" in write.body for write in sent)
