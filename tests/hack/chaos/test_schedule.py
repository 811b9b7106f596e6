"""A seed decides a schedule, no target has two faults at once, and three minutes are enough to see something."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.chaos.faults import kinds as faults
from hack.chaos.faults.kinds import KINDS, KindName, Target
from hack.chaos.faults.nvmlcalls import NVML_CALLS, NVML_FAILURES
from hack.chaos.schedule import BURST_S, DENSE, Act, Burst, Schedule, decode, draw, encode, validate

SEEDS = st.integers(min_value=0, max_value=2**63)
MINUTES = st.floats(min_value=0, max_value=10, allow_nan=False)
SOME = st.sets(st.sampled_from(sorted(KINDS)), max_size=6)


@given(SEEDS, MINUTES, SOME)
def test_the_same_seed_gives_the_same_schedule_and_it_is_valid(seed: int, minutes: float, only: set[KindName]) -> None:
    found = draw(seed, minutes, only)
    validate(found)
    assert found == draw(seed, minutes, only)
    assert {act.kind for act in found.acts} <= (only or KINDS.keys())
    assert abs(sum(burst.lasts_s for burst in found.bursts) - minutes * 60) < 1
    assert all(burst.lasts_s <= BURST_S[1] for burst in found.bursts)


@given(SEEDS)
def test_three_minutes_have_five_kills_and_five_kinds(seed: int) -> None:
    acts = draw(seed, 3).acts
    assert sum(KINDS[act.kind].kills for act in acts) >= 5
    assert len({act.kind for act in acts}) >= 5


def test_half_an_hour_has_every_kind() -> None:
    assert {act.kind for act in draw(1, 30).acts} == KINDS.keys()


@given(SEEDS)
def test_a_dense_schedule_has_a_kill_every_few_seconds_and_leaves_each_target_time_to_be_up(seed: int) -> None:
    found = draw(seed, 10, pace=DENSE)
    validate(found)
    assert sum(KINDS[act.kind].kills for act in found.acts) >= 200
    for burst in found.bursts:
        for target in Target:
            mine = [act for act in burst.acts if target in KINDS[act.kind].targets]
            assert all(
                later.at_s - before.end_s >= DENSE.room_s - 0.15
                for before, later in pairwise(mine)
                if KINDS[before.kind].kills and KINDS[later.kind].kills
            )


def test_every_call_of_nvml_fails_and_hangs_before_one_does_again() -> None:
    for name, table in (("nvml-call-fails", NVML_FAILURES), ("nvml-hangs", NVML_CALLS)):
        acts = draw(3, 60, [KindName(name)]).acts
        chosen = [act.chosen(table) for act in acts]
        calls = [each if isinstance(each, str) else each[0] for each in chosen]
        assert len(calls) >= len(NVML_CALLS)
        assert set(calls[: len(NVML_CALLS)]) == set(NVML_CALLS)


def test_another_seed_gives_another_schedule() -> None:
    assert draw(1, 3).acts != draw(2, 3).acts


@given(SEEDS, MINUTES)
def test_a_schedule_is_read_back_from_its_file(seed: int, minutes: float) -> None:
    found = draw(seed, minutes)
    assert decode(encode(found)) == found


@given(SEEDS, st.sets(st.integers(min_value=0, max_value=30)))
def test_a_part_of_a_schedule_keeps_its_acts_and_their_times(seed: int, places: set[int]) -> None:
    whole = draw(seed, 5)
    part = whole.keep(places)
    validate(part)
    assert part.acts == [act for place, act in enumerate(whole.acts) if place in places]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "found no schedule"),
        (b'{"seed": 1, "bursts": 3}', "found no schedule"),
        (encode(Schedule(1, (Burst(60, (Act(1, KindName("flood"), 1, 0),)),))), "kind: found 'flood'"),
        (encode(Schedule(1, (Burst(60, (Act(59, KindName("kill-agent"), 5, 0),)),))), "outside of its burst"),
        (
            encode(
                Schedule(1, (Burst(60, (Act(1, KindName("kill-agent"), 5, 0), Act(3, KindName("stop-agent"), 5, 0))),))
            ),
            "two acts on agent",
        ),
    ],
)
def test_a_file_that_is_no_schedule_is_refused_in_one_line(text: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        decode(text)
    assert "\n" not in str(refused.value)


def test_the_table_has_the_kinds_that_a_campaign_needs() -> None:
    faults.validate()
    assert len(KINDS) >= 24
