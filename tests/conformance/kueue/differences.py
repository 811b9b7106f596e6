"""Where we differ from Kueue on purpose: rules over a case's input, each with its reason.

A rule never sees which case it is, so it cannot name one: what it lets pass it lets pass in every corpus.
"""

from collections.abc import Mapping
from typing import Any

from tests.conformance.replay import Rule


def _pod_sets(workload: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(workload["spec"].get("podSets") or ())


def _group(pod_set: Mapping[str, Any]) -> str | None:
    return (pod_set.get("topologyRequest") or {}).get("podSetGroupName")


def _lost(workload: Mapping[str, Any]) -> bool:
    return bool((workload.get("status") or {}).get("unhealthyNodes"))


def _lost_part_of_a_group(given: Mapping[str, Any]) -> bool:
    """A leader and its workers, and part of them ran on a node that is lost."""
    return any(_lost(one) and any(map(_group, _pod_sets(one))) for one in given.get("workloads") or ())


def _group_beside_a_second_pass(given: Mapping[str, Any]) -> bool:
    """A leader and its workers wait, while another workload gets new places."""
    workloads = given.get("workloads") or ()
    waits = [one for one in workloads if not (one.get("status") or {}).get("admission")]
    return any(map(_lost, workloads)) and any(_group(pod_set) for one in waits for pod_set in _pod_sets(one))


RULES: tuple[Rule, ...] = (
    Rule(
        "a leader and its workers stay in one domain of their required level: where a lost part has no room there, "
        "the workload is evicted; Kueue places each pod set alone and may split the group",
        _lost_part_of_a_group,
        lambda _: True,
    ),
    Rule(
        "a leader and its workers that share a node are weighed together against what a second pass took there in the "
        "same cycle; Kueue weighs each alone, and evicts others for a gang that does not fit afterwards",
        _group_beside_a_second_pass,
        lambda _: True,
    ),
)
