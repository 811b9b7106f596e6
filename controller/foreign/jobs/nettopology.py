"""The network topology that the tasks of a Volcano Job request: levels for their pod sets. Pure.

``spec.networkTopology`` is about all pods of the job, ``tasks[].partitionPolicy.networkTopology`` about each partition
by itself, which is a slice here.
"""

from collections.abc import Sequence

from controller.foreign.objects.volcanojob import TaskSpec, VolcanoJob
from controller.jobs.framework.podsets import JobPodSet
from controller.jobs.framework.raw import JobError
from controller.jobs.framework.tiers import SLICES, Tiers, asked, together, with_request


def with_levels(
    pod_sets: Sequence[JobPodSet], job: VolcanoJob, tiers: Tiers, *, elastic: bool
) -> tuple[JobPodSet, ...]:
    """The pod sets with the levels that their tasks request. ``pod_sets``: one for each task, in their order. Raises
    JobError.
    """
    path = "spec.networkTopology"
    sliced = [_in_slices(each, task, index, tiers) for index, (each, task) in enumerate(_pairs(pod_sets, job))]
    found = together(sliced, asked(job.spec.network_topology, tiers, path), path)
    if elastic and any(new is not old for new, old in zip(found, pod_sets, strict=True)):
        raise JobError(f"{path}: expected none of an elastic job, whose pods come and go")
    return found


def required_level(job: VolcanoJob, tiers: Tiers) -> str:
    """The label of nodes of which all pods of the job must have one value; empty for none. Raises JobError."""
    return str(asked(job.spec.network_topology, tiers, "spec.networkTopology").get("required", ""))


def _pairs(pod_sets: Sequence[JobPodSet], job: VolcanoJob) -> list[tuple[JobPodSet, TaskSpec]]:
    return list(zip(pod_sets, job.spec.tasks, strict=True))


def _in_slices(pod_set: JobPodSet, task: TaskSpec, index: int, tiers: Tiers) -> JobPodSet:
    policy = task.partition_policy
    if policy is None or policy.partition_size < 1:
        return pod_set
    levels = asked(policy.network_topology, tiers, f"spec.tasks[{index}].partitionPolicy.networkTopology")
    if "required" in levels and SLICES not in (pod_set.topology_request or {}):
        slices = {
            SLICES: levels["required"],
            "podSetSliceSize": min(policy.partition_size, pod_set.count),
        }
        return with_request(pod_set, slices)
    return pod_set
