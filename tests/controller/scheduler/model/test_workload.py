from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.core import LimitRange, PodSpec
from controller.objects.decode import decode
from controller.objects.quantity import parse_quantity
from controller.objects.workload import Workload
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.limitrange import LimitSummary
from controller.scheduler.model.podrequests import RequestRules, Transformation, pod_requests, whole_amount
from controller.scheduler.model.resources import UNLIMITED, FlavorName, FlavorResource, ResourceName
from controller.scheduler.model.workload import (
    LOWEST_PRIORITY,
    PodSetRequests,
    WorkloadInfo,
    adjusted,
    effective_priority,
    limit_range_problems,
    queue_order_time_s,
    resource_problems,
    usage_of,
)

CPU, MEMORY, GPU = ResourceName("cpu"), ResourceName("memory"), ResourceName("example.com/gpu")
GATES = FeatureGates()
NO_RULES = RequestRules()


def container(restart: str = "", limits: dict[str, str] | None = None, **requests: str) -> dict[str, Any]:
    return {"restartPolicy": restart, "resources": {"requests": requests, "limits": limits or {}}}


def requested(**spec: Any) -> dict[str, int]:
    nanos = pod_requests(decode(spec, PodSpec))
    return {name: whole_amount(name, amount) for name, amount in nanos.items()}


def workload(
    *pod_sets: dict[str, Any], status: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **spec: Any
) -> Workload:
    return decode(
        {"metadata": metadata or {}, "spec": {"podSets": list(pod_sets), **spec}, "status": status or {}}, Workload
    )


def pod_set(count: int = 1, name: str = "main", **spec: Any) -> dict[str, Any]:
    return {"name": name, "count": count, "template": {"spec": spec}}


def limit_range(*items: dict[str, Any]) -> LimitRange:
    return decode({"spec": {"limits": list(items)}}, LimitRange)


def test_containers_and_overhead_add_up() -> None:
    assert requested(containers=[container(cpu="100m"), container(cpu="1", memory="1Ki")], overhead={"cpu": "50m"}) == {
        "cpu": 1150,
        "memory": 1024,
    }


def test_init_containers_count_by_their_largest() -> None:
    assert requested(
        initContainers=[container(cpu="3"), container(cpu="1", memory="1")], containers=[container(cpu="2")]
    ) == {"cpu": 3000, "memory": 1}


def test_a_sidecar_runs_beside_the_containers_and_the_init_containers_after_it() -> None:
    containers = [container(cpu="1")]
    sidecar = container("Always", cpu="2")
    assert requested(initContainers=[sidecar], containers=containers) == {"cpu": 3000}
    assert requested(initContainers=[sidecar, container(cpu="4")], containers=containers) == {"cpu": 6000}
    assert requested(initContainers=[container(cpu="4"), sidecar], containers=containers) == {"cpu": 4000}


def test_pod_level_resources_replace_the_sums_of_cpu_and_memory_alone() -> None:
    spec = {
        "containers": [container("", None, **{"cpu": "1", "example.com/gpu": "2"})],
        "resources": {"requests": {"cpu": "4", "example.com/gpu": "9"}},
    }
    assert requested(**spec) == {"cpu": 4000, "example.com/gpu": 2}


def test_parts_of_a_unit_are_rounded_up_once_after_adding() -> None:
    assert requested(containers=[container(cpu="100u"), container(cpu="100u")]) == {"cpu": 1}
    assert requested(containers=[container(memory="100m")]) == {"memory": 1}


@given(
    amounts=st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=5),
    running=st.lists(st.integers(0, 50), max_size=3),
)
def test_a_pod_asks_for_its_peak_at_any_moment_of_its_life(amounts: list[tuple[bool, int]], running: list[int]) -> None:
    """Oracle: walk through the start of a pod and take the highest sum seen."""
    sidecars = peak = 0
    for sidecar, amount in amounts:
        peak = max(peak, sidecars + amount)
        sidecars += amount if sidecar else 0
    peak = max(peak, sidecars + sum(running))
    found = requested(
        initContainers=[container("Always" if sidecar else "", cpu=str(amount)) for sidecar, amount in amounts],
        containers=[container(cpu=str(amount)) for amount in running],
    )
    assert found.get("cpu", 0) == peak * 1000


def rule(input_: str, outputs: dict[str, str], **keys: Any) -> Transformation:
    return Transformation(input=input_, outputs={name: parse_quantity(text) for name, text in outputs.items()}, **keys)


def charged(rules: RequestRules, **requests: str) -> dict[str, int]:
    nanos = {ResourceName(name): parse_quantity(text).nanos for name, text in requests.items()}
    return {str(name): amount for name, amount in rules.apply(nanos).items()}


def test_excluded_resources_are_not_charged_and_feed_no_transformation() -> None:
    rules = RequestRules(exclude_prefixes=["net."], transformations=[rule("net.vf", {"credits": "1"})])
    assert charged(rules, **{"net.vf": "1", "cpu": "1"}) == {"cpu": 1000}


def test_outputs_of_several_inputs_add_up() -> None:
    rules = RequestRules(
        transformations=[
            rule("a", {"credits": "10"}, strategy="Replace"),
            rule("b", {"credits": "1500m"}, strategy="Retain"),
        ]
    )
    assert charged(rules, a="2", b="1") == {"b": 1, "credits": 22}


def test_a_factor_that_the_pod_does_not_ask_for_changes_nothing() -> None:
    rules = RequestRules(transformations=[rule("mem", {"quota": "1"}, strategy="Replace", multiply_by="gpu")])
    assert charged(rules, mem="1024") == {"quota": 1024}
    assert charged(rules, mem="1024", gpu="2") == {"quota": 2048, "gpu": 2}


@given(direct=st.integers(0, 100), used=st.integers(0, 100), allowed=st.integers(0, 100))
def test_an_allowance_lowers_other_outputs_to_zero_at_most_and_no_direct_request(
    direct: int, used: int, allowed: int
) -> None:
    rules = RequestRules(
        transformations=[
            rule("used", {"gpu": "1"}, strategy="Replace"),
            rule("allowed", {"gpu": "-1"}, strategy="Replace"),
        ]
    )
    found = charged(rules, gpu=str(direct), used=str(used), allowed=str(allowed))
    assert found == {"gpu": direct + max(used - allowed, 0)}


def test_sums_stop_at_unlimited() -> None:
    info = WorkloadInfo.of(workload(pod_set(2**31 - 1, containers=[container(cpu="1E")])), rules=NO_RULES, gates=GATES)
    assert info.pod_sets[0].requests == {CPU: UNLIMITED}
    charged_ = usage_of((info.pod_sets[0], info.pod_sets[0]))
    assert charged_.unassigned == {CPU: UNLIMITED}


def admission(count: int | None, cpu: str) -> dict[str, Any]:
    assignment = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": cpu}}
    if count is not None:
        assignment |= {"count": count}  # type: ignore[dict-item]  # JSON: the value's type is the field's
    return {"clusterQueue": "cq", "podSetAssignments": [assignment]}


@pytest.mark.parametrize(
    ("in_spec", "admitted", "reclaimable", "count"),
    [(5, 5, 0, 5), (5, 3, 0, 3), (5, 5, 2, 3), (5, 3, 3, 2), (2, 5, 0, 2), (2, 5, 5, 0), (5, None, 1, 4)],
)
def test_an_admitted_set_is_charged_for_its_active_pods_alone(
    in_spec: int, admitted: int | None, reclaimable: int, count: int
) -> None:
    full = in_spec if admitted is None else admitted
    given_ = workload(
        pod_set(in_spec, containers=[container(cpu="7")]),
        status={
            "admission": admission(admitted, f"{full * 10}m"),
            "reclaimablePods": [{"name": "main", "count": reclaimable}, {"name": "stranger", "count": 1}],
        },
    )
    info = WorkloadInfo.of(given_, rules=NO_RULES, gates=GATES)
    assert info.cluster_queue == "cq"
    assert info.pod_sets[0].count == count
    assert info.usage().assigned == {FlavorResource(FlavorName("f"), CPU): count * 10}


def test_scaling_to_its_own_count_keeps_an_amount_that_does_not_divide() -> None:
    given_ = PodSetRequests(name="a", count=3, requests={GPU: 10}, flavors={})
    assert given_.scaled_to(3).requests == {GPU: 10}
    assert given_.scaled_to(2).requests == {GPU: 6}
    assert given_.scaled_to(0).scaled_to(5).requests == {GPU: 0}


def test_limit_range_defaults_come_before_limits_stand_in_for_requests() -> None:
    limits = LimitSummary(
        [limit_range({"type": "Container", "default": {"cpu": "4", "memory": "1"}, "defaultRequest": {"cpu": "3"}})]
    )
    given_ = workload(pod_set(containers=[container(), container(limits={"cpu": "6"}), container(cpu="1")]))
    spec = adjusted(given_, overheads={}, limits=limits).spec.pod_sets[0].template.spec
    assert [str(one.resources.requests["cpu"]) for one in spec.containers] == ["3", "3", "1"]
    assert [str(one.resources.limits["cpu"]) for one in spec.containers] == ["4", "6", "4"]
    assert all(str(one.resources.requests["memory"]) == "1" for one in spec.containers)


def test_a_limit_stands_in_for_a_request_before_the_default_request_of_a_limit_range() -> None:
    limits = LimitSummary(
        [limit_range({"type": "Container", "default": {"cpu": "4"}, "defaultRequest": {"cpu": "3", "memory": "2"}})]
    )
    containers = [container(), container(limits={"cpu": "6"}), container(cpu="1")]
    given_ = workload(pod_set(initContainers=[container(limits={"memory": "9"})], containers=containers))
    spec = adjusted(given_, overheads={}, limits=limits, limits_first=True).spec.pod_sets[0].template.spec
    every = [one.resources.requests for one in (*spec.init_containers, *spec.containers)]
    assert [{name: str(amount) for name, amount in one.items()} for one in every] == [
        {"cpu": "3", "memory": "9"},
        {"cpu": "3", "memory": "2"},
        {"cpu": "6", "memory": "2"},
        {"cpu": "1", "memory": "2"},
    ]


@pytest.mark.parametrize("limits_first", [False, True])
def test_adjusting_twice_changes_nothing_more(limits_first: bool) -> None:
    limits = LimitSummary(
        [
            limit_range({"type": "Pod", "default": {"cpu": "4"}, "defaultRequest": {"cpu": "3"}}),
            limit_range({"type": "Container", "defaultRequest": {"memory": "5"}}),
        ]
    )
    container_ = container(limits={"cpu": "2"})
    given_ = workload(pod_set(containers=[container_], runtimeClassName="r", resources={"limits": {"memory": "7"}}))
    filled = partial(adjusted, overheads={"r": {"cpu": parse_quantity("1m")}}, limits=limits, limits_first=limits_first)
    once = filled(given_)
    assert once != given_
    assert filled(once) == once


@pytest.mark.parametrize("limits_first", [False, True])
def test_a_limit_of_the_pod_is_its_request_where_no_container_requests_the_resource(limits_first: bool) -> None:
    pod = {"limits": {"cpu": "8", "memory": "1Ki", "hugepages-2Mi": "4Mi"}, "requests": {"memory": "512"}}
    huge = {"hugepages-2Mi": "2Mi"}

    def asked(*containers: dict[str, Any], **spec: Any) -> dict[str, int]:
        given_ = workload(pod_set(containers=list(containers), resources=pod, **spec))
        filled = adjusted(given_, overheads={}, limits=LimitSummary(), limits_first=limits_first)
        requests = WorkloadInfo.of(filled, rules=NO_RULES, gates=GATES).pod_sets[0].requests
        return {str(name): amount for name, amount in requests.items()}

    level = {"memory": 512, "hugepages-2Mi": 4 << 20}
    assert asked(container()) == {"cpu": 8000, **level}
    assert asked(container("", huge, cpu="1"), container(limits={"cpu": "2"})) == {"cpu": 3000, **level}
    assert asked(container(), initContainers=[container(cpu="2")]) == {"cpu": 2000, **level}


def test_a_default_request_of_a_container_is_no_request_by_which_the_pod_is_charged() -> None:
    """The API server makes the pod's limit its request before a LimitRange has any say."""
    limits = LimitSummary([limit_range({"type": "Container", "defaultRequest": {"cpu": "1"}})])
    given_ = workload(pod_set(containers=[container()], resources={"limits": {"cpu": "4"}}))
    filled = adjusted(given_, overheads={}, limits=limits, limits_first=True)
    assert WorkloadInfo.of(filled, rules=NO_RULES, gates=GATES).pod_sets[0].requests == {CPU: 4000}


def test_a_pod_that_contradicts_its_containers_is_found() -> None:
    def found(resources: dict[str, Any], *containers: dict[str, Any], **spec: Any) -> list[tuple[str, tuple[str, ...]]]:
        given_ = workload(pod_set(containers=list(containers), resources=resources, **spec))
        start = "spec.podSets[0].template.spec."
        return [(one.path.removeprefix(start), one.resources) for one in resource_problems(given_)]

    two = {"requests": {"cpu": "2", "memory": "1Gi"}}
    assert found(two, container(cpu="8")) == [("resources", ("cpu",))]
    assert found(two, container(cpu="1"), initContainers=[container(cpu="3")]) == [("resources", ("cpu",))]
    assert found(two, container(cpu="1"), container(cpu="1"), overhead={"cpu": "1"}) == []
    assert found({"limits": {"cpu": "2"}}, container(limits={"cpu": "3"})) == [("containers[0]", ("cpu",))]
    assert found({"limits": {"cpu": "2"}}, container(limits={"cpu": "2"}), container(limits={"cpu": "1"})) == []


def test_several_limit_ranges_give_the_tightest_bounds_and_the_first_default() -> None:
    item = LimitSummary(
        [
            limit_range({"type": "Container", "max": {"cpu": "4"}, "min": {"cpu": "1"}, "default": {"cpu": "2"}}),
            limit_range({"type": "Container", "max": {"cpu": "3"}, "min": {"cpu": "2"}, "default": {"cpu": "3"}}),
        ]
    ).of("Container")
    assert [str(each["cpu"]) for each in (item.max, item.min, item.default)] == ["3", "2", "2"]


def test_requests_above_limits_are_found_wherever_they_stand() -> None:
    bad = container(cpu="2", limits={"cpu": "1", "memory": "1"})
    good = container(cpu="1", memory="1", limits={"cpu": "1"})
    given_ = workload(
        pod_set(containers=[good, bad]),
        pod_set(initContainers=[bad], resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
    )
    assert [(problem.path, problem.resources) for problem in resource_problems(given_)] == [
        ("spec.podSets[0].template.spec.containers[1]", ("cpu",)),
        ("spec.podSets[1].template.spec.initContainers[0]", ("cpu",)),
        ("spec.podSets[1].template.spec.resources", ("cpu",)),
    ]


def test_containers_and_the_whole_pod_keep_to_the_limit_range() -> None:
    limits = LimitSummary(
        [
            limit_range(
                {"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}},
                {"type": "Pod", "max": {"cpu": "2500m"}, "min": {"memory": "1Gi"}},
            )
        ]
    )
    given_ = workload(
        pod_set(containers=[container(cpu="500m", limits={"cpu": "3"}), container(cpu="2"), container(memory="1")]),
        pod_set(containers=[container(cpu="1")]),
    )
    found = [
        (problem.path.removeprefix("spec.podSets"), problem.rule.split()[-1])
        for problem in limit_range_problems(given_, limits)
    ]
    assert found == [
        ("[0].template.spec.containers[0]", "max"),
        ("[0].template.spec.containers[0]", "min"),
        ("[0].template.spec", "min"),
    ]
    assert limit_range_problems(given_, LimitSummary()) == []


def test_a_replica_above_the_minimum_has_the_lowest_priority_whatever_its_class_says() -> None:
    spare = {"annotations": {"tessera.dev/above-min-replicas": "true", "kueue.x-k8s.io/priority-boost": "5"}}
    on = FeatureGates({"PriorityBoost": True})
    assert effective_priority(workload(priority=10, metadata=spare), on) == LOWEST_PRIORITY


def test_priority_boost_counts_behind_its_gate_alone() -> None:
    boosted = {"annotations": {"kueue.x-k8s.io/priority-boost": "-5"}}
    on = FeatureGates({"PriorityBoost": True})
    assert effective_priority(workload(priority=10, metadata=boosted), GATES) == 10
    assert effective_priority(workload(priority=10, metadata=boosted), on) == 5
    for unfit in ("x", "1_0", " 5", "2147483648"):
        assert effective_priority(workload(metadata={"annotations": {"kueue.x-k8s.io/priority-boost": unfit}}), on) == 0


@pytest.mark.parametrize(
    ("type_", "reason", "status", "sorting", "hour"),
    [
        ("Evicted", "PodsReadyTimeout", "True", True, 2),
        ("Evicted", "PodsReadyTimeout", "False", True, 0),
        ("Evicted", "AdmissionCheck", "True", True, 2),
        ("Evicted", "Preempted", "True", True, 0),
        ("Preempted", "InCohortReclaimWhileBorrowing", "True", True, 0),
        ("Preempted", "InCohortReclaimWhileBorrowing", "True", False, 2),
        ("Preempted", "InCohortReclaimWhileBorrowing", "False", False, 0),
        ("Preempted", "InClusterQueue", "True", False, 0),
    ],
)
def test_why_a_workload_was_sent_back_decides_where_it_queues(
    type_: str, reason: str, status: str, sorting: bool, hour: int
) -> None:
    condition = {"type": type_, "reason": reason, "status": status, "lastTransitionTime": "2025-01-01T02:00:00Z"}
    given_ = workload(metadata={"creationTimestamp": "2025-01-01T00:00:00Z"}, status={"conditions": [condition]})
    found = queue_order_time_s(
        given_, timeout_requeues_by_eviction=True, gates=FeatureGates({"PrioritySortingWithinCohort": sorting})
    )
    behind = 0.001 if hour and type_ == "Preempted" else 0.0
    assert found == datetime(2025, 1, 1, hour, tzinfo=UTC).timestamp() + behind
