"""A request's life, step by step: the state and what is seen of its Workload decide, and nothing else is remembered."""

import msgspec
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from controller.insight.bargaining.life import (
    FINAL,
    Offer,
    Phase,
    Rules,
    Seen,
    State,
    Step,
    Want,
    answered,
    refused,
    step,
    validate,
)
from controller.insight.bargaining.wishes import Wish, order_problem, problems, wish_of
from controller.objects.capacityrequests import CapacityRequest
from controller.objects.decode import decode
from controller.scheduler.model.resources import ResourceName

RULES = Rules(say=lambda at_s: f"{at_s:g}")
WISH = Wish(
    key="ns/ask",
    queue="main",
    unit={ResourceName("nvidia.com/gpu"): 1},
    least=2,
    most=4,
    duration_s=100.0,
    not_before_s=0.0,
    not_after_s=None,
    answer_within_s=30.0,
    use_within_s=20.0,
    renewed_s=None,
    accepts="",
)
HELD = Seen(phase=Phase.HOLDS, units=4, flavor="a100")


def wish(**changes: object) -> Wish:
    return msgspec.structs.replace(WISH, **changes)


def seen(**changes: object) -> Seen:
    return msgspec.structs.replace(HELD, **changes)


def granted(at_s: float = 0.0) -> State:
    return step(WISH, State(), HELD, at_s, RULES).state


def test_a_new_request_asks_for_all_that_it_would_take() -> None:
    found = step(WISH, State(), None, 0.0, RULES)
    assert found.want == Want(least=2, most=4, lasts_s=100.0)
    assert not found.told


def test_what_it_got_is_granted_from_now_on() -> None:
    found = step(WISH, State(), seen(units=3), 5.0, RULES)
    assert (found.state.state, found.state.units, found.state.from_s, found.state.until_s) == ("Granted", 3, 5.0, 105.0)
    assert found.due_s == 25.0


def test_units_whose_nodes_are_coming_are_granted_from_then_on() -> None:
    found = step(WISH, State(), seen(begins_s=50.0), 0.0, RULES).state
    assert (found.from_s, found.until_s) == (50.0, 150.0)
    assert step(WISH, found, seen(begins_s=50.0), 60.0, RULES).state.state == "Granted"
    assert step(WISH, found, seen(begins_s=50.0), 70.0, RULES).state.state == "Released"


def test_the_last_that_used_a_grant_leaves_it_granted_until_its_end() -> None:
    used = step(WISH, granted(), seen(used=2), 10.0, RULES).state
    assert (used.used, used.used_s) == (2, 10.0)
    left = step(WISH, used, HELD, 15.0, RULES)
    assert (left.state.state, left.state.used, left.due_s) == ("Granted", 0, 100.0)
    over = step(WISH, left.state, HELD, 100.0, RULES)
    assert (over.state.state, over.want) == ("Released", None)


def test_a_smaller_max_gives_units_back_and_none_that_is_in_use() -> None:
    found = step(wish(most=2), granted(), HELD, 1.0, RULES)
    assert (found.state.units, found.want) == (2, Want(least=2, most=2, lasts_s=100.0))
    busy = step(wish(most=2), granted(), seen(used=3), 1.0, RULES)
    assert busy.state.units == 3


def test_the_message_says_what_is_granted_by_now() -> None:
    first = granted()
    assert first.message == "Granted 4 units of 1 nvidia.com/gpu of flavor a100 now until 100"
    fewer = step(wish(most=3), first, HELD, 1.0, RULES).state
    assert fewer.message == "Granted 3 units of 1 nvidia.com/gpu of flavor a100 from 0 until 100"
    longer = step(wish(most=3, renewed_s=10.0), fewer, seen(used=1), 12.0, RULES).state
    assert longer.message == "Granted 3 units of 1 nvidia.com/gpu of flavor a100 from 0 until 110"


def test_renewing_begins_the_duration_anew_and_none_before_the_grant_counts() -> None:
    assert step(wish(renewed_s=10.0), granted(5.0), seen(used=1), 12.0, RULES).state.until_s == 110.0
    assert step(wish(renewed_s=1.0), granted(5.0), seen(used=1), 12.0, RULES).state.until_s == 105.0


@pytest.mark.parametrize("phase", [None, seen(phase=Phase.LOST, why="Preempted")])
def test_a_grant_whose_workload_is_gone_is_released(phase: Seen | None) -> None:
    found = step(WISH, granted(), phase, 1.0, RULES)
    assert (found.state.state, found.want) == ("Released", None)


def offered(*offers: Offer, of: Wish = WISH) -> Step:
    return answered(of, State(), offers, 0.0, RULES)


NOW = Offer(units=1, from_s=0.0, now=True)
LATER = Offer(units=2, from_s=60.0)


def test_an_offer_of_now_is_held_before_it_is_told() -> None:
    first = offered(NOW, LATER)
    assert (first.told, first.want) == (False, Want(least=1, most=1, offer="offer-1", lasts_s=30.0, free_only=True))
    held = seen(units=1, offer="offer-1")
    second = step(WISH, first.state, held, 0.0, RULES)
    assert second.told
    assert [(each.id, each.held, each.stands_until_s) for each in second.state.offers] == [
        ("offer-1", True, 30.0),
        ("offer-2", False, 30.0),
    ]
    validate(WISH, second.state, held)
    assert step(WISH, second.state, held, 30.0, RULES).state.state == "Expired"


def test_offers_of_one_request_are_held_no_longer_than_the_site_allows_in_all() -> None:
    held, patient = seen(units=1, offer="offer-1"), wish(answer_within_s=100.0)
    first = step(patient, offered(NOW, LATER, of=patient).state, held, 0.0, RULES).state
    assert [(each.held, each.stands_until_s) for each in first.offers] == [(True, 60.0), (False, 100.0)]
    again = answered(patient, first, (NOW, LATER), 50.0, RULES)
    assert again.want is not None
    assert (again.want.offer, again.want.lasts_s) == ("offer-3", 10.0)
    second = step(patient, again.state, seen(units=1, offer="offer-3"), 50.0, RULES).state
    assert [(each.held, each.stands_until_s) for each in second.offers] == [(True, 60.0), (False, 150.0)]
    third = answered(patient, second, (NOW, LATER), 60.0, RULES)
    assert (third.told, third.want) == (True, None)
    assert [each.held for each in third.state.offers] == [False, False]


def test_accepting_what_comes_later_ends_what_is_held() -> None:
    held = seen(units=1, offer="offer-1")
    state = step(WISH, offered(NOW, LATER).state, held, 0.0, RULES).state
    taken = step(wish(accepts="offer-2"), state, held, 1.0, RULES)
    assert taken.want == Want(least=2, most=2, offer="offer-2", lasts_s=100.0)
    assert not any(each.held for each in taken.state.offers)
    validate(wish(accepts="offer-2"), taken.state, held)
    waits = seen(phase=Phase.WAITS, units=2, offer="offer-2")
    assert step(wish(accepts="offer-2"), taken.state, waits, 2.0, RULES).told


def test_an_offer_of_now_that_cannot_be_held_is_not_made() -> None:
    first = offered(NOW, LATER)
    found = step(WISH, first.state, seen(phase=Phase.WAITS, offer="offer-1"), 0.0, RULES)
    assert [each.id for each in found.state.offers] == ["offer-2"]
    alone = step(WISH, offered(NOW).state, seen(phase=Phase.WAITS, offer="offer-1"), 0.0, RULES)
    assert (alone.ask, alone.now_too) == (True, False)


def test_names_of_offers_are_never_used_twice() -> None:
    again = answered(WISH, offered(NOW, LATER).state, (LATER,), 1.0, RULES)
    assert [each.id for each in again.state.offers] == ["offer-3"]


def test_an_accepted_offer_of_later_waits_for_ever_unless_it_has_to_begin_by_a_time() -> None:
    state = offered(LATER).state
    waits = seen(phase=Phase.WAITS, offer="offer-1")
    taken = step(wish(accepts="offer-1"), state, waits, 1.0, RULES)
    assert (taken.state.accepted, taken.want) == ("offer-1", Want(least=2, most=2, offer="offer-1", lasts_s=100.0))
    assert step(wish(accepts="offer-1"), taken.state, waits, 1000.0, RULES).state.state == "Offered"
    late = step(wish(accepts="offer-1", not_after_s=90.0), taken.state, waits, 90.0, RULES)
    assert (late.state.state, late.want) == ("Expired", None)


def test_an_offer_that_nobody_made_is_named_with_those_that_stand() -> None:
    state = offered(LATER).state
    found = step(wish(accepts="offer-9"), state, None, 1.0, RULES)
    assert found.state.message == (
        "Offers 2 units from 60 (offer-1); spec.accept: found offer-9, expected one of offer-1"
    )
    assert step(WISH, found.state, None, 2.0, RULES).state.message == "Offers 2 units from 60 (offer-1)"


def test_an_offer_accepted_too_late_counts_for_nothing() -> None:
    assert step(wish(accepts="offer-1"), offered(LATER).state, None, 31.0, RULES).state.state == "Expired"


SEEN = st.none() | st.builds(
    Seen,
    phase=st.sampled_from(Phase),
    units=st.integers(1, 4),
    offer=st.sampled_from(("", "offer-1", "offer-2", "offer-3")),
    used=st.integers(0, 4),
    begins_s=st.sampled_from((0.0, 20.0)),
)


@settings(max_examples=200)
@drawn(
    st.lists(st.tuples(SEEN, st.floats(0.0, 50.0), st.sampled_from(("", "offer-1", "offer-2"))), max_size=12),
    st.booleans(),
    st.booleans(),
)
def test_whatever_is_seen_what_is_over_stays_over_and_asks_for_nothing(
    moments: list[tuple[Seen | None, float, str]], endless: bool, holds: bool
) -> None:
    state, now_s, over = State(), 0.0, False
    rules = msgspec.structs.replace(RULES, longest_hold_s=60.0 if holds else 0.0)
    for given, after_s, accepts in moments:
        now_s += after_s
        asked = wish(accepts=accepts, duration_s=None if endless else 100.0)
        found = step(asked, state, given, now_s, rules)
        if found.ask:
            found = answered(asked, found.state, (NOW, LATER), now_s, rules) if now_s < 100 else refused("no")
        assert not over or found.state == state
        assert not over or (found.want, found.due_s) == (None, None)
        assert found.due_s is None or found.due_s > now_s or found.state.state == "Offered"
        if found.want is not None and found.state.state == "Granted":
            assert found.want.least == found.want.most == found.state.units
        state, over = found.state, found.state.state in FINAL


# -- what a request may say --------------------------------------------------------------------------------------------


def request(**spec: object) -> CapacityRequest:
    body = {"queueName": "main", "unit": {"nvidia.com/gpu": 1}, **spec}
    return decode({"metadata": {"name": "ask", "namespace": "ns"}, "spec": body}, CapacityRequest)


def test_without_more_a_request_asks_for_one_unit_for_half_a_minute_and_ten() -> None:
    found = wish_of(request(), 1000.0)
    assert (found.least, found.most, found.duration_s) == (1, 1, None)
    assert (found.answer_within_s, found.use_within_s, found.not_before_s) == (30.0, 600.0, 1000.0)


def test_a_window_is_a_time_or_counts_from_the_creation() -> None:
    found = wish_of(request(notBefore="1h", notAfter="2026-01-01T00:00:00+01:00"), 1000.0)
    assert (found.not_before_s, found.not_after_s) == (4600.0, 1767222000.0)
    over = order_problem(request(notBefore="2h", notAfter="1h").spec, 1000.0)
    assert over is not None
    assert over.path == ("spec", "notAfter")


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"queueName": ""}, "spec.queueName"),
        ({"unit": {}}, "spec.unit"),
        ({"template": {"spec": {}}}, "spec.unit"),
        ({"unit": {}, "template": {"spec": {"containers": [{"name": "a"}]}}}, "spec.template"),
        ({"unit": {"nvidia.com/gpu": 0}}, "spec.unit.nvidia.com/gpu"),
        ({"unit": {"nvidia.com/gpu": "500m"}}, "spec.unit.nvidia.com/gpu"),
        ({"min": 0}, "spec.min"),
        ({"min": 3, "max": 2}, "spec.max"),
        ({"max": 100_001}, "spec.max"),
        ({"duration": "9999h"}, "spec.duration"),
        ({"answerWithin": "0s"}, "spec.answerWithin"),
        ({"useWithin": "-1m"}, "spec.useWithin"),
        ({"notBefore": "2026-01-01"}, "spec.notBefore"),
        ({"notAfter": "soon"}, "spec.notAfter"),
        ({"notAfter": "0001-01-01T00:00:00+23:00"}, "spec.notAfter"),
        ({"renew": "1h", "duration": "1h"}, "spec.renew"),
        ({"renew": "2026-01-01T00:00:00Z"}, "spec.renew"),
    ],
)
def test_what_is_wrong_with_a_request_is_told_by_its_field(spec: dict[str, object], path: str) -> None:
    assert [".".join(each.path) for each in problems(request(**spec).spec)] == [path]


def test_who_waits_for_victims_says_so_before_it_is_answered() -> None:
    waits = Seen(phase=Phase.QUEUED, units=4, preempts=True)
    found = step(WISH, State(), waits, 1.0, RULES)
    assert (found.state.state, found.told, found.hints) == ("", False, True)
    assert found.state.message.startswith("Waits for workloads to stop that were preempted for it")
    assert step(WISH, found.state, HELD, 2.0, RULES).state.message.startswith("Granted 4 units")
    offered = answered(WISH, State(), [Offer(units=2, from_s=50.0)], 0.0, RULES).state
    taken = wish(accepts="offer-1")
    accepted = step(taken, offered, Seen(phase=Phase.QUEUED, units=2, offer="offer-1", preempts=True), 1.0, RULES)
    assert accepted.hints
    assert "Waits for workloads to stop" in accepted.state.message
    assert not step(WISH, State(), Seen(phase=Phase.QUEUED, units=4), 1.0, RULES).hints


# -- bargaining turned off ---------------------------------------------------------------------------------------------

OFF = msgspec.structs.replace(RULES, answers=False)


def test_where_bargaining_is_off_a_grant_lasts_as_it_was_told_and_no_renewal_counts() -> None:
    used = step(WISH, granted(), seen(used=2), 5.0, OFF)
    assert (used.state.state, used.state.until_s) == ("Granted", 100.0)
    renewed = step(wish(renewed_s=50.0), used.state, seen(used=2), 60.0, OFF)
    assert renewed.state.until_s == 100.0
    assert step(wish(renewed_s=50.0), used.state, seen(used=2), 100.0, OFF).state.state == "Released"
    assert step(WISH, granted(), HELD, 20.0, OFF).state.message == "Nothing used it within 20s of its start"


def test_where_bargaining_is_off_no_offer_is_kept_and_no_request_is_answered() -> None:
    offered = answered(WISH, State(), [Offer(units=1, from_s=0.0, now=True)], 0.0, RULES).state
    for state, end in ((offered, "Expired"), (State(), "Refused")):
        found = step(wish(accepts="offer-1"), state, None, 1.0, OFF)
        assert (found.state.state, found.want) == (end, None)
        assert found.state.message.startswith("Bargaining is off")
