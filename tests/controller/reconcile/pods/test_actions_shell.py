"""Actions about pods, carried out one by one against an API server that answers when the test says so."""

import asyncio
from typing import Any, cast

import pytest

from controller.cluster.watching.workqueue import ActionFailedError
from controller.cluster.writing.stampedwrites import Stamped, Version
from controller.reconcile.jobshell.workloadactions import WorkloadActions
from controller.reconcile.pods.actions import DeletePod, PatchPod
from controller.reconcile.pods.actions_shell import PodActions
from kube.errors import ConflictError, InvalidError, NotFoundError
from kube.objects import ObjectReference
from kube.reading.entries import ObjectKey
from kube.testing import VirtualClock, eventually
from kube.writing.writer import Writer
from kube.writing.writes import Conflicted, Missing, Outcome, Refused, Verb, Write, Written

ABOUT = ObjectReference("kueue.x-k8s.io/v1beta2", "Workload", "g", "w", "team")
DONE = Written(Stamped(Version("7")))


class Answers:
    """A writer, and the people who are told."""

    def __init__(self) -> None:
        self.asked: list[tuple[Write[Any], asyncio.Future[Outcome[Any]]]] = []
        self.told: list[str] = []

    def put(self, write: Write[Any]) -> asyncio.Future[Outcome[Any]]:
        future: asyncio.Future[Outcome[Any]] = asyncio.get_running_loop().create_future()
        self.asked.append((write, future))
        return future

    def tell(self, _about: ObjectReference, _type: str, reason: str, _note: str) -> None:
        self.told.append(reason)

    async def answer(self, outcome: Outcome[Any]) -> Write[Any]:
        """To the oldest request."""
        await eventually(lambda: bool(self.asked))
        write, future = self.asked.pop(0)
        future.set_result(outcome)
        await asyncio.sleep(0)
        return write

    def actions(self) -> PodActions:
        return PodActions(cast(Writer, self), cast(WorkloadActions, None), self.tell, VirtualClock())


def pods(count: int, **status: Any) -> dict[str, Any]:
    return {
        f"p{i}": {
            "metadata": {"name": f"p{i}", "namespace": "team", "uid": f"u{i}", "resourceVersion": "1"},
            "status": status,
        }
        for i in range(count)
    }


def patches(count: int) -> list[PatchPod]:
    return [PatchPod(name=f"p{i}", body={"spec": {"schedulingGates": []}}) for i in range(count)]


async def test_what_is_not_sent_when_the_decision_holds_no_more_is_not_sent_at_all() -> None:
    server, holds = Answers(), True
    work = asyncio.create_task(server.actions().carry_out(ABOUT, pods(30), patches(30), lambda: holds))
    await server.answer(DONE)
    holds = False
    sent = 1
    while not work.done():
        if server.asked:
            await server.answer(DONE)
            sent += 1
        await asyncio.sleep(0)
    assert sent < 30
    with pytest.raises(ActionFailedError, match="has changed meanwhile"):
        work.result()


async def test_one_pod_that_fails_keeps_none_of_the_others_from_being_sent() -> None:
    server = Answers()
    hands = server.actions()
    work = asyncio.create_task(hands.carry_out(ABOUT, pods(20), patches(20)))
    await server.answer(Refused(InvalidError("no")))
    for _ in range(18):
        await server.answer(DONE)
    await server.answer(Missing(NotFoundError("gone")))
    with pytest.raises(ActionFailedError, match="no"):
        await work
    assert server.told == ["PodNotChanged"]
    assert hands.written.behind(ObjectKey("team", "p1"), "u1", "6")
    assert not hands.written.behind(ObjectKey("team", "p0"), "u0", "1"), "nothing was written to it"


async def test_a_pod_is_told_why_before_it_is_deleted_by_its_uid() -> None:
    server = Answers()
    ready = {"type": "Ready", "status": "True"}
    action = DeletePod(name="p0", uid="u0", reason="Why", message="because")
    work = asyncio.create_task(server.actions().carry_out(ABOUT, pods(1, conditions=[ready]), [action]))
    first = await server.answer(DONE)
    assert (first.verb, first.subresource) == (Verb.MERGE_PATCH, "status")
    assert first.body["status"]["conditions"][0] == ready
    assert first.body["status"]["conditions"][1]["reason"] == "Why"
    assert first.body["metadata"] == {"uid": "u0", "resourceVersion": "1"}
    second = await server.answer(Written(None))
    assert (second.verb, second.body) == (Verb.DELETE, "u0")
    await work


async def test_a_pod_that_was_told_is_not_told_twice_and_one_that_changed_is_looked_at_again() -> None:
    server = Answers()
    told = {"type": "TerminationTarget", "status": "True"}
    action = DeletePod(name="p0", uid="u0", reason="Why", message="because")
    work = asyncio.create_task(server.actions().carry_out(ABOUT, pods(1, conditions=[told]), [action]))
    assert (await server.answer(Written(None))).verb is Verb.DELETE
    await work
    work = asyncio.create_task(server.actions().carry_out(ABOUT, pods(1), [action]))
    await server.answer(Conflicted(ConflictError("not now")))
    with pytest.raises(ActionFailedError):
        await work
    assert not server.asked, "not deleted without a word"
