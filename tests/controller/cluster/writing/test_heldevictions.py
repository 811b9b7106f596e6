"""Evictions for a preemptor are held for a moment: who ends meanwhile is not evicted, and nobody is held twice."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster.watching.ledger import Ledger, LedgerEntry
from controller.cluster.writing.decisionwriter import REFUSED_PAUSE_S, DecisionWriter
from controller.cluster.writing.heldevictions import Waiting
from controller.cluster.writing.workloadwrites import Result, Then
from controller.objects.meta import is_true
from controller.objects.workload import Workload
from controller.scheduler.decisions.decisions import Decision, Event, Evicted
from controller.scheduler.decisions.evictionstatus import evicted
from controller.scheduler.model.resources import WorkloadKey
from tests.support.engine.world import NOW_S, World, cluster_queue, flavor, local_queue, workload

HOLD_S = 0.5
GPUS = 4
PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


class Scene:
    """The engine, and a DecisionWriter whose writes go in at once. Time stands still until ``pass_s``."""

    def __init__(self, hold_s: float = HOLD_S, *, by_victim: Mapping[str, float] = MappingProxyType({})) -> None:
        self.asked: list[Evicted] = []
        self.waited_s: list[float] = []
        """What was said of the preemptor each time that it was asked how long an eviction is held."""

        def held_for_s(eviction: Evicted, waited_s: float) -> float:
            self.waited_s.append(waited_s)
            self.asked.append(eviction)
            return by_victim.get(_name(eviction.key), hold_s)

        self.world = World()
        self.engine, self.ledger = self.world.engine, Ledger()
        self.told: list[str] = []
        """Evictions that were written, as ``victim for preemptor``."""
        self.ahead_s = 0.0
        """How far the wall clock is ahead of the monotonic one: ``put_clock``."""
        self._alarms: list[tuple[float, Callable[[], None]]] = []
        self._version = 0
        self.refusing = self.slow = False
        """Whether all writes are refused, or go on while ``LedgerEntry.writing`` is set: what they say is stored."""
        self.decisions = DecisionWriter(
            self.engine,
            self.ledger,
            self,  # type: ignore[arg-type]
            self,
            now=lambda: self.world.now_s,
            monotonic=lambda: self.world.now_s - self.ahead_s,
            later=lambda seconds, call: self._alarms.append((self.world.now_s - self.ahead_s + seconds, call)),
            hold_s=held_for_s,
        )
        self.world.put(flavor(), cluster_queue("cq", GPUS, preemption=PREEMPTION), local_queue("cq"))

    # -- stands in for WorkloadWrites and for who listens ------------------------------------------------------------

    def status(self, entry: LedgerEntry, after: Workload, then: Then, _failpoint: object) -> None:
        if self.refusing:
            then(Result.REFUSED, "forbidden")
            return
        entry.writing = self.slow
        self.put(after)
        then(Result.WRITTEN, "")

    def carried_out(self, decision: Decision, _after: Workload) -> None:
        if isinstance(decision, Evicted) and decision.by is not None:
            self.told.append(f"{_name(decision.key)} for {_name(decision.by.key)}")

    def events(self, events: tuple[Event, ...]) -> None: ...

    # -- what happens ------------------------------------------------------------------------------------------------

    def put(self, given: Workload) -> None:
        self._version += 1
        version = msgspec.structs.replace(given.metadata, resource_version=str(self._version))
        given = msgspec.structs.replace(given, metadata=version)
        self.ledger.observe(given)
        self.world.put(given)

    def arrive(self, name: str, gpus: int, *, priority: int, queue: str = "cq") -> None:
        """With slow writes its condition as a pending workload is being written already."""
        self.put(workload(name, queue, gpus, priority=priority, created_s=int(self.world.now_s - NOW_S)))
        entry = self.ledger.get(_key(name))
        assert entry is not None
        entry.writing = self.slow
        self.decide()

    def end(self, name: str) -> None:
        self.ledger.forget(_key(name), f"uid-{name}")
        self.world.finish(name)
        self.decide()

    def delete(self, name: str) -> None:
        """As the core tells of it."""
        self.ledger.forget(_key(name), f"uid-{name}")
        self.world.delete(name)
        self.decisions.held.settled(_key(name))
        self.decide()

    def stop_evicted(self) -> None:
        """Their jobs have stopped, as they were told."""
        leaving = self.world.leaving()
        self.world.stop_evicted()
        for one in leaving:
            self.put(self.world.workloads[_key(one.metadata.name)])
        self.decide()

    def end_writes(self) -> None:
        """Those that are under way, and each that waits for one."""
        self.slow = False
        for entry in list(self.ledger.values()):
            entry.writing = False
            self.decisions.resume(WorkloadKey(entry.workload.key))

    def pass_s(self, seconds: float) -> None:
        self.world.now_s += seconds
        for due in [one for one in self._alarms if one[0] <= self.world.now_s - self.ahead_s]:
            self._alarms.remove(due)
            due[1]()
        self.decide()

    def put_clock(self, seconds: float) -> None:
        self.world.now_s += seconds
        self.ahead_s += seconds

    def decide(self) -> None:
        """All that there is to decide now."""
        for _ in range(100):
            if self.engine.settled(self.world.now_s):
                return
            for one in self.engine.cycle(self.world.now_s).made:
                self.decisions.submit(one)
            self.engine.validate()
        raise AssertionError("still deciding after 100 cycles")

    @property
    def running(self) -> set[str]:
        """Workloads that hold quota and are not evicted, held back or not."""
        return {_name(key) for key, holder in self.engine.state.cluster.holders.items() if not holder.evicted}


def _key(name: str) -> WorkloadKey:
    return WorkloadKey(f"ns/{name}")


def _name(key: str) -> str:
    return key.removeprefix("ns/")


def test_a_victim_that_ends_meanwhile_is_not_evicted() -> None:
    scene = Scene()
    scene.arrive("low", 4, priority=1)
    scene.arrive("high", 4, priority=2)
    scene.pass_s(0.4)
    assert scene.told == []
    scene.end("low")
    assert scene.running == {"high"}
    scene.pass_s(1.0)
    assert (scene.told, len(scene.decisions.held)) == ([], 0)


def test_one_that_goes_on_is_evicted_when_the_moment_is_over() -> None:
    scene = Scene()
    scene.arrive("low", 4, priority=1)
    scene.arrive("high", 4, priority=2)
    scene.pass_s(HOLD_S)
    assert scene.told == ["low for high"]


def test_without_a_hold_it_is_evicted_at_once() -> None:
    scene = Scene(hold_s=0.0)
    scene.arrive("low", 4, priority=1)
    scene.arrive("high", 4, priority=2)
    assert scene.told == ["low for high"]


def test_only_those_are_evicted_who_are_still_needed() -> None:
    scene = Scene()
    for name in "abcd":
        scene.arrive(name, 1, priority=1)
    scene.arrive("high", 2, priority=2)
    (spared, *_) = sorted(scene.running)
    assert len(scene.decisions.held) == 2
    scene.end(spared)
    scene.pass_s(HOLD_S)
    assert len(scene.told) == 1, "there is room for a half of it already"


def test_while_it_is_held_nobody_of_its_queue_takes_what_becomes_free() -> None:
    scene = Scene()
    for name in "abcd":
        scene.arrive(name, 1, priority=1)
    scene.arrive("high", 4, priority=2)
    scene.arrive("late", 1, priority=1)
    for name in "abcd":
        assert "late" not in scene.running
        scene.end(name)
    assert scene.running == {"high"}
    assert scene.told == []


def test_a_preemptor_waits_once() -> None:
    scene = Scene()
    scene.arrive("a", 2, priority=1)
    scene.arrive("b", 2, priority=1)
    scene.arrive("high", 2, priority=2)
    scene.pass_s(HOLD_S)
    assert len(scene.told) == 1
    scene.world.put(cluster_queue("cq", GPUS // 2, preemption=PREEMPTION))
    scene.decide()
    assert sorted(scene.told) == ["a for high", "b for high"]


def test_a_preemptor_waits_once_more_if_some_of_its_victims_ended_by_themselves() -> None:
    scene = Scene()
    for name in "abcd":
        scene.arrive(name, 1, priority=1)
    scene.arrive("high", 4, priority=2)
    scene.end("a")
    scene.pass_s(HOLD_S)
    assert scene.told == []
    scene.end("b")
    scene.pass_s(HOLD_S)
    assert sorted(scene.told) == ["c for high", "d for high"], "it has waited twice, whoever else ends"


def test_a_victim_is_held_once_however_many_want_its_place() -> None:
    scene = Scene()
    for name in ("cq", "other"):
        scene.world.put(cluster_queue(name, GPUS // 2, cohort="both", preemption=PREEMPTION), local_queue(name))
    scene.arrive("low", 4, priority=1)
    scene.arrive("high", 2, priority=2)
    scene.pass_s(HOLD_S / 2)
    scene.arrive("owner", 2, priority=3, queue="other")
    scene.pass_s(HOLD_S / 2)
    assert scene.told == ["low for owner"]


def test_victims_that_were_spared_are_held_anew_with_the_others() -> None:
    scene = Scene(10.0)
    for name in "abcd":
        scene.arrive(name, 1, priority=1)
    scene.arrive("high", 2, priority=2)
    spared = sorted(scene.running)
    assert len(spared) == 2
    scene.end(spared[0])
    scene.pass_s(10.0)
    assert len(scene.told) == 1, "there is room for a half of it already"
    scene.stop_evicted()
    assert scene.running == {"high", "b", "d"}
    scene.arrive("big", 2, priority=3)
    assert scene.decisions.held.waits(_key("big")) == Waiting(2, scene.world.now_s + 10.0)
    scene.pass_s(9.9)
    assert len(scene.told) == 1
    scene.pass_s(0.1)
    assert len(scene.told) == 3


def test_a_victim_that_was_spared_is_held_anew_before_the_preemptor_has_its_room() -> None:
    scene = Scene(10.0)
    for name in "abcd":
        scene.arrive(name, 1, priority=1)
    scene.arrive("high", 2, priority=2)
    (spared,) = (one for one in scene.asked if one.key == _key("b"))
    other = msgspec.structs.replace(spared, by=scene.engine.state.cluster.holders[_key("d")])
    scene.end(min(scene.running))
    scene.pass_s(10.0)
    assert (scene.told, "high" in scene.running) == (["a for high"], False)
    assert scene.decisions.held.takes(other)


def test_where_one_victim_has_waited_none_of_the_others_is_waited_for() -> None:
    scene = Scene(10.0)
    for name, quota in (("cq", 1), ("other", 3)):
        scene.world.put(cluster_queue(name, quota, cohort="both", preemption=PREEMPTION), local_queue(name))
    for name in "abcd":
        scene.arrive(name, 1, priority=1)
    scene.arrive("high", 1, priority=2)
    scene.pass_s(5.0)
    scene.arrive("owner", 3, priority=3, queue="other")
    assert scene.decisions.held.waits(_key("owner")) == Waiting(2, scene.world.now_s + 10.0)
    scene.pass_s(5.0)
    assert sorted(scene.told) == ["a for owner", "b for owner", "c for high", "d for high"]
    assert len(scene.decisions.held) == 0
    scene.stop_evicted()
    assert scene.running == {"high", "owner"}


@pytest.mark.parametrize("put_s", [-3600.0, 3600.0])
def test_a_clock_that_is_put_makes_no_hold_longer_or_shorter(put_s: float) -> None:
    scene = Scene(10.0)
    scene.arrive("low", 4, priority=1)
    scene.arrive("high", 4, priority=2)
    scene.pass_s(4.0)
    scene.put_clock(put_s)
    assert scene.decisions.held.waits(_key("high")) == Waiting(1, scene.world.now_s + 6.0)
    scene.pass_s(5.9)
    assert scene.told == []
    scene.pass_s(0.2)
    assert scene.told == ["low for high"]


STOPS = {
    "ClusterQueue": lambda stop: cluster_queue("cq", GPUS, preemption=PREEMPTION, stopPolicy=stop),
    "LocalQueue": lambda stop: local_queue("cq", stopPolicy=stop),
}


@pytest.mark.parametrize("kind", STOPS)
@pytest.mark.parametrize("stop", ["Hold", "HoldAndDrain"])
def test_a_preemptor_whose_queue_is_stopped_waits_no_more(kind: str, stop: str) -> None:
    scene = Scene(10.0)
    scene.arrive("low", 4, priority=1)
    scene.arrive("high", 4, priority=2)
    scene.decisions.held.queues_changed()
    assert len(scene.decisions.held) == 1, "its queue is open"
    scene.world.put(STOPS[kind](stop))
    scene.decisions.held.queues_changed()
    scene.decide()
    assert (len(scene.decisions.held), scene.running) == (0, {"low"})
    scene.pass_s(10.0)
    assert (scene.told, scene.running) == ([], {"low"})
    scene.world.put(STOPS[kind]("None"))
    scene.decide()
    assert len(scene.decisions.held) == 1, "it waits anew"


def test_who_runs_anew_is_held_anew() -> None:
    scene = Scene()
    scene.arrive("low", 4, priority=1)
    scene.arrive("high", 4, priority=2)
    scene.pass_s(HOLD_S)
    scene.stop_evicted()
    scene.end("high")
    assert scene.running == {"low"}
    scene.arrive("next", 4, priority=2)
    assert scene.told == ["low for high"]
    scene.pass_s(HOLD_S)
    assert scene.told == ["low for high", "low for next"]


def test_nobody_is_on_the_way_out_any_more_for_a_preemptor_that_found_room() -> None:
    scene = Scene()
    scene.arrive("low", 4, priority=1)
    scene.arrive("high", 4, priority=2)
    assert scene.running == set()
    scene.world.put(cluster_queue("cq", 2 * GPUS, preemption=PREEMPTION))
    scene.decide()
    assert scene.running == {"low", "high"}


def test_a_preemptor_that_ran_in_between_waits_anew() -> None:
    scene = Scene()
    scene.world.put(cluster_queue("cq", 2 * GPUS, preemption=PREEMPTION))
    scene.arrive("low", 4, priority=1)
    scene.arrive("other", 4, priority=1)
    scene.arrive("high", 4, priority=2)
    scene.end("other")
    scene.pass_s(HOLD_S)
    assert scene.running == {"low", "high"}, "high found room before its hold was over"
    scene.world.put(cluster_queue("cq", GPUS, preemption=PREEMPTION))
    scene.put(evicted(scene.world.workloads[_key("high")], "Preempted", "by hand", now_s=scene.world.now_s))
    scene.stop_evicted()
    assert scene.told == []
    scene.pass_s(HOLD_S)
    assert scene.told == ["low for high"]


def test_a_victim_that_is_being_written_to_is_evicted_after_that() -> None:
    scene = Scene()
    scene.arrive("low", 4, priority=1)
    scene.arrive("high", 4, priority=2)
    entry = scene.ledger.get(_key("low"))
    assert entry is not None
    entry.writing = True
    scene.pass_s(HOLD_S)
    assert scene.told == []
    entry.writing = False
    scene.decisions.resume(_key("low"))
    assert scene.told == ["low for high"]


def test_an_admission_that_waits_for_another_write_is_written_before_its_eviction() -> None:
    scene = Scene(hold_s=0.0)
    scene.slow = True
    scene.arrive("low", 4, priority=1)
    scene.arrive("high", 4, priority=2)
    assert (scene.told, scene.running) == ([], set()), "both decisions about low wait"
    scene.end_writes()
    assert scene.told == ["low for high"]
    assert scene.world.workloads[_key("low")].status.admission is not None, "there is something to be given back"
    scene.stop_evicted()
    assert scene.running == {"high"}
    scene.end("high")
    assert scene.running == {"low"}


def test_the_next_decision_waits_for_the_end_of_the_write_before_it() -> None:
    scene = Scene(hold_s=0.0)
    scene.slow = True
    scene.arrive("low", 4, priority=1)
    scene.arrive("high", 4, priority=2)
    entry = scene.ledger.get(_key("low"))
    assert entry is not None
    entry.writing = False
    assert scene.decisions.resume(_key("low"))
    assert scene.told == [], "the admission is being written"
    assert not scene.decisions.resume(_key("low"))
    scene.end_writes()
    assert scene.told == ["low for high"]


def test_an_eviction_of_one_whose_admission_was_refused_takes_both_back() -> None:
    scene = Scene(hold_s=0.0)
    scene.refusing = True
    scene.arrive("low", 4, priority=1)
    assert scene.running == {"low"}, "it holds its quota for a pause"
    scene.refusing = False
    scene.arrive("high", 4, priority=2)
    assert (scene.told, scene.running) == ([], {"high"})
    assert not is_true(scene.world.workloads[_key("low")].status.conditions, "Evicted")
    scene.pass_s(REFUSED_PAUSE_S)
    scene.end("high")
    assert scene.running == {"low"}


def test_nobody_goes_for_a_preemptor_that_has_gone() -> None:
    scene = Scene()
    scene.arrive("low", 4, priority=1)
    scene.arrive("high", 4, priority=2)
    scene.delete("high")
    assert (len(scene.decisions.held), scene.running) == (0, {"low"}), "however long the hold would have been"
    scene.pass_s(HOLD_S)
    assert (scene.told, scene.running) == ([], {"low"})


def test_the_shortest_hold_of_its_victims_counts_for_a_preemptor_that_needs_them_all() -> None:
    scene = Scene(10.0, by_victim={"b": 1.0})
    for name in "abcd":
        scene.arrive(name, 1, priority=1)
    scene.arrive("high", 4, priority=2)
    assert scene.decisions.held.waits(_key("high")) == Waiting(4, scene.world.now_s + 1.0)
    scene.pass_s(0.9)
    assert scene.told == []
    scene.pass_s(0.1)
    assert len(scene.told) == 4
    assert scene.decisions.held.waits(_key("high")) is None
    scene.pass_s(10.0)
    assert len(scene.told) == 4, "the alarm of the longest finds nothing"


def test_a_cluster_that_has_become_calm_cuts_no_hold_short() -> None:
    scene = Scene(10.0, by_victim={"b": 0.0})
    scene.arrive("b", 2, priority=1)
    scene.world.now_s += 1.0
    scene.arrive("a", 2, priority=1)
    scene.arrive("high", 4, priority=2)
    scene.pass_s(9.0)
    assert (len(scene.decisions.held), scene.told) == (2, []), "a, the younger, was decided first"
    scene.pass_s(1.0)
    assert sorted(scene.told) == ["a for high", "b for high"]


def test_with_a_victim_in_other_trouble_nobody_waits_any_more() -> None:
    scene = Scene(10.0)
    scene.arrive("a", 2, priority=1)
    scene.arrive("b", 2, priority=1)
    scene.arrive("high", 4, priority=2)
    scene.decisions.held.let_go(_key("c"))
    assert len(scene.decisions.held) == 2, "it is no victim"
    scene.decisions.held.let_go(_key("a"))
    scene.decide()
    assert sorted(scene.told) == ["a for high", "b for high"]


def test_the_second_wait_knows_how_long_the_first_one_was() -> None:
    scene = Scene()
    scene.arrive("a", 2, priority=1)
    scene.arrive("b", 2, priority=1)
    scene.arrive("high", 4, priority=2)
    scene.end("a")
    scene.pass_s(HOLD_S)
    assert (scene.waited_s[0], scene.waited_s[-1]) == (0.0, HOLD_S)
    scene.pass_s(HOLD_S)
    assert scene.told == ["b for high"]


def test_who_is_told_to_go_for_another_reason_meanwhile_goes() -> None:
    scene = Scene()
    scene.arrive("low", 4, priority=1)
    scene.arrive("high", 4, priority=2)
    there = scene.world.workloads[_key("low")]
    scene.put(evicted(there, "Deactivated", "by hand", now_s=scene.world.now_s))
    scene.pass_s(HOLD_S)
    assert (scene.told, scene.running) == ([], set())
    scene.stop_evicted()
    assert scene.running == {"high"}


@pytest.mark.parametrize("hold_s", [0.0, HOLD_S])
@settings(max_examples=25)
@given(st.data())
def test_held_or_not_nobody_waits_in_the_end_who_could_evict(hold_s: float, data: st.DataObject) -> None:
    scene, sizes, priorities = Scene(hold_s), dict[str, int](), dict[str, int]()
    for number in range(data.draw(st.integers(2, 8))):
        there, ends = sorted(scene.running), data.draw(st.booleans())
        if there and ends:
            scene.end(data.draw(st.sampled_from(there)))
        name = f"w-{number}"
        sizes[name], priorities[name] = data.draw(st.integers(1, GPUS)), data.draw(st.integers(1, 3))
        scene.slow = data.draw(st.booleans())
        scene.arrive(name, sizes[name], priority=priorities[name])
        if data.draw(st.booleans()):
            scene.end_writes()
        scene.pass_s(data.draw(st.sampled_from([0.0, HOLD_S / 2, HOLD_S])))
    for _ in range(2 * len(sizes)):
        scene.end_writes()
        scene.pass_s(HOLD_S)
        scene.stop_evicted()
    running = scene.running
    assert (len(scene.decisions.held), scene.engine.state.unwritten.evictions) == (0, set())
    for pending in scene.engine.state.queues:
        name = _name(pending.key)
        stays = sum(sizes[one] for one in running if priorities[one] >= priorities[name])
        assert sizes[name] + stays > GPUS, f"{name} waits beside {running}"
