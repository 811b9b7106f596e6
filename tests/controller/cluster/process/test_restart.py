"""State is rebuilt from the objects alone; only a leader writes; a lost place in the history changes nothing."""

import asyncio
import random
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import WORKLOADS
from controller.objects.workload import Workload
from controller.scheduler.model.resources import WorkloadKey
from kube.clock import SystemClock
from kube.errors import NotFoundError
from kube.resources import LEASES
from kube.testing import eventually
from tests.support.controller.stage import KUEUES_LEASE, Stage, stage
from tests.support.hang import HANG_S
from tests.support.seeds import histories

A = WorkloadKey("team/a")


async def test_a_new_process_goes_on_where_the_old_one_stood() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller():
            scene.workload("a", 2)
            scene.workload("b", 1)
            await eventually(lambda: scene.used() == 2)
        before = len(scene.server.written("workloads/a"))
        async with scene.controller():
            await asyncio.sleep(0.05)
            assert scene.used() == 2
            first = "a" if scene.admitted("a") else "b"
            scene.finish(first)
            await scene.until_admitted("b" if first == "a" else "a")
            scene.core.engine.validate()
        assert len(scene.server.written("workloads/a")) - before <= 1


@histories(0, 1)
async def test_killed_at_any_moment_nothing_is_lost_and_no_quota_exceeded(seed: int) -> None:
    """Each life ends without a word: writes that are under way may arrive or not."""
    rng = random.Random(seed)
    async with stage() as scene:
        scene.queue(cpus=3)
        names = [f"w-{number}" for number in range(12)]
        watch = asyncio.create_task(_never_above(scene, 3))
        todo = list(names)
        over: set[str] = set()
        async with asyncio.timeout(HANG_S):  # a workload that is lost is never over
            while len(over) < len(names):
                async with scene.controller():
                    for name in todo[:3]:
                        scene.workload(name, rng.choice((1, 2)))
                    del todo[:3]
                    await asyncio.sleep(rng.random() * 0.05)
                    for name in names:
                        if name not in todo and name not in over and scene.admitted(name) and rng.random() < 0.7:
                            scene.finish(name)
                            over.add(name)
                    await asyncio.sleep(rng.random() * 0.03)
                    scene.server.cut()  # from here on nothing of it is heard
                scene.server.down = False
        assert not watch.done(), f"quota exceeded: {watch}"
        watch.cancel()


async def _never_above(scene: Stage, cpus: int) -> None:
    while True:
        assert scene.used() <= cpus
        await asyncio.sleep(0.001)


async def test_a_watch_that_lost_its_place_loses_no_workload() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller():
            scene.workload("a", 1)
            await scene.until_admitted("a")
            scene.server.cut()
            scene.finish("a")
            scene.workload("b", 1)
            scene.server.store.compact()
            scene.server.down = False
            await scene.until_admitted("b")
            scene.core.engine.validate()


async def test_a_follower_is_silent_until_the_leader_has_gone() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller(elect=True, name="first") as first:
            await eventually(lambda: first.core is not None)
            async with scene.controller(elect=True, name="second") as second:
                scene.workload("a", 1)
                await scene.until_admitted("a")
                assert second.core is None
                assert second.role == "follower"
                assert first.role == "leader"
                writers = {
                    one["manager"]
                    for one in scene.server.get(WORKLOADS, "a", namespace="team")["metadata"]["managedFields"]
                }
                assert writers <= {"tessera", "test"}
        lease = scene.server.get(LEASES, "tessera-controller", namespace="tessera-system")
        assert lease["spec"]["holderIdentity"] == "", "the lease was not let go"


async def test_while_a_live_kueue_holds_its_lease_nothing_is_decided() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        scene.kueue_leads()
        async with scene.controller(elect=True) as process:
            scene.workload("a", 1)
            await eventually(lambda: bool(scene.server.seen("GET", KUEUES_LEASE)))
            await asyncio.sleep(0.1)
            assert process.core is None
            assert scene.status("a") == {}


async def test_a_workload_that_goes_while_it_is_written_gives_its_quota_back() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller():
            gate = asyncio.Event()
            scene.server.hold = gate
            scene.workload("a", 1)
            await eventually(lambda: bool(scene.server.written("workloads/a")))
            scene.server.delete(WORKLOADS, "a", namespace="team")
            gate.set()
            scene.server.hold = None
            scene.workload("b", 1)
            await scene.until_admitted("b")
            scene.core.engine.validate()
        with pytest.raises(NotFoundError):
            scene.server.get(WORKLOADS, "a", namespace="team")


async def test_another_uid_under_a_known_name_is_another_workload() -> None:
    """No watch told of the end of the old one, whose admission is on its way."""
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller():
            core = scene.core
            scene.server.hold = asyncio.Event()  # the admission stays on its way
            scene.workload("a", 2)
            await eventually(lambda: bool(core.engine.state.unwritten.admissions))
            entry = core.ledger.get(A)
            assert entry is not None
            old = entry.workload
            told = list[tuple[str, bool]]()

            class Listener:
                def on_workload(self, workload: Workload, gone: bool) -> None:
                    told.append((workload.metadata.uid, gone))

                def on_object(self, observed: ObjectChange) -> None: ...

            core.subscribe(Listener())
            later = {"uid": "another", "resource_version": str(entry.version + 1000)}
            new = msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, **later))
            core._see(new)
            assert told == [(old.metadata.uid, True), ("another", False)]
            assert not core.engine.state.unwritten.admissions, "what was decided on the old one says nothing of the new"
            assert core.engine.state.queues.get(A) is not None
            core.engine.validate()
            scene.server.hold.set()


class PutClock(SystemClock):
    """A machine's clock that somebody puts."""

    ahead_s = 0.0

    def wall(self) -> float:
        return super().wall() + self.ahead_s


async def test_what_waits_by_a_clock_that_is_put_back_does_not_wait_for_hours() -> None:
    clock = PutClock()
    clock.ahead_s = 7_200.0
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller(clock=clock) as process:
            await scene.until_loaded(process)
            now = datetime.fromtimestamp(clock.wall(), UTC)
            waits = {"type": "Requeued", "status": "False", "reason": "PodsReadyTimeout", "message": ""}
            scene.workload("a", 1)
            scene.server.merge(
                WORKLOADS,
                "a",
                {
                    "status": {
                        "conditions": [{**waits, "lastTransitionTime": now.isoformat()}],
                        "requeueState": {"count": 1, "requeueAt": (now + timedelta(seconds=60)).isoformat()},
                    }
                },
                namespace="team",
            )
            await asyncio.sleep(0.1)
            assert not scene.admitted("a"), "its back-off is not over"
            clock.ahead_s = 0.0
            scene.workload("b", 1)  # something happens: else it is looked at half a minute later
            await scene.until_admitted("a")
