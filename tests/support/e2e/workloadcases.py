"""Cases of Workloads, as in ``queuecases``: templates, gates, what checks ask for, and an elastic job's pods."""

from typing import Any, Final

from tests.support.e2e.queuecases import DROP, Case, Update, statuses

_CONTAINER: Final = "spec.podSets.1.template.spec.containers.0.resources"
_POD: Final = "spec.podSets.1.template.spec"
_METADATA: Final = "spec.podSets.1.template.metadata"
_GATES: Final = "kueue.x-k8s.io/admission-gated-by"
_AMOUNT: Final = "found a negative amount for the pod itself"
_MARKS: Final = "keys and values that labels and annotations can have"
_UPDATES: Final = "keys and values that labels, node selectors, annotations"


def gated(value: str) -> dict[str, Any]:
    return {"metadata.annotations": {_GATES: value}}


WORKLOADS_CREATED: Final = tuple(
    Case(f"Workload: {name}", "Workload", change, said)
    for name, change, said in (
        ("a negative limit", {f"{_CONTAINER}.limits": {"cpu": "-1"}}, "found a negative limit"),
        ("a limit of 0", {f"{_CONTAINER}.limits": {"cpu": 0}}, None),
        ("a negative request of a pod", {f"{_POD}.resources": {"requests": {"cpu": "-1"}}}, _AMOUNT),
        ("a negative limit of a pod", {f"{_POD}.resources": {"limits": {"cpu": -1}}}, _AMOUNT),
        ("a negative overhead", {f"{_POD}.overhead": {"cpu": "-1m"}}, _AMOUNT),
        ("an overhead", {f"{_POD}.overhead": {"cpu": "1m"}}, None),
        ("a label that is none", {f"{_METADATA}.labels": {"a": "b c"}}, _MARKS),
        ("an annotation that is none", {f"{_METADATA}.annotations": {"a/b/c": "d"}}, _MARKS),
        ("an annotation of a domain in capitals", {f"{_METADATA}.annotations": {"Example.com/A": "d e"}}, None),
        ("two gates", gated("example.com/a, example.com/b"), None),
        ("no gate", gated(""), None),
        ("a gate without a path", gated("example.com"), "expected gates such as example.com/name"),
        ("a gate of 64 characters", gated(f"example.com/{'a' * 52}"), "expected gates such as example.com/name"),
        ("a gate twice", gated("example.com/a,example.com/a"), "each at most once"),
        ("a gate that is empty", gated("example.com/a,"), "expected gates such as example.com/name"),
    )
)

_RESERVED: Final[dict[str, Any]] = {"status": statuses()["Workload"]}
_SHRUNK: Final[dict[str, Any]] = {
    **_RESERVED,
    "metadata.annotations": {"kueue.x-k8s.io/elastic-job": "true"},
    "spec.podSets.1.count": 2,
    "spec.podSets.1.minCount": DROP,
}
_UPDATED_POD_SET: Final = "status.admissionChecks.0.podSetUpdates.0"

WORKLOADS_UPDATED: Final = (
    Update("Workload: a gate less", "Workload", gated("example.com/a,example.com/b"), gated("example.com/b")),
    Update("Workload: a gate later", "Workload", {}, gated("example.com/a"), "gates may only be removed"),
    Update(
        "Workload: another gate",
        "Workload",
        gated("example.com/a,example.com/b"),
        gated("example.com/c"),
        "gates may only be removed",
    ),
    *(
        Update(f"Workload status: {name}", "Workload", first, change, said, of_status=True)
        for name, first, change, said in (
            (
                "quota for a pod set of another workload",
                {},
                {**_RESERVED, "status.admission.podSetAssignments.0.name": "x"},
                "Assignments[].name: expected pod sets",
            ),
            (
                "more pods done than there are, without quota",
                {},
                {"status.reclaimablePods": [{"name": "workers", "count": 5}]},
                "at most their count",
            ),
            ("a check's label that is none", {}, {**_RESERVED, f"{_UPDATED_POD_SET}.labels": {"a": "@"}}, _UPDATES),
            (
                "a check's node selector that is none",
                {},
                {**_RESERVED, f"{_UPDATED_POD_SET}.nodeSelector": {"@": "a"}},
                _UPDATES,
            ),
            (
                "a check's annotation that is none",
                {},
                {**_RESERVED, f"{_UPDATED_POD_SET}.annotations": {"@": "a"}},
                _UPDATES,
            ),
            (
                "a check's toleration that is none",
                {},
                {**_RESERVED, f"{_UPDATED_POD_SET}.tolerations.0.key": "@"},
                _UPDATES,
            ),
            (
                "a check's update of no pod set",
                {},
                {**_RESERVED, f"{_UPDATED_POD_SET}.name": "x"},
                "podSetUpdates[].name: expected pod sets",
            ),
            ("fewer pods done of a job that shrank", _SHRUNK, {"status.reclaimablePods.0.count": 0}, None),
            ("no pods done of a job that shrank", _SHRUNK, {"status.reclaimablePods": []}, None),
        )
    ),
)
