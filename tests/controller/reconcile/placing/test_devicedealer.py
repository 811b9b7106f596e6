"""Planned devices are dealt out so that no two pods are told the same."""

from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.framework.settings import no_plan
from controller.reconcile.placing.devicedealer import DeviceDealer
from controller.scheduler.model.resources import WorkloadKey
from inventory.api import deviceplan

KEY = WorkloadKey("team/w")


def test_without_a_plan_or_a_node_nothing_is_told() -> None:
    assert DeviceDealer(no_plan, KEY, []).take("main", "n1") == ""
    assert DeviceDealer(lambda *_: [("a",)], KEY, []).take("main", "") == ""


def test_what_pods_on_another_node_carry_takes_nothing_away() -> None:
    dealt = DeviceDealer(lambda _key, _set, node: [(f"{node}-a",)], KEY, [("n2", "n1-a")])
    assert dealt.take("main", "n1") == "n1-a"


def test_shared_devices_are_told_as_often_as_they_are_planned() -> None:
    dealt = DeviceDealer(lambda *_: [("a",), ("a",)], KEY, [])
    assert [dealt.take("main", "n1") for _ in range(3)] == ["a", "a", ""]


def test_percents_are_told_in_few_words_and_read_again_as_what_was_told() -> None:
    plan = [("a",) * 60 + ("b",) * 60, ("b",) * 40]
    dealt = DeviceDealer(lambda *_: plan, KEY, [])
    assert dealt.take("main", "n1") == "a*60,b*60"
    again = DeviceDealer(lambda *_: plan, KEY, [("n1", "a*60,b*60")])
    assert [again.take("main", "n1"), again.take("main", "n1")] == ["b*40", ""]


def test_after_drift_the_plan_that_overlaps_least_comes_first() -> None:
    dealt = DeviceDealer(lambda *_: [("a", "b"), ("c", "d")], KEY, [("n1", "b, x")])
    assert [dealt.take("main", "n1") for _ in range(3)] == ["c,d", "a,b", ""]


tuples = st.lists(st.sampled_from([("a",), ("b",), ("a", "b"), ("c", "d")]), max_size=5)


@given(plan=tuples, carried=tuples)
def test_no_pod_is_told_more_than_is_planned_less_what_others_carry(
    plan: list[tuple[str, ...]], carried: list[tuple[str, ...]]
) -> None:
    dealt = DeviceDealer(lambda *_: plan, KEY, [("n1", ",".join(one)) for one in carried])
    told = []
    while given_ := dealt.take("main", "n1"):
        told.append(deviceplan.devices(given_))
    for one in {*plan, *carried}:
        assert told.count(one) == max(plan.count(one) - carried.count(one), 0)
