"""What the net of repairs takes for more than the budget, and that it is silent on the product."""

import asyncio

import pytest

from hack.planted.nets import grants
from hack.planted.nets.grants import Granted, over_budget

FLAVORS = {"n1": "h100", "n2": "h100", "n3": "a100"}


def test_a_second_gpu_of_a_flavor_within_the_window_is_beyond_a_budget_of_one() -> None:
    found = over_budget([Granted(0.0, "n1", "A"), Granted(9.0, "n2", "B")], FLAVORS, window_s=10.0)
    assert found == [
        "over-budget: ResourceFlavor h100: B was granted a step within 10 s of A, and the budget is 1",
    ]


@pytest.mark.parametrize(
    "history",
    [
        [Granted(0.0, "n1", "A"), Granted(10.0, "n2", "B")],
        [Granted(0.0, "n1", "A"), Granted(1.0, "n3", "B")],
        [Granted(0.0, "n1", "A"), Granted(1.0, "n1", "A")],
        [],
    ],
    ids=["after the window", "another flavor", "its next step", "nothing"],
)
def test_what_the_budget_has_room_for_is_no_finding(history: list[Granted]) -> None:
    assert over_budget(history, FLAVORS, window_s=10.0) == []


def test_a_budget_of_two_takes_two() -> None:
    history = [Granted(float(at), "n1", gpu) for at, gpu in enumerate("AB")]
    assert over_budget(history, FLAVORS, budget=2) == []
    assert len(over_budget([*history, Granted(3.0, "n2", "C")], FLAVORS, budget=2)) == 1


def test_two_controllers_after_one_another_keep_one_budget() -> None:
    assert asyncio.run(grants.judged()) == []
