"""The drain on virtual time: the same each time, and with fewer evictions where these are held."""

import asyncio
import json
from itertools import pairwise

import pytest

from controller.cluster.config.settings import Policy
from hack.bench.throughput.busyserver import BusyClient, BusyServer, Cores, Costs
from hack.bench.throughput.drainload import WORKLOADS
from hack.bench.throughput.drainmodel import Run, config, drained
from hack.bench.throughput.drainshape import shape
from hack.bench.throughput.virtual import LoopClock, run
from kube.client import Client
from kube.errors import ConflictError

BUSY = Costs(write_s=0.01)
"""For two cohorts of the five."""


def drain(policy: Policy, hold_s: float | None = None, *, seed: int = 1, cohorts: int = 2, scale: float = 0.06) -> Run:
    return drained(shape(scale, cohorts=cohorts), config(policy, hold_s), BUSY, seed)


def test_an_hour_of_waiting_takes_no_time_and_comes_in_order() -> None:
    async def work() -> list[float]:
        seen: list[float] = []

        async def later(seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append(LoopClock().monotonic())

        await asyncio.gather(later(3600.0), later(0.25))
        assert not await LoopClock().wait(asyncio.Event(), 10.0)
        return [*seen, LoopClock().monotonic()]

    assert run(work()) == pytest.approx([0.25, 3600.0, 3610.0])


def test_who_waits_for_nothing_is_told() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="nobody for the time"):
        run(work())


def test_requests_share_the_cores() -> None:
    async def work() -> list[float]:
        cores, ends = Cores(2.0), list[float]()

        async def one(seconds: float) -> None:
            await cores.work(seconds)
            ends.append(LoopClock().monotonic())

        await asyncio.gather(one(1.0), one(1.0), one(1.0), one(2.0))
        assert cores.busy_s == pytest.approx(5.0)
        return ends

    # Four share two cores until the short ones have had a second of each; the last is alone then, on one core.
    assert run(work()) == pytest.approx([2.0, 2.0, 2.0, 3.0])


def test_a_write_from_an_old_version_is_refused_and_watches_come_in_order() -> None:
    async def work() -> None:
        server = BusyServer(Costs(), lambda: 0.5)
        client: Client = BusyClient(server, "me", 4)
        told = server.watch(WORKLOADS.path())
        made = {"metadata": {"name": "a"}, "spec": {}}
        first = await client.create(WORKLOADS, made, dict, namespace="ns")
        patch = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "status": {"x": 1}}
        await client.merge_patch(WORKLOADS, "a", patch, dict, namespace="ns", subresource="status")
        with pytest.raises(ConflictError):
            await client.merge_patch(WORKLOADS, "a", patch, dict, namespace="ns", subresource="status")
        seen = [json.loads(await told.get()) for _ in range(2)]
        assert [one["type"] for one in seen] == ["ADDED", "MODIFIED"]
        versions = [int(one["object"]["metadata"]["resourceVersion"]) for one in seen]
        assert all(before < after for before, after in pairwise(versions))
        assert server.writes == {"me": 3}

    run(work())


def test_a_seed_gives_the_same_run_each_time() -> None:
    first, again, other = (drain(Policy.KUEUE, seed=seed, cohorts=1, scale=0.03) for seed in (1, 1, 2))
    assert first._replace(load=None) == again._replace(load=None)  # type: ignore[arg-type]
    assert (first.load.wall_s, first.load.waits_s) == (again.load.wall_s, again.load.waits_s)
    assert first.load.wall_s != other.load.wall_s


@pytest.mark.parametrize("policy", list(Policy))
def test_held_evictions_are_fewer_and_cost_no_time(policy: Policy) -> None:
    at_once, held = drain(policy, 0.0), drain(policy)
    assert held.load.evictions < 0.5 * at_once.load.evictions
    assert held.load.wall_s <= at_once.load.wall_s
    assert held.victims.total() >= held.load.evictions
