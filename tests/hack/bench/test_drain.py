"""The drain benchmark's load: the published shape, and each workload's way to its end."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from controller.cluster.config.load import parse
from controller.cluster.config.settings import Policy
from hack.bench.throughput import drain
from hack.bench.throughput.drain import CHOICES, COMMANDS, KUEUE_POLICY, Run
from hack.bench.throughput.drainload import WORKLOADS, Load, Result, Status
from hack.bench.throughput.drainshape import NODE_CPUS, RACK, Class, Shape, nodes, setting, shape, workload
from hack.bench.throughput.nullcontroller import CLUSTER_QUEUES, QUEUES, Admitter, Cohort, QuotaAdmitter
from kube.client import Client
from kube.clock import SystemClock
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Change, Changed
from kube.testing import FakeApiServer, eventually
from kube.writing.writer import Writer
from tests.support.hang import HANG_S

QUEUE = "cq-0-0"


def test_a_fifth_of_the_published_shape_is_three_thousand_workloads_with_a_floor_of_13_2_seconds() -> None:
    fifth = shape(0.2)
    assert fifth.workloads == len(fifth.arrivals()) == 3000
    assert fifth.floor_s == pytest.approx(13.2)
    assert shape(1).workloads == 15_000
    assert shape(0.0001).workloads == 90, "every class stays"
    assert shape(0.2, cohorts=1).workloads == 600
    assert shape(0.2, cohorts=1).floor_s == fifth.floor_s


def test_arrivals_keep_their_classes_intervals() -> None:
    arrivals = shape(0.2).arrivals()
    small = [one.at_s for one in arrivals if one.queue == QUEUE and one.kind.name == "small"]
    assert small == pytest.approx([number * 0.1 for number in range(70)])
    assert [one.at_s for one in arrivals] == sorted(one.at_s for one in arrivals)


def test_each_queue_has_its_namespace_and_local_queue() -> None:
    made = list(setting(shape(1)))
    kinds = [item["kind"] for item in made]
    assert [kinds.count(kind) for kind in ("ResourceFlavor", "ClusterQueue", "Namespace", "LocalQueue")] == [
        1,
        30,
        30,
        30,
    ]
    assert {item["spec"]["cohortName"] for item in made if item["kind"] == "ClusterQueue"} == {
        f"cohort-{number}" for number in range(5)
    }


@pytest.mark.parametrize(("memory", "covered"), [(False, ["cpu"]), (True, ["cpu", "memory"])])
def test_jobs_find_quota_on_the_memory_that_their_controllers_containers_ask_for(
    memory: bool, covered: list[str]
) -> None:
    made = [each["spec"] for each in setting(shape(0.2), memory=memory) if each["kind"] == "ClusterQueue"]
    (group,) = made[0]["resourceGroups"]
    assert group["coveredResources"] == covered
    assert [each["name"] for each in group["flavors"][0]["resources"]] == covered


def test_with_a_topology_the_same_cpus_are_asked_for_by_more_pods_in_three_ways() -> None:
    plain, placed = shape(0.2), shape(0.2, topology=True)
    assert placed.floor_s == plain.floor_s
    asked = {(one.kind.name, *sorted(one.asks or {})): workload(one) for one in placed.arrivals()}
    ways = [("preferred",), ("required",), ("podSetSliceRequiredTopology", "podSetSliceSize")]
    assert asked.keys() == {(kind.name, *way) for kind in placed.classes for way in ways}
    sizes = {}
    for (kind, *_), made in asked.items():
        (pod_set,) = made["spec"]["podSets"]
        sizes[kind] = pod_set["count"], pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    assert sizes == {"large": (8, "2500m"), "medium": (4, "1250m"), "small": (2, "500m")}
    assert all("topologyRequest" not in workload(one)["spec"]["podSets"][0] for one in plain.arrivals()[:10])


def test_the_nodes_are_ten_racks_of_sixty_four() -> None:
    made = list(nodes())
    racks = [item["metadata"]["labels"][RACK] for item in made]
    assert (len(made), {racks.count(rack) for rack in racks}, len(set(racks))) == (640, {64}, 10)
    assert {item["status"]["allocatable"]["cpu"] for item in made} == {str(NODE_CPUS)}
    assert [item["kind"] for item in setting(shape(1, topology=True))][:2] == ["Topology", "ResourceFlavor"]


@asynccontextmanager
async def admitting(server: FakeApiServer, kind: type[Admitter] = Admitter) -> AsyncIterator[None]:
    """The null controller, in this process."""
    server.create(QUEUES, QUEUE, {"metadata": {}, "spec": {"clusterQueue": "the-queue"}}, namespace=QUEUE)
    async with (
        Client(server.config) as client,
        Writer(client, clock=SystemClock(), random=random.random) as writer,
    ):
        admitter = kind(client, writer)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(mirror.run()) for mirror in admitter.mirrors]
            for mirror in admitter.mirrors:
                await mirror.wait_synced()
            tasks.append(group.create_task(admitter.workloads.run()))
            yield
            for task in tasks:
                task.cancel()


async def test_every_workload_is_made_admitted_with_one_write_and_ended() -> None:
    load = Shape((QUEUE,), (Class("quick", 5, 2, 0.01, 50, 0.002), Class("slow", 2, 1, 0.05, 100, 0.002)))
    async with FakeApiServer() as server, admitting(server), Client(server.config) as client:
        result = await Load(client).run(load, HANG_S)
    assert result.wall_s >= 0.05
    assert set(result.waits_s) == {"quick", "slow"}
    assert result.writes == 14
    assert (result.evictions, len(server.seen("PATCH", "workloads"))) == (0, 14)
    assert (result.lost_s, result.lost_cpu_s) == (0.0, 0.0)
    for item in server.list_all(WORKLOADS):
        assert item["status"]["admission"]["clusterQueue"] == "the-queue"
        assert item["status"]["conditions"][-1]["type"] == "Finished"


async def test_with_quota_workloads_run_one_after_the_other_where_one_has_room() -> None:
    load = Shape((QUEUE,), (Class("only", 4, 2, 0.1, 50, 0.0),))
    group = {"flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "3"}]}]}
    async with FakeApiServer() as server, Client(server.config) as client:
        spec = {"cohortName": "cohort", "resourceGroups": [group]}
        server.create(CLUSTER_QUEUES, "the-queue", {"metadata": {}, "spec": spec})
        async with admitting(server, QuotaAdmitter):
            result = await Load(client).run(load, HANG_S)
    assert result.wall_s >= 0.4
    assert (result.writes, len(server.seen("PATCH", "workloads"))) == (8, 8)


def test_quota_is_given_by_priority_and_nobody_overtakes_one_of_more() -> None:
    cohort, admitted = Cohort(quota=6000), list[str]()
    for name, priority, size in [("low", 50, 1000), ("high", 200, 4000), ("higher", 200, 4000), ("last", 50, 1000)]:
        cohort.waiting[-priority].append((size, partial(admitted.append, name)))
    cohort.admit()
    assert (admitted, cohort.used) == (["high"], 4000)
    cohort.used -= 4000
    cohort.admit()
    assert (admitted[1:], cohort.used) == (["higher", "low", "last"], 6000)


async def test_a_run_is_not_over_before_its_ends_have_been_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    shape_ = Shape((QUEUE,), (Class("only", 2, 2, 0.0, 50, 0.0),))
    held: list[Change[Status]] = []
    hear = Load._hear

    def hold(self: Load, change: Change[Status]) -> None:
        finished = isinstance(change, Changed) and change.new.object.holds("Finished")
        held.append(change) if finished else hear(self, change)

    monkeypatch.setattr(Load, "_hear", hold)
    async with FakeApiServer() as server, admitting(server), Client(server.config) as client:
        load = Load(client)
        running = asyncio.create_task(load.run(shape_, HANG_S))
        await eventually(lambda: len(held) == 2)
        assert not running.done(), "the second end is written, and nobody has been told"
        for change in held:
            hear(load, change)
        assert (await running).writes == 4


async def test_an_evicted_workload_gives_its_reservation_back_and_runs_anew_in_full() -> None:
    shape, key = Shape((QUEUE,), (Class("only", 1, 2, 3600.0, 50, 0.0),)), ObjectKey(QUEUE, "only-0")
    async with FakeApiServer() as server, Client(server.config) as client:
        load = Load(client)
        running = asyncio.create_task(load.run(shape, HANG_S))
        await eventually(lambda: len(server.list_all(WORKLOADS)) == 1)
        story = load._stories[key]

        def write(admission: object, **conditions: str) -> None:
            listed = [{"type": kind, "status": value} for kind, value in conditions.items()]
            status = {"status": {"admission": admission, "conditions": listed}}
            server.merge(WORKLOADS, key.name, status, namespace=QUEUE)

        def status() -> dict[str, object]:
            found: dict[str, object] = server.get(WORKLOADS, key.name, namespace=QUEUE)["status"]
            return found

        async def admitted() -> None:
            write({"clusterQueue": "q"}, QuotaReserved="True", Admitted="True", Evicted="False")
            await eventually(lambda: story.ending is not None)

        async def evicted() -> None:
            write({"clusterQueue": "q"}, QuotaReserved="True", Admitted="True", Evicted="True")
            await eventually(lambda: "admission" not in status())
            conditions = {one["type"]: one["status"] for one in status()["conditions"]}  # type: ignore[attr-defined]
            assert conditions == {"QuotaReserved": "False", "Admitted": "False", "Evicted": "True"}
            assert story.ending is None, "it would end though it was stopped"

        await admitted()
        await evicted()
        await admitted()
        assert story.ending is not None
        assert story.ending.when() - asyncio.get_running_loop().time() > 3600.0 - HANG_S, "anew and in full"
        await evicted()
        story.kind = story.kind._replace(runtime_s=0.0)
        write({"clusterQueue": "q"}, QuotaReserved="True", Admitted="True", Evicted="False")
        result = await running
    assert result.evictions == 2
    assert 0.0 < result.lost_s < HANG_S
    assert result.lost_cpu_s == pytest.approx(2 * result.lost_s)
    assert server.seen("PATCH", "status")


async def test_a_refused_write_ends_the_run() -> None:
    load = Shape((QUEUE,), (Class("only", 50, 2, 0.01, 50, 0.0),))
    async with FakeApiServer() as server, Client(server.config) as client:
        server.refuse = lambda method, _path: 422 if method == "POST" else None
        with pytest.raises(RuntimeError, match="writes were refused"):
            await Load(client).run(load, HANG_S)


def test_both_policies_are_measured_by_name_with_what_they_evicted() -> None:
    assert parse(KUEUE_POLICY.read_text()).policy is Policy.KUEUE
    assert set(CHOICES["all"]) == {"null", "quota", "tessera", "kueue-policy"}
    assert COMMANDS["kueue-policy"][-2:] == ["--config", str(KUEUE_POLICY)]


def test_a_rounds_table_and_their_sum_tell_evictions_and_lost_run_time(capsys: pytest.CaptureFixture[str]) -> None:
    load = shape(0.2)

    def run(evictions: int, wall_s: float) -> Run:
        waits_s = {kind.name: 1.0 for kind in load.classes}
        result = Result(wall_s, waits_s, evictions, 2.5 * evictions, 12.5 * evictions, 0.0, 6000, 1.0)
        return Run(result, Counter(), 1.0, 60.0, 10.0, 0.0)

    rounds = [{"null": run(0, 10.0), "quota": run(0, 11.0), "kueue-policy": run(count, 12.1)} for count in (4, 20, 6)]
    drain._show(load, rounds[0], compare=True)
    drain._sum_up(rounds)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "against the null controller 1.00 x 1.10 x 1.21 x" in lines
    assert "against the null controller with quota and priorities 0.91 x 1.00 x 1.10 x 1.15 x; in racks 1.2 x" in lines
    assert "evictions 0 0 4 31 (19 to 123) 30" in lines
    assert "run time lost by these 0.0 s 0.0 s 10.0 s" in lines
    assert "times their cpus 0.0 cpu s 0.0 cpu s 50.0 cpu s" in lines
    assert lines[-5:] == [
        "Evictions, quota: 0, 0, 0; median 0",
        "Against the null controller, quota: 1.10, 1.10, 1.10; median 1.10 x",
        "Evictions, kueue-policy: 4, 20, 6; median 6",
        "Against the null controller, kueue-policy: 1.21, 1.21, 1.21; median 1.21 x",
        "Against the null controller with quota and priorities, kueue-policy: 1.10, 1.10, 1.10; median 1.10 x",
    ]
