"""Where one of KAI's cases is decided otherwise on purpose: rules over the input, each with its reason."""

from collections.abc import Mapping
from typing import Any, Final

from tests.conformance.replay import Difference, Rule

Input = Mapping[str, Any]


def _tasks(case: Input) -> list[Input]:
    return [task for job in case["input"]["jobs"] for task in job["tasks"]]


def _claims(case: Input) -> bool:
    return bool(case["input"].get("dra"))


def _affinity(case: Input) -> bool:
    keys = ("pod_affinity_topology_key", "pod_anti_affinity_topology_key")
    return any(task.get(key) for task in _tasks(case) for key in keys)


def _legacy_mig(case: Input) -> bool:
    return any(task.get("is_legacy_mig_task") for task in _tasks(case))


def _overcommitted(case: Input) -> bool:
    """Tasks of the table hold more whole GPUs of a node than it has."""
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
    return any(held.get(name, 0.0) > node["allocatable"]["gpus"] for name, node in case["resolved"]["nodes"].items())


def _both(case: Input) -> bool:
    return bool(case["suite"] == "integration_consolidation_and_reclaim")


def _outcome(_: Difference) -> bool:
    """What became of the jobs: KAI's tables say that alone."""
    return True


RULES: Final = (
    Rule(
        "devices of claims are chosen by the scheduler, which counts what a node's slices can still give",
        _claims,
        _outcome,
    ),
    Rule(
        "affinity between pods is looked at by the scheduler that binds them; the gang waits, admitted",
        _affinity,
        _outcome,
    ),
    Rule(
        "pods that ask for MIG by the annotation of a scheduler before KAI: there are none here", _legacy_mig, _outcome
    ),
    Rule(
        "the table's nodes hold more than they have: a node that is short gives nothing away", _overcommitted, _outcome
    ),
    Rule("a place that a move has promised is taken back in the next cycle, not in the same one", _both, _outcome),
)
