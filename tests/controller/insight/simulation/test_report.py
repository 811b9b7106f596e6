"""Decisions in the words of the timeline."""

import pytest

from controller.insight.simulation.report import placement
from controller.insight.simulation.timeline import TimelinePlacement
from controller.objects.placeencoding import Domain, encode
from controller.objects.workload import Admission, PodSetAssignment, Workload, WorkloadStatus
from controller.scheduler.engine import Engine

RACK, HOST = "example.com/rack", "kubernetes.io/hostname"


def placed(*levels: str) -> tuple[TimelinePlacement, ...]:
    domains = [Domain(("r1", "n1")[: len(levels)], 3), Domain(("r1", "n2")[: len(levels)], 1)]
    chosen = PodSetAssignment(name="main", topology_assignment=encode(levels, domains[: len(levels)]))
    bare = PodSetAssignment(name="driver")
    return placement(Engine(), Workload(status=WorkloadStatus(admission=Admission(pod_set_assignments=(bare, chosen)))))


@pytest.mark.parametrize(
    ("levels", "found"),
    [
        (
            (RACK, HOST),
            (
                TimelinePlacement(pod_set="main", node="n1", pods=3),
                TimelinePlacement(pod_set="main", node="n2", pods=1),
            ),
        ),
        ((RACK,), (TimelinePlacement(pod_set="main", node="", pods=3, domains={RACK: "r1"}),)),
    ],
)
def test_a_place_is_a_node_or_a_domain_where_the_topology_ends_above_them(
    levels: tuple[str, ...], found: tuple[TimelinePlacement, ...]
) -> None:
    assert placed(*levels) == found


def test_without_a_topology_there_is_no_place() -> None:
    assert placement(Engine(), Workload()) == ()
