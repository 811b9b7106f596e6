"""Rules about kinds whose templates lie in their own object."""

from typing import Any

from controller.jobs.framework.topologyrequest import GROUP_NAME, PREFERRED, REQUIRED, SLICE_SIZE, SLICE_TOPOLOGY
from controller.jobs.kinds.jobset import JobSet
from controller.jobs.kinds.raycluster import RayCluster
from controller.jobs.rules import kinds
from controller.scheduler.model.gates import FeatureGates
from tests.support.controller.rayobjects import ray_cluster

GATES = FeatureGates()
RACK = "example.com/rack"
PATH = "spec.replicatedJobs[{}].template.spec.template.metadata.annotations"


def jobset(*annotations: dict[str, str], suspend: bool = True, queue: str = "q") -> Any:
    jobs = [
        {"name": f"j{index}", "replicas": 1, "template": {"spec": {"template": {"metadata": {"annotations": each}}}}}
        for index, each in enumerate(annotations)
    ]
    metadata = {"labels": {"kueue.x-k8s.io/queue-name": queue}}
    return {"metadata": metadata, "spec": {"suspend": suspend, "replicatedJobs": jobs}}


def refused(job: Any, **gates: bool) -> list[tuple[str, str]]:
    return [(one.type, one.field) for one in kinds.created(JobSet(), job, FeatureGates(gates))]


def test_each_pod_set_is_told_what_is_wrong_with_its_topology() -> None:
    both = {REQUIRED: RACK, PREFERRED: RACK}
    assert refused(jobset({REQUIRED: RACK}, {})) == []
    assert refused(jobset({}, both)) == [("Invalid", PATH.format(1))]
    assert refused(jobset(both, both)) == [("Invalid", PATH.format(0)), ("Invalid", PATH.format(1))]
    assert refused(jobset(both), TopologyAwareScheduling=False) == []


def test_sizes_and_groups_are_looked_at_where_each_pod_set_is_in_order() -> None:
    assert refused(jobset({SLICE_TOPOLOGY: RACK, SLICE_SIZE: "2"})) == [("Invalid", f"{PATH.format(0)}[{SLICE_SIZE}]")]
    member = {REQUIRED: RACK, GROUP_NAME: "g"}
    assert refused(jobset(member, member)) == []
    assert refused(jobset(member)) == [("Invalid", f"{PATH.format(0)}[{GROUP_NAME}]")]
    other = {PREFERRED: RACK, GROUP_NAME: "g"}
    assert refused(jobset(member, other)) == [("Invalid", PATH.format(0)), ("Invalid", PATH.format(1))]


def test_a_change_is_held_to_the_rules_of_creation_and_of_updates() -> None:
    old, new = jobset({}, suspend=False), jobset({REQUIRED: RACK, PREFERRED: RACK}, suspend=False, queue="r")
    found = [one.field for one in kinds.updated(JobSet(), old, new, GATES)]
    assert found == ["metadata.labels[kueue.x-k8s.io/queue-name]", PATH.format(0)]
    assert kinds.updated(JobSet(), old, old, GATES) == []


def test_rules_of_some_kinds_are_about_queued_jobs_only() -> None:
    job = ray_cluster(enableInTreeAutoscaling=True)
    alone = {**job, "metadata": {"name": "c"}}
    changed = {**alone, "metadata": {"name": "c", "labels": {"kueue.x-k8s.io/priority-class": "p"}}}
    running = {**alone, "spec": {**alone["spec"], "suspend": False}}
    assert [one.field for one in kinds.created(RayCluster(), job, GATES)] == ["spec.enableInTreeAutoscaling"]
    assert kinds.created(RayCluster(), alone, GATES) == []
    assert [one.field for one in kinds.created(RayCluster(), alone, GATES, manage_all=True)] == [
        "spec.enableInTreeAutoscaling"
    ]
    assert kinds.updated(RayCluster(), alone, changed, GATES) == []
    left = [one.field for one in kinds.updated(RayCluster(), job, running, GATES)]
    assert left == ["metadata.labels[kueue.x-k8s.io/queue-name]"]
    old_queue_counts = FeatureGates({"ValidateRayAndSparkJobUpdates": False})
    assert kinds.updated(RayCluster(), job, running, old_queue_counts) == []
