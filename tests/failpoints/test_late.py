"""A write of a former leader that arrives late is refused by what it carries, or does no harm: docs/failpoints.md says
which, and every row of its table is held here.
"""

from pathlib import Path

import pytest

from controller import core
from controller.cluster.watching.kinds import LOCAL_QUEUES, PODS
from controller.cluster.writing import queuestatus
from controller.reconcile.repairs import gpuresets_shell
from failpoints.names import Failpoint
from tests.failpoints.test_routines import lived
from tests.support.failpoints.acts import ACTS, PRIORITY, job, runs, workload
from tests.support.failpoints.bargainacts import BARGAINS
from tests.support.failpoints.cluster import CONFIG, TEAM, Act, Dead
from tests.support.failpoints.deaths import Deaths
from tests.support.failpoints.furtheracts import FURTHER
from tests.support.failpoints.gangacts import GANGS
from tests.support.failpoints.late import LateCluster, of_the_controller, table
from tests.support.failpoints.provisioningacts import PROVISIONING
from tests.support.failpoints.repairacts import REPAIRS
from tests.support.failpoints.routines import ROUTINES, Routine, Scene
from tests.support.failpoints.wire import Sent, Wire

REFUSED = (404, 409, 422)
OF_THE_API = [routine for routine in ROUTINES if routine.failpoints[0] in of_the_controller()]


def holds(sent: list[Sent], failpoint: Failpoint, answers: list[int]) -> None:
    """The row of the table says what was sent, and what became of it."""
    row, carried = table()[failpoint], {str(each) for each in sent if each.failpoint is failpoint}
    assert carried <= row.carries, f"{failpoint} carries {sorted(carried)}"
    expected = REFUSED if row.is_refused else (200, *REFUSED)
    assert all(answer in expected for answer in answers), f"{failpoint} was answered {answers}, not {row.late}"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the dead close nothing
@pytest.mark.parametrize(
    "act", [*ACTS, *FURTHER, *GANGS, *REPAIRS, *PROVISIONING, *BARGAINS], ids=lambda act: act.name.replace(" ", "-")
)
async def test_what_a_former_leader_had_sent_changes_nothing_when_it_comes(
    act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queuestatus, "PERIOD_S", 0.02)
    monkeypatch.setattr(gpuresets_shell, "LOOK_S", 0.02)
    monkeypatch.setattr(queuestatus, "_RECORD_EVERY_S", 0.02)
    monkeypatch.setattr(core, "_LONGEST_S", 0.02)
    async with Wire(monkeypatch) as server:
        here = LateCluster(server, Deaths(monkeypatch), act.config)
        for kind in act.kinds:
            server.install(kind)
        await here.start()
        for number, failpoint in enumerate(act.failpoints):
            _, answers = await here.play_late(act, number, failpoint)
            holds(server.sent, failpoint, answers)
        await here.stop()
        assert here.findings() == ()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_late_admission_of_a_workload_that_still_waits_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next leader has given the quota away and has not written the Workload: the API server takes the write."""
    monkeypatch.setattr(core, "_LONGEST_S", 0.02)
    async with Wire(monkeypatch) as server:
        here = LateCluster(server, Deaths(monkeypatch), CONFIG.replace("{after: 0s", "{after: 30s"))
        await here.start()
        here.make(LOCAL_QUEUES, "held", TEAM, spec={"clusterQueue": "cq", "stopPolicy": "Hold"})
        job(here, "high", 3, runs_s=None, queue="held", labels={PRIORITY: "urgent"})
        await here.until(lambda: bool(workload(here, "high")), "the urgent job waits")
        server.keeps, server.on_kept = Failpoint.ADMITTED, here.deaths.die
        job(here, "low", 4, runs_s=None)
        with pytest.raises(Dead):
            await here.until(lambda: runs(here, "low", 4), "never")
        await here.bury()
        server.cuts = False
        server.merge(LOCAL_QUEUES, "held", {"spec": {"stopPolicy": "None"}}, namespace=TEAM)
        await here.start()
        await here.until(lambda: runs(here, "high", 3), "the urgent job runs")
        assert server.kept is not None
        assert server.arrives(server.kept) == 200
        await here.until(lambda: _evicted_for(here, "low") == "QuotaTaken", "the late admission is taken back")
        await here.until(lambda: not workload(here, "low")["status"].get("admission"), "its quota is given back")
        assert runs(here, "high", 3)
        pods = [pod["metadata"]["labels"].get("job-name", "") for pod in server.list_all(PODS)]
        assert len(pods) == 3, f"the job that came late never starts: {pods}"
        await here.stop()
        assert here.findings() == ()


def _evicted_for(here: LateCluster, name: str) -> str:
    conditions = workload(here, name).get("status", {}).get("conditions", [])
    return next((each["reason"] for each in conditions if each["type"] == "Evicted"), "")


@pytest.mark.parametrize("routine", OF_THE_API, ids=lambda routine: routine.name.replace(" ", "-"))
async def test_what_a_former_process_had_sent_is_right_again_after_the_next(
    routine: Routine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths = Deaths(monkeypatch)
    for number, failpoint in enumerate(routine.failpoints):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        async with Wire(monkeypatch) as server:
            scene = Scene(server, folder)
            routine.before(scene)
            deaths.life()
            server.keeps, server.on_kept = failpoint, deaths.die
            assert not await lived(scene, routine, deaths), f"{failpoint} was never written"
            deaths.life()
            server.cuts = False
            assert await lived(scene, routine, deaths)
            assert server.kept is not None
            holds(server.sent, failpoint, [server.arrives(server.kept)])
            assert await lived(scene, routine, deaths)
            assert routine.right(scene), f"not as it should be after {failpoint} came late"


def test_every_write_of_the_controller_has_a_row() -> None:
    assert table().keys() == of_the_controller()


def test_what_is_refused_is_tied_to_the_object_it_was_meant_for() -> None:
    """A new object of the old name has another uid; a version is no other object's."""
    loose = {
        failpoint: carried
        for failpoint, row in table().items()
        for carried in row.carries
        if row.is_refused and not carried.endswith(("uid", "resourceVersion"))
        if carried not in ("create", "patch of nothing")
    }
    assert loose == {}
