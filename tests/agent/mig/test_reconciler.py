"""When a GPU's change is tried: a refusal is no wait, a wish that changed meanwhile is tried itself, drains end."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.mig import reconciler
from agent.mig.change import MigHardware
from agent.mig.journal import Journal, JournalEntry
from agent.mig.outcomes import MigState, MigStatus, Outcome, Wish
from agent.mig.reconciler import DRAIN_S, RETRY_S, WAIT_POLL_S, MigReconciler, is_so
from inventory.devices import Gpu, GpuUuid
from inventory.layout.entries import WhenBusy
from inventory.mig.plan import Slot
from kube.testing import eventually
from tests.support.inventory.builders import gpu

ONE, TWO = Wish(("1g.10gb",), WhenBusy.WAIT), Wish(("2g.20gb",), WhenBusy.WAIT)
DRAIN = Wish(("7g.80gb",), WhenBusy.DRAIN)
WAITING = Outcome(MigState.WAITING, "GPU 0: in use by ml/a", ("ml/a",), going=frozenset({"MIG-a"}))
APPLIED = Outcome(MigState.APPLIED, changed=True)
REFUSED = Outcome(MigState.REFUSED, "GPU 0: no")
FAILED = Outcome(MigState.FAILED, "GPU 0: broken")


class Around:
    """A node of two GPUs; ``outcomes`` is what the next tries end in, ``tried`` what was wished in each."""

    boot_id = "boot"

    def __init__(self, folder: Path) -> None:
        self.now_s = 1000.0
        self.machine = (gpu(0), gpu(1))
        self.outcomes: list[Outcome] = []
        self.tried: list[tuple[int, Wish | None]] = []
        self.said: list[MigStatus] = []
        self.settled: list[frozenset[str]] = []
        self.evicted: frozenset[str] = frozenset()
        self.rediscovered = 0
        self.blocked: dict[int, asyncio.Event] = {}
        self.during: Callable[[], None] = lambda: None
        self.journal = Journal(folder)
        self.reconciler = MigReconciler(self, self.journal, lambda: self.now_s)

    def gpus(self) -> tuple[Gpu, ...]:
        return self.machine

    async def rediscover(self) -> None:
        self.rediscovered += 1

    async def settle(self, gpu: GpuUuid, going: frozenset[str]) -> None:  # noqa: ARG002
        self.settled.append(going)

    def evict(self, pods: frozenset[str], why: str) -> None:
        assert why
        self.evicted = pods

    def told(self, status: MigStatus) -> None:
        self.said.append(status)

    def nvml(self, gpu: Gpu, *, may_close: bool) -> MigHardware:  # noqa: ARG002
        return None  # type: ignore[return-value] # the change is scripted

    async def holders(self) -> Mapping[str, Sequence[str]] | None:
        raise AssertionError

    async def withhold(self, gpu: GpuUuid, keep: frozenset[str]) -> None:  # noqa: ARG002
        raise AssertionError

    async def quiet(self, gpu: GpuUuid, keep: frozenset[str]) -> bool:  # noqa: ARG002
        raise AssertionError

    def tell(self, note: str) -> None:  # noqa: ARG002
        raise AssertionError

    async def go(self, *outcomes: Outcome, after_s: float = 0.0) -> list[Wish | None]:
        """One pass; what was tried in it."""
        self.now_s += after_s
        self.outcomes, self.tried = list(outcomes), []
        await self.reconciler._pass(may_close=True)
        assert not self.outcomes, "fewer tries than outcomes"
        return [wish for _, wish in self.tried]

    @property
    def states(self) -> list[MigState]:
        return [one.state for one in self.reconciler.statuses.values()]


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Around:
    made = Around(tmp_path)

    class Scripted:
        def __init__(self, uuid: GpuUuid, name: str, **_: object) -> None:
            assert name.startswith("GPU ")
            self._index = next(one.index for one in made.machine if one.uuid == uuid)

        async def bring(self, wish: Wish) -> Outcome:
            return await self._end(wish)

        async def undo(self) -> Outcome:
            return await self._end(None)

        async def _end(self, wish: Wish | None) -> Outcome:
            made.tried.append((self._index, wish))
            if self._index in made.blocked:
                await made.blocked.pop(self._index).wait()
            await asyncio.sleep(0)
            made.during()
            return made.outcomes.pop(0)

    monkeypatch.setattr(reconciler, "GpuChange", Scripted)
    return made


async def test_what_waits_is_tried_again_and_what_is_refused_only_when_asked_anew(services: Around) -> None:
    wishes = {services.machine[0].uuid: ONE, services.machine[1].uuid: TWO}
    services.reconciler.want(wishes)
    assert await services.go(WAITING, REFUSED) == [ONE, TWO]
    assert services.settled == [WAITING.going, frozenset()]
    assert await services.go(after_s=WAIT_POLL_S - 1) == []
    assert await services.go(WAITING, after_s=1) == [ONE]
    services.reconciler.poke()
    assert await services.go(WAITING) == [ONE]
    services.reconciler.want(wishes)
    assert await services.go(WAITING) == [ONE], "the same wish once more is no asking anew"
    services.reconciler.want(wishes, again=True)
    assert await services.go(WAITING, REFUSED) == [ONE, TWO]
    services.reconciler.want({**wishes, services.machine[1].uuid: ONE})
    assert await services.go(WAITING, APPLIED) == [ONE, ONE]


async def test_what_is_there_is_left_alone_until_it_is_gone(services: Around) -> None:
    first = services.machine[0]
    services.reconciler.want({first.uuid: Wish(None)})
    assert await services.go(Outcome(MigState.APPLIED)) == [Wish(None)]
    assert await services.go() == []
    services.machine = (replace(first, mig_enabled=True), services.machine[1])
    services.reconciler.poke()
    assert await services.go(APPLIED) == [Wish(None)]
    assert await services.go() == [], "it was tried, and nothing was heard since"


async def test_a_failure_is_tried_again_after_a_while(services: Around) -> None:
    services.reconciler.want({services.machine[0].uuid: ONE})
    await services.go(FAILED)
    assert await services.go(after_s=RETRY_S - 1) == []
    assert await services.go(FAILED, after_s=1) == [ONE]


async def test_a_gpu_that_cannot_be_read_is_not_tried(services: Around) -> None:
    services.machine = (replace(services.machine[0], readable=False), services.machine[1])
    services.reconciler.want({services.machine[0].uuid: ONE})
    assert await services.go() == []


async def test_a_wish_that_changed_during_a_try_is_tried_itself(services: Around) -> None:
    uuid = services.machine[0].uuid
    services.reconciler.want({uuid: ONE})
    services.during = lambda: services.reconciler.want({uuid: TWO})
    assert await services.go(REFUSED) == [ONE]
    assert services.reconciler.statuses == {}, "the refusal was of another wish"
    services.during = lambda: None
    assert await services.go(WAITING) == [TWO]


async def test_a_gpu_that_takes_its_time_holds_up_nobody_else(services: Around) -> None:
    first, second = services.machine
    let_go = asyncio.Event()
    services.blocked = {0: let_go}
    services.outcomes = [REFUSED] * 3
    services.reconciler.want({first.uuid: ONE, second.uuid: TWO})
    task = asyncio.create_task(services.reconciler.run())
    await eventually(lambda: second.uuid in services.reconciler.statuses)
    services.reconciler.want({first.uuid: ONE, second.uuid: ONE})
    await eventually(lambda: services.states == [MigState.REFUSED])
    assert services.tried == [(0, ONE), (1, TWO), (1, ONE)]
    let_go.set()
    await eventually(lambda: len(services.states) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_mistake_of_our_own_is_not_hidden(services: Around) -> None:
    services.reconciler.want({services.machine[0].uuid: ONE})
    with pytest.raises(IndexError):
        await services.reconciler.run()


async def test_changes_are_discovered_before_anything_is_given_again(services: Around) -> None:
    services.reconciler.want({services.machine[0].uuid: ONE})
    await services.go(APPLIED)
    assert (services.rediscovered, services.settled) == (1, [frozenset()])
    assert services.said[-1].state is MigState.APPLIED


async def test_each_new_state_is_told_once(services: Around) -> None:
    services.reconciler.want({services.machine[0].uuid: ONE})
    for outcome in (WAITING, WAITING, replace(WAITING, sentence="GPU 0: in use by ml/b"), APPLIED):
        services.reconciler.poke()
        await services.go(outcome, after_s=1)
    told = [(one.state, one.sentence, one.since_s) for one in services.said]
    assert told == [
        (MigState.WAITING, "GPU 0: in use by ml/a", 1001.0),
        (MigState.WAITING, "GPU 0: in use by ml/b", 1001.0),
        (MigState.APPLIED, "", 1004.0),
    ]


async def test_pods_are_evicted_while_a_drain_waits_and_not_for_ever(services: Around) -> None:
    services.reconciler.want({services.machine[0].uuid: DRAIN, services.machine[1].uuid: ONE})
    await services.go(WAITING, replace(WAITING, pods=("ml/other",)))
    assert services.evicted == {"ml/a"}, "only where the layout says so"
    await services.go(WAITING, WAITING, after_s=DRAIN_S - 1)
    assert services.states == [MigState.WAITING, MigState.WAITING]
    services.reconciler.poke()
    await services.go(WAITING, WAITING, after_s=1)
    assert services.states == [MigState.FAILED, MigState.WAITING]
    assert services.said[-1].sentence == "GPU 0: ml/a did not go within 600 s of being evicted"
    assert services.evicted == frozenset()


async def test_an_interrupted_change_that_nobody_wishes_is_undone_once(services: Around) -> None:
    uuid = services.machine[0].uuid
    entry = JournalEntry(gpu=uuid, boot_id="boot", profiles=("1g.10gb",), mode_before=True, before=(), target=())
    services.journal.write(entry)
    assert await services.go(APPLIED) == [None]
    assert services.reconciler.statuses == {}
    assert await services.go() == []


def half_cut(services: Around) -> None:
    uuid, wanted = services.machine[0].uuid, (Slot("1g.10gb", 0, 1, ()),)
    entry = JournalEntry(gpu=uuid, boot_id="boot", profiles=("1g.10gb",), mode_before=True, before=(), target=wanted)
    services.journal.write(entry)


async def test_what_is_half_cut_and_could_not_be_undone_is_undone_later(services: Around) -> None:
    half_cut(services)
    assert await services.go(FAILED) == [None]
    assert await services.go(after_s=RETRY_S / 2) == []
    assert await services.go(APPLIED, after_s=RETRY_S / 2) == [None]


async def test_a_refusal_that_left_a_gpu_half_cut_is_no_end(services: Around) -> None:
    half_cut(services)
    services.reconciler.want({services.machine[0].uuid: ONE})
    assert await services.go(REFUSED) == [ONE]
    assert await services.go(after_s=RETRY_S / 2) == []
    assert await services.go(REFUSED, after_s=RETRY_S / 2) == [ONE]
    services.journal.forget(services.machine[0].uuid, "boot")
    assert await services.go(after_s=RETRY_S) == []


async def test_the_start_settles_what_was_interrupted_or_is_not_there_yet(services: Around) -> None:
    first, second = services.machine
    services.machine = (replace(first, mig_enabled=True), second)
    services.reconciler.want({first.uuid: ONE, second.uuid: TWO})
    services.outcomes = [APPLIED, WAITING]
    assert await services.reconciler.settle()
    assert services.rediscovered == 0, "the discovery that is under way has to end first"
    assert services.states == [MigState.APPLIED, MigState.WAITING]


def test_a_wish_is_compared_with_what_was_discovered() -> None:
    plain = gpu(0)
    assert is_so(plain, Wish(None))
    assert not is_so(plain, Wish(()))
    assert is_so(replace(plain, mig_enabled=True), Wish(()))
    assert not is_so(replace(plain, mig_enabled=True), ONE)
