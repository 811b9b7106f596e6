"""What a workload loses if it stops now, by what it says of its checkpoints."""

from datetime import UTC, datetime, timedelta, timezone
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.core import PodSpec, PodTemplateSpec
from controller.objects.workload import PodSet
from controller.scheduler.model.config import MAX_GRACE_S, VictimOrder
from controller.scheduler.preemption.moves import price_of
from controller.scheduler.preemption.price import (
    MOST_RESTART_S,
    Checkpoints,
    checkpoints_of,
    kept_s,
    lost_s,
    restart_s,
)
from inventory.api.names import CHECKPOINT_GRACE, CHECKPOINT_INTERVAL, LAST_CHECKPOINT, RESTART_COST
from tests.support.engine.preemptionlab import NOW_S, Lab

START_S, NOW = 1000.0, 4600.0
KEYS = {"last": LAST_CHECKPOINT, "interval": CHECKPOINT_INTERVAL, "grace": CHECKPOINT_GRACE, "restart": RESTART_COST}


def told(**annotations: str) -> Checkpoints | None:
    keys = {
        "last": LAST_CHECKPOINT,
        "interval": CHECKPOINT_INTERVAL,
        "grace": CHECKPOINT_GRACE,
        "restart": RESTART_COST,
    }
    return checkpoints_of({keys[name]: text for name, text in annotations.items()})


def at(seconds: float, zone: timezone = UTC) -> str:
    return datetime.fromtimestamp(seconds, zone).isoformat()


@pytest.mark.parametrize(
    ("annotations", "lost"),
    [
        ({}, 3600),
        ({"restart": "5m"}, 3600),
        ({"interval": "25m"}, 600),
        ({"interval": "2h"}, 3600),
        ({"interval": "0"}, 0),
        ({"last": at(4000)}, 600),
        ({"last": at(4000), "interval": "25m"}, 600),
        ({"last": at(2600), "interval": "25m"}, 2000),
        ({"last": at(1000)}, 3600),
        ({"grace": "90s"}, 0),
        ({"grace": "90s", "last": at(2600), "interval": "25m"}, 0),
    ],
)
def test_the_last_checkpoint_told_counts_then_multiples_of_the_interval_then_the_start(
    annotations: dict[str, str], lost: float
) -> None:
    assert lost_s(told(**annotations), START_S, NOW) == lost


@pytest.mark.parametrize(
    "last",
    [
        at(4601),
        at(999),
        at(4000).replace("+00:00", ""),
        "4000",
        "yesterday",
        "2026-13-01T00:00:00Z",
        "2026-W01-1T00:00:00Z",
        "1970-01-01T01:06:40Z" + " " * 99,
        "",
    ],
)
def test_a_time_in_the_future_before_the_start_or_none_at_all_is_not_counted(last: str) -> None:
    assert lost_s(told(last=last), START_S, NOW) == 3600
    assert lost_s(told(last=last, interval="25m"), START_S, NOW) == 600


def test_times_have_zones_and_z_is_one() -> None:
    assert lost_s(told(last=at(4000, timezone(timedelta(hours=5, minutes=30)))), START_S, NOW) == 600
    assert lost_s(told(last="1970-01-01T01:06:40Z"), START_S, NOW) == 600
    assert lost_s(told(last="1970-01-01T01:06:40.5Z"), START_S, NOW) == 599.5


@pytest.mark.parametrize("text", ["often", "-5m", "", "9" * 70 + "s"])
def test_a_duration_that_cannot_be_read_counts_as_not_told(text: str) -> None:
    assert told(interval=text, grace=text, restart=text) == Checkpoints()


def test_a_restart_counts_up_to_an_hour() -> None:
    assert restart_s(None) == 0
    assert restart_s(told(restart="5m")) == 300
    assert restart_s(told(restart="100h")) == MOST_RESTART_S == 3600


def test_the_price_is_that_of_all_gpus() -> None:
    lab = Lab()
    lab.queue("a", 4)
    keeps = {CHECKPOINT_INTERVAL: "25m", RESTART_COST: "10s"}
    assert price_of(lab.hold("saves", "a", 4, annotations=keeps), NOW_S, MAX_GRACE_S) == (4 * 600, 4 * 10)
    assert price_of(lab.hold("silent", "a", 4), NOW_S, MAX_GRACE_S) == (4 * 3600, 0)
    assert price_of(lab.hold("reserved", "a", 4, annotations=keeps, admitted=False), NOW_S, MAX_GRACE_S) == (0, 0)


SECONDS = st.floats(0, 1e6)
TERMS = st.none() | st.builds(
    Checkpoints,
    interval_s=st.none() | SECONDS,
    grace_s=st.none() | SECONDS,
    restart_cost_s=SECONDS,
    last_s=st.none() | st.floats(-1e6, 2e6),
)


@given(TERMS, SECONDS, SECONDS)
def test_no_more_is_lost_than_was_done_and_never_less_than_nothing(
    terms: Checkpoints | None, start_s: float, ran_s: float
) -> None:
    now_s = start_s + ran_s
    assert 0 <= lost_s(terms, start_s, now_s) <= now_s - start_s
    assert lost_s(terms, now_s, start_s) == 0, "a clock that was put back"


@given(st.builds(Checkpoints, interval_s=st.none() | SECONDS, grace_s=st.none() | SECONDS), SECONDS, SECONDS)
def test_who_works_on_keeps_no_less(terms: Checkpoints, done_s: float, more_s: float) -> None:
    assert kept_s(terms, done_s) <= kept_s(terms, done_s + more_s) <= done_s + more_s


@given(st.dictionaries(st.sampled_from(sorted(KEYS.values())), st.text()))
def test_whatever_the_annotations_say_there_is_a_price(annotations: dict[str, str]) -> None:
    terms = checkpoints_of(annotations)
    assert (terms is None) == (not annotations)
    assert isfinite(lost_s(terms, START_S, NOW) + restart_s(terms))


@pytest.mark.parametrize(
    ("grace", "periods", "lost"),
    [
        ("90s", (None,), 0),
        ("10m", (30,), 0),
        ("601s", (None,), 600),
        ("99h", (30,), 600),
        ("20m", (1200, 1300), 0),
        ("20m", (1199, 1300), 600),
        ("20m", (1200, None), 600),
    ],
)
def test_a_grace_that_pods_are_not_given_saves_nothing(
    grace: str, periods: tuple[int | None, ...], lost: float
) -> None:
    pod_sets = [
        PodSet(name=f"p{at}", template=PodTemplateSpec(spec=PodSpec(termination_grace_period_seconds=period_s)))
        for at, period_s in enumerate(periods)
    ]
    terms = checkpoints_of({CHECKPOINT_GRACE: grace, CHECKPOINT_INTERVAL: "25m"}, pod_sets)
    assert lost_s(terms, START_S, START_S + 3600.0) == lost


@pytest.mark.parametrize(("period_s", "raised_s", "is_believed"), [(30, 60, False), (90, 60, True), (30, 90, True)])
def test_a_grace_is_believed_up_to_what_this_cluster_raises_pods_to(
    period_s: int, raised_s: float, *, is_believed: bool
) -> None:
    template = PodTemplateSpec(spec=PodSpec(termination_grace_period_seconds=period_s))
    terms = checkpoints_of({CHECKPOINT_GRACE: "90s"}, [PodSet(name="main", template=template)], raised_s)
    assert (lost_s(terms, START_S, START_S + 3600.0) == 0) is is_believed


def test_of_two_victims_the_one_goes_whose_grace_its_pods_are_given() -> None:
    def victims(max_grace_s: float) -> set[str]:
        lab = Lab.with_(victim_order=VictimOrder.LEAST_LOST, max_grace_s=max_grace_s)
        lab.queue("a", 8, preemption={"withinClusterQueue": "LowerPriority"})
        lab.hold("graced", "a", 4, annotations={CHECKPOINT_GRACE: "15m"})
        lab.hold("saves", "a", 4, annotations={CHECKPOINT_INTERVAL: "50m"})
        found = set(lab.ask("a", 4, priority=9))
        lab.preemption.validate()
        return found

    assert victims(MAX_GRACE_S) == {"saves"}, "pods get ten minutes, so its word is not believed"
    assert victims(900.0) == {"graced"}, "all of its work is saved"
