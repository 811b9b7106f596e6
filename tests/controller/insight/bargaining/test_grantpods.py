"""Pods inside of a grant: as many start as it has units for, and no unit is two pods'."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.insight.bargaining.grantpods import Grant, Inside, inside
from controller.jobs.framework.podview import SeenPod
from controller.scheduler.model.resources import ResourceName
from inventory.api.names import GRANTED_UNITS

GPU = ResourceName("nvidia.com/gpu")
GATED = [{"name": "kueue.x-k8s.io/admission"}]


def grant(units: int = 4, places: tuple[tuple[str, ...], ...] | None = None, begins_s: float = 0.0) -> Grant:
    return Grant(
        name="ask",
        units=units,
        places=((),) * units if places is None else places,
        unit={GPU: 1},
        counted=frozenset({GPU, "cpu"}),
        begins_s=begins_s,
    )


def pod(name: str, gpus: int = 1, *, units: str | None = None, phase: str = "Pending", **more: str) -> SeenPod:
    requests = {"nvidia.com/gpu": str(gpus), **more}
    notes = {} if units is None else {GRANTED_UNITS: units}
    container = {"name": "main", "resources": {"requests": requests}}
    body: dict[str, Any] = {
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": notes},
        "spec": {"containers": [container], "schedulingGates": GATED if units is None else []},
        "status": {"phase": phase},
    }
    return SeenPod(body)


def started(found: Inside) -> dict[str, str]:
    return {each.pod.name: each.note for each in found.start}


def test_pods_start_from_the_oldest_on_while_there_are_units() -> None:
    found = inside(grant(3), [pod("a", 2), pod("b", 2), pod("c")], 0.0)
    assert started(found) == {"a": "0,1", "c": "2"}
    assert found.used == 3
    ((waits, why),) = found.waits
    assert (waits.name, why) == ("b", "Runs inside of CapacityRequest ask: needs 2 units, 1 free")


def test_units_of_pods_that_run_are_taken_and_of_those_that_ended_are_free() -> None:
    there = [pod("runs", units="1", phase="Running"), pod("over", units="0", phase="Succeeded"), pod("new", 2)]
    found = inside(grant(3), there, 0.0)
    assert started(found) == {"new": "0,2"}


def test_a_pod_larger_than_the_grant_or_beside_its_unit_says_so() -> None:
    found = inside(grant(2), [pod("large", 3), pod("more", 1, cpu="4")], 0.0)
    said = {each.name: why for each, why in found.waits}
    assert said["large"].startswith("Needs 3 units, and CapacityRequest ask has 2 in all")
    assert said["more"].startswith("CapacityRequest ask holds no cpu")


def test_units_that_begin_later_start_nothing_before() -> None:
    assert not inside(grant(begins_s=10.0), [pod("a")], 9.0).start
    assert inside(grant(begins_s=10.0), [pod("a")], 10.0).start


def test_units_of_one_pod_are_at_one_place() -> None:
    places = (("n1",), ("n2",), ("n2",))
    (start,) = inside(grant(3, places), [pod("a", 2)], 0.0).start
    assert (start.units, start.place) == ((1, 2), ("n2",))


def test_fewer_units_than_are_held_bound_what_starts() -> None:
    made = Grant(name="ask", units=1, places=((), ()), unit={GPU: 1}, counted=(), begins_s=0.0)
    assert len(inside(made, [pod("a"), pod("b")], 0.0).start) == 1


@given(
    st.integers(1, 6),
    st.lists(st.integers(0, 3), max_size=8),
    st.lists(st.integers(0, 9), max_size=4),
)
def test_no_unit_is_two_pods_and_what_runs_keeps_its_own(units: int, asked: list[int], claimed: list[int]) -> None:
    running = [pod(f"r{number}", units=str(unit), phase="Running") for number, unit in enumerate(claimed)]
    waiting = [pod(f"w{number}", gpus) for number, gpus in enumerate(asked)]
    found = inside(grant(units), [*running, *waiting], 0.0)
    given = [unit for each in found.start for unit in each.units]
    assert len(given) == len(set(given))
    assert not set(given) & set(claimed)
    assert found.used <= units
    assert len(found.start) + len(found.waits) == len(waiting)
