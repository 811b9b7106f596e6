"""Where pods and groups of pods differ from Kueue on purpose, see ``differences``."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from controller.jobs.framework import names
from controller.jobs.framework.podview import GROUP_TOTAL, MANAGED, POD_INDEX, POD_INDEX_LABEL, RETRIABLE, SERVING
from tests.conformance.kueuejobs.inputs import annotations, workloads
from tests.conformance.replay import ABSENT, Rule, at, one_of

_ONE: Final = r"workloads\[\d+\]"
_FINISHED: Final = "Finished"


def _is_failed(value: Any) -> bool:
    return isinstance(value, Mapping) and (value.get("status"), value.get("reason")) == ("True", "Failed")


def _is_orphan(value: Any) -> bool:
    """A status that says no more than that the pods are gone."""
    said = {key: one for key, one in value.items() if key != "conditions"} if isinstance(value, Mapping) else {"": 0}
    listed = {} if said else value["conditions"]
    return list(listed) == [_FINISHED] and listed[_FINISHED]["reason"] == "OwnerNotFound"


def _pods(given: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = list(given.get("pods") or ())
    for one in (given.get("fields"), given.get("pod")):
        if isinstance(one, Mapping):
            listed += [one["pod"]] if isinstance(one.get("pod"), Mapping) else []
            listed += (one.get("list") or {}).get("items") or []
    return listed


def _phase(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _deleted_without_a_node(given: Mapping[str, Any]) -> bool:
    return any(
        pod["metadata"].get("deletionTimestamp") and not pod["spec"].get("nodeName") and _phase(pod) in ("", "Pending")
        for pod in _pods(given)
    )


def _all_pods_leave(given: Mapping[str, Any]) -> bool:
    pods = _pods(given)
    return bool(pods) and all(pod["metadata"].get("deletionTimestamp") for pod in pods)


def _silent_pod(given: Mapping[str, Any]) -> bool:
    """A pod that has not begun, or whose time to end is over."""
    for pod in _pods(given) if "enableFastQuotaRelease" in given else ():
        deleted, grace_s = pod["metadata"].get("deletionTimestamp"), pod["metadata"].get("deletionGracePeriodSeconds")
        if _phase(pod) in ("", "Pending"):
            return True
        if deleted and _seconds(deleted) + (grace_s or 0) <= _seconds(given["now"]):
            return True
    return False


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _adopts_by_name(given: Mapping[str, Any]) -> bool:
    return (given.get("featureGatesNonDefault") or {}).get("PodIntegrationValidateGroupOwner") is False


def _failed_and_not_retriable(given: Mapping[str, Any]) -> bool:
    return any(found.get(RETRIABLE) == "false" for found in annotations(given)) and any(
        _phase(pod) == "Failed" for pod in _pods(given)
    )


def _orphan_of_a_group(given: Mapping[str, Any]) -> bool:
    """A group's workload whose pods are gone, marked as such or prebuilt."""
    return str(given.get("reconcileKey") or "").startswith("group/") and not given.get("pods")


def _deactivated_group(given: Mapping[str, Any]) -> bool:
    kept = bool((given.get("options") or {}).get("afterDeactivatedByKueue"))
    return kept and any(GROUP_TOTAL in found for pod in _pods(given) for found in annotations(pod))


def _labels_for_metrics(given: Mapping[str, Any]) -> bool:
    return bool((given.get("featureGatesNonDefault") or {}).get("CustomMetricLabels"))


def _serving_group_moves(given: Mapping[str, Any]) -> bool:
    queues = {one["spec"].get("queueName") for one in workloads(given)}
    return any(
        found.get(SERVING) == "true" and (pod["metadata"].get("labels") or {}).get(names.QUEUE_NAME) not in queues
        for pod in _pods(given)
        for found in annotations(pod)
    )


def _is_created(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pod that a webhook sees; empty in other cases."""
    return given["pod"] if _is_creation(given) else {"metadata": {}}


def _is_creation(given: Mapping[str, Any]) -> bool:
    return "defaultLqExist" in given and isinstance(given.get("pod"), Mapping)


def _labels(pod: Mapping[str, Any]) -> Mapping[str, str]:
    return pod["metadata"].get("labels") or {}


def _has_an_owner(given: Mapping[str, Any]) -> bool:
    return any(owner.get("controller") for owner in _is_created(given)["metadata"].get("ownerReferences") or ())


def _is_in_no_queue(given: Mapping[str, Any]) -> bool:
    return _is_creation(given) and names.QUEUE_NAME not in _labels(_is_created(given))


def _default_class(given: Mapping[str, Any]) -> bool:
    known = any(one["kind"] == "WorkloadPriorityClass" for one in given.get("initObjects") or ())
    return _is_creation(given) and known and names.PRIORITY_CLASS not in _labels(_is_created(given))


def _index_in_another_label(given: Mapping[str, Any]) -> bool:
    return POD_INDEX_LABEL in (_is_created(given)["metadata"].get("annotations") or {})


POD_RULES: tuple[Rule, ...] = (
    Rule(
        "a pod that names a queue is marked, whatever owns it: it is let go with the job that it belongs to; Kueue "
        "looks at its owners when it is created",
        _has_an_owner,
        one_of(at(r"metadata\.finalizers", ABSENT, [MANAGED]), at("error", True, False)),
    ),
    Rule(
        "a pod that names no queue is in none: the LocalQueue `default` takes jobs only",
        _is_in_no_queue,
        at(r"metadata\.finalizers", [MANAGED], ABSENT),
    ),
    Rule(
        "the default class is taken when the Workload is made: no label repeats it",
        _default_class,
        at(rf"metadata\.labels\.{re.escape(names.PRIORITY_CLASS)}", found=ABSENT),
    ),
    Rule(
        "a pod's index is read from the label that its annotation names: no other repeats it",
        _index_in_another_label,
        at(rf"metadata\.labels\.{re.escape(POD_INDEX)}", found=ABSENT),
    ),
    Rule(
        "a pod that was deleted before it got a node has ended, and its group with its last pod: nothing will ever "
        "report on it; Kueue goes on counting it",
        _deleted_without_a_node,
        one_of(
            at(rf"{_ONE}\.status\.conditions\.Finished", ABSENT, _is_failed),
            at(rf"{_ONE}\.metadata\.ownerReferences(\.length|\[\d+\].*)?"),
        ),
    ),
    Rule(
        "pods that are being deleted ask for nothing: no workload is made for them",
        _all_pods_leave,
        at(rf"{_ONE}\.metadata\.ownerReferences", found=ABSENT),
    ),
    Rule(
        "a pod that may run keeps its quota until it has ended: also one that is on its way to its node, and one whose "
        "node says nothing any more",
        _silent_pod,
        at("", False, True),
    ),
    Rule(
        "a group never takes another job's workload for its own, with no gate",
        _adopts_by_name,
        one_of(at(rf"{_ONE}\.(spec|metadata\.finalizers|metadata\.ownerReferences).*"), at(r"\.length", 0, 1)),
    ),
    Rule(
        "a group that ended with failed pods has failed; Kueue says that it succeeded",
        _failed_and_not_retriable,
        at(rf"{_ONE}\.status\.conditions\.Finished\.reason", "Succeeded", "Failed"),
    ),
    Rule(
        "a group's workload whose pods are gone is finished: its quota is free at once; Kueue lets it be collected",
        _orphan_of_a_group,
        at(rf"{_ONE}\.status", ABSENT, _is_orphan),
    ),
    Rule(
        "series carry no labels of objects: no annotation is copied for them",
        _labels_for_metrics,
        one_of(at(rf"{_ONE}\.metadata\.annotations\..*", found=ABSENT), at(r"workloads\.length", 0, 1)),
    ),
    Rule(
        "a group's workload that was deactivated says how many pods it lacks until its retention is over; Kueue takes "
        "the pods away without a word",
        _deactivated_group,
        at(rf"{_ONE}\.status\.conditions\.WaitingForReplacementPods", ABSENT),
    ),
    Rule(
        "a serving group that waits follows its pods to another queue",
        _serving_group_moves,
        at(rf"{_ONE}\.spec\.queueName"),
    ),
)
