"""Who is tried when: refused is not waiting, a wish that changed meanwhile is tried itself, drains end."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.mig import keeper
from agent.mig.change import Hands
from agent.mig.journal import Entry, Journal
from agent.mig.keeper import DRAIN_S, RETRY_S, WAIT_POLL_S, MigKeeper, is_so
from agent.mig.outcomes import MigState, MigStatus, Outcome, Wish
from inventory.devices import Gpu
from inventory.ids import GpuUuid
from inventory.layout.entries import WhenBusy
from kube.testing import eventually
from tests.inventory.builders import gpu

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
        self.keeper = MigKeeper(self, self.journal, lambda: self.now_s)

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

    def hands(self, gpu: Gpu, *, may_close: bool) -> Hands:  # noqa: ARG002
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
        await self.keeper._pass(may_close=True)
        assert not self.outcomes, "fewer tries than outcomes"
        return [wish for _, wish in self.tried]

    @property
    def states(self) -> list[MigState]:
        return [one.state for one in self.keeper.statuses.values()]


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Around:
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

    monkeypatch.setattr(keeper, "GpuChange", Scripted)
    return made


async def test_what_waits_is_tried_again_and_what_is_refused_only_when_asked_anew(around: Around) -> None:
    wishes = {around.machine[0].uuid: ONE, around.machine[1].uuid: TWO}
    around.keeper.want(wishes)
    assert await around.go(WAITING, REFUSED) == [ONE, TWO]
    assert around.settled == [WAITING.going, frozenset()]
    assert await around.go(after_s=WAIT_POLL_S - 1) == []
    assert await around.go(WAITING, after_s=1) == [ONE]
    around.keeper.poke()
    assert await around.go(WAITING) == [ONE]
    around.keeper.want(wishes)
    assert await around.go(WAITING) == [ONE], "the same wish once more is no asking anew"
    around.keeper.want(wishes, again=True)
    assert await around.go(WAITING, REFUSED) == [ONE, TWO]
    around.keeper.want({**wishes, around.machine[1].uuid: ONE})
    assert await around.go(WAITING, APPLIED) == [ONE, ONE]


async def test_what_is_there_is_left_alone_until_it_is_gone(around: Around) -> None:
    first = around.machine[0]
    around.keeper.want({first.uuid: Wish(None)})
    assert await around.go(Outcome(MigState.APPLIED)) == [Wish(None)]
    assert await around.go() == []
    around.machine = (replace(first, mig_enabled=True), around.machine[1])
    around.keeper.poke()
    assert await around.go(APPLIED) == [Wish(None)]
    assert await around.go() == [], "it was tried, and nothing was heard since"


async def test_a_failure_is_tried_again_after_a_while(around: Around) -> None:
    around.keeper.want({around.machine[0].uuid: ONE})
    await around.go(FAILED)
    assert await around.go(after_s=RETRY_S - 1) == []
    assert await around.go(FAILED, after_s=1) == [ONE]


async def test_a_gpu_that_cannot_be_read_is_not_tried(around: Around) -> None:
    around.machine = (replace(around.machine[0], readable=False), around.machine[1])
    around.keeper.want({around.machine[0].uuid: ONE})
    assert await around.go() == []


async def test_a_wish_that_changed_during_a_try_is_tried_itself(around: Around) -> None:
    uuid = around.machine[0].uuid
    around.keeper.want({uuid: ONE})
    around.during = lambda: around.keeper.want({uuid: TWO})
    assert await around.go(REFUSED) == [ONE]
    assert around.keeper.statuses == {}, "the refusal was of another wish"
    around.during = lambda: None
    assert await around.go(WAITING) == [TWO]


async def test_a_gpu_that_takes_its_time_holds_up_nobody_else(around: Around) -> None:
    first, second = around.machine
    let_go = asyncio.Event()
    around.blocked = {0: let_go}
    around.outcomes = [REFUSED] * 3
    around.keeper.want({first.uuid: ONE, second.uuid: TWO})
    task = asyncio.create_task(around.keeper.run())
    await eventually(lambda: second.uuid in around.keeper.statuses)
    around.keeper.want({first.uuid: ONE, second.uuid: ONE})
    await eventually(lambda: around.states == [MigState.REFUSED])
    assert around.tried == [(0, ONE), (1, TWO), (1, ONE)]
    let_go.set()
    await eventually(lambda: len(around.states) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_mistake_of_our_own_is_not_hidden(around: Around) -> None:
    around.keeper.want({around.machine[0].uuid: ONE})
    with pytest.raises(IndexError):
        await around.keeper.run()


async def test_changes_are_discovered_before_anything_is_given_again(around: Around) -> None:
    around.keeper.want({around.machine[0].uuid: ONE})
    await around.go(APPLIED)
    assert (around.rediscovered, around.settled) == (1, [frozenset()])
    assert around.said[-1].state is MigState.APPLIED


async def test_each_new_state_is_told_once(around: Around) -> None:
    around.keeper.want({around.machine[0].uuid: ONE})
    for outcome in (WAITING, WAITING, replace(WAITING, sentence="GPU 0: in use by ml/b"), APPLIED):
        around.keeper.poke()
        await around.go(outcome, after_s=1)
    told = [(one.state, one.sentence, one.since_s) for one in around.said]
    assert told == [
        (MigState.WAITING, "GPU 0: in use by ml/a", 1001.0),
        (MigState.WAITING, "GPU 0: in use by ml/b", 1001.0),
        (MigState.APPLIED, "", 1004.0),
    ]


async def test_pods_are_evicted_while_a_drain_waits_and_not_for_ever(around: Around) -> None:
    around.keeper.want({around.machine[0].uuid: DRAIN, around.machine[1].uuid: ONE})
    await around.go(WAITING, replace(WAITING, pods=("ml/other",)))
    assert around.evicted == {"ml/a"}, "only where the layout says so"
    await around.go(WAITING, WAITING, after_s=DRAIN_S - 1)
    assert around.states == [MigState.WAITING, MigState.WAITING]
    around.keeper.poke()
    await around.go(WAITING, WAITING, after_s=1)
    assert around.states == [MigState.FAILED, MigState.WAITING]
    assert around.said[-1].sentence == "GPU 0: ml/a did not go within 600 s of being evicted"
    assert around.evicted == frozenset()


async def test_an_interrupted_change_that_nobody_wishes_is_undone_once(around: Around) -> None:
    uuid = around.machine[0].uuid
    entry = Entry(gpu=uuid, boot_id="boot", profiles=("1g.10gb",), mode_before=True, before=(), target=())
    around.journal.write(entry)
    assert await around.go(APPLIED) == [None]
    assert around.keeper.statuses == {}
    assert await around.go() == []


async def test_the_start_settles_what_was_interrupted_or_is_not_there_yet(around: Around) -> None:
    first, second = around.machine
    around.machine = (replace(first, mig_enabled=True), second)
    around.keeper.want({first.uuid: ONE, second.uuid: TWO})
    around.outcomes = [APPLIED, WAITING]
    assert await around.keeper.settle()
    assert around.rediscovered == 0, "the discovery that is under way has to end first"
    assert around.states == [MigState.APPLIED, MigState.WAITING]


def test_a_wish_is_compared_with_what_was_discovered() -> None:
    plain = gpu(0)
    assert is_so(plain, Wish(None))
    assert not is_so(plain, Wish(()))
    assert is_so(replace(plain, mig_enabled=True), Wish(()))
    assert not is_so(replace(plain, mig_enabled=True), ONE)
