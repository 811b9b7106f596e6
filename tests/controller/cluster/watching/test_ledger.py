"""What is known of a Workload never goes back in time, and a lost answer is looked up before anybody acts."""

import random
from typing import Any

import msgspec

from controller.cluster.watching.kinds import WORKLOADS, reader
from controller.cluster.watching.ledger import Ledger, WrittenVersions
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites
from controller.objects.meta import Condition, ObjectMeta
from controller.objects.workload import Admission, Workload, WorkloadStatus
from controller.scheduler.decisions import status
from controller.scheduler.model.resources import WorkloadKey
from failpoints.names import Failpoint
from kube.client import Client
from kube.clock import SystemClock
from kube.reading.entries import ObjectKey
from kube.testing import FakeApiServer, eventually
from kube.writing.writer import Writer

A = WorkloadKey("ns/a")
POD = ObjectKey("team", "a")


def seen(version: int, uid: str = "u") -> Workload:
    return Workload(metadata=ObjectMeta(name="a", namespace="ns", uid=uid, resource_version=str(version)))


def test_an_older_version_is_not_news() -> None:
    ledger = Ledger()
    assert ledger.observe(seen(5)) is not None
    assert ledger.observe(seen(5)) is None
    assert ledger.observe(seen(4)) is None
    assert ledger.observe(seen(6)) is not None


def test_our_own_write_is_known_before_the_watch_shows_it_and_its_echo_is_not_news() -> None:
    ledger = Ledger()
    ledger.observe(seen(5))
    after = status.finished(seen(5), "Succeeded", "", 0.0)
    entry = ledger.wrote(A, after, "7")
    assert entry is not None
    assert entry.workload.metadata.resource_version == "7"
    assert ledger.observe(seen(7)) is None
    assert ledger.observe(seen(6)) is None


def test_another_object_of_the_name_is_news_whatever_its_version() -> None:
    ledger = Ledger()
    ledger.observe(seen(9))
    assert ledger.observe(seen(3, uid="other")) is not None
    assert ledger.wrote(A, seen(9), "12") is None, "the write was of the one before"
    assert ledger.forget(A, "u") is None
    assert ledger.forget(A, "other") is not None


async def test_after_a_lost_answer_the_truth_is_known_before_the_write_counts_as_failed() -> None:
    """No watch runs here: what the ledger holds came from the reading."""
    async with FakeApiServer() as server, Client(server.config) as client:
        server.create(WORKLOADS, "a", {"metadata": {}, "spec": {"queueName": "q"}}, namespace="ns")
        lost: list[str] = []

        def lose(method: str, path: str) -> bool:
            first = method == "PUT" and not lost
            lost.extend([path] if first else [])
            return first

        server.lose_answer = lose
        ledger = Ledger()
        told: list[tuple[str, Any]] = []
        ended: list[Result] = []
        async with Writer(client, clock=SystemClock(), random=random.random) as writer:
            writes = WorkloadWrites(
                client,
                writer,
                ledger,
                changed=lambda _, after: told.append(("changed", len(after.status.conditions))),
                gone=lambda *_: told.append(("gone", None)),
                freed=lambda *_: told.append(("freed", None)),
            )
            stored = server.get(WORKLOADS, "a", namespace="ns")
            entry = ledger.observe(reader(Workload)(_json(stored)))
            assert entry is not None
            writes.status(
                entry,
                status.finished(entry.workload, "Succeeded", "", 0.0),
                lambda one, _: ended.append(one),
                Failpoint.FINISHED,
            )
            assert entry.writing
            await eventually(lambda: bool(ended))
        assert ended == [Result.LOST]
        assert told == [("changed", 1), ("freed", None)]
        assert not entry.writing


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def test_a_view_is_behind_until_it_shows_our_write() -> None:
    written = WrittenVersions()
    assert not written.behind(POD, "u", "1")
    written.wrote(POD, "u", "12")
    assert written.behind(POD, "u", "9")
    assert written.behind(POD, "u", "11")
    assert not written.behind(POD, "u", "12")
    assert not written.behind(POD, "u", "9"), "the watch never goes back"


def test_another_object_of_the_name_is_not_behind() -> None:
    written = WrittenVersions()
    written.wrote(POD, "u", "12")
    assert not written.behind(POD, "v", "3")
    written.wrote(POD, "v", "20")
    written.forget(POD)
    assert not written.behind(POD, "v", "3")


def part(name: str, *, version: int, holds: bool, finished: bool = False) -> Workload:
    """A slice of the elastic job whose first slice is ``first``."""
    notes = {"kueue.x-k8s.io/workload-slice-name": "first"}
    return Workload(
        metadata=ObjectMeta(name=name, namespace="ns", uid=name, resource_version=str(version), annotations=notes),
        status=WorkloadStatus(
            admission=Admission(cluster_queue="cq", pod_set_assignments=()) if holds else None,
            conditions=(Condition(type="Finished", status=str(finished), reason="R"),),
        ),
    )


def current(ledger: Ledger) -> str:
    entry = ledger.current(WorkloadKey("ns/first"))
    return "" if entry is None else entry.workload.metadata.name


def test_the_slice_that_holds_quota_is_the_one_that_pods_mean() -> None:
    ledger = Ledger()
    ledger.observe(part("first", version=1, holds=True))
    ledger.observe(part("second", version=2, holds=False))
    assert current(ledger) == "first"
    ledger.observe(part("second", version=3, holds=True))
    assert current(ledger) == "second"
    ledger.observe(part("first", version=4, holds=True, finished=True))
    assert current(ledger) == "second"
    ledger.observe(part("third", version=5, holds=True))
    ledger.observe(part("second", version=6, holds=True, finished=True))
    assert current(ledger) == "third"
    ledger.observe(part("third", version=7, holds=False))
    assert current(ledger) == "first", "no slice holds quota"
    ledger.observe(part("third", version=8, holds=True))
    ledger.forget(WorkloadKey("ns/third"), "third")
    assert current(ledger) == "first"


def test_a_later_slice_that_this_controller_admitted_counts_at_once() -> None:
    ledger = Ledger()
    ledger.observe(part("first", version=1, holds=True))
    ledger.observe(part("second", version=2, holds=False))
    ledger.wrote(WorkloadKey("ns/second"), part("second", version=2, holds=True), "3")
    assert current(ledger) == "second"
