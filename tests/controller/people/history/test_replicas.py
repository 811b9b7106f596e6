"""Every replica records the past by itself, whether it leads or follows; where Prometheus has it, none does."""

import time
from pathlib import Path

import pytest

from controller.people.history import recorder_shell
from controller.people.history.asked import Asked
from controller.people.history.record import HourRow, Of, hour_of
from controller.people.history.recorder_shell import FILE, Record
from kube.resources import PODS
from kube.testing import eventually
from tests.support.controller.stage import CONFIG, config, stage
from tests.support.controller.viewworld import until_served

LABELS = {f"app.kubernetes.io/{name}": "t" for name in ("name", "instance", "component")}
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


async def test_one_that_leads_takes_the_hours_it_missed_from_one_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower's record is older than this hour; the leader begins with none, and asks until the follower's pod has
    an address.
    """
    monkeypatch.setattr(recorder_shell, "EVERY_S", 0.1)
    old, new = tmp_path / "old", tmp_path / "new"
    record, then = Record(old), hour_of(time.time()) - 5
    record.add([HourRow(then, Of("queue", "cq", "used", "cpu"), 7.0, 1)])
    record.close()
    async with stage() as scene:
        scene.queue(cpus=2)
        for name in ("new", "old"):
            pod = {"metadata": {"labels": LABELS}, "spec": {"containers": []}, "status": {}}
            scene.server.create(PODS, name, pod, namespace="tessera-system")
        with_old, with_new = (config(CONFIG + PAGE.format(folder=folder)) for folder in (old, new))
        async with scene.controller(with_new, core_only=False, elect=True, name="new") as leader:
            await eventually(lambda: leader.core is not None, what="the new one leads")
            async with scene.controller(with_old, core_only=False, elect=True, name="old") as follower:
                web = {"name": "web", "containerPort": await until_served(follower)}
                there = {"spec": {"containers": [{"name": "main", "ports": [web]}]}, "status": {"podIP": "127.0.0.1"}}
                scene.server.merge(PODS, "old", there, namespace="tessera-system")
                await eventually(lambda: 7.0 in used(new), what="taken from the follower")
                assert follower.core is None
