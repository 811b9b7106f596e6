"""Charges are recomputed from pods' own specs, and compared with what the tree of cohorts has room for."""

from typing import Any

import pytest

from history.podcost import UNIT, claim_cost, pod_cost, quantity
from tests.support.history.told import (
    GPU,
    Json,
    Told,
    admitted,
    cluster_queue,
    having,
    job,
    local_queue,
    meta,
    pod,
    spec_of,
    workload,
)

REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"


def found(told: Told, seconds: float = 6) -> list[str]:
    told.later(seconds)
    told.put({"kind": "Node", "metadata": {"name": "n1"}})
    return [each.message for each in told.found() if each.rule == "over-quota"]


def holders(told: Told, count: int, queue: str = "cq", spec: Json | None = None) -> None:
    """So many jobs of one pod get quota, one after another."""
    for number in range(count):
        one = job(f"{queue}{number}", spec=spec)
        told.put(one, admitted(workload(one), queue=queue))


def used(have: int, may: int) -> list[str]:
    return [f"{have} {GPU} in flavor f are used, {may} may be"]


def begin(*queues: Json) -> Told:
    told = Told()
    told.put(*queues, local_queue())
    told.later(1)
    return told


def test_a_queue_alone_has_its_quota_and_a_wrong_counts_after_five_seconds() -> None:
    told = begin(cluster_queue(quota=2))
    holders(told, 2)
    assert found(told) == []
    holders(told, 3)
    assert found(told, 4) == []
    assert found(told, 2) == used(3, 2)


def test_what_the_status_says_of_amounts_is_not_read() -> None:
    told = begin(cluster_queue(quota=2))
    one = job("j", count=3)
    lies = admitted(workload(one, count=3))
    lies["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] = {GPU: "2"}
    told.put(one, lies)
    assert found(told) == used(3, 2)


def test_pods_that_run_count_by_their_own_specs_where_that_is_more() -> None:
    told = begin(cluster_queue(quota=2))
    one = job("j", count=2)
    told.put(one, admitted(workload(one, count=2)), pod("a", one), pod("b", one))
    assert found(told) == []
    told.put(pod("b", one, spec=spec_of(2)))
    assert found(told) == used(3, 2)


def test_more_pods_than_were_admitted_count() -> None:
    told = begin(cluster_queue(quota=2))
    one = job("j", count=3)
    told.put(one, admitted(workload(one, count=2)), *(pod(name, one) for name in "abc"))
    assert found(told) == used(3, 2)


def test_pods_that_are_needed_no_more_are_not_charged() -> None:
    told = begin(cluster_queue(quota=2))
    one = job("j", count=3)
    held = admitted(workload(one, count=3))
    held["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]
    told.put(one, held)
    assert found(told) == []


def tree(**limits: Any) -> list[Json]:
    """``b`` has 2 and the limits, ``a`` has 1 in the cohort above."""
    cohorts = [{"kind": "Cohort", "metadata": {"name": "low"}, "spec": {"parentName": "top"}}]
    own = {each: limits[each] for each in ("lendingLimit",) if each in limits}
    others = {each: limits[each] for each in ("borrowingLimit",) if each in limits}
    lender = cluster_queue("b", 2, cohortName="low", limits=own)
    return [*cohorts, cluster_queue("a", 1, cohortName="top", limits=others), lender]


def test_a_queue_borrows_what_the_tree_has() -> None:
    told = begin(*tree())
    holders(told, 3, "a")
    assert found(told) == []
    holders(told, 4, "a")
    assert found(told) == used(4, 3)


def test_a_lending_limit_is_kept_back_also_where_it_is_not_used() -> None:
    told = begin(*tree(lendingLimit="1"))
    holders(told, 2, "a")
    assert found(told) == []
    holders(told, 3, "a")
    assert found(told) == used(3, 2)


def test_what_is_kept_back_is_its_owners() -> None:
    told = begin(*tree(lendingLimit="1"))
    holders(told, 2, "b")
    holders(told, 1, "a")
    assert found(told) == []


def test_a_borrowing_limit_is_the_queues_own() -> None:
    told = begin(*tree(borrowingLimit="1"))
    holders(told, 3, "a")
    assert found(told) == used(3, 2)


def test_a_cohorts_own_quota_and_limits_count() -> None:
    resources = [{"name": GPU, "nominalQuota": "1", "borrowingLimit": "0"}]
    groups = [{"flavors": [{"name": "f", "resources": resources}]}]
    cohort = {"kind": "Cohort", "metadata": {"name": "low"}, "spec": {"parentName": "top", "resourceGroups": groups}}
    told = begin(cohort, cluster_queue("a", 5, cohortName="top"), cluster_queue("b", 1, cohortName="low"))
    holders(told, 2, "b")
    assert found(told) == []
    holders(told, 3, "b")
    assert found(told) == used(3, 2)


def test_cohorts_that_name_each_other_are_not_judged() -> None:
    circle = [{"kind": "Cohort", "metadata": {"name": a}, "spec": {"parentName": b}} for a, b in ("xy", "yx")]
    told = begin(*circle, cluster_queue("a", 1, cohortName="x"))
    holders(told, 4, "a")
    assert found(told) == []


def test_a_tree_that_is_too_deep_is_not_judged_and_does_no_harm() -> None:
    deep = [{"kind": "Cohort", "metadata": {"name": f"c{n}"}, "spec": {"parentName": f"c{n + 1}"}} for n in range(3000)]
    told = begin(*deep, cluster_queue("a", 1, cohortName="c0"), cluster_queue("b", 1, cohortName="c2999"))
    holders(told, 4, "a")
    holders(told, 2, "b")
    assert found(told) == used(2, 1)


def test_a_queue_that_joins_a_cohort_with_room_or_goes_ends_what_was_wrong_with_it() -> None:
    told = begin(cluster_queue("b", 1), cluster_queue("a", 5, cohortName="top"))
    holders(told, 2, "b")
    told.later(3)
    told.put(cluster_queue("b", 1, cohortName="top"))
    assert found(told, 60) == []
    told = begin(cluster_queue("a", 1), cluster_queue("b", 1))
    holders(told, 2, "a")
    told.later(3)
    told.drop(cluster_queue("a", 1))
    assert found(told, 60) == []


def test_what_has_quota_keeps_it_when_quota_is_taken_away_and_nobody_else_gets_any() -> None:
    told = begin(cluster_queue(quota=3))
    holders(told, 3)
    told.later(30)
    told.put(cluster_queue(quota=1))
    assert found(told, 60) == []
    one = job("late")
    told.put(one, admitted(workload(one)))
    assert found(told) == used(4, 1)


def test_a_decision_that_was_under_way_when_quota_was_taken_away_is_no_wrong() -> None:
    told = begin(cluster_queue(quota=3))
    told.later(30)
    told.put(cluster_queue(quota=1))
    told.later(3)
    holders(told, 2)
    assert found(told, 60) == []


def beyond(told: Told, count: int) -> list[str]:
    """What is found once ``count`` have got quota, a second after."""
    told.later(1)
    holders(told, count)
    return found(told, 60)


def test_a_change_that_takes_no_quota_away_excuses_nothing() -> None:
    told = begin(cluster_queue(quota=1), cluster_queue("other"))
    told.put(cluster_queue("other", stopPolicy="Hold"))
    assert beyond(told, 2) == used(2, 1)
    told = begin(cluster_queue(quota=1))
    told.put(cluster_queue(quota=1, preemption={"withinClusterQueue": "LowerPriority"}))
    assert beyond(told, 2) == used(2, 1)
    told = begin(cluster_queue(quota=1))
    told.put(cluster_queue(quota=2))
    assert beyond(told, 3) == used(3, 2)


def test_a_change_after_the_admission_excuses_nothing() -> None:
    told = begin(cluster_queue(quota=1))
    holders(told, 2)
    told.later(4)
    told.put(cluster_queue(quota=1, stopPolicy="Hold"))
    assert found(told) == used(2, 1)


def test_quota_that_is_taken_away_excuses_no_more_than_was_taken() -> None:
    told = begin(cluster_queue(quota=3))
    told.put(cluster_queue(quota=1))
    assert beyond(told, 3) == []
    told = begin(cluster_queue(quota=3))
    told.put(cluster_queue(quota=1))
    assert beyond(told, 4) == used(4, 1)
    told = begin(cluster_queue(quota=3))
    told.put(cluster_queue(quota=1))
    told.later(60)
    one = job("late", count=2)
    told.put(one, admitted(workload(one, count=2)))
    assert found(told) == used(2, 1)


def test_a_queue_that_leaves_with_its_quota_excuses_what_others_borrowed_of_it() -> None:
    told = begin(*tree())
    holders(told, 3, "a")
    told.later(30)
    told.put(cluster_queue("b", 2))
    assert found(told, 60) == []
    holders(told, 4, "a")
    assert found(told) == used(4, 1)


def test_a_flavor_that_a_queue_does_not_list_is_not_lent_to_it() -> None:
    sibling = cluster_queue("b", 5, cohortName="top")
    sibling["spec"]["resourceGroups"][0]["flavors"][0]["name"] = "g"
    told = begin(cluster_queue("a", 1, cohortName="top"), sibling)
    one = job("j")
    held = admitted(workload(one), queue="a")
    held["status"]["admission"]["podSetAssignments"][0]["flavors"] = {GPU: "g"}
    told.put(one, held)
    assert found(told) == [f"1 {GPU} in flavor g are used, 0 may be"]


def test_a_flavor_that_a_queue_listed_when_it_gave_it_stays_with_the_workload() -> None:
    both = cluster_queue("a", 1, cohortName="top")
    flavors = both["spec"]["resourceGroups"][0]["flavors"]
    flavors.append({**flavors[0], "name": "g"})
    told = begin(both)
    one = job("j")
    held = admitted(workload(one), queue="a")
    held["status"]["admission"]["podSetAssignments"][0]["flavors"] = {GPU: "g"}
    told.put(one, held)
    told.later(30)
    told.put(cluster_queue("a", 1, cohortName="top"))
    assert found(told, 60) == []


def test_what_comes_after_the_first_line_is_no_first_line() -> None:
    told = Told()
    told.hardware("n1", {"uuid": "GPU-1"})
    told.later(3)
    told.put(cluster_queue(quota=1), local_queue())
    holders(told, 2)
    assert found(told) == used(2, 1)


def test_a_status_of_a_queue_is_no_change_of_quota() -> None:
    told = begin(cluster_queue(quota=1))
    told.later(30)
    told.put({**cluster_queue(quota=1), "status": {"pendingWorkloads": 7}})
    told.later(1)
    holders(told, 2)
    assert found(told) == used(2, 1)


def test_what_is_covered_and_was_given_no_flavor_is_taken_for_nothing() -> None:
    told = begin(cluster_queue(quota=9))
    one = job("j")
    free = admitted(workload(one))
    free["status"]["admission"]["podSetAssignments"][0]["flavors"] = {"cpu": "f"}
    told.put(one, free)
    assert found(told) == [f"it takes 1 {GPU} and is charged none"]


def sliced(other: str, *, is_over: bool) -> Told:
    """A slice of ``other`` with 3 pods says that it takes the place of job-j, which has 2."""
    told = begin(cluster_queue(quota=3))
    one, more = job("j", count=2), job(other, count=3)
    bigger = admitted(workload(more, count=3))
    bigger["metadata"] |= {"name": "bigger", "annotations": {REPLACES: "team/job-j"}}
    told.put(one, admitted(workload(one, count=2)), more, bigger)
    if is_over:
        told.later(2)
        told.put(having(admitted(workload(one, count=2)), "Finished"))
    return told


def test_a_slice_takes_the_place_of_the_one_before() -> None:
    told = sliced("j", is_over=True)
    assert found(told) == []
    assert [each.message for each in told.found()] == []


def test_a_slice_of_another_job_takes_nobodys_place() -> None:
    assert found(sliced("k", is_over=False)) == used(5, 3)


def test_a_slice_whose_place_was_taken_gives_its_quota_back() -> None:
    told = sliced("j", is_over=False)
    assert found(told, 61) == []
    assert [each.message for each in told.found()] == ["another slice has its place, and it has quota"]


def test_quota_that_follows_capacity_is_not_judged_and_that_is_said() -> None:
    notes = {"tessera.dev/quota-shares": "{}"}
    told = begin(cluster_queue(quota=1, notes=notes))
    holders(told, 3)
    assert found(told) == []
    assert "quota of ClusterQueue cq: it follows live capacity" in told.verdict().unseen


def with_claims(told: Told, count: int) -> None:
    told.line("recorder", type="SETTINGS", settings={"deviceClasses": {"gpu.nvidia.com": GPU}})
    request = {"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": count}}
    spec = {"devices": {"requests": [request]}}
    told.put({"kind": "ResourceClaimTemplate", "metadata": meta("each"), "spec": {"spec": spec}})
    told.put({"kind": "ResourceClaim", "metadata": meta("one"), "spec": spec})


def claims(**source: str) -> Json:
    return {"containers": [{"name": "c"}], "resourceClaims": [{"name": "g", **source}]}


def test_claims_from_a_template_are_charged_for_each_pod() -> None:
    told = begin(cluster_queue(quota=3))
    with_claims(told, 2)
    one = job("j", count=2, spec=claims(resourceClaimTemplateName="each"))
    told.put(one, admitted(workload(one, count=2)))
    assert found(told) == used(4, 3)


def test_a_claim_by_name_is_charged_once_to_whoever_names_it() -> None:
    told = begin(cluster_queue(quota=2))
    with_claims(told, 2)
    for name in ("j", "k"):
        one = job(name, spec=claims(resourceClaimName="one"))
        told.put(one, admitted(workload(one)))
    assert found(told) == []
    first = job("j", spec=claims(resourceClaimName="one"))
    told.put(having(admitted(workload(first)), "Finished"))
    holders(told, 1)
    assert found(told) == used(3, 2)


# -- one pod -----------------------------------------------------------------------------------------------------------


def asks(gpus: int, **more: Any) -> Json:
    return {"resources": {"limits": {GPU: gpus}}, **more}


ALWAYS = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "gpus"),
    [
        ({"containers": [asks(1), asks(2)]}, 3),
        ({"containers": [asks(1)], "initContainers": [asks(4)]}, 4),
        ({"containers": [asks(1)], "initContainers": [asks(2, **ALWAYS)]}, 3),
        ({"containers": [asks(1)], "initContainers": [asks(2, **ALWAYS), asks(3)]}, 5),
        ({"containers": [asks(1)], "initContainers": [asks(3), asks(2, **ALWAYS)]}, 3),
        ({"containers": [asks(1)], "overhead": {GPU: "1"}}, 2),
        ({"containers": [{"resources": {"limits": {GPU: 3}, "requests": {GPU: 2}}}]}, 2),
    ],
)
def test_sidecars_init_containers_overhead_and_limits(spec: Json, gpus: int) -> None:
    assert pod_cost(spec) == {GPU: gpus * UNIT}


def test_resources_of_the_pod_as_a_whole_stand_in_for_cpu_and_memory_alone() -> None:
    one = {"resources": {"requests": {"cpu": "1", "memory": "1Gi", GPU: "1"}}}
    whole = {"requests": {"cpu": "500m", "hugepages-2Mi": "4Mi"}, "limits": {"memory": "2Gi", GPU: "7"}}
    cost = pod_cost({"containers": [one], "resources": whole})
    assert cost == {"cpu": UNIT // 2, "memory": 2**30 * UNIT, GPU: UNIT, "hugepages-2Mi": 4 * 2**20 * UNIT}


def test_a_limit_of_the_pod_as_a_whole_stands_in_only_where_no_container_requests_any() -> None:
    limit = {"resources": {"limits": {"cpu": "4"}}}
    assert pod_cost({"containers": [{"resources": {"requests": {"cpu": "1"}}}], **limit}) == {"cpu": UNIT}
    assert pod_cost({"containers": [{}], **limit}) == {"cpu": 4 * UNIT}


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        ("1", UNIT), (2, 2 * UNIT), ("100m", UNIT // 10), ("1.5Gi", 3 * 2**29 * UNIT), ("2e3", 2000 * UNIT),
        ("1n", 1), ("0.1n", 1), (".5", UNIT // 2), ("-1", -UNIT), ("1k", 1000 * UNIT),
        ("", None), ("Gi", None), ("1 Gi", None), ("1e400", None), (None, None), (True, None), ([], None),
    ],
)  # fmt: skip
def test_quantities(written: object, amount: int | None) -> None:
    assert quantity(written) == amount


def test_claims_count_devices_of_classes_that_are_mapped() -> None:
    classes = {"gpu": GPU, "mig": "mig"}
    of = {"deviceClassName": "gpu"}
    requests = [
        {"exactly": {**of, "count": 3}},
        of,
        {"firstAvailable": [{**of, "count": 4}, {**of, "count": 2}]},
        {"firstAvailable": [of, {"deviceClassName": "mig"}]},
        {"exactly": {**of, "adminAccess": True}},
        {"exactly": {**of, "allocationMode": "All"}},
        {"exactly": {"deviceClassName": "unknown"}},
    ]
    assert claim_cost({"devices": {"requests": requests}}, classes) == {GPU: 6 * UNIT}
