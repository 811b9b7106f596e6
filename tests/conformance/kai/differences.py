"""Where one of KAI's cases is decided otherwise on purpose: rules over the input and over what differs, with reasons.

A rule is given all tasks that stand elsewhere than the table says, and covers them only if its reason is about each:
``test_differences`` shows each rule a neighbour that it must not cover.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tests.conformance.kai.player import Place
from tests.conformance.replay import Difference, Judge, Rule, at

Input = Mapping[str, Any]
Told = Callable[[Place, Place], bool]
"""Whether a task that should be at the first place, and is at the second, is of some kind."""
_AFFINITIES: Final = ("pod_affinity_topology_key", "pod_anti_affinity_topology_key")
_CLAIMS: Final = ("resource_claim_names", "resource_claim_templates")
_PLACED: Final = ("Running", "Binding", "Pipelined")


def _jobs_and_tasks(case: Input) -> Iterator[tuple[Input, Input]]:
    return ((job, task) for job in case["input"]["jobs"] for task in job["tasks"])


def _tasks(case: Input) -> dict[str, Input]:
    return {task["id"]: task for _, task in _jobs_and_tasks(case)}


def _differing(difference: Difference) -> Iterator[tuple[str, Place, Place]]:
    return ((name, place, difference.found[name]) for name, place in difference.expected.items())


def _each(told: Told) -> Judge:
    """All tasks that differ do so in this way."""

    def judge(difference: Difference) -> bool:
        whole = at(r"rounds\[\d+\]\.tasks")(difference)
        return whole and all(told(expected, found) for _, expected, found in _differing(difference))

    return judge


def _about(holds: Callable[[Input, str, Place], bool]) -> Callable[[Input, Difference], bool]:
    """It holds for each task that differs, by its name and where it is."""
    return lambda case, difference: all(holds(case, name, found) for name, _, found in _differing(difference))


def _placed(expected: Place, found: Place) -> bool:
    """It runs, or will, where the table lets it wait or run on another node."""
    return found[0] in _PLACED and (expected[0] == "Pending" or (expected[0] == found[0] and expected[1] != found[1]))


def _runs_on(expected: Place, found: Place) -> bool:
    return (expected[0], found[0]) == ("Releasing", "Running")


def _waits(expected: Place, found: Place) -> bool:
    return (expected[0], found[0]) == ("Running", "Pending")


def _claims(case: Input) -> bool:
    return any(_has_claims(task) for task in _tasks(case).values())


def _has_claims(task: Input) -> bool:
    return any(task.get(key) for key in _CLAIMS)


def _affinity(case: Input) -> bool:
    return any(_has_affinity(task) for task in _tasks(case).values())


def _has_affinity(task: Input) -> bool:
    return any(task.get(key) for key in _AFFINITIES)


def _legacy_mig(case: Input) -> bool:
    return any(task.get("is_legacy_mig_task") for task in _tasks(case).values())


def _beside_legacy_mig(case: Input, name: str, found: Place) -> bool:
    """It is such a pod, or asks for MIG on a node where one runs."""
    tasks = _tasks(case)
    legacy = [task for task in tasks.values() if task.get("is_legacy_mig_task")]
    own = tasks[name]
    on_the_node = any(task.get("node_name") == found[1] for task in legacy)
    return own in legacy or (bool(own.get("required_mig_instances")) and on_the_node)


def _short(case: Input) -> set[str]:
    """The nodes of which tasks of the table hold more whole GPUs than there are."""
    held: dict[str, float] = {}
    groups: set[tuple[str, str]] = set()
    for job in case["resolved"]["jobs"]:
        for task in job["tasks"]:
            if task["status"] != "Running":
                continue
            shared = task["request_type"] in ("Fraction", "GpuMemory")
            groups |= {(task["node"], group) for group in task["gpu_groups"] or ()} if shared else set()
            held[task["node"]] = held.get(task["node"], 0.0) + (0.0 if shared else task["request"]["gpus"])
    for node, _ in groups:
        held[node] = held.get(node, 0.0) + 1.0
    nodes = case["resolved"]["nodes"]
    return {name for name, node in nodes.items() if held.get(name, 0.0) > node["allocatable"]["gpus"]}


def _moved_from(case: Input) -> set[str]:
    """The nodes that a running task has left for another by the end of the table."""
    told = case["expected"]["jobs"]
    found = set()
    for job, task in _jobs_and_tasks(case):
        demand = told.get(job["name"]) or {}
        if task.get("node_name") and demand.get("node_name") not in (None, "", task["node_name"]):
            found.add(task["node_name"])
    return found


def _waiting_queues(case: Input) -> set[str]:
    return {job["queue_name"] for job, task in _jobs_and_tasks(case) if task["state"] == "Pending"}


def _moved_for_another_queue(case: Input) -> bool:
    """Jobs of two queues wait, and one action may move for the one what the next gives to the other."""
    actions = case["run"]["actions"]
    both = "reclaim" in actions[actions.index("consolidation") :] if "consolidation" in actions else False
    return both and bool(_moved_from(case)) and len(_waiting_queues(case)) > 1


def _waits_for_what_was_promised(case: Input, difference: Difference) -> bool:
    """It waited from the start, for the node that a move has emptied."""
    return all(
        _tasks(case)[name]["state"] == "Pending" and expected[1] in _moved_from(case)
        for name, expected, _ in _differing(difference)
    )


RULES: Final = (
    Rule(
        "devices of claims are chosen by the scheduler, which counts what a node's slices can still give",
        _claims,
        _each(_placed),
        _about(lambda case, name, _found: _has_claims(_tasks(case)[name])),
    ),
    Rule(
        "affinity between pods is looked at by the scheduler that binds them; the gang waits, admitted",
        _affinity,
        _each(_placed),
        _about(lambda case, name, _found: _has_affinity(_tasks(case)[name])),
    ),
    Rule(
        "pods that ask for MIG by the annotation of a scheduler before KAI: there are none here",
        _legacy_mig,
        _each(_placed),
        _about(_beside_legacy_mig),
    ),
    Rule(
        "the table's nodes hold more than they have: a node that is short gives nothing away",
        lambda case: bool(_short(case)),
        _each(_runs_on),
        _about(lambda case, _name, found: found[1] in _short(case)),
    ),
    Rule(
        "a place that a move has promised is taken back in the next cycle, not in the same one",
        _moved_for_another_queue,
        _each(_waits),
        _waits_for_what_was_promised,
    ),
)
