"""The controller is killed before and after every write: what was to happen happens all the same, and the history of
the cluster has nothing in it that may not be.
"""

import pytest

from controller import core
from controller.cluster.writing import queuestatus
from controller.reconcile.repairs import gpuresets_shell
from failpoints.names import Failpoint
from hack.failpoints.armed import Moment, Point
from kube.testing import FakeApiServer
from tests.support.failpoints.acts import ACTS, a_job_runs
from tests.support.failpoints.bargainacts import BARGAINS
from tests.support.failpoints.cluster import Act, Dead, KilledCluster
from tests.support.failpoints.deaths import Deaths
from tests.support.failpoints.furtheracts import FURTHER
from tests.support.failpoints.gangacts import GANGS, HALF_UNGATED
from tests.support.failpoints.provisioningacts import PROVISIONING
from tests.support.failpoints.repairacts import REPAIRS


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the dead close nothing
@pytest.mark.parametrize(
    "act", [*ACTS, *FURTHER, *GANGS, *REPAIRS, *PROVISIONING, *BARGAINS], ids=lambda act: act.name.replace(" ", "-")
)
async def test_wherever_the_controller_is_killed_the_next_one_goes_on(
    act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queuestatus, "PERIOD_S", 0.02)
    monkeypatch.setattr(gpuresets_shell, "LOOK_S", 0.02)
    monkeypatch.setattr(queuestatus, "_RECORD_EVERY_S", 0.02)
    monkeypatch.setattr(core, "_LONGEST_S", 0.02)
    async with FakeApiServer() as server:
        here = KilledCluster(server, Deaths(monkeypatch), act.config)
        for kind in act.kinds:
            server.install(kind)
        await here.start()
        for number, point in enumerate(act.points):
            await here.play(act, number, point)
            assert here.deaths_so_far == number + 1
        await here.stop()
        assert here.findings() == ()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("act", HALF_UNGATED, ids=lambda act: act.name.replace(" ", "-"))
async def test_a_gang_whose_gates_are_lifted_in_part_is_finished_by_the_next_leader(
    act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kube-scheduler starts none of its pods meanwhile."""
    async with FakeApiServer() as server:
        here = KilledCluster(server, Deaths(monkeypatch), act.config)
        for kind in act.kinds:
            server.install(kind)
        await here.start()
        for number, point in enumerate(act.points):
            await here.play(act, number, point)
        assert here.deaths_so_far == len(act.points)
        await here.stop()
        assert here.findings() == ()


async def test_a_job_that_nobody_goes_on_with_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge speaks where no controller comes after the one that died."""
    async with FakeApiServer() as server:
        here = KilledCluster(server, Deaths(monkeypatch))
        await here.start()
        here.deaths.life(Point(Failpoint.JOB_STARTED, Moment.BEFORE))
        (stage, *_) = a_job_runs(here, "lost")
        stage.deed()
        with pytest.raises(Dead):
            await here.until(stage.until, stage.what)
        await here.bury()
        (found,) = here.findings()
        assert found.rule == "forgotten"
