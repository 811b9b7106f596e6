"""What ``kubectl get`` shows of Volcano's and KAI's Queues."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest

from controller.cluster.watching.kinds import KAI_QUEUES, VOLCANO_QUEUES
from controller.cluster.writing.pace import Pace
from controller.cluster.writing.queuestatus import QueueStatuses
from controller.foreign.objects.kai import KaiQueue
from controller.foreign.objects.volcanoqueue import CLOSED_BY_PARENT, VolcanoQueue
from controller.foreign.rules.queuestatus import loads, mark, status
from controller.objects.decode import decode
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.model.config import EngineConfig, QueueUsage
from inventory.api.names import GPU_PERCENT, QUEUE_USAGE
from kube.errors import ConflictError
from kube.writing.writes import Conflicted, Write
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


def below(state: str = "", mark: str | None = None) -> VolcanoQueue:
    """A Queue below another, with its state and its mark."""
    given = volcano_queue("q", parent="top", state=state)
    annotations = {} if mark is None else {CLOSED_BY_PARENT: mark}
    return msgspec.structs.replace(given, metadata=msgspec.structs.replace(given.metadata, annotations=annotations))


@pytest.mark.parametrize(
    ("top", "state", "mark_", "jobs", "after", "marks"),
    [
        ("Open", "Open", None, 0, "Open", None),
        ("Open", "Closed", None, 0, "Closed", None),
        ("Open", "Closed", "false", 0, "Closed", None),
        ("Open", "Closed", "true", 0, "Open", None),
        ("Open", "Closing", "true", 1, "Open", None),
        ("Open", "Open", "true", 0, "Open", "false"),
        ("Closed", "Open", None, 0, "Open", "true"),
        ("Closed", "", "false", 0, "Open", "true"),
        ("Closing", "Open", "true", 1, "Closing", None),
        ("Closing", "Closing", "true", 1, "Closing", None),
        ("Closed", "Open", "true", 0, "Closed", None),
        ("Closed", "Closing", "true", 0, "Closed", None),
        ("Closed", "Closed", "true", 1, "Closed", None),
        ("Closed", "Closed", None, 0, "Closed", None),
        ("Closed", "Closing", "false", 1, "Closing", None),
    ],
)
def test_a_queue_below_a_closed_one_is_closed_with_it_and_opens_with_it(
    top: str, state: str, mark_: str | None, jobs: int, after: str, marks: str | None
) -> None:
    """It is marked before its state is closed, and the mark is taken back after its state is open."""
    lab = world(volcano_queue("top"), below())
    for at in range(jobs):
        lab.put(asks(f"j{at}", "q"))
    lab.settle()
    given = below(state, mark_)
    lab.put(volcano_queue("top", state=top), given)
    assert shown(lab, given)["state"] == after
    assert mark(lab.engine, given) == marks


def test_only_what_is_closed_by_itself_stays_so_when_the_one_above_opens() -> None:
    lab = world(volcano_queue("top"), below("Closed", "true"), asks("a", "q"))
    lab.settle()
    assert lab.running() == {"a"}
    lab = world(volcano_queue("top"), below("Closed", "false"), asks("a", "q"))
    lab.settle()
    assert lab.running() == set()


def test_a_queue_of_another_system_or_below_none_closes_nothing() -> None:
    lab = world(kai_queue("q"))
    assert mark(lab.engine, below("Open", "true")) == "false"
    assert shown(lab, below("Closed", "true"))["state"] == "Open"


def test_the_mark_is_written_once_and_again_where_the_watch_does_not_show_it() -> None:
    lab, sent = world(volcano_queue("top", state="Closed"), below("Open")), list[Write[Any]]()
    statuses = QueueStatuses(lab.engine, unanswered(sent), pace=Pace(), backlog=lambda: 0)
    statuses.observed(VOLCANO_QUEUES, below("Open"))

    def marks(now_s: float) -> list[str]:
        sent.clear()
        statuses.write(now_s)
        notes = [write.body["metadata"] for write in sent if write.subresource is None]
        return [note["annotations"][CLOSED_BY_PARENT] for note in notes]

    assert marks(1000.0) == ["true"]
    assert marks(1001.0) == []
    assert statuses.next_due_s(1001.0) is not None
    assert marks(1005.0) == ["true"]
    shown_ = below("Open", "true")
    lab.put(shown_)
    statuses.observed(VOLCANO_QUEUES, shown_)
    assert marks(1010.0) == []
    assert [write.body["status"]["state"] for write in sent] == ["Closed"]


def test_the_state_of_a_volcano_queue_holds_for_the_version_it_was_read_from_and_is_looked_at_again() -> None:
    """A command may have opened it since: then what is there now counts."""
    lab, sent, answers = world(volcano_queue("q", state="Closing")), list[Write[Any]](), list[Future[Any]]()
    statuses = QueueStatuses(lab.engine, unanswered(sent, answers), pace=Pace(), backlog=lambda: 0)
    closing = volcano_queue("q", state="Closing")
    statuses.observed(VOLCANO_QUEUES, closing)
    statuses.write(1000.0)
    (closed,) = sent
    assert closed.body["status"]["state"] == "Closed"
    meta = closing.metadata
    assert closed.body["metadata"] == {"uid": meta.uid, "resourceVersion": meta.resource_version}
    statuses.write(1010.0)
    assert len(sent) == 1
    answers[0].set_result(Conflicted(ConflictError("changed", status=409)))
    statuses.write(1020.0)
    assert [write.body["status"]["state"] for write in sent] == ["Closed", "Closed"]
    opened = volcano_queue("q", state="Open")
    lab.put(opened)
    statuses.observed(VOLCANO_QUEUES, opened)
    answers[1].set_result(Conflicted(ConflictError("changed", status=409)))
    statuses.write(1030.0)
    assert [write.body["status"].get("state") for write in sent[2:]] in ([], [None])


def unanswered(sent: list[Write[Any]], answers: list[Future[Any]] | None = None) -> Callable[[Write[Any]], Future[Any]]:
    def put(write: Write[Any]) -> Future[Any]:
        sent.append(write)
        answer: Future[Any] = Future()
        (answers if answers is not None else []).append(answer)
        return answer

    return put


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
        notes = [write for write in sent if write.subresource is None]
        assert all(write.body["metadata"]["uid"] == kai_queue("q").metadata.uid for write in notes)
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
    assert all(write.subresource == "status" for write in sent)
