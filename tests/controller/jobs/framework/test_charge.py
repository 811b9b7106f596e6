"""What is left of a Workload's charge for children that its job's own controller did not make."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.framework.charge import MAKES, Beyond, Charge, Dealt, Pods, deal, makes, places, validate
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.kinds.table import JOB_KINDS


def workload(*sets: tuple[str, int, int], back: dict[str, int] | None = None, usage: str = "") -> SeenWorkload:
    """Pod sets of a name, a count, and cpus for each pod."""
    spec, given_ = [], []
    for name, count, cpus in sets:
        container = {"name": "c", "resources": {"requests": {"cpu": str(cpus)}}}
        spec.append({"name": name, "count": count, "template": {"spec": {"containers": [container]}}})
        charged = {"memory": usage} if usage else {}
        given_.append({"name": name, "count": count, "resourceUsage": {"cpu": str(cpus * count), **charged}})
    status: dict[str, Any] = {"admission": {"clusterQueue": "q", "podSetAssignments": given_}}
    status["reclaimablePods"] = [{"name": name, "count": count} for name, count in (back or {}).items()]
    return SeenWorkload.of({"metadata": {"name": "w"}, "spec": {"podSets": spec}, "status": status})


def pods(count: int, cpus: int, pod_set: str = "", **more: int) -> Pods:
    return Pods(count=count, requests={"cpu": cpus * 1000, **more}, pod_set=pod_set)


def dealt(found: SeenWorkload, taken: list[Pods], *wanted: Pods) -> tuple[str, ...]:
    """Empty where they are beyond the charge."""
    charge = Charge(workload=found, taken=tuple(taken))
    result = deal(charge, wanted)
    validate(charge, wanted, result)
    return result.pod_sets if isinstance(result, Dealt) else ()


def test_pods_go_where_they_name_a_set_else_into_the_smallest_that_holds_them() -> None:
    found = workload(("driver", 1, 4), ("executor", 2, 1))
    assert dealt(found, [], pods(1, 1)) == ("executor",)
    assert dealt(found, [], pods(1, 1, "driver")) == ("driver",)
    assert dealt(found, [], pods(1, 2)) == ("driver",)
    assert dealt(found, [], pods(1, 4, "executor")) == ("driver",)


def test_no_more_start_than_are_charged_and_none_that_is_larger() -> None:
    found = workload(("executor", 2, 1))
    assert dealt(found, [pods(1, 1)], pods(1, 1)) == ("executor",)
    assert dealt(found, [pods(2, 1)], pods(1, 1)) == ()
    assert dealt(found, [], pods(1, 2)) == ()
    assert dealt(found, [], pods(3, 1)) == ()
    assert dealt(found, [], pods(1, 1), pods(2, 1)) == ()
    assert dealt(found, [], pods(1, 0, memory=1)) == (), "what is not charged at all"


def test_what_runs_beyond_its_own_set_takes_the_room_of_others() -> None:
    found = workload(("driver", 1, 1), ("executor", 2, 1))
    assert dealt(found, [pods(2, 9, "driver")], pods(2, 1)) == ()
    assert dealt(found, [pods(2, 9, "driver")], pods(1, 1)) == ("executor",)


def test_pods_that_were_given_back_are_no_room_and_defaults_of_the_namespace_are() -> None:
    assert dealt(workload(("main", 2, 1), back={"main": 1}), [pods(1, 1)], pods(1, 1)) == ()
    assert dealt(workload(("main", 2, 1), usage="200"), [], pods(1, 1, memory=100)) == ("main",)
    assert dealt(workload(("main", 2, 1), usage="200"), [], pods(1, 1, memory=101)) == ()


def test_a_sentence_says_what_is_left() -> None:
    found = deal(Charge(workload=workload(("executor", 2, 1)), taken=(pods(2, 1),)), (pods(1, 1),))
    assert isinstance(found, Beyond)
    assert found.sentence == (
        "Workload w has no room for 1 more pod that asks for cpu 1000m: left are 0 of 2 of executor (cpu 1000m)"
    )


SETS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=3)
PODS = st.builds(pods, st.integers(0, 3), st.integers(0, 3), st.sampled_from(["", "s0", "s1", "other"]))


@given(SETS, st.lists(PODS, max_size=4), st.lists(PODS, max_size=3))
def test_whatever_runs_what_is_let_in_stays_within_the_charge(
    sets: list[tuple[int, int]], taken: list[Pods], wanted: list[Pods]
) -> None:
    found = workload(*((f"s{index}", count, cpus) for index, (count, cpus) in enumerate(sets)))
    chosen = dealt(found, taken, *wanted)
    cpus = sum(place.count * place.requests.get("cpu", 0) for place in places(found))
    assert not chosen or sum(each.count * each.requests["cpu"] for each in wanted) <= cpus


@pytest.mark.parametrize("kind", [kind for kind in JOB_KINDS if kind.kind != "AppWrapper"], ids=lambda kind: kind.kind)
def test_every_kind_that_is_built_in_says_what_it_makes(kind: Any) -> None:
    assert MAKES[kind.group, kind.kind]
    assert not makes((kind.group, kind.kind), (kind.group, kind.kind))


def test_a_kind_that_nobody_knows_may_make_any() -> None:
    assert makes(("lab.example", "Sweep"), ("batch", "Job"))
    assert not makes(("batch", "Job"), ("batch", "Job"))
