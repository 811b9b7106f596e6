"""Where we differ from Kueue on purpose: rules over a case's input and over what differs, each with its reason.

A rule never sees which case it is, so it cannot name one: what it lets pass it lets pass in every corpus. It covers the
difference that its reason is about, where it stands and with the values that it has, and no other of the same input:
``test_differences`` shows each rule one that it must not cover.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from controller.objects.quantity import parse_quantity
from tests.conformance.replay import ABSENT, Difference, Rule, at, one_of

Given = Mapping[str, Any]
_LARGEST: Final = 2**63 - 1
_KEY: Final = re.compile(r"(?:newAssignments|workloads)\.([^./]+/[^.]+)")


def _pod_sets(workload: Given) -> list[Given]:
    return list(workload["spec"].get("podSets") or ())


def _asked(pod_set: Given) -> Given:
    return pod_set.get("topologyRequest") or {}


def _in_a_group(workload: Given, level: str = "podSetGroupName") -> bool:
    sets = [_asked(one) for one in _pod_sets(workload) if _asked(one).get("podSetGroupName")]
    return any(one.get(level) for one in sets)


def _status(workload: Given) -> Given:
    return workload.get("status") or {}


def _lost(workload: Given) -> bool:
    return bool(_status(workload).get("unhealthyNodes"))


def _holds(workload: Given) -> bool:
    return bool(_status(workload).get("admission"))


def _keys(given: Given, holds: Callable[[Given], bool]) -> set[str]:
    """Keys of the workloads of which it holds."""
    found = given.get("workloads") or ()
    return {f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in found if holds(one)}


def _any(holds: Callable[[Given], bool]) -> Callable[[Given], bool]:
    return lambda given: bool(_keys(given, holds))


def _about(holds: Callable[[Given], bool]) -> Callable[[Given, Difference], bool]:
    """A difference in the status, or the places, of such a workload."""

    def concerns(given: Given, difference: Difference) -> bool:
        key = _KEY.match(difference.path)
        return key is not None and key[1] in _keys(given, holds)

    return concerns


def _lost_part_of_a_tied_group(workload: Given) -> bool:
    """A leader and its workers in one domain of a required level, and part of them ran on a node that is lost."""
    return _lost(workload) and _in_a_group(workload, "required")


def _waiting_group(workload: Given) -> bool:
    return not _holds(workload) and _in_a_group(workload)


def _group_beside_a_second_pass(given: Given) -> bool:
    """A leader and its workers wait, while another workload gets new places."""
    return bool(_keys(given, _lost)) and bool(_keys(given, _waiting_group))


def _evicts_nobody(given: Given, difference: Difference) -> bool:
    """Kueue's first event is the eviction of one that runs well, ours is about one that waits."""
    well = _keys(given, lambda workload: _holds(workload) and not _lost(workload))
    return difference.expected in well and difference.found in _keys(given, _waits)


def _done_in_part(workload: Given) -> bool:
    return bool(_status(workload).get("reclaimablePods"))


def _lost_and_done_in_part(workload: Given) -> bool:
    return _lost(workload) and _done_in_part(workload)


def _done_on_nodes(workload: Given) -> bool:
    """Pods of it that are done had places."""
    admission = _status(workload).get("admission") or {}
    given = admission.get("podSetAssignments") or ()
    return _done_in_part(workload) and any(one.get("topologyAssignment") for one in given)


def _waits(workload: Given) -> bool:
    return not _holds(workload)


def _quotas(given: Given) -> Iterator[Given]:
    for owner in (*(given.get("cohorts") or ()), *(given.get("clusterQueues") or ())):
        for group in owner["spec"].get("resourceGroups") or ():
            for flavor in group.get("flavors") or ():
                yield from flavor["resources"]


def _endless_quota_of_which_some_is_lent(given: Given) -> bool:
    def endless(quota: Given) -> bool:
        amount = parse_quantity(str(quota["nominalQuota"])).fraction
        return amount * (1000 if quota["name"] == "cpu" else 1) >= _LARGEST

    return any(quota.get("lendingLimit") is not None and endless(quota) for quota in _quotas(given))


def _has_checks(given: Given) -> bool:
    queues = given.get("clusterQueues") or ()
    strategies = ((one["spec"].get("admissionChecksStrategy") or {}) for one in queues)
    return any(one.get("admissionChecks") for one in strategies) or any(
        one["spec"].get("admissionChecks") for one in queues
    )


def _just_begun(checks: Any) -> bool:
    """Checks of which nothing is known yet."""
    return isinstance(checks, Mapping) and all(one.get("state") == "Pending" for one in checks.values())


def _several_groups(given: Given) -> bool:
    return any(len(one["spec"].get("resourceGroups") or ()) > 1 for one in given.get("clusterQueues") or ())


def _is_less(difference: Difference) -> bool:
    """Kueue's amount is the smaller one."""
    try:
        expected, found = (parse_quantity(str(value)).fraction for value in (difference.expected, difference.found))
    except ValueError:
        return False
    return expected < found


def _less(path: str) -> Callable[[Difference], bool]:
    return lambda difference: at(path)(difference) and _is_less(difference)


def _is_given(value: Any) -> bool:
    return value is not ABSENT


RULES: tuple[Rule, ...] = (
    Rule(
        "a leader and its workers stay in one domain of their required level: where a lost part has no room there, "
        "the workload is evicted; Kueue places each pod set alone and may split the group",
        _any(_lost_part_of_a_tied_group),
        at(r"newAssignments\..*topologyAssignment.*"),
        _about(_lost_part_of_a_tied_group),
    ),
    Rule(
        "a leader and its workers that share a node are weighed together against what a second pass took there in the "
        "same cycle; Kueue weighs each alone, and evicts others for a gang that does not fit afterwards",
        _group_beside_a_second_pass,
        at(r"events\[\d+\]\[0\]"),
        _evicts_nobody,
    ),
    Rule(
        "a second pass moves pods and leaves their number; Kueue takes those that are done off once more",
        _any(_lost_and_done_in_part),
        _less(r"newAssignments\..*\.podSetAssignments\[\d+\]\.(count|resourceUsage\..*)"),
        _about(_lost_and_done_in_part),
    ),
    Rule(
        "pods that are done have left their nodes: others may go there; Kueue gives back their quota alone",
        _any(_done_on_nodes),
        at(r"newAssignments\.[^.]+(\..*topologyAssignment.*)?", found=_is_given),
        _about(_waits),
    ),
    Rule(
        "of a quota without end as much is lent as its limit says; Kueue takes endless from endless, and lends none",
        _endless_quota_of_which_some_is_lent,
        one_of(_less(r".+\[\d+\]\[2\]"), at(r"(ClusterQueue|Cohort)/.*\.(weightedShare|dominantResource|borrowing)")),
    ),
    Rule(
        "admission checks stand in a Workload from its reservation on; Kueue's other controller writes them",
        _has_checks,
        at(r"workloads\..*\.admissionChecks", ABSENT, _just_begun),
        _about(_waits),
    ),
    Rule(
        "of several resource groups without a flavor, the reason is that of the one that no quota helps; Kueue names "
        "the first by a hash of the resources' names",
        _several_groups,
        at(
            r"workloads\..*\.conditions\.QuotaReserved\.reason|events\[\d+\]\[2\]",
            "ExceedsMaxQuota",
            "NoMatchingFlavor",
        ),
    ),
)
