"""Interruptions per node-day: what is counted, over which time, and what the next leader knows of it."""

from dataclasses import dataclass, field
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.reconcile.failures.interruptioncounts import (
    MOST_NAMED,
    STEPS,
    FlavorRate,
    InterruptionCounts,
    InterruptionRecord,
    read_record,
    written,
)
from controller.scheduler.model.config import InterruptionRules
from inventory.api.names import INTERRUPTED_OFTEN, INTERRUPTION_RATE, INTERRUPTIONS

DAY_S, HOUR_S, START_S = 86400.0, 3600.0, 1_767_636_000.0
SPOT, FIXED = {"pool": "spot"}, {"pool": "fixed"}


def counts_of(nodes: int = 2, *, age_s: float = 0.0, too_often: float = 1.0) -> InterruptionCounts:
    """Flavors spot and fixed; ``nodes`` of spot, which were made ``age_s`` before the start."""
    counts = InterruptionCounts(InterruptionRules(too_often=too_often))
    counts.set_flavor("spot", SPOT, InterruptionRecord())
    counts.set_flavor("fixed", FIXED, InterruptionRecord())
    for number in range(nodes):
        counts.set_node(f"n{number}", SPOT, START_S - age_s, START_S)
    return counts


def rate(counts: InterruptionCounts, after_s: float = 0.0, flavor: str = "spot") -> tuple[int, float, bool]:
    found = counts.rate(flavor, START_S + after_s)
    counts.validate()
    return found.interruptions, round(found.node_days, 3), found.is_often


def test_a_departure_is_counted_once_whatever_signs_follow_each_other() -> None:
    counts = counts_of(age_s=DAY_S)
    assert counts.count("n0", START_S) == ("spot",)
    assert counts.count("n0", START_S + 5) == (), "it is deleted now, as its taint announced"
    assert rate(counts) == (1, 2.0, False)
    counts.stays("n0")
    assert counts.count("n0", START_S + 60) == ("spot",), "it had stayed, and leaves again"
    assert rate(counts, flavor="fixed") == (0, 1.0, False)


def test_a_node_of_the_same_name_is_another_one() -> None:
    counts = counts_of(age_s=DAY_S)
    counts.count("n0", START_S)
    counts.set_node("n0", SPOT, START_S + 60, START_S + 60)
    assert counts.count("n0", START_S + 120) == ("spot",)
    assert rate(counts, 120)[0] == 2


def test_a_node_counts_for_each_flavor_that_selects_it_and_one_of_no_flavor_for_none() -> None:
    counts = counts_of(0)
    counts.set_flavor("any", {}, InterruptionRecord())
    counts.set_node("both", {**SPOT, "zone": "a"}, START_S, START_S)
    assert counts.count("both", START_S) == ("any", "spot")
    assert counts.count("unknown", START_S) == ()


def test_young_nodes_count_for_a_day_together_and_old_ones_for_the_window() -> None:
    counts = counts_of(4, age_s=HOUR_S)
    counts.count("n0", START_S)
    assert rate(counts) == (1, 1.0, False), "one node that is lost soon says little"
    counts.count("n1", START_S)
    assert rate(counts) == (2, 1.0, True), "two in a node-day are more than one"
    assert rate(counts, 11 * HOUR_S) == (2, 2.0, False), "four nodes for half a day"
    old = counts_of(2, age_s=30 * DAY_S)
    old.count("n0", START_S)
    assert old.rate("spot", START_S).node_days == pytest.approx(2, abs=2 / STEPS)


def test_nodes_that_have_gone_were_there() -> None:
    counts = counts_of(3, age_s=12 * HOUR_S)
    for number in range(3):
        counts.count(f"n{number}", START_S)
        counts.drop_node(f"n{number}", START_S)
    assert rate(counts) == (3, 1.5, True)
    assert rate(counts, 6 * HOUR_S) == (3, 1.5, True)
    found = counts.rate("spot", START_S + 18 * HOUR_S)
    assert found.node_days == 1.0, "half of that time has left the window"


def test_it_is_over_a_window_after_the_last_one() -> None:
    counts = counts_of(age_s=HOUR_S)
    counts.count("n0", START_S)
    counts.count("n1", START_S)
    assert rate(counts, 23 * HOUR_S)[0] == 2
    assert not counts.is_idle
    counts.prune(START_S + 26 * HOUR_S)
    assert rate(counts, 26 * HOUR_S) == (0, 1.0, False)


@pytest.mark.parametrize(("too_often", "is_often"), [(0.0, False), (1.5, True), (2.0, False)])
def test_the_limit_is_the_configurations_and_0_is_none(too_often: float, *, is_often: bool) -> None:
    counts = counts_of(age_s=HOUR_S, too_often=too_often)
    counts.count("n0", START_S)
    counts.count("n1", START_S)
    assert rate(counts) == (2, 1.0, is_often)


# -- annotations -----------------------------------------------------------------------------------------------------


def shown(
    counts: InterruptionCounts, before: dict[str, str], now_s: float, *, refresh: bool = False, flavor: str = "spot"
) -> dict[str, str]:
    """The flavor's annotations after what is due was written."""
    due = counts.due(flavor, before, now_s, refresh=refresh)
    return {key: text for key, text in {**before, **due}.items() if text is not None}


def test_a_flavor_says_how_often_and_whether_that_is_too_often() -> None:
    counts = counts_of(age_s=HOUR_S)
    assert shown(counts, {}, START_S, refresh=True) == {}
    counts.count("n0", START_S)
    notes = shown(counts, {"mine": "stays"}, START_S)
    assert notes == {
        "mine": "stays",
        INTERRUPTIONS: '{"steps":{"2026-01-05T18:00:00Z":[1,0.0]},"counted":{"n0":"2026-01-05T18:00:00Z"}}',
        INTERRUPTION_RATE: "1.00",
    }
    assert counts.due("spot", notes, START_S + 600, refresh=False) == {}, "nothing has happened"
    counts.count("n1", START_S + 600)
    notes = shown(counts, notes, START_S + 600)
    assert notes[INTERRUPTED_OFTEN] == notes[INTERRUPTION_RATE] == "2.00"
    later_s = START_S + 26 * HOUR_S
    for name in ("n0", "n1"):
        counts.stays(name)
    counts.prune(later_s)
    assert shown(counts, notes, later_s) == {"mine": "stays"}


def test_the_time_of_nodes_that_went_is_written_now_and_then_alone() -> None:
    counts = counts_of(age_s=DAY_S)
    counts.drop_node("n0", START_S)
    assert counts.due("spot", {}, START_S, refresh=False) == {}
    notes = shown(counts, {}, START_S, refresh=True)
    assert set(notes) == {INTERRUPTIONS}, "no rate: none was taken away"
    assert sum(gone_s for _, gone_s in read_record(notes[INTERRUPTIONS]).steps.values()) == DAY_S


def test_the_next_leader_counts_on_and_no_departure_twice() -> None:
    counts = counts_of(age_s=HOUR_S)
    counts.count("n0", START_S)
    notes = shown(counts, {}, START_S)
    after = InterruptionCounts(InterruptionRules())
    after.set_node("n0", SPOT, START_S - HOUR_S, START_S)
    after.set_node("n1", SPOT, START_S - HOUR_S, START_S)
    after.set_flavor("spot", SPOT, read_record(notes[INTERRUPTIONS]))
    assert after.count("n0", START_S + 20) == (), "it still leaves"
    assert after.count("n1", START_S + 20) == ("spot",)
    assert rate(after, 20) == (2, 1.0, True)
    after.set_flavor("spot", SPOT, read_record(notes[INTERRUPTIONS]))
    assert rate(after, 20)[0] == 2, "the echo of what was written counts nothing"


def test_a_node_that_is_gone_is_in_no_record_of_the_next_leader() -> None:
    counts = counts_of(age_s=HOUR_S)
    counts.count("n0", START_S)
    notes = shown(counts, {}, START_S)
    after = InterruptionCounts(InterruptionRules())
    after.set_flavor("spot", SPOT, read_record(notes[INTERRUPTIONS]))
    after.set_flavor("other", {"pool": "other"}, InterruptionRecord())
    after.forget_gone()
    after.validate()
    assert [dict(after.record(name, START_S + 20).counted) for name in ("spot", "other")] == [{}, {}]
    assert rate(after, 20)[0] == 1, "the departure counts on"


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        '{"steps": {"yesterday": [1, 0]}}',
        '{"steps": {"2026-01-05T18:00:00Z": [-1, 0]}}',
        '{"steps": {"2026-01-05T18:00:00Z": [1, -5]}}',
        '{"steps": {"2026-01-05T18:00:00Z": [1.5, 0]}}',
        '{"counted": {"n": 5}}',
        "[" * 1000,
        '{"counted": {' + '"n": "2026-01-05T18:00:00Z",' * 5000,
    ],
)
def test_a_record_that_others_wrote_counts_nothing(text: str | None) -> None:
    assert read_record(text) == InterruptionRecord()


def test_a_record_is_small_however_much_happens() -> None:
    counts = counts_of(0)
    for number in range(5000):
        counts.set_node(f"{'spot-node-of-a-long-name' * 2}-{number}", SPOT, START_S, START_S)
        counts.count(f"{'spot-node-of-a-long-name' * 2}-{number}", START_S + number)
    record = counts.record("spot", START_S + 5000)
    assert sum(interruptions for interruptions, _ in record.steps.values()) == 5000
    assert len(record.counted) == MOST_NAMED
    assert len(written(record)) < 20_000
    assert read_record(written(record)) == record


# -- any history -------------------------------------------------------------------------------------------------------


@dataclass
class Told:
    """What happened, without steps: departures by flavor, and the lives of nodes."""

    departures: list[tuple[float, str]] = field(default_factory=list)
    lives: list[tuple[float, float | None, str]] = field(default_factory=list)
    """Created, gone (None: it is there) and pool."""

    def rate(self, pool: str, rules: InterruptionRules, now_s: float) -> FlavorRate:
        width_s = max(1, round(rules.window_s / STEPS))
        since_s = floor((now_s - rules.window_s) / width_s) * width_s
        number = sum(of == pool and at_s >= since_s for at_s, of in self.departures)
        seconds = 0.0
        for created_s, gone_s, of in self.lives:
            if of == pool and number:
                seconds += max(0.0, (now_s if gone_s is None else gone_s) - max(created_s, since_s))
        days = max(1.0, seconds / DAY_S)
        return FlavorRate(interruptions=number, node_days=days, is_often=0 < rules.too_often < number / days)


STEP = st.tuples(
    st.sampled_from(("come", "leave", "leave", "stay", "go", "restart")),
    st.integers(0, 5),
    st.sampled_from(("spot", "fixed")),
    st.floats(0.0, 4 * HOUR_S),
)


@given(st.lists(STEP, max_size=40), st.sampled_from((HOUR_S, 5000.0, DAY_S)), st.sampled_from((0.0, 0.5, 3.0)))
def test_whatever_happens_the_counts_are_those_of_the_history_under_any_leader(
    steps: list[tuple[str, int, str, float]], window_s: float, too_often: float
) -> None:
    rules, told, now_s = InterruptionRules(window_s=window_s, too_often=too_often), Told(), START_S
    notes: dict[str, dict[str, str]] = {"spot": {}, "fixed": {}}
    there: dict[str, tuple[float, str]] = {}
    leaving: set[str] = set()

    def begun() -> InterruptionCounts:
        counts = InterruptionCounts(rules)
        for name, (created_s, pool) in there.items():
            counts.set_node(name, {"pool": pool}, created_s, now_s)
        for pool, said in notes.items():
            counts.set_flavor(pool, {"pool": pool}, read_record(said.get(INTERRUPTIONS)))
        for name in there.keys() - leaving:
            counts.stays(name)
        return counts

    counts = begun()
    for what, number, pool, after_s in steps:
        now_s, name = now_s + floor(after_s), f"n{number}"
        match what:
            case "come" if name not in there:
                there[name] = (now_s, pool)
                counts.set_node(name, {"pool": pool}, now_s, now_s)
            case "leave" if name in there:
                if name not in leaving:
                    told.departures.append((now_s, there[name][1]))
                leaving.add(name)
                counts.count(name, now_s)
            case "stay":
                leaving.discard(name)
                counts.stays(name)
            case "go" if name in there:
                created_s, of = there.pop(name)
                told.lives.append((created_s, now_s, of))
                leaving.discard(name)
                counts.drop_node(name, now_s)
            case "restart":
                notes = {of: shown(counts, said, now_s, refresh=True, flavor=of) for of, said in notes.items()}
                counts = begun()
        counts.prune(now_s)
        counts.validate()
        compare(counts, told, there, now_s)


def compare(counts: InterruptionCounts, told: Told, there: dict[str, tuple[float, str]], now_s: float) -> None:
    known = Told(told.departures, [*told.lives, *((created_s, None, of) for created_s, of in there.values())])
    for of in ("spot", "fixed"):
        found, expected = counts.rate(of, now_s), known.rate(of, counts.rules, now_s)
        assert found.interruptions == expected.interruptions
        assert found.node_days == pytest.approx(expected.node_days, abs=1e-4)
