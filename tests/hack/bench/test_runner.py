"""The load of Kueue's published runner: in turn, by five at a time, and over when the statuses of the queues say so."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from controller.cluster.config.settings import Policy
from hack.bench.throughput import runner, virtual
from hack.bench.throughput.busyserver import BusyClient, BusyServer, Costs
from hack.bench.throughput.drainload import WORKLOADS
from hack.bench.throughput.drainmodel import Run as ModelRun
from hack.bench.throughput.drainmodel import config, drained
from hack.bench.throughput.drainshape import Class, Shape, shape
from hack.bench.throughput.nullcontroller import CLUSTER_QUEUES, QuotaAdmitter
from hack.bench.throughput.runner import Run
from hack.bench.throughput.runnerload import NO_LIMIT, Ends, Limits, RunnerLoad
from hack.bench.throughput.virtual import LoopClock
from kube.client import Client
from kube.reading.entries import ObjectKey
from kube.testing import FakeApiServer, eventually
from tests.hack.bench.test_drain import QUEUE, admitting
from tests.support.hang import HANG_S

DONE = {"pendingWorkloads": 0, "reservingWorkloads": 0, "conditions": [{"type": "Active", "status": "True"}]}


def queue(server: FakeApiServer, **status: Any) -> None:
    group = {"flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "3"}]}]}
    spec = {"cohortName": "cohort", "resourceGroups": [group]}
    server.create(CLUSTER_QUEUES, "the-queue", {"metadata": {}, "spec": spec, "status": DONE | status})


async def test_a_sequence_waits_for_its_interval_and_for_the_answer_to_each_creation() -> None:
    load = Shape((QUEUE,), (Class("only", 4, 1, 0.0, 50, 0.05),))
    async with FakeApiServer() as server, Client(server.config) as client:
        queue(server)
        async with admitting(server, QuotaAdmitter):
            generator = RunnerLoad(client, statuses=False)
            result = await generator.run(load, HANG_S)
        created = [story.created_s for story in generator._stories.values()]
    assert all(after - before >= 0.05 for before, after in pairwise(created))
    assert (result.writes, len(generator.waits_s), len(generator.ends.late_s)) == (8, 4, 4)


async def test_a_run_is_over_when_the_statuses_say_so_and_tells_how_long_after_the_last_end() -> None:
    load = Shape((QUEUE,), (Class("only", 2, 1, 0.0, 50, 0.0),))
    async with FakeApiServer() as server, Client(server.config) as client:
        queue(server, reservingWorkloads=1)
        async with admitting(server, QuotaAdmitter):
            generator = RunnerLoad(client)
            running = asyncio.create_task(generator.run(load, HANG_S))
            await eventually(lambda: len(generator.ends.late_s) == 2)
            server.merge(CLUSTER_QUEUES, "the-queue", {"status": {"reservingWorkloads": 0, "pendingWorkloads": 1}})
            await eventually(lambda: any(each.pending_workloads for each in (generator._statuses or {}).values()))
            assert not running.done()
            server.merge(CLUSTER_QUEUES, "the-queue", {"status": DONE})
            result = await running
    assert 0.0 < generator.ends.statuses_s < result.wall_s


async def test_an_eviction_after_the_end_gives_the_reservation_back_and_is_counted_apart() -> None:
    load, key = Shape((QUEUE,), (Class("only", 1, 1, 0.05, 50, 0.0),)), ObjectKey(QUEUE, "only-0")
    async with FakeApiServer() as server, Client(server.config) as client:
        queue(server)
        generator = RunnerLoad(client)
        running = asyncio.create_task(generator.run(load, HANG_S))
        await eventually(lambda: len(server.list_all(WORKLOADS)) == 1)
        story = generator._stories[key]

        def write(**conditions: str) -> None:
            listed = [{"type": kind, "status": value} for kind, value in conditions.items()]
            status = {"admission": {"clusterQueue": "q"}, "conditions": listed}
            server.merge(WORKLOADS, key.name, {"status": status}, namespace=QUEUE)

        generator._busy.add(key)  # all workers are at something else
        write(QuotaReserved="True", Admitted="True")
        await eventually(lambda: story.ending is not None)
        await asyncio.sleep(0.06)
        write(QuotaReserved="True", Admitted="True", Evicted="True")
        await eventually(lambda: story.evictions == 1)
        generator._busy.discard(key)
        generator._put_key(key)
        await eventually(lambda: "admission" not in server.get(WORKLOADS, key.name, namespace=QUEUE)["status"])
        assert not story.ended, "it has to run once more, though its time was over"
        write(QuotaReserved="True", Admitted="True", Evicted="False")
        result = await running
    assert (result.evictions, generator.ends.evicted_ended) == (1, 1)


@pytest.mark.parametrize(
    ("limits", "late_s"),
    [(NO_LIMIT, [0.1] * 5 + [0.3] * 5 + [0.5] * 2), (Limits(2.0, 1), [0.1 + n / 2 for n in range(12)])],
    ids=["five at a time", "two a second"],
)
def test_ends_are_told_by_five_at_a_time_under_the_limit_of_the_client(limits: Limits, late_s: list[float]) -> None:
    """On virtual time: twelve that end at one moment, and a server that takes 0.1 s to a write and back."""

    async def work() -> list[float]:
        server = BusyServer(Costs(write_s=1e-6, away_s=0.2, lag=0.0), lambda: 0.5)
        generator = RunnerLoad(BusyClient(server, "me", 200), LoopClock(), limits=limits, statuses=False)
        load = Shape((QUEUE,), tuple(Class(f"class-{n}", 1, 1, 1.0, 50, 0.0) for n in range(12)))
        running = asyncio.create_task(generator.run(load, 60.0))
        await asyncio.sleep(0.5)
        status = {"admission": {}, "conditions": [{"type": "Admitted", "status": "True"}]}
        paths = [WORKLOADS.path(f"class-{n}-0", namespace=QUEUE, subresource="status") for n in range(12)]
        admitted = [server.call("other", "PATCH", path, {"status": status}, "merge-patch") for path in paths]
        await asyncio.gather(*admitted)
        await running
        return generator.ends.late_s

    assert virtual.run(work()) == pytest.approx(late_s, abs=0.01)


def drain(policy: Policy, at_most_s: float) -> ModelRun:
    """Two cohorts of the five, on a server on which ends are seen late."""
    return drained(shape(0.1, cohorts=2), config(policy, None, at_most_s), Costs(write_s=0.01), 1, Limits(12.0, 10))


def test_holds_as_long_as_ends_take_spare_those_who_have_ended() -> None:
    short, long = drain(Policy.TESSERA, 0.0), drain(Policy.TESSERA, 30.0)
    assert short.ends is not None
    assert long.ends is not None
    assert short.ends.median_late_s > 3.0
    assert short.ends.evicted_ended > 0.8 * short.load.evictions > 10
    assert long.load.evictions < 0.2 * short.load.evictions
    assert long.load.wall_s <= short.load.wall_s


def run(evictions: int, late_s: float, wall_s: float = 80.0) -> Run:
    ends = Ends([late_s], evicted_ended=evictions, statuses_s=1.0)
    return Run(wall_s, ends, [1.0, 2.0, 3.0], evictions, 5.0, 1.2, 10.0, 60.0, 5.0, 100.0)


def test_a_round_tells_each_row_with_its_ratio_to_the_controller_with_quota(capsys: pytest.CaptureFixture[str]) -> None:
    runs = {("quota", "off"): run(0, 9.0, 64.0), ("tessera", "off"): run(3, 12.0), ("tessera", "both"): run(3, 12.0)}
    runner.show(shape(0.2), runs)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "wall time 64.0 s 80.0 s 1.25 80.0 s 107 s" in lines
    assert "evictions 0 3 3 29 and 23" in lines
    assert "of workloads that had ended 0 3 3" in lines
    assert "wait, longest 3.0 s 3.0 s 1.00 3.0 s 56 s" in lines
    assert lines[-1] == "quota, v1beta2 alone: ends are seen 9.0 s late: it does not count."


def test_the_sum_of_rounds_says_which_count(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = [("quota", "off"), ("tessera", "off")]
    found = [(3, 11.0), (40, 2.0)]
    rounds = [{wanted[0]: run(0, 11.0, 64.0), wanted[1]: run(count, late_s)} for count, late_s in found]
    runner.sum_up(rounds, wanted)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [
        "Evictions, tessera, v1beta2 alone: 3, 40 (does not count); target: 29 of 3000 at most in each",
        "wall time of quota's, tessera, v1beta2 alone: 1.25, 1.25; median 1.25 x",
        "total CPU of quota's, tessera, v1beta2 alone: 1.00, 1.00; median 1.00 x",
    ]
