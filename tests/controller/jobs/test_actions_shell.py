"""A job that our watch shows as it was before our own last write is not looked at."""

from typing import Any, cast

from controller.jobframework.actions import StartJob
from controller.jobframework.kind import Patch
from controller.jobkinds.batchjob import BatchJob
from controller.jobs.actions_shell import Hands
from controller.writing.workloadwrites import Stamped, Version
from kube.reading.reflector import Key
from kube.writing.writes import Write, Written

KEY = Key("ns", "job")
JOB = {"metadata": {"namespace": "ns", "name": "job", "uid": "u1"}}


class Answering:
    """Takes every write and answers with the next version."""

    def __init__(self) -> None:
        self.version = 6

    async def put(self, _: Write[Any]) -> Written[Stamped]:
        self.version += 1
        return Written(Stamped(metadata=Version(resource_version=str(self.version))))


async def started(times: int = 1) -> Hands:
    nobody = cast("Any", None)
    hands = Hands(nobody, cast("Any", Answering()), nobody, nobody, nobody)
    patches = tuple(Patch(body={"spec": {"suspend": False}}) for _ in range(times))
    await hands.act(BatchJob(), JOB, StartJob(patches=patches))
    return hands


async def test_a_view_older_than_our_write_is_behind_and_one_as_new_is_not() -> None:
    hands = await started(times=2)
    assert hands.behind(KEY, "u1", "6")
    assert hands.behind(KEY, "u1", "7")
    assert not hands.behind(KEY, "u1", "8")
    assert not hands.behind(KEY, "u1", "6"), "what was seen once is not waited for again"


async def test_another_job_of_the_name_has_nothing_to_wait_for() -> None:
    assert not (await started()).behind(KEY, "u2", "1")


async def test_a_job_that_went_is_forgotten() -> None:
    hands = await started()
    hands.forget(KEY)
    assert not hands.behind(KEY, "u1", "1")
