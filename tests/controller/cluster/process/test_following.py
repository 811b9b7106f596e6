"""A replica that does not lead takes all in, silently; once it leads it decides by that."""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import DECIDING, WORKLOADS
from controller.cluster.writing.decisionwriter import DecisionWriter
from controller.core import Core
from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from controller.scheduler.decisions.decisions import Admitted, Decision
from controller.scheduler.engine import Engine
from kube.reading.reflector import Added
from kube.testing import eventually
from tests.support.controller.stage import CONFIG, KUEUES_LEASE, Stage, config, stage
from tests.support.seeds import histories

QUICK = CONFIG + "leaderElection: {retryPeriod: 50ms}\n"


class Puts:
    """How many Workloads each engine was given; ``last`` is the one that began last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: Counter[int] = Counter()
        self.last = Engine()
        put = Engine.put

        def counted(engine: Engine, given: KubernetesObject, now_s: float) -> None:
            if id(engine) not in self.of:
                self.last = engine
            self.of[id(engine)] += isinstance(given, Workload)
            put(engine, given, now_s)

        monkeypatch.setattr(Engine, "put", counted)


class Told:
    """A listener: which objects it has heard of, and whether in an order that makes sense."""

    def __init__(self) -> None:
        self.workloads: set[str] = set()
        self.others: Counter[str] = Counter()

    def on_workload(self, workload: Workload, gone: bool) -> None:
        (self.workloads.discard if gone else self.workloads.add)(workload.key)

    def on_object(self, observed: ObjectChange) -> None:
        self.others[observed.resource.plural] += 1


def hearing(monkeypatch: pytest.MonkeyPatch) -> list[Told]:
    """A listener of each core that begins to lead."""
    told: list[Told] = []
    lead = Core.lead

    def heard(core: Core) -> None:
        told.append(Told())
        core.subscribe(told[-1])
        lead(core)

    monkeypatch.setattr(Core, "lead", heard)
    return told


async def test_what_a_follower_has_taken_in_is_not_taken_in_again(monkeypatch: pytest.MonkeyPatch) -> None:
    puts, told = Puts(monkeypatch), hearing(monkeypatch)
    async with stage() as scene, AsyncExitStack() as leading:
        scene.queue(cpus=3)
        first = await leading.enter_async_context(scene.controller(config(QUICK), elect=True, name="first"))
        await scene.until_loaded(first)
        async with scene.controller(config(QUICK), elect=True, name="second") as second:
            for name in "abcd":
                scene.workload(name, 1)
            await eventually(lambda: scene.used() == 3)
            assert first.core is not None
            theirs = first.core.engine
            await eventually(lambda: puts.last is not theirs)
            mine = puts.last
            await eventually(lambda: len(mine.state.cluster.holders) == 3 and len(list(mine.state.queues)) == 1)
            assert len(told) == 1, "nobody hears of anything before the replica leads"
            await leading.aclose()
            before = puts.of[id(mine)]
            await scene.until_loaded(second)
            assert second.core is not None
            assert second.core.engine is mine
            assert puts.of[id(mine)] == before
            mine.validate()
            assert told[1].workloads == {f"team/{name}" for name in "abcd"}
            assert {"clusterqueues", "localqueues", "namespaces", "resourceflavors"} <= told[1].others.keys()
            scene.finish(next(name for name in "abcd" if scene.admitted(name)))
            await eventually(lambda: all(map(scene.admitted, "abcd")), what="the last is admitted")


async def test_decisions_do_not_wait_until_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs and pods do: none is judged before all workloads are known to their controllers."""
    monkeypatch.setattr("controller.core._SLICE", 1)
    was_loaded: list[bool] = []
    submit = DecisionWriter.submit

    def noted(writer: DecisionWriter, decision: Decision) -> None:
        if isinstance(decision, Admitted):
            assert process.core is not None
            was_loaded.append(process.core.loaded.is_set())
        submit(writer, decision)

    monkeypatch.setattr(DecisionWriter, "submit", noted)
    async with stage() as scene:
        scene.queue(cpus=1)
        for number in range(50):
            scene.workload(f"w-{number}", 1)
        async with scene.controller(elect=True) as process:
            await eventually(lambda: scene.used() == 1)
            await scene.until_loaded(process)
    assert was_loaded[0] is False


async def test_a_follower_writes_nothing_but_leases_and_tells_of_nothing() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        scene.kueue_leads()
        async with scene.controller(elect=True) as process:
            scene.workload("a", 1)
            scene.workload("b", 1, annotations={"kueue.x-k8s.io/admission-gated-by": "example.com/gate"})
            await eventually(lambda: bool(scene.server.seen("GET", KUEUES_LEASE)))
            scene.server.merge(WORKLOADS, "b", {"metadata": {"annotations": None}}, namespace="team")
            await asyncio.sleep(0.2)
            assert process.core is None
            asked = [one for one in scene.server.requests if one.method != "GET" and "/leases" not in one.path]
            assert asked == []


@histories(0, 1, 2, 4123430335)
async def test_whoever_leads_next_knows_what_a_fresh_replica_would(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas come and go while workloads come, change and end; each follows before it leads."""
    rng, follow, compared = random.Random(seed), Core._follow, list[int]()

    def followed(core: Core) -> bool:
        more = follow(core)
        if core._leads:  # from this moment on
            core.engine.validate()
            assert _knows(core.engine) == _knows(_fresh(core))
            compared.append(len(core.ledger))
        return more

    monkeypatch.setattr(Core, "_follow", followed)
    names = [f"w-{number}" for number in range(30)]
    async with stage() as scene, AsyncExitStack() as last:
        scene.queue("cq", cpus=3, cohort="all")
        scene.queue("other", cpus=2, cohort="all")
        for _ in range(6):  # a history may bring few more
            scene.workload(names.pop(), 1, queue="lq-cq")
        leading = await last.enter_async_context(AsyncExitStack())
        await scene.until_loaded(
            await leading.enter_async_context(scene.controller(config(QUICK), elect=True, name="r-0"))
        )
        for number in range(1, 5):
            following = await last.enter_async_context(AsyncExitStack())
            process = await following.enter_async_context(
                scene.controller(config(QUICK), elect=True, name=f"r-{number}")
            )
            for _ in range(12):
                _something_happens(scene, rng, names)
                await asyncio.sleep(rng.random() * 0.02)
            await leading.aclose()
            await scene.until_loaded(process)
            leading = following
        assert len(compared) == 5
        assert max(compared) > 5


def _something_happens(scene: Stage, rng: random.Random, to_come: list[str]) -> None:
    there = [one["metadata"]["name"] for one in scene.server.list_all(WORKLOADS)]
    match rng.randrange(7):
        case 0 if there:
            scene.finish(rng.choice(there))
        case 1 if there:
            scene.server.delete(WORKLOADS, rng.choice(there), namespace="team")
        case 2 if there:
            active = {"spec": {"active": rng.random() < 0.5}}
            scene.server.merge(WORKLOADS, rng.choice(there), active, namespace="team")
        case _ if to_come:
            scene.workload(to_come.pop(), rng.choice((1, 2)), queue=rng.choice(("lq-cq", "lq-other")))


def _fresh(core: Core) -> Engine:
    """A new engine that is given all objects as they are."""
    made = Engine(core.engine.state.config)
    for observed in core._known():
        if isinstance(observed.change, Added) and observed.resource in DECIDING:
            made.put(observed.change.new.object, 0.0)
    return made


def _knows(engine: Engine) -> tuple[object, object]:
    """The workloads that hold quota, with what they hold, and those that wait."""
    holders = {
        key: (each.cluster_queue, each.local_queue, dict(each.usage), each.priority, each.evicted, each.admitted)
        for key, each in engine.state.cluster.holders.items()
    }
    return holders, {each.info.key for each in engine.state.queues}
