"""A job that our watch shows as it was before our own last write is not reconciled."""

from typing import Any, cast

from controller.jobs.framework.actions import StartJob, StopJob
from controller.jobs.framework.kind import Patch
from controller.jobs.framework.raw import Json
from controller.jobs.kinds.batchjob import BatchJob
from controller.reconcile.jobs.actions_shell import JobActions
from kube.reading.entries import ObjectKey
from kube.writing.writes import Write, Written
from tests.controller.reconcile.jobs.test_reconcile_shell import OtherKind

KEY = ObjectKey("ns", "job")
JOB = {"metadata": {"namespace": "ns", "name": "job", "uid": "u1"}}


class Answering:
    """Takes every write and answers with the next version."""

    def __init__(self) -> None:
        self.version = 6
        self.stored: Json = {"spec": {"suspend": False}}

    async def put(self, _: Write[Any]) -> Written[Json]:
        self.version += 1
        return Written({**self.stored, "metadata": {"resourceVersion": str(self.version)}})


async def started(times: int = 1, counted: list[tuple[str, str]] | None = None) -> JobActions:
    unused = cast("Any", None)
    told = [] if counted is None else counted
    actions = JobActions(
        unused,
        cast("Any", Answering()),
        unused,
        unused,
        started=lambda kind: told.append(("started", kind)),
        suspended=lambda kind: told.append(("suspended", kind)),
    )
    patches = tuple(Patch(body={"spec": {"suspend": False}}) for _ in range(times))
    await actions.carry_out(BatchJob(), JOB, StartJob(patches=patches, name="w", uid="u2"))
    return actions


async def test_a_view_older_than_our_write_is_behind_and_one_as_new_is_not() -> None:
    actions = await started(times=2)
    assert actions.behind(BatchJob(), KEY, "u1", "6")
    assert actions.behind(BatchJob(), KEY, "u1", "7")
    assert not actions.behind(BatchJob(), KEY, "u1", "8")
    assert not actions.behind(BatchJob(), KEY, "u1", "6"), "what was seen once is not waited for again"


async def test_a_start_and_a_suspension_are_counted_once_whatever_they_take() -> None:
    counted: list[tuple[str, str]] = []
    actions = await started(times=2, counted=counted)
    assert counted == [("started", "Job")]
    for suspended in (False, True):
        job = {**JOB, "spec": {"suspend": suspended}}
        await actions.carry_out(BatchJob(), job, StopJob(patches=(Patch(body={}),)))
    assert counted == [("started", "Job"), ("suspended", "Job")], "the second one only restores"


async def test_another_job_of_the_name_has_nothing_to_wait_for() -> None:
    assert not (await started()).behind(BatchJob(), KEY, "u2", "1")


async def test_a_job_of_another_kind_and_the_same_name_and_uid_is_another_job() -> None:
    actions = await started()
    assert not actions.behind(OtherKind(), KEY, "u1", "6")
    assert actions.behind(BatchJob(), KEY, "u1", "6")


async def test_a_job_that_went_is_forgotten() -> None:
    actions = await started()
    actions.forget(BatchJob(), KEY)
    assert not actions.behind(BatchJob(), KEY, "u1", "1")
