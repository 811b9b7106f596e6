"""Each rule covers what its reason says, and not the neighbour: another difference of the same input, or another input
with the same difference.
"""

from typing import Any

import pytest

from tests.conformance.kueue.differences import RULES
from tests.conformance.replay import ABSENT, Difference, Rule

pytestmark = pytest.mark.conformance

Given = dict[str, Any]
PLACES = "topologyAssignment"


def workload(name: str, *, sets: tuple[Given, ...] = ({},), **status: Any) -> Given:
    return {"metadata": {"namespace": "ns", "name": name}, "spec": {"podSets": list(sets)}, "status": status}


def asking(**request: Any) -> Given:
    return {"topologyRequest": request}


def queues(*quotas: Given, groups: int = 1, **spec: Any) -> list[Given]:
    listed = [{"flavors": [{"name": "f", "resources": list(quotas)}]} for _ in range(groups)]
    return [{"metadata": {"name": "cq"}, "spec": {"resourceGroups": listed, **spec}}]


GROUP = (asking(podSetGroupName="g", required="rack"), asking(podSetGroupName="g", required="rack"))
LOOSE = (asking(podSetGroupName="g", preferred="rack"), asking(podSetGroupName="g", preferred="rack"))
LOST = [{"name": "n1"}]
DONE = [{"name": "main", "count": 1}]
HELD = {"podSetAssignments": [{"name": "main", PLACES: {"levels": ["rack"]}}]}
UNPLACED = {"podSetAssignments": [{"name": "main"}]}
CHECK = {"c": {"name": "c", "state": "Pending"}}
SECOND = workload("a", unhealthyNodes=LOST, reclaimablePods=DONE, admission=HELD)
CHECKED = queues(admissionChecksStrategy={"admissionChecks": [{"name": "c"}]})
ENDLESS = {"name": "cpu", "nominalQuota": "1E", "lendingLimit": "4500m"}

COVERED: tuple[tuple[str, Given, Difference], ...] = (
    ("leader and its workers stay", {"workloads": [workload("a", sets=GROUP, unhealthyNodes=LOST, admission=HELD)]},
     Difference(f"newAssignments.ns/a.podSetAssignments[0].{PLACES}", {"x": 1}, ABSENT)),
    ("weighed together", {"workloads": [workload("a", unhealthyNodes=LOST, admission=HELD), workload("b", sets=GROUP),
                                        workload("c", admission=HELD)]},
     Difference("events[0][0]", "ns/c", "ns/b")),
    ("second pass moves pods", {"workloads": [SECOND]},
     Difference("newAssignments.ns/a.podSetAssignments[0].count", 1, 4)),
    ("have left their nodes", {"workloads": [workload("a", reclaimablePods=DONE, admission=HELD), workload("b")]},
     Difference("newAssignments.ns/b", ABSENT, {"clusterQueue": "cq"})),
    ("quota without end", {"clusterQueues": queues(ENDLESS)}, Difference("cq[0][2]", 13500, 18000)),
    ("admission checks stand",
     {"clusterQueues": CHECKED, "workloads": [workload("a")]},
     Difference("workloads.ns/a.admissionChecks", ABSENT, CHECK)),
    ("several resource groups", {"clusterQueues": queues(groups=2)},
     Difference("workloads.ns/a.conditions.QuotaReserved.reason", "ExceedsMaxQuota", "NoMatchingFlavor")),
)  # fmt: skip

NEIGHBOURS: tuple[tuple[str, Given, Difference], ...] = (
    ("leader and its workers stay", {"workloads": [workload("a", sets=LOOSE, unhealthyNodes=LOST, admission=HELD)]},
     Difference(f"newAssignments.ns/a.podSetAssignments[0].{PLACES}", {"x": 1}, ABSENT)),
    ("leader and its workers stay",
     {"workloads": [workload("a", sets=GROUP, unhealthyNodes=LOST, admission=HELD), workload("b")]},
     Difference(f"newAssignments.ns/b.podSetAssignments[0].{PLACES}", {"x": 1}, ABSENT)),
    ("weighed together", {"workloads": [workload("a", unhealthyNodes=LOST, admission=HELD), workload("b", sets=GROUP)]},
     Difference("events[0][0]", "ns/a", "ns/b")),
    ("weighed together", {"workloads": [workload("a", unhealthyNodes=LOST, admission=HELD), workload("b"),
                                        workload("c", admission=HELD)]},
     Difference("events[0][0]", "ns/c", "ns/b")),
    ("second pass moves pods", {"workloads": [SECOND]},
     Difference("newAssignments.ns/a.podSetAssignments[0].count", 4, 1)),
    ("second pass moves pods", {"workloads": [workload("a", reclaimablePods=DONE, admission=HELD)]},
     Difference("newAssignments.ns/a.podSetAssignments[0].count", 1, 4)),
    ("have left their nodes", {"workloads": [workload("a", reclaimablePods=DONE, admission=UNPLACED), workload("b")]},
     Difference("newAssignments.ns/b", ABSENT, {"clusterQueue": "cq"})),
    ("have left their nodes", {"workloads": [workload("a", reclaimablePods=DONE, admission=HELD), workload("b")]},
     Difference("newAssignments.ns/b", {"clusterQueue": "cq"}, ABSENT)),
    ("quota without end", {"clusterQueues": queues({**ENDLESS, "nominalQuota": "1000"})},
     Difference("cq[0][2]", 13500, 18000)),
    ("quota without end", {"clusterQueues": queues(ENDLESS)}, Difference("cq[0][2]", 18000, 13500)),
    ("admission checks stand",
     {"clusterQueues": CHECKED, "workloads": [workload("a")]},
     Difference("workloads.ns/a.admissionChecks", ABSENT, {"c": {"name": "c", "state": "Ready"}})),
    ("admission checks stand", {"clusterQueues": queues(), "workloads": [workload("a")]},
     Difference("workloads.ns/a.admissionChecks", ABSENT, CHECK)),
    ("several resource groups", {"clusterQueues": queues(groups=1)},
     Difference("workloads.ns/a.conditions.QuotaReserved.reason", "ExceedsMaxQuota", "NoMatchingFlavor")),
    ("several resource groups", {"clusterQueues": queues(groups=2)},
     Difference("workloads.ns/a.conditions.QuotaReserved.reason", "WaitingForQuota", "NoMatchingFlavor")),
)  # fmt: skip


def rule(words: str) -> Rule:
    (found,) = [one for one in RULES if words in one.reason]
    return found


@pytest.mark.parametrize(("words", "given", "difference"), COVERED)
def test_a_rule_covers_what_it_says(words: str, given: Given, difference: Difference) -> None:
    assert rule(words).covers(given, difference)


@pytest.mark.parametrize(("words", "given", "difference"), NEIGHBOURS)
def test_a_rule_covers_no_neighbour(words: str, given: Given, difference: Difference) -> None:
    assert not rule(words).covers(given, difference)


def test_each_rule_is_shown_both() -> None:
    for listed in (COVERED, NEIGHBOURS):
        assert {rule(words).reason for words, _, _ in listed} == {one.reason for one in RULES}
