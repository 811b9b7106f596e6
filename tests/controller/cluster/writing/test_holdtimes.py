"""How long evictions are held: by how long it takes until those that run are seen to have ended."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.writing.holdtimes import Endings, HoldTimes
from controller.cluster.writing.pace import Pace
from controller.objects.meta import Condition
from controller.objects.workload import Workload
from controller.scheduler.decisions.decisions import Evicted
from controller.scheduler.decisions.evictionstatus import evicted
from controller.scheduler.model.resources import WorkloadKey
from tests.support.engine.world import NOW_S, World, cluster_queue, flavor, local_queue, workload

MEMORY_S = 30.0
PREEMPTION = {"withinClusterQueue": "LowerPriority"}


class Scene:
    """Workloads that run at once: each starts, and is seen to end after so long."""

    def __init__(self, memory_s: float = MEMORY_S) -> None:
        self.endings = Endings(memory_s)
        self.number = 0

    def start(self, now_s: float) -> WorkloadKey:
        self.number += 1
        name = f"w-{self.number}"
        self.endings.observed(saying(name), running(name), now_s)
        return WorkloadKey(f"ns/w-{self.number}")

    def steadily(self, until_s: float, *, per_s: float, take_s: float) -> None:
        """From 0 on so many start each second, and each is seen to have ended after ``take_s``."""
        started: list[tuple[float, WorkloadKey]] = []
        for step in range(int(until_s * per_s)):
            now_s = step / per_s
            while started and started[0][0] + take_s <= now_s:
                self.endings.ended(started.pop(0)[1], now_s)
            started.append((now_s, self.start(now_s)))


def saying(name: str, *conditions: str) -> Workload:
    """A workload of which these conditions are true."""
    found = [Condition(type=condition, status="True") for condition in conditions]
    given = workload(name, "cq")
    return msgspec.structs.replace(given, status=msgspec.structs.replace(given.status, conditions=tuple(found)))


def running(name: str) -> Workload:
    return saying(name, "QuotaReserved", "Admitted")


def finished(name: str) -> Workload:
    return saying(name, "Finished")


@pytest.mark.parametrize("take_s", [1.0, 8.0, 20.0])
def test_ends_take_as_long_as_what_runs_needs_at_the_present_pace(take_s: float) -> None:
    scene = Scene()
    scene.steadily(120.0, per_s=10.0, take_s=take_s)
    assert scene.endings.take_s(120.0) == pytest.approx(take_s, rel=0.1)


def test_a_queue_of_reports_that_grows_is_known_before_its_last_report_is_there() -> None:
    scene = Scene()
    scene.steadily(60.0, per_s=10.0, take_s=2.0)
    for step in range(100):  # the same ends each second, and three times as many starts
        for _ in range(3):
            scene.start(60.0 + step / 10)
        scene.endings.ended(WorkloadKey(f"ns/w-{581 + step}"), 60.0 + step / 10)
    assert scene.endings.take_s(70.0) == pytest.approx(22.0, rel=0.1), "200 more wait; the last end took 12 s"


def test_jobs_that_run_for_long_say_nothing_of_those_that_come_and_go() -> None:
    scene = Scene()
    for _ in range(500):
        scene.start(0.0)
    scene.steadily(120.0, per_s=10.0, take_s=2.0)
    assert scene.endings.take_s(120.0) == pytest.approx(2.0, rel=0.1)


def test_where_nothing_or_little_ends_nothing_is_known() -> None:
    scene = Scene()
    keys = [scene.start(0.0) for _ in range(500)]
    assert scene.endings.take_s(1.0) is None
    scene.endings.ended(keys[0], 1.0)
    scene.endings.ended(keys[1], 1.5)
    assert scene.endings.take_s(1.5) is None, "two ends are no pace"
    for key in keys[2:6]:
        scene.endings.ended(key, 2.0)
    assert scene.endings.take_s(2.0) is None, "five hundred at this pace need far longer than is waited"


def test_only_an_end_is_an_end() -> None:
    scene = Scene()
    for number in range(100):
        name, now_s = f"w-{number}", number / 10
        scene.endings.observed(saying(name), running(name), now_s)
        scene.endings.observed(running(name), evicted(running(name), "Preempted", "by hand", now_s=NOW_S), now_s)
        scene.endings.observed(running(name), finished(name), now_s)
    assert scene.endings.take_s(10.0) is None
    for number in range(100):
        scene.endings.observed(None, finished(f"unknown-{number}"), 10.0)
    assert scene.endings.take_s(10.0) is None, "nobody saw these run"
    for number in range(100):
        scene.endings.observed(saying(f"w-{number}"), running(f"w-{number}"), 10.0)
        scene.endings.observed(running(f"w-{number}"), finished(f"w-{number}"), 10.0)
    assert scene.endings.take_s(10.0) == 0.0
    assert scene.endings.per_second(10.0) == 100.0, "of one moment: as if they had come in a second"


def test_those_that_started_before_they_were_seen_do_not_count() -> None:
    endings = Endings(MEMORY_S)
    for number in range(200):  # a status update of each, of those that were never seen before as well
        before = running(f"w-{number}") if number % 2 else None
        endings.observed(before, running(f"w-{number}"), 10.0)
    for number in range(10):
        endings.ended(WorkloadKey(f"ns/w-{number}"), 10.0 + number / 5)
    assert (endings.per_second(12.0), endings.take_s(12.0)) == (0.0, None)


def test_one_that_has_run_for_longer_than_is_remembered_does_not_come_in_again() -> None:
    scene = Scene()
    keys = [scene.start(0.0) for _ in range(10)]
    scene.start(MEMORY_S + 1.0)
    for number, key in enumerate(keys):
        name = f"w-{number + 1}"
        scene.endings.observed(running(name), running(name), MEMORY_S + 1.0)
        scene.endings.ended(key, MEMORY_S + 2.0)
    assert scene.endings.per_second(MEMORY_S + 2.0) == 0.0


def test_without_a_memory_nothing_is_learned() -> None:
    scene = Scene(memory_s=0.0)
    scene.steadily(60.0, per_s=10.0, take_s=2.0)
    assert scene.endings.take_s(60.0) is None


STEPS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("seg"), st.floats(-5, 20)), max_size=80)


@given(STEPS, st.floats(0, 60))
def test_what_is_known_is_shorter_than_twice_the_memory_and_never_negative(
    steps: list[tuple[str, str, float]], memory_s: float
) -> None:
    """Whatever comes in whatever order, a clock that is set back included."""
    endings, now_s = Endings(memory_s), 100.0
    for name, what, later_s in steps:
        now_s += later_s
        if what == "g":
            endings.ended(WorkloadKey(f"ns/{name}"), now_s)
        else:
            endings.observed(saying(name), running(name) if what == "s" else finished(name), now_s)
        take_s = endings.take_s(now_s)
        assert take_s is None or 0.0 <= take_s < 2 * memory_s
        assert endings.take_s(now_s + 3600.0) is None


def eviction() -> Evicted:
    """Of ``low``, which runs since ``NOW_S``, for ``high``, as the engine decides it."""
    world = World()
    world.put(flavor(), cluster_queue("cq", 4, preemption=PREEMPTION), local_queue("cq"))
    world.put(workload("low", "cq", 4, priority=1))
    world.engine.cycle(NOW_S)
    world.put(workload("high", "cq", 4, priority=2))
    (found,) = (each for each in world.engine.cycle(NOW_S).made if isinstance(each, Evicted))
    return found


LOW = eviction()


class Known(Endings):
    """Ends that take so long."""

    def __init__(self, taking_s: float | None) -> None:
        super().__init__(MEMORY_S)
        self.taking_s = taking_s

    def take_s(self, now_s: float) -> float | None:
        assert now_s >= NOW_S
        return self.taking_s


def times(least_s: float, most_s: float, take_s: float | None, now_s: float, *, busy: bool = True) -> HoldTimes:
    pace = Pace()
    for step in range(100 if busy else 0):
        pace.carried_out(now_s - 5 + step / 20)
    found = HoldTimes(least_s, most_s, pace)
    found.endings = Known(take_s)
    return found


@pytest.mark.parametrize(
    ("least_s", "most_s", "take_s", "ran_s", "waited_s", "held_s"),
    [
        (0.5, 30.0, None, 1.0, 0.0, 0.5),
        (0.5, 30.0, 0.1, 1.0, 0.0, 0.5),
        (0.5, 30.0, 10.0, 1.0, 0.0, 15.0),
        (0.5, 30.0, 25.0, 1.0, 0.0, 30.0),
        (0.5, 30.0, 59.0, 1.0, 0.0, 30.0),
        (0.5, 30.0, 10.0, 1.0, 20.0, 10.0),
        (0.5, 30.0, 10.0, 1.0, 30.0, 0.0),
        (0.5, 30.0, 10.0, 31.0, 0.0, 0.5),
        (0.5, 0.0, None, 1.0, 0.0, 0.5),
        (0.5, 0.0, None, 1.0, 0.5, 0.5),
        (0.0, 30.0, 10.0, 1.0, 0.0, 0.0),
    ],
    ids=[
        "nothing is known",
        "ends are seen at once",
        "one and a half times as long as ends take",
        "but no longer than at most",
        "in which half of all may end",
        "the second time for what is left of that",
        "then not at all",
        "a victim that has run for long is not about to end",
        "policy kueue: as long as is asked for",
        "and twice",
        "zero holds nothing",
    ],
)
def test_a_hold_is_as_long_as_it_pays(
    least_s: float, most_s: float, take_s: float | None, ran_s: float, waited_s: float, held_s: float
) -> None:
    now_s = NOW_S + ran_s
    assert times(least_s, most_s, take_s, now_s).hold_s(LOW, waited_s, now_s, now_s) == pytest.approx(held_s)


@pytest.mark.parametrize(("per_s", "held_s"), [(2.0, 0.0), (5.0, 12.0)])
def test_where_many_end_it_is_not_calm_however_little_is_decided(per_s: float, held_s: float) -> None:
    scene, found = Scene(), HoldTimes(0.5, MEMORY_S, Pace())
    found.endings = scene.endings
    scene.steadily(120.0, per_s=per_s, take_s=8.0)
    low = msgspec.structs.replace(LOW, holder=msgspec.structs.replace(LOW.holder, reserved_at_s=118.0))
    assert found.hold_s(low, 0.0, 120.0, 120.0) == pytest.approx(held_s, rel=0.1)


def test_each_time_is_of_its_own_clock() -> None:
    scene, found = Scene(), HoldTimes(0.5, MEMORY_S, Pace())
    found.endings = scene.endings
    scene.steadily(120.0, per_s=5.0, take_s=8.0)
    assert found.hold_s(LOW, 0.0, NOW_S + 1.0, 120.0) == pytest.approx(12.0, rel=0.1)
    assert found.hold_s(LOW, 0.0, NOW_S + MEMORY_S + 1.0, 120.0) == 0.5, "it has run for long"
    assert found.hold_s(LOW, 0.0, NOW_S + 1.0, 140.0) == 0.0, "nothing has ended lately"


def test_under_kueues_policy_only_many_decisions_make_it_busy() -> None:
    pace = Pace()
    pace.answered(10.0, NOW_S)
    assert pace.busy(NOW_S)
    assert HoldTimes(0.5, MEMORY_S, pace).hold_s(LOW, 0.0, NOW_S, NOW_S) == 0.5
    assert HoldTimes(0.5, 0.0, pace).hold_s(LOW, 0.0, NOW_S, NOW_S) == 0.0


def test_at_the_begin_of_a_burst_the_pace_is_known_from_its_first_ends() -> None:
    scene = Scene()
    for number in range(100):
        scene.start(1000.0 + number / 50)
    for number in range(20):
        scene.endings.ended(WorkloadKey(f"ns/w-{number + 1}"), 1001.0 + number / 20)
    assert scene.endings.take_s(1002.0) == pytest.approx(80 / 20, rel=0.1)


def test_in_a_calm_cluster_nothing_is_held() -> None:
    assert times(0.5, 30.0, 10.0, NOW_S + 1.0, busy=False).hold_s(LOW, 0.0, NOW_S + 1.0, NOW_S + 1.0) == 0.0


@given(
    st.floats(0, 5), st.floats(0, 60), st.none() | st.floats(0, 100), st.floats(0, 100), st.floats(0, 3), st.booleans()
)
def test_a_preemptor_waits_no_longer_than_is_said_in_all(
    least_s: float, most_s: float, take_s: float | None, waited_s: float, ran_s: float, busy: bool
) -> None:
    now_s = NOW_S + ran_s
    held_s = times(least_s, most_s, take_s, now_s, busy=busy).hold_s(LOW, waited_s, now_s, now_s)
    assert 0.0 <= held_s < math.inf
    assert held_s == 0.0 or waited_s + held_s <= max(most_s, 2 * least_s) + 1e-9
    assert busy or held_s == 0.0
