"""Whatever workloads get and give back: a queue goes beyond its floor only where it may."""

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from controller.insight.simulation.pools.floors import Floors
from controller.scheduler.flavors.spot import floor_of, floor_problem
from controller.scheduler.model.resources import WorkloadKey

A, B, C = (WorkloadKey(f"ns/{name}") for name in "abc")
KEY = "tessera.dev/on-demand-floor"


def test_what_is_on_demand_opens_spot_to_others() -> None:
    floors = Floors({"q": 0.25}, {A: ("q",), B: ("q",)})
    assert not floors.may_take_spot(A, 1), "nothing is on demand yet"
    assert floors.may_take_spot(C, 100), "its queues have no floor"
    floors.take(A, on_demand=8, spot=0)
    assert floors.may_take_spot(B, 24)
    assert not floors.may_take_spot(B, 25)
    floors.take(B, on_demand=0, spot=24)
    floors.validate()
    floors.give_back(B)
    assert floors.may_take_spot(B, 24)


@pytest.mark.parametrize(("text", "part"), [("25%", 0.25), ("0%", 0.0), ("100%", 1.0), ("12.5%", 0.125)])
def test_a_floor_is_a_percentage(text: str, part: float) -> None:
    assert (floor_of({KEY: text}), floor_problem({KEY: text})) == (part, "")


@pytest.mark.parametrize("text", ["25", "101%", "-1%", "", "a%", "1 %"])
def test_anything_else_is_refused(text: str) -> None:
    assert 'expected a percentage from "0%" to "100%"' in floor_problem({KEY: text})
    assert floor_of({KEY: text}) == 0.0
    assert floor_problem({}) == ""


@settings(max_examples=100, deadline=None)
@drawn(
    st.floats(0.01, 1.0),
    st.lists(st.tuples(st.integers(0, 7), st.integers(1, 16), st.booleans()), max_size=30),
)
def test_a_queue_that_only_takes_what_it_may_keeps_its_floor(part: float, steps: list[tuple[int, int, bool]]) -> None:
    keys = [WorkloadKey(f"ns/{number}") for number in range(8)]
    floors = Floors({"q": part}, dict.fromkeys(keys, ("q",)))
    held: dict[WorkloadKey, tuple[int, bool]] = {}
    for number, gpus, leaves in steps:
        key = keys[number]
        if leaves or key in held:
            floors.give_back(key)
            held.pop(key, None)
        else:
            spot = floors.may_take_spot(key, gpus)
            floors.take(key, 0 if spot else gpus, gpus if spot else 0)
            held[key] = (gpus, spot)
            total = sum(each for each, _ in held.values())
            on_demand = sum(each for each, on_spot in held.values() if not on_spot)
            assert not spot or on_demand >= part * total - 1e-6
        floors.validate()
