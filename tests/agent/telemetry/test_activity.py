import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kubelet.containers import PodContainer
from agent.telemetry.activity import WARM_S, ActivityLog, Use

A = PodContainer("team", "a", "main")


def watched(*looks: tuple[float, bool, float]) -> ActivityLog[str]:
    """Looks as (time, active, memory)."""
    log: ActivityLog[str] = ActivityLog()
    for now_s, active, memory_mib in looks:
        log.observe("gpu", A, active=active, memory_mib=memory_mib, now_s=now_s)
        log.validate()
    return log


@pytest.mark.parametrize(
    ("looks", "use", "idle_s"),
    [
        ([(0, True, 9)], Use.ACTIVE, 0),
        ([(0, True, 9), (15, False, 9)], Use.WARM, 15),
        ([(0, True, 9), (WARM_S - 1, False, 9)], Use.WARM, WARM_S - 1),
        ([(0, True, 9), (WARM_S, False, 9)], Use.HELD, WARM_S),
        ([(0, False, 0), (WARM_S, False, 0)], Use.EMPTY, WARM_S),
        ([(0, False, 9), (WARM_S, False, 9), (WARM_S + 15, True, 9)], Use.ACTIVE, 0),
        ([(0, False, 9), (60, True, 9), (WARM_S + 15, False, 9)], Use.WARM, WARM_S - 45),
    ],
)
def test_idle_in_four_ways(looks: list[tuple[float, bool, float]], use: Use, idle_s: float) -> None:
    found = watched(*looks).of("gpu", A)
    assert found is not None
    assert (found.use, found.idle_s) == (use, idle_s)


@pytest.mark.parametrize(
    ("memory_mib", "occupied", "use"),
    [
        (44, False, Use.EMPTY),
        (127, False, Use.EMPTY),
        (128, False, Use.WARM),
        (44, True, Use.WARM),
        (0, True, Use.EMPTY),
    ],
)
def test_what_the_driver_itself_holds_of_a_device_is_not_a_programs(
    memory_mib: float, occupied: bool, use: Use
) -> None:
    log: ActivityLog[str] = ActivityLog()
    log.observe("gpu", A, active=False, memory_mib=memory_mib, now_s=1.0, occupied=occupied)
    found = log.of("gpu", A)
    assert found is not None
    assert found.use is use


@given(st.lists(st.tuples(st.floats(0, 1e5), st.booleans(), st.floats(0, 1e5)), max_size=20))
def test_what_was_seen_always_fits_together(looks: list[tuple[float, bool, float]]) -> None:
    watched(*sorted(looks))


def test_who_is_gone_is_forgotten() -> None:
    log = watched((0, True, 1))
    log.keep({("gpu", A)})
    assert len(log) == 1
    log.keep(set())
    assert len(log) == 0
    assert log.of("gpu", A) is None
