"""Each difference between the versions, one by one."""

import copy
from typing import Any

import pytest

from controller.objects.conversion import HUB, KINDS, OLD, ConversionError, convert


def old(kind: str, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": OLD, "kind": kind, "metadata": {"name": "x", "labels": {"a": "b"}}, **parts}


def new(kind: str, **parts: Any) -> dict[str, Any]:
    return {**old(kind, **parts), "apiVersion": HUB}


def up(kind: str, **parts: Any) -> dict[str, Any]:
    return convert(old(kind, **parts), HUB)


def down(kind: str, **parts: Any) -> dict[str, Any]:
    return convert(new(kind, **parts), OLD)


BOTH_WAYS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "cohort": (
        "ClusterQueue",
        {"spec": {"cohort": "team", "queueingStrategy": "StrictFIFO"}},
        {"spec": {"cohortName": "team", "queueingStrategy": "StrictFIFO"}},
    ),
    "workload priority class": (
        "Workload",
        {
            "spec": {
                "priorityClassName": "high",
                "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
                "priority": 7,
            }
        },
        {
            "spec": {
                "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
                "priority": 7,
            }
        },
    ),
    "pod priority class": (
        "Workload",
        {"spec": {"priorityClassName": "high", "priorityClassSource": "scheduling.k8s.io/priorityclass"}},
        {"spec": {"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}}},
    ),
    "execution time": (
        "Workload",
        {"status": {"accumulatedPastExexcutionTimeSeconds": 5}},
        {"status": {"accumulatedPastExecutionTimeSeconds": 5}},
    ),
    "local queue usage": (
        "LocalQueue",
        {"status": {"flavorUsage": [{"name": "f", "resources": []}]}},
        {"status": {"flavorsUsage": [{"name": "f", "resources": []}]}},
    ),
    "cluster of another site": (
        "MultiKueueCluster",
        {"spec": {"kubeConfig": {"location": "s", "locationType": "Secret"}}},
        {"spec": {"clusterSource": {"kubeConfig": {"location": "s", "locationType": "Secret"}}}},
    ),
    "topology assignment": (
        "Workload",
        {
            "status": {
                "admission": {
                    "clusterQueue": "q",
                    "podSetAssignments": [
                        {
                            "name": "main",
                            "topologyAssignment": {
                                "levels": ["rack", "host"],
                                "domains": [
                                    {"values": ["r1", "node-1"], "count": 2},
                                    {"values": ["r1", "node-2"], "count": 3},
                                ],
                            },
                        },
                        {"name": "other"},
                    ],
                }
            }
        },
        {
            "status": {
                "admission": {
                    "clusterQueue": "q",
                    "podSetAssignments": [
                        {
                            "name": "main",
                            "topologyAssignment": {
                                "levels": ["rack", "host"],
                                "slices": [
                                    {
                                        "domainCount": 2,
                                        "valuesPerLevel": [
                                            {"universal": "r1"},
                                            {"individual": {"prefix": "node-", "roots": ["1", "2"]}},
                                        ],
                                        "podCounts": {"individual": [2, 3]},
                                    }
                                ],
                            },
                        },
                        {"name": "other"},
                    ],
                }
            }
        },
    ),
}


@pytest.mark.parametrize("case", BOTH_WAYS.values(), ids=list(BOTH_WAYS))
def test_what_both_versions_can_say_is_translated_both_ways(
    case: tuple[str, dict[str, Any], dict[str, Any]],
) -> None:
    kind, before, after = case
    assert up(kind, **before) == new(kind, **after)
    assert down(kind, **after) == old(kind, **before)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_unknown_fields_and_metadata_pass_unchanged(kind: str) -> None:
    given = old(kind, spec={"custom": {"a": [1, None, 2.5]}}, status={"custom": "x"}, value=3)
    assert convert(given, HUB) == {**given, "apiVersion": HUB}
    assert convert(convert(given, HUB), OLD) == given


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_object_that_is_there_already_stays(kind: str) -> None:
    given = new(kind, spec={"cohortName": "a"})
    assert convert(given, HUB) is given


@pytest.mark.parametrize(
    ("key", "value"), [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")], ids=["borrow", "preempt"]
)
def test_the_old_words_of_fungibility_become_the_new_one(key: str, value: str) -> None:
    spec = {"flavorFungibility": {key: value, "preference": "BorrowingOverPreemption"}}
    wanted = {"flavorFungibility": {key: "MayStopSearch", "preference": "BorrowingOverPreemption"}}
    assert up("ClusterQueue", spec=spec)["spec"] == wanted
    assert down("ClusterQueue", spec=wanted)["spec"] == wanted


def test_plain_checks_become_checks_of_all_flavors_and_add_up_with_the_strategy() -> None:
    plain = {"admissionChecks": ["a", "b", "a"]}
    assert up("ClusterQueue", spec=plain)["spec"] == {
        "admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}
    }
    both = plain | {"admissionChecksStrategy": {"admissionChecks": [{"name": "b", "onFlavors": ["f"]}]}}
    assert up("ClusterQueue", spec=both)["spec"]["admissionChecksStrategy"]["admissionChecks"] == [
        {"name": "b", "onFlavors": ["f"]},
        {"name": "a"},
    ]


@pytest.mark.parametrize("empty", [{}, {"admissionChecks": []}, {"admissionChecks": None}], ids=str)
def test_a_strategy_without_checks_is_none_because_the_hub_demands_one(empty: dict[str, Any]) -> None:
    assert up("ClusterQueue", spec={"admissionChecksStrategy": empty})["spec"] == {}


def test_a_priority_class_without_a_source_is_lost_and_the_priority_stays() -> None:
    spec = {"priorityClassName": "high", "priorityClassSource": "", "priority": 4}
    assert up("Workload", spec=spec)["spec"] == {"priority": 4}


LOST_DOWN: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "concurrent admission": ("ClusterQueue", {"spec": {"concurrentAdmissionPolicy": {}}}, {"spec": {}}),
    "preemption gates": (
        "Workload",
        {"spec": {"preemptionGates": [{"name": "g"}]}, "status": {"preemptionGates": []}},
        {"spec": {}, "status": {}},
    ),
    "slice constraints": (
        "Workload",
        {"spec": {"podSets": [{"topologyRequest": {"required": "r", "podsetSliceRequiredTopologyConstraints": []}}]}},
        {"spec": {"podSets": [{"topologyRequest": {"required": "r"}}]}},
    ),
    "quota management": ("MultiKueueConfig", {"spec": {"quotaManagement": "Manual"}}, {"spec": {}}),
}
LOST_UP: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "retry delay": (
        "AdmissionCheck",
        {"spec": {"retryDelayMinutes": 15, "controllerName": "c"}},
        {"spec": {"controllerName": "c"}},
    ),
    "pending list": ("ClusterQueue", {"status": {"pendingWorkloadsStatus": {}}}, {"status": {}}),
    "usage history of a cohort": (
        "Cohort",
        {"status": {"fairSharing": {"weightedShare": 1, "admissionFairSharingStatus": {}}}},
        {"status": {"fairSharing": {"weightedShare": 1}}},
    ),
    "flavors of a local queue": ("LocalQueue", {"status": {"flavors": [{"name": "f"}]}}, {"status": {}}),
}


@pytest.mark.parametrize("case", LOST_DOWN.values(), ids=list(LOST_DOWN))
def test_what_the_old_version_cannot_say_is_left_out(case: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    kind, before, after = case
    assert down(kind, **before) == old(kind, **after)


@pytest.mark.parametrize("case", LOST_UP.values(), ids=list(LOST_UP))
def test_what_the_new_version_cannot_say_is_left_out(case: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    kind, before, after = case
    assert up(kind, **before) == new(kind, **after)


def assignment(**fields: Any) -> dict[str, Any]:
    return {"status": {"admission": {"podSetAssignments": [{"topologyAssignment": fields}]}}}


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({"spec": []}, ".spec: found array"),
        ({"spec": {"podSets": {}}}, ".spec.podSets: found object"),
        ({"spec": {"podSets": [3]}}, ".spec.podSets[0]: found integer"),
        ({"spec": {"priorityClassName": 3}}, ".spec.priorityClassName: found integer"),
        ({"spec": {"priorityClassName": "a", "priorityClassSource": "b"}}, ".spec.priorityClassSource: found 'b'"),
        ({"status": "x"}, ".status: found string"),
        (assignment(levels=["a"], domains=[{"values": [], "count": 1}]), "domains[0].values: found 0"),
        (assignment(levels=["a"], domains=[{"values": ["x"], "count": -1}]), "domains[0].count: found -1"),
        (assignment(levels=["a"], domains=[{"values": ["x"], "count": True}]), "domains[0].count: found boolean"),
        (assignment(levels="a", domains=[]), "levels: expected an array of strings"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_workload_of_another_shape_is_refused_by_field(parts: dict[str, Any], field: str) -> None:
    with pytest.raises(ConversionError) as refused:
        up("Workload", **parts)
    assert field in str(refused.value)


@pytest.mark.parametrize(
    "slices",
    [
        [{"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["a"]}}], "podCounts": {"universal": 1}}],
        [{"domainCount": 1, "valuesPerLevel": [], "podCounts": {"universal": 1}}],
        [{"domainCount": -1, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}}],
        [{"domainCount": 1, "valuesPerLevel": [{}], "podCounts": {"universal": 1}}],
        [{}],
        "none",
    ],
    ids=["few roots", "no level", "negative", "no value", "empty", "text"],
)
def test_slices_that_contradict_themselves_are_refused(slices: Any) -> None:
    with pytest.raises(ConversionError, match="topologyAssignment"):
        down("Workload", **assignment(levels=["a"], slices=slices))


def test_a_few_bytes_cannot_ask_for_a_full_memory() -> None:
    bomb = {"domainCount": 100_000, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}}
    with pytest.raises(ConversionError, match="at most 400000 domains"):
        down("Workload", **assignment(levels=["a"], slices=[bomb] * 1000))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"kind": "Workload"}, HUB),
        ({"apiVersion": OLD, "kind": "Unknown"}, HUB),
        ({"apiVersion": "kueue.x-k8s.io/v1alpha1", "kind": "Workload"}, HUB),
        ({"apiVersion": OLD, "kind": "Workload"}, "kueue.x-k8s.io/v1"),
        ({"apiVersion": 3, "kind": "Workload"}, HUB),
    ],
    ids=["no version", "kind", "version", "wanted", "number"],
)
def test_other_kinds_and_versions_are_refused(given: dict[str, Any], wanted: str) -> None:
    with pytest.raises(ConversionError, match="expected"):
        convert(given, wanted)


def test_what_was_handed_in_is_not_changed() -> None:
    for kind, before, after in BOTH_WAYS.values():
        for given, wanted in ((old(kind, **before), HUB), (new(kind, **after), OLD)):
            kept = copy.deepcopy(given)
            convert(given, wanted)
            assert given == kept
