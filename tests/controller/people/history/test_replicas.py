"""Every replica records the past by itself, whether it leads or follows; where Prometheus has it, none does."""

from pathlib import Path

from controller.people.history.asked import Asked
from controller.people.history.recorder_shell import FILE, Record
from kube.testing import eventually
from tests.support.controller.stage import CONFIG, config, stage

PAGE = "  page:\n    history: {{folder: {folder}}}\n"
PROMETHEUS = "    prometheus: {url: http://127.0.0.1:1}\n"


def used(folder: Path) -> set[float]:
    """The means of what the queue used, by the record in the folder."""
    if not (folder / FILE).exists():
        return set()
    record = Record(folder)
    rows, _, _ = record.read(Asked("queue", "cq", 24))
    record.close()
    return {row.total / row.samples for row in rows if (row.of.series, row.of.resource) == ("used", "cpu")}


async def test_the_one_that_leads_and_one_that_follows_record_the_same(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with stage() as scene:
        scene.queue(cpus=2)
        scene.workload("a", 1)
        async with scene.controller(elect=True, name="lead") as leader:
            await eventually(lambda: leader.core is not None)
            await scene.until_admitted("a")
            given = config(CONFIG + PAGE.format(folder=first))
            async with scene.controller(given, core_only=False, elect=True, name="follow") as follower:
                await eventually(lambda: used(first) == {1.0}, what="recorded by the follower")
                assert follower.core is None
        given = config(CONFIG + PAGE.format(folder=second))
        async with scene.controller(given, core_only=False):
            await eventually(lambda: used(second) == {1.0}, what="recorded by the leader")


async def test_where_prometheus_has_the_past_nothing_is_recorded(tmp_path: Path) -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        given = config(CONFIG + PAGE.format(folder=tmp_path) + PROMETHEUS)
        async with scene.controller(given, core_only=False) as process:
            await scene.until_loaded(process)
            assert not (tmp_path / FILE).exists()
