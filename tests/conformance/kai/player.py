"""Plays a recorded case of KAI's test tables: the tables' objects in, phases and nodes of tasks out."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from controller.scheduler.kai.gangs.actions import ACTIONS
from controller.scheduler.kai.gangs.gang import (
    CPU,
    GPU,
    MEMORY,
    Gang,
    GangName,
    GpuGroup,
    Group,
    NodeName,
    Phase,
    PodSet,
    Task,
    TaskName,
    TaskRequest,
    TopologyConstraint,
    mig_slices,
)
from controller.scheduler.kai.gangs.kainode import KaiNode
from controller.scheduler.kai.gangs.session import CycleLimits, GangSession, running
from controller.scheduler.kai.gangs.shares import GangQueue
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.queues import Amounts
from controller.scheduler.model.resources import ResourceName
from tests.conformance.replay import Difference

Case = Mapping[str, Any]
Place = tuple[str, str]
"""A task's phase and its node, which is empty without one."""

PHASES: Final = {
    "Pending": Phase.PENDING,
    "Gated": Phase.GATED,
    "Running": Phase.RUNNING,
    "Bound": Phase.RUNNING,
    "Binding": Phase.RUNNING,
    "Allocated": Phase.RUNNING,
    "Pipelined": Phase.PIPELINED,
    "Releasing": Phase.RELEASING,
    "Succeeded": Phase.SUCCEEDED,
    "Failed": Phase.FAILED,
}
TOLD: Final = {Phase.ALLOCATED: "Binding"}
RESOURCES: Final = {CPU: "cpu", MEMORY: "memory", GPU: "gpu"}


class Player:
    """The fixture of one case. ``rounds`` tells what each round decided."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._input = {job["name"]: job for job in case["input"]["jobs"]}
        self._topologies = {
            topology["name"]: tuple(level["nodeLabel"] for level in topology["spec"]["levels"])
            for topology in case["input"].get("topologies") or []
        }
        resolved = case["resolved"]
        self._queues = [self._queue(queue) for queue in resolved["queues"]]
        self._jobs = [self._job(job) for job in resolved["jobs"]]
        self._nodes = resolved["nodes"]

    def rounds(self) -> Iterator[dict[str, Place]]:
        """Where each task is, after each round."""
        while True:
            session = self.session()
            for action in self._case["run"]["actions"]:
                ACTIONS[action](session)
                session.validate()
            if self._case["run"]["kind"] == "rounds":
                for job in self._jobs:
                    for task in job.tasks():
                        self._next(job, task)
            yield {
                task.name: (TOLD.get(task.phase, task.phase.value), task.node or "")
                for job in self._jobs
                for task in job.tasks()
            }

    def session(self) -> GangSession:
        nodes = {name: self._node(name, node) for name, node in self._nodes.items()}
        running(nodes, self._jobs)
        return GangSession(nodes.values(), self._jobs, self._queues, self._limits())

    def _limits(self) -> CycleLimits:
        conf = (self._case["input"].get("mocks") or {}).get("scheduler_conf") or {"tiers": []}
        plugins = {
            plugin["name"]: plugin.get("arguments") or {} for tier in conf["tiers"] for plugin in tier["plugins"]
        }
        places = plugins.get("nodeplacement", {})
        return CycleLimits(
            spread_gpus=places.get("gpu") == "spread",
            spread_cpu=places.get("cpu") == "spread",
            spread_shared="gpuspread" in plugins,
            fills_shared=not plugins or "gpusharingorder" in plugins,
            staleness_s=60.0 if self._case["suite"].startswith("unit_stale") else 0.0,
            consolidation_victims=None,
        )

    def _next(self, job: Gang, task: Task) -> None:
        if task.phase is Phase.RELEASING and self._input[job.name].get("delete_job_in_test"):
            return
        if task.phase in (Phase.RELEASING, Phase.PIPELINED):
            task.phase, task.node, task.groups = Phase.PENDING, None, ()
        elif task.phase is Phase.ALLOCATED:
            task.phase = Phase.RUNNING

    def _queue(self, queue: Case) -> GangQueue:
        def amounts(field: str) -> Amounts:
            found = {resource: float(queue[name][field]) for resource, name in RESOURCES.items()}
            if field == "over_quota_weight":
                return found
            return {resource: math.inf if amount == -1 else amount for resource, amount in found.items()}

        return GangQueue(
            name=QueueName(queue["uid"]),
            parent=QueueName(queue["parent"]) if queue["parent"] else None,
            quota=amounts("quota"),
            limit=amounts("limit"),
            weight=amounts("over_quota_weight"),
            priority=queue["priority"],
            created=queue["creation_offset_minutes"] * 60.0,
        )

    def _job(self, job: Case) -> Gang:
        table = self._input[job["name"]]
        inputs = {task["id"]: task for task in table["tasks"]}
        tasks = [self._task(job, task, inputs[task["id"]]) for task in job["tasks"]]
        root = self._group(job["subgroups"])
        made = Gang(
            name=GangName(job["name"]),
            queue=QueueName(job["queue"]),
            priority=job["priority"],
            preemptible=job["preemptibility"] == "preemptible",
            created=-60.0 * job["age_minutes"],
            root=root,
            stale_s=float(table.get("stale_duration_seconds") or 0),
        )
        for task in tasks:
            made.pod_sets[task.pod_set].tasks.append(task)
        return made

    def _group(self, group: Case) -> Group:
        return Group(
            name=group["name"],
            groups=[self._group(below) for below in group["groups"] or []],
            pod_sets=[
                PodSet(one["name"], one["min_available"], constraint=self._constraint(one["topology_constraint"]))
                for one in group["pod_sets"] or []
            ],
            constraint=self._constraint(group["topology_constraint"]),
        )

    def _constraint(self, found: Case | None) -> TopologyConstraint | None:
        if not found:
            return None
        return TopologyConstraint(
            self._topologies.get(found["topology"], ()), found["required_level"], found["preferred_level"]
        )

    def _task(self, job: Case, task: Case, table: Case) -> Task:
        kinds = table.get("node_affinity_names")
        nodes = self._case["resolved"]["nodes"]
        return Task(
            name=TaskName(task["id"]),
            gang=GangName(job["name"]),
            pod_set=task["subgroup"] or "default",
            request=_request(task["request"]),
            phase=PHASES[task["status"]],
            node=NodeName(task["node"]) if task["node"] else None,
            groups=_groups(task),
            priority=table.get("priority") or 0,
            node_kinds=frozenset(
                NodeName(n) for n, node in nodes.items() if node["labels"].get("kai.scheduler/type") in kinds
            )
            if kinds
            else None,
        )

    def _node(self, name: str, node: Case) -> KaiNode:
        allocatable = node["allocatable"]
        amounts = {
            CPU: float(allocatable["milli_cpu"]),
            MEMORY: float(allocatable["memory"]),
            GPU: float(allocatable["gpus"]),
            **{ResourceName(key): float(amount) for key, amount in allocatable["scalar"].items()},
        }
        amounts[ResourceName("pods")] = float(node["max_pods"])
        is_cut = node["labels"].get("node-role.kubernetes.io/mig-enabled") == "true"
        return KaiNode(NodeName(name), amounts, node["gpu_memory_mib"], node["labels"], is_cut)


def _groups(task: Case) -> tuple[GpuGroup, ...]:
    if task["request_type"] not in ("Fraction", "GpuMemory") or not task["node"]:
        return ()
    return tuple(GpuGroup(f"{task['node']}/{group}") for group in task["gpu_groups"] or ())


def _request(found: Case) -> TaskRequest:
    portion, memory = found.get("gpu_portion") or 0.0, found.get("gpu_memory_mib") or 0
    shares = memory > 0 or 0.0 < portion < 1.0
    return TaskRequest(
        cpu_milli=found["milli_cpu"],
        memory_bytes=found["memory"],
        gpus=0 if shares else int(found["gpus"]),
        shared_gpus=found.get("gpu_devices", 0) if shares else 0,
        portion=portion if shares else 0.0,
        gpu_memory_mib=memory,
        counted={ResourceName(name): count for name, count in (found.get("mig") or {}).items() if mig_slices(name)},
    )


def differences(case: Case, tasks: Mapping[str, Place]) -> dict[str, tuple[Place, Place]]:
    """By task what the table demands, and what is so instead. No node is demanded where its name is empty."""
    found = {}
    demands = {
        task["id"]: demand
        for job in case["input"]["jobs"]
        if (demand := case["expected"]["jobs"].get(job["name"]))
        for task in job["tasks"]
    } | case["expected"]["tasks"]
    # A demand on a task that is not in the table compares nothing, there as here.
    for name, demand in demands.items():
        if name not in tasks:
            continue
        phase, node = tasks[name]
        wanted = demand.get("node_name") or ""
        if phase != demand["status"] or (wanted and node != wanted):
            found[name] = ((demand["status"], wanted), (phase, node))
    return found


def play(case: Case) -> Difference | None:
    """What differs at the first comparison that shows a difference: of all tasks, so that no rule sees a part of it."""
    run, player = case["run"], Player(case)
    first = run.get("rounds_until_match", 1)
    last = first + run.get("rounds_after_match", 0)
    for number, tasks in enumerate(player.rounds(), 1):
        if number >= first and (found := differences(case, tasks)):
            expected, got = ({name: both[side] for name, both in found.items()} for side in (0, 1))
            return Difference(f"rounds[{number}].tasks", expected, got)
        if number == last:
            return None
    return None
