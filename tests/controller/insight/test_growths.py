"""A gang that runs with a part of its pods is explained with how many it has, and what waits for the rest."""

import pytest

from controller.insight.explain import explained
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import GROWTH
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

SAID = "It runs with 5 of 6 pods, and its growth ns/growth waits for quota for the rest"


def running() -> World:
    """A gang of six pods that runs with five, its growth, and a workload that waits as well."""
    made = World()
    made.put(flavor(), cluster_queue("q", 5), local_queue("q"))
    made.put(workload("base", "q", count=6, least=1))
    made.settle()
    notes = {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/base", GROWTH: "true"}
    made.put(workload("growth", "q", count=6, least=6, annotations=notes, created_s=1))
    made.put(workload("other", "q", created_s=2))
    made.settle()
    assert made.running() == {"base"}
    return made


@pytest.mark.parametrize("asked", ["base", "growth"])
def test_both_workloads_of_a_gang_that_grows_tell_how_many_pods_run(asked: str) -> None:
    made = running()
    told = explained(made.engine, made.workloads[WorkloadKey(f"ns/{asked}")], made.now_s)["growth"]
    assert told == {"workload": "ns/growth", "runs": 5, "of": 6, "sentence": SAID}


def test_no_other_workload_tells_of_a_growth() -> None:
    made = running()
    assert explained(made.engine, made.workloads[WorkloadKey("ns/other")], made.now_s)["growth"] is None


def test_a_gang_that_has_grown_tells_of_no_growth() -> None:
    made = running()
    made.put(cluster_queue("q", 7))
    made.settle()
    assert "growth" in made.running()
    told = [explained(made.engine, made.workloads[WorkloadKey(f"ns/{one}")], made.now_s) for one in ("base", "growth")]
    assert [each["growth"] for each in told] == [None, None]
