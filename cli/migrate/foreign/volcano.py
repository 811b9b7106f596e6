"""Volcano's objects, Job, Command, Queue, PodGroup and HyperNode, and its labels and annotations of others."""

import re
from typing import Final

from cli.migrate.foreign.rows import Refused, Rows, below, not_yet, served, unrelated
from controller.foreign.rules.refusedkinds import REFUSED
from controller.foreign.rules.volcanoqueue import NO_NODE_GROUPS

_RULES: Final = "controller/foreign/rules/"
_JOB_RULES: Final = f"{_RULES}volcanojob.py"
_JOBS: Final = "controller/foreign/jobs/"
_TABLE: Final = "controller/jobs/framework/tiers.py"
_LEVELS: Final = "a level by the table `tessera.volcano.topology`; refused without it"
_SLICES: Final = "a slice in a level by the table `tessera.volcano.topology`; refused without it"
_TIERS: Final = "networkTopology.mode networkTopology.highestTierAllowed networkTopology.highestTierName"
_POLICIES: Final = "policies[].action policies[].event policies[].events policies[].exitCode policies[].timeout"
_COUNTS: Final = "pending running succeeded failed terminating unknown"

_JOB: Final[Rows] = {
    **below(
        "spec",
        {
            **served("the queue that admits it", f"{_JOBS}kind.py", "queue"),
            **served("the Workload's priority, and the pods' class", f"{_JOBS}kind.py", "priorityClassName"),
            **served("pods admitted together, and how the job ends", f"{_JOBS}spec.py", "minAvailable minSuccess"),
            **served("restarts before the job has failed", f"{_JOBS}lifecycle.py", "maxRetry"),
            **served("the job is deleted so long after its end", f"{_JOBS}spec.py", "ttlSecondsAfterFinished"),
            **served("variables, volumes and objects of its pods", f"{_JOBS}plugins/table.py", "plugins"),
            **served("what an event leads to", f"{_JOBS}spec.py", _POLICIES),
            **served("as the annotation `tessera.dev/runtime`, for backfill", f"{_JOBS}kind.py", "runningEstimate"),
            **served(_LEVELS, _TABLE, _TIERS),
            **served("rewritten to the default scheduler's", f"{_RULES}schedulers.py", "schedulerName"),
            **served(
                "volumes of all pods",
                f"{_JOBS}bodies.py",
                "volumes[].mountPath volumes[].volumeClaim volumes[].volumeClaimName",
            ),
            **below(
                "tasks[]",
                {
                    **served("a pod set of the Workload, and its pods", f"{_JOBS}kind.py", "name replicas template"),
                    **served("pods without which the task has failed", f"{_JOBS}spec.py", "minAvailable maxRetry"),
                    **served(
                        "which tasks' pods are made first", f"{_JOBS}spec.py", "dependsOn.name dependsOn.iteration"
                    ),
                    **served("what an event leads to", f"{_JOBS}spec.py", _POLICIES),
                    **served(
                        "which pods are restarted together; the task's minimum",
                        f"{_JOBS}spec.py",
                        "partitionPolicy.partitionSize partitionPolicy.minPartitions",
                    ),
                    **served("checked against the replicas", _JOB_RULES, "partitionPolicy.totalPartitions"),
                    **{f"partitionPolicy.{path}": row for path, row in served(_SLICES, _TABLE, _TIERS).items()},
                    "topologyPolicy": Refused(
                        sentence="spec.tasks[0].topologyPolicy: no scheduler places pods on NUMA nodes here: expected"
                        " none or best-effort, with tessera.dev/required-gpu-link for GPUs, found 'restricted'"
                    ),
                },
            ),
        },
    ),
    **below(
        "status",
        {
            **served(
                "written",
                "controller/foreign/objects/volcanojob.py",
                f"{_COUNTS} taskStatusCount{{}}.phase minAvailable retryCount version state.phase state.reason"
                " state.message state.lastTransitionTime conditions[].status conditions[].lastTransitionTime"
                " controlledResources runningDuration",
            ),
        },
    ),
}
_COMMAND: Final[Rows] = {
    **served(
        "one order to a Job or a Queue, deleted when it is read",
        "controller/foreign/objects/volcanojob.py",
        "action target",
    ),
    **unrelated("for users", "reason message"),
}
_NODE_GROUPS: Final = " ".join(
    f"affinity.{which}.{when}DuringSchedulingIgnoredDuringExecution"
    for which in ("nodeGroupAffinity", "nodeGroupAntiAffinity")
    for when in ("required", "preferred")
)
_STATUS: Final = "controller/foreign/rules/queuestatus.py"
_QUEUE: Final[Rows] = {
    **below(
        "spec",
        {
            **served(
                "the queue of its name, and by what it gets",
                "controller/scheduler/mirror/specs.py",
                "weight capability deserved guarantee.resource reclaimable parent priority dequeueStrategy",
            ),
            **{
                path: Refused(sentence=f"spec.{path}: {NO_NODE_GROUPS}")
                for path in _NODE_GROUPS.split()
                if ".required" in path
            },
            **unrelated(
                "a wish, where levels and devices decide", " ".join(re.findall(r"\S+\.preferred\S+", _NODE_GROUPS))
            ),
            **unrelated(
                "one controller decides for one cluster",
                "extendClusters[].name extendClusters[].weight extendClusters[].capacity",
            ),
            **unrelated("for users; Volcano's scheduler reads none of it", "type"),
        },
    ),
    **below(
        "status",
        {
            **served("read and written", _STATUS, "state"),
            **served("written, for workloads", _STATUS, "allocated pending running inqueue unknown"),
            **unrelated("workloads that have ended are not counted", "completed"),
            **unrelated("nodes are locked for no queue", "reservation.nodes reservation.resource"),
        },
    ),
}
_GROUPS: Final = "controller/foreign/podgroups/group.py"
_GROUP_STATUS: Final = "controller/foreign/podgroups/status.py"
_POD_GROUP: Final[Rows] = {
    **below(
        "spec",
        {
            **served("the pods that are admitted together", _GROUPS, "minMember"),
            **unrelated("pods ask for what is in them, and are charged for that", "minResources"),
            **served("the queue of pods that name none", _GROUPS, "queue"),
            **served("the Workload's priority", _GROUPS, "priorityClassName"),
            **served("pods of each task without which none starts", _GROUPS, "minTaskMember"),
            **served(_LEVELS, _TABLE, _TIERS),
            **below(
                "subGroupPolicy[]",
                {
                    **served(
                        "subgroups that are whole or not there, and how many of them the group needs",
                        _GROUPS,
                        "name labelSelector matchLabelKeys minSubGroups subGroupSize",
                    ),
                    **served("one domain of the tier's level for each subgroup", _TABLE, _TIERS),
                },
            ),
        },
    ),
    **below(
        "status",
        {
            **served(
                "written",
                _GROUP_STATUS,
                "phase running succeeded failed conditions[].type conditions[].status conditions[].reason"
                " conditions[].message conditions[].lastTransitionTime",
            ),
            **unrelated("it is named after a cycle of Volcano's scheduler", "conditions[].transitionID"),
        },
    ),
}
_HYPER_NODE: Final[Rows] = {
    "spec": Refused(sentence=next(each.sentence for each in REFUSED if each.kind == "HyperNode")),
    **unrelated("none is created", "status"),
}

FIELDS: Final[dict[str, Rows]] = {
    "batch.volcano.sh/v1alpha1 Job": _JOB,
    "bus.volcano.sh/v1alpha1 Command": _COMMAND,
    "scheduling.volcano.sh/v1beta1 Queue": _QUEUE,
    "scheduling.volcano.sh/v1beta1 PodGroup": _POD_GROUP,
    "topology.volcano.sh/v1alpha1 HyperNode": _HYPER_NODE,
}

_MARKS_OF_JOBS: Final = "controller/jobs/framework/foreignmarks.py"
MARKS: Final[Rows] = {
    **served("the queue", _MARKS_OF_JOBS, "scheduling.volcano.sh/queue-name volcano.sh/queue-name"),
    **served(
        "the PodGroup of a pod",
        "controller/jobs/framework/podview.py",
        "scheduling.k8s.io/group-name scheduling.volcano.sh/group-name",
    ),
    **served("the pods that are admitted together", _GROUPS, "scheduling.volcano.sh/group-min-member"),
    **unrelated("pods ask for what is in them, and are charged for that", "scheduling.volcano.sh/group-min-resources"),
    **served("the task of a pod", _GROUPS, "volcano.sh/task-spec"),
    **served("whether it may be a victim", _MARKS_OF_JOBS, "volcano.sh/preemptable"),
    **not_yet("sla-waiting-time", "a job that waits long does not move ahead: give it a higher priority"),
    **not_yet(
        "volcano.sh/cooldown-time", "a running job may be a victim at once, unless `volcano.sh/preemptable` is false"
    ),
    **not_yet(
        "volcano.sh/revocable-zone",
        "nodes are not lent for hours of the day: the pods' own `nodeSelector` chooses among nodes",
    ),
    **not_yet(
        "volcano.sh/jdb-min-available volcano.sh/jdb-max-unavailable",
        "a gang's minimum is evicted as a whole, and pods above it one by one",
    ),
    **not_yet(
        "volcano.sh/network-topology-mode volcano.sh/network-topology-highest-tier",
        "`networkTopology` of a Job or a PodGroup",
    ),
    **not_yet("volcano.sh/numa-topology-policy", "`tessera.dev/required-gpu-link: numa` for GPUs"),
    **not_yet("volcano.sh/qos-level", "a node is never given more pods than its resources hold"),
}
