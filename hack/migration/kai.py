"""KAI's objects: Queue, PodGroup, Topology."""

from typing import Final

from hack.migration.rows import Rows, below, served, unrelated

_AMOUNTS: Final = " ".join(
    f"resources.{resource}.{amount}"
    for resource in ("gpu", "cpu", "memory")
    for amount in ("quota", "overQuotaWeight", "limit")
)
_STATUS: Final = "controller/writing/foreignstatus.py"
_QUEUE: Final[Rows] = {
    **below(
        "spec",
        {
            **served(
                "the queue of its name, and by what it gets",
                "controller/engine/mirror/specs.py",
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
_GROUPS: Final = "controller/podgroups/group.py"
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
                "an Event on each pod that says why it waits", "controller/pods/groupstatus.py", "markUnschedulable"
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
                "controller/podgroups/status.py",
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
