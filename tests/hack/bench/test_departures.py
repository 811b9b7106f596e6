"""The benchmark of victims that leave one by one, on a few nodes: which are evicted, and which run in the end."""

import pytest

from controller.scheduler.decisions.decisions import Decisions
from controller.scheduler.kueue.nomination import Nominator
from controller.scheduler.queues.entry import Entry
from controller.scheduler.quota.queuestate import Holder
from hack.bench.decisions.departures import Cluster, measured


def test_a_gang_tells_as_many_to_go_as_it_needs_and_runs_when_they_have_left() -> None:
    cluster = Cluster(fans=(1, 1, 1, 2, 3))
    told_s, spent_s = measured(cluster, 4)
    assert told_s > 0
    assert len(spent_s) == 4
    running = {one.metadata.name for one in cluster.workloads.values() if one.status.admission is not None}
    assert "gang" in running
    assert len(running) == 3


def test_the_gang_is_worked_out_when_it_comes_and_when_the_last_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(fans=(1, 1, 1, 2, 3))
    tried: list[str] = []
    nominate = Nominator.nominate

    def noting(self: Nominator, entry: Entry, now_s: float) -> bool:
        tried.append(entry.key)
        return nominate(self, entry, now_s)

    monkeypatch.setattr(Nominator, "nominate", noting)
    measured(cluster, 4)
    assert tried.count("team/gang") <= 3


def test_one_cycle_is_enough_for_each_victim_but_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(fans=(1, 1, 1, 2, 3))
    cluster.arrive("gang", 4, 100, "dc/zone")
    cluster.settle()
    cycles: list[float] = []
    cycle = cluster.engine.cycle

    def counted(now_s: float) -> Decisions:
        cycles.append(now_s)
        return cycle(now_s)

    monkeypatch.setattr(cluster.engine, "cycle", counted)
    for victim in cluster.leaving()[:-1]:
        cluster.leave(victim)
    assert len(cycles) == 3


def test_a_departure_makes_nobody_look_at_the_victims_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(fans=(1, 1, 1, 2, 3))
    cluster.arrive("gang", 4, 100, "dc/zone")
    cluster.settle()
    released: list[str] = []
    release = cluster.engine.state.cluster.release

    def noting(holder: Holder) -> None:
        released.append(holder.key)
        release(holder)

    monkeypatch.setattr(cluster.engine.state.cluster, "release", noting)
    leaving = cluster.leaving()[:-1]
    for victim in leaving:
        cluster.leave(victim)
    assert released == [victim.key for victim in leaving]
