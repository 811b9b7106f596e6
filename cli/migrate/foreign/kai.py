"""KAI's objects, Queue, PodGroup and Topology, and its labels and annotations of others."""

from typing import Final

from cli.migrate.foreign.rows import Rows, below, not_yet, served, unrelated

_AMOUNTS: Final = " ".join(
    f"resources.{resource}.{amount}"
    for resource in ("gpu", "cpu", "memory")
    for amount in ("quota", "overQuotaWeight", "limit")
)
_STATUS: Final = "controller/foreign/rules/queuestatus.py"
_QUEUE: Final[Rows] = {
    **below(
        "spec",
        {
            **served(
                "the queue of its name, and by what it gets",
                "controller/scheduler/mirror/specs.py",
                f"parentQueue priority preemptMinRuntime reclaimMinRuntime {_AMOUNTS}",
            ),
            **unrelated("for users", "displayName"),
        },
    ),
    **below(
        "status",
        {
            **served("written, for workloads", _STATUS, "allocated allocatedNonPreemptible requested"),
            **served("written", _STATUS, "childQueues conditions"),
        },
    ),
}
_LEVELS: Final = "topologyConstraint.requiredTopologyLevel topologyConstraint.preferredTopologyLevel"
_LEVELS_ARE_LABELS: Final = "a level is the label of nodes that it is called by, whatever a Topology lists"
_GROUPS: Final = "controller/foreign/podgroups/group.py"
_POD_GROUP: Final[Rows] = {
    **below(
        "spec",
        {
            **served("the pods that are admitted together", _GROUPS, "minMember"),
            **served("the queue of pods that name none", _GROUPS, "queue"),
            **served("whether it may be preempted, and by whom", _GROUPS, "preemptibility priorityClassName"),
            **served(
                "the tree of subgroups; without their minimums none starts",
                _GROUPS,
                "subGroups[].name subGroups[].minMember subGroups[].parent",
            ),
            **served(
                "an Event on each pod that says why it waits",
                "controller/reconcile/pods/groupstatus.py",
                "markUnschedulable",
            ),
            **served("all its pods in one domain of the level", _GROUPS, _LEVELS),
            **served(
                "the pods of the subgroup, and of those below it, in one domain of the level",
                _GROUPS,
                " ".join(f"subGroups[].{path}" for path in _LEVELS.split()),
            ),
            **unrelated(_LEVELS_ARE_LABELS, "topologyConstraint.topology subGroups[].topologyConstraint.topology"),
            **unrelated("a gang that waits is tried whenever something changes", "schedulingBackoff"),
            **unrelated("KAI's scheduler reads none of it", "backoffLimit completions parallelism"),
        },
    ),
    **below(
        "status",
        {
            **served(
                "written",
                "controller/foreign/podgroups/status.py",
                "phase pending running succeeded failed conditions resourcesStatus schedulingConditions",
            ),
        },
    ),
}
_TOPOLOGY: Final[Rows] = unrelated(_LEVELS_ARE_LABELS, "spec.levels[].nodeLabel")

FIELDS: Final[dict[str, Rows]] = {
    "scheduling.run.ai/v2 Queue": _QUEUE,
    "scheduling.run.ai/v2alpha2 PodGroup": _POD_GROUP,
    "kai.scheduler/v1alpha1 Topology": _TOPOLOGY,
}

_MARKS_OF_JOBS: Final = "controller/jobs/framework/foreignmarks.py"
_PODS: Final = "controller/jobs/framework/podview.py"
_PLACEMENT: Final = "kai.scheduler/topology-required-placement kai.scheduler/topology-preferred-placement"
MARKS: Final[Rows] = {
    **served("the queue", _PODS, "kai.scheduler/queue"),
    **served("the Workload's priority", _MARKS_OF_JOBS, "priorityClassName"),
    **served("whether it may be preempted", _MARKS_OF_JOBS, "kai.scheduler/preemptibility"),
    **served("the PodGroup of a pod", _PODS, "pod-group-name"),
    **served("its subgroup", _GROUPS, "kai.scheduler/subgroup-name"),
    **served("the pods that a Job begins with", _MARKS_OF_JOBS, "kai.scheduler/batch-min-member"),
    **served("a gang below its minimum for so long is evicted", _MARKS_OF_JOBS, "kai.scheduler/staleness-grace-period"),
    **served("all pods in one domain of the level; of a pod template, its pods", _MARKS_OF_JOBS, _PLACEMENT),
    **unrelated(_LEVELS_ARE_LABELS, "kai.scheduler/topology"),
    **not_yet(
        "kai.scheduler/segment-size kai.scheduler/segment-topology-required-placement"
        " kai.scheduler/segment-topology-preferred-placement",
        "a PodGroup with a subgroup, and its `topologyConstraint`, for each segment",
    ),
    **not_yet(
        "kai.scheduler/node-pool",
        "one tree of queues has all nodes, and the pods' own `nodeSelector` chooses among them",
    ),
    **not_yet("kai.scheduler/preemption-delay", "a job preempts as soon as it may"),
    **served(
        "percents of GPUs",
        "controller/foreign/rules/fractions.py",
        "gpu-fraction gpu-memory gpu-fraction-num-devices gpu-fraction-container-name",
    ),
    **unrelated("there is no pod grouper", "kai.scheduler/skip-podgrouper"),
    **unrelated(
        "KAI's own notes",
        "kai.scheduler/stale-podgroup-timestamp kai.scheduler/last-start-timestamp"
        " kai.scheduler/last-eviction-timestamp",
    ),
}
