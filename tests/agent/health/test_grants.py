"""A grant holds for one ask of one GPU, for ten minutes, and no ask is made twice under one generation."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agent.health.grants import MOST_AHEAD, Ask, AskFor, Asks, Grant
from inventory.api.gpunode import GRANT_LASTS_S
from inventory.devices import GpuUuid

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")


def grant(generation: int, action: str = "reset", granted_s: float = 0.0, gpu: GpuUuid = A) -> Grant:
    return Grant(gpu=gpu, generation=generation, action=action, granted_s=granted_s)


def asking(action: AskFor = AskFor.RESET, now_s: float = 0.0) -> Asks:
    asks = Asks()
    assert asks.ask(A, action, now_s)
    return asks


def lets(asks: Asks, now_s: float) -> bool:
    ask = asks.get(A)
    return ask is not None and ask.lets(AskFor.RESET, now_s)


def test_a_grant_lets_what_was_asked_until_it_lapses() -> None:
    asks = asking()
    assert not lets(asks, 1.0)
    assert asks.granted([grant(1, granted_s=1.0)], 3.0)
    assert lets(asks, 1.0 + GRANT_LASTS_S - 0.1)
    assert not lets(asks, 1.0 + GRANT_LASTS_S)


def test_after_it_has_lapsed_it_is_asked_anew_and_the_old_grant_is_worth_nothing() -> None:
    asks = asking()
    asks.granted([grant(1)], 0.0)
    assert not asks.lapse(GRANT_LASTS_S - 1)
    assert asks.lapse(GRANT_LASTS_S)
    assert not asks.granted([grant(1, granted_s=GRANT_LASTS_S)], GRANT_LASTS_S + 1)
    ask = asks.get(A)
    assert ask is not None
    assert (ask.generation, lets(asks, GRANT_LASTS_S + 2)) == (2, False)
    assert asks.granted([grant(2, granted_s=GRANT_LASTS_S)], GRANT_LASTS_S + 3)
    assert lets(asks, GRANT_LASTS_S + 4)


def test_a_grant_that_came_too_late_is_asked_for_anew() -> None:
    asks = asking()
    assert not asks.granted([grant(1)], GRANT_LASTS_S)
    assert not lets(asks, GRANT_LASTS_S)
    assert asks.lapse(GRANT_LASTS_S)
    assert asks.granted([grant(1), grant(2, granted_s=GRANT_LASTS_S)], GRANT_LASTS_S + 1)
    assert lets(asks, GRANT_LASTS_S + 2)


def test_a_grant_by_a_clock_that_is_ahead_lapses_by_ours() -> None:
    asks = asking()
    asks.granted([grant(1, granted_s=300.0)], 0.0)
    assert lets(asks, GRANT_LASTS_S - 1)
    asks.granted([grant(1, granted_s=590.0)], 500.0)
    assert not lets(asks, GRANT_LASTS_S), "it is not longer for being written again"


def test_what_is_no_grant_of_this_ask_is_ignored() -> None:
    others = [
        grant(2),
        grant(0),
        grant(-1),
        grant(1, action="drain"),
        grant(1, action="anything"),
        grant(1, gpu=B),
        grant(1, granted_s=-GRANT_LASTS_S),
        grant(1, granted_s=GRANT_LASTS_S),
        grant(1, granted_s=float("inf")),
        grant(1, granted_s=float("nan")),
        grant(2**53),
    ]
    for each in others:
        asks = asking()
        assert not asks.granted([each], 0.0), each
        assert not lets(asks, 0.0), each


def test_numbers_do_not_run_out_by_a_hostile_grant() -> None:
    asks = asking()
    asks.granted([grant(2**53), grant(1 + MOST_AHEAD + 1)], 0.0)
    asks.used(A)
    asks.ask(A, AskFor.RESET, 1.0)
    assert asks.get(A) == Ask(action=AskFor.RESET, generation=2)


def test_a_generation_that_somebody_granted_is_not_used_again() -> None:
    asks = Asks()
    asks.granted([grant(7, granted_s=0.0)], 1.0)
    asks.ask(A, AskFor.RESET, 2.0)
    assert not asks.granted([grant(7, granted_s=0.0)], 3.0)
    ask = asks.get(A)
    assert ask is not None
    assert ask.generation == 8


def test_what_is_withdrawn_lets_nothing_and_stands_again_with_its_grant() -> None:
    asks = asking()
    asks.granted([grant(1)], 0.0)
    assert asks.withdraw(A)
    assert not asks.withdraw(A)
    assert not lets(asks, 1.0)
    assert asks.ask(A, AskFor.RESET, 2.0)
    assert lets(asks, 3.0)


def test_another_action_and_a_used_grant_take_another_generation() -> None:
    asks = asking(AskFor.DRAIN)
    asks.granted([grant(1, "drain")], 0.0)
    asks.ask(A, AskFor.RESET, 1.0)
    assert not lets(asks, 1.0)
    asks.granted([grant(2)], 1.0)
    asks.used(A)
    assert asks.get(A) is None
    asks.ask(A, AskFor.RESET, 2.0)
    assert not asks.granted([grant(1, "drain"), grant(2)], 2.0)
    assert asks.get(A) == Ask(action=AskFor.RESET, generation=3)


STEPS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(AskFor)),
    st.tuples(st.just("withdraw"), st.none()),
    st.tuples(st.just("used"), st.none()),
    st.tuples(st.just("granted"), st.tuples(st.integers(-1, 12), st.sampled_from(AskFor), st.floats(-2000, 2000))),
    st.tuples(st.just("passes"), st.sampled_from([1.0, 300.0, 700.0])),
    st.tuples(st.just("restart"), st.none()),
)


@hypothesis_settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_no_generation_is_asked_for_two_actions_nor_let_twice(steps: list[tuple[str, Any]]) -> None:
    asks, now_s = Asks(), 0.0
    actions: dict[int, AskFor] = {}
    used: set[int] = set()
    given_s: dict[int, float] = {}
    for step, value in steps:
        before = asks.get(A)
        match step:
            case "ask":
                asks.ask(A, value, now_s)
            case "withdraw":
                asks.withdraw(A)
            case "used":
                used |= set() if before is None else {before.generation}
                asks.used(A)
            case "granted":
                generation, action, ago_s = value
                asks.granted([grant(generation, action.value, now_s - ago_s)], now_s)
            case "passes":
                now_s += value
                asks.lapse(now_s)
            case "restart":
                found, last = msgspec.json.decode(
                    msgspec.json.encode(asks.snapshot()), type=tuple[dict[GpuUuid, Ask], dict[GpuUuid, int]]
                )
                asks = Asks()
                asks.restore(found, last)
        asks.validate()
        ask = asks.get(A)
        if ask is None:
            continue
        assert actions.setdefault(ask.generation, ask.action) is ask.action
        assert ask.generation not in used, "a generation that was used is asked for again"
        if ask.lets(AskFor.RESET, now_s):
            first_s = given_s.setdefault(ask.generation, now_s)
            assert now_s - first_s < GRANT_LASTS_S, "a grant holds longer than it may"
