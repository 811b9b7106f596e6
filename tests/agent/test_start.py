"""The agent's start: what is advertised, and when the node is ready, in whatever order things are learned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.start import STEPS, Learned, Phase, Start

FOUND, ADOPTED, MEASURED, NO_DRIVER = Learned.FOUND, Learned.ADOPTED, Learned.MEASURED, Learned.NO_DRIVER


def after(checkpoint_driver: str | None, *learned: Learned) -> Start:
    start = Start(checkpoint_driver)
    for one in learned:
        if one is FOUND:
            start.found("570")
        else:
            start.learn(one)
        start.validate()
    return start


def test_without_a_checkpoint_nothing_is_advertised_before_layouts_are_in_force() -> None:
    assert (after(None).unready, after(None).advertises) == ("NVML has not answered yet", False)
    held_back = after(None, FOUND)
    assert (held_back.phase, held_back.unready, held_back.advertises) == (Phase.HELD_BACK, None, False)
    assert after(None, FOUND, FOUND, FOUND).phase is Phase.HELD_BACK
    assert after(None, FOUND, ADOPTED).advertises


def test_a_node_without_a_driver_is_ready_with_nothing() -> None:
    start = after(None, NO_DRIVER)
    assert (start.unready, start.advertises, start.discovered) == (None, False, False)
    assert after(None, NO_DRIVER, FOUND, ADOPTED).phase is Phase.SERVING


def test_a_checkpoint_is_advertised_at_once_and_until_what_was_found_is_taken_in() -> None:
    assert after("570").advertises
    assert after("570", NO_DRIVER).phase is Phase.RESTORED
    adopting = after("570", FOUND, FOUND)
    assert (adopting.phase, adopting.advertises, adopting.discovered) == (Phase.ADOPTING, True, False)
    assert after("570", FOUND, ADOPTED).discovered


@pytest.mark.parametrize(("restored", "over"), [(None, False), ("570", False), ("565", True)])
def test_health_starts_over_once_where_the_checkpoint_is_of_another_driver(restored: str | None, over: bool) -> None:
    start = Start(restored)
    assert start.found("570") is over
    assert start.found("575") is False


def test_the_start_is_over_once_and_only_after_both() -> None:
    start = after(None, MEASURED, FOUND, MEASURED, ADOPTED)
    assert start.phase is Phase.SERVING
    assert start.learn(MEASURED)
    assert not start.learn(MEASURED)


@given(st.sampled_from([None, "565", "570"]), st.lists(st.sampled_from(Learned), max_size=12))
def test_in_any_order_it_never_goes_back(restored: str | None, learned: list[Learned]) -> None:
    start, seen = Start(restored), [Start(restored).phase]
    for one in learned:
        before = (start.advertises, start.discovered, start.unready is None)
        if one is FOUND:
            start.found("570")
        else:
            start.learn(one)
        start.validate()
        now = (start.advertises, start.discovered, start.unready is None)
        assert all(was <= is_now for was, is_now in zip(before, now, strict=True)), "a step back"
        if start.phase is not seen[-1]:
            assert start.phase not in seen, "a phase twice"
            seen.append(start.phase)


def test_every_phase_is_reached_and_only_the_last_is_final() -> None:
    assert {Phase.BLIND, Phase.RESTORED, *STEPS.values()} == set(Phase)
    assert set(Phase) - {phase for phase, _ in STEPS} == {Phase.SETTLED}
