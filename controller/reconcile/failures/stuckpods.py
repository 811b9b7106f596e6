"""Pods that hang while they end, on unreachable nodes: when one may be counted as failed. Pure.

The kubelet of an unreachable node never reports that a deleted pod has ended, so the pod holds its quota, and a Job
makes no other one. If a pod's owner says by an annotation that two of it at once do no harm, the pod is marked Failed,
a minute after it should have ended. Source: Kueue's KEP-6757 and its gate FailureRecoveryPolicy.
"""

from datetime import datetime
from typing import Final

from msgspec import Struct

from controller.jobs.framework.raw import Json, annotations, text
from controller.objects.core import ENDED_PHASES, Node
from controller.objects.meta import to_json
from controller.scheduler.decisions.status import moment

SAFE_TO_DELETE: Final = "kueue.x-k8s.io/safe-to-forcefully-delete"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
GRACE_S: Final = 60.0
CONDITION: Final = "KueueFailureRecovery"
REASON: Final = "KueueForcefullyDeleted"


class Recovery(Struct, frozen=True, kw_only=True):
    """The change by which a pod counts as failed at ``due_s``: its ``status`` becomes this, and ``note`` says why."""

    due_s: float
    status: Json
    note: str


def is_candidate(pod: Json) -> bool:
    """Whether the pod is being deleted, and may be given up."""
    return annotations(pod).get(SAFE_TO_DELETE) == "true" and bool(text(pod, "metadata", "deletionTimestamp"))


def is_unreachable(node: Node) -> bool:
    return any(taint.key == UNREACHABLE for taint in node.spec.taints)


def recovery(pod: Json, node: Node | None) -> Recovery | None:
    """The change for a pod; None for one that its kubelet can still end, and for one that is marked already."""
    if node is None or not is_candidate(pod) or not is_unreachable(node):
        return None
    status = pod.get("status") or {}
    listed = [condition for condition in status.get("conditions") or () if isinstance(condition, dict)]
    if any(condition.get("type") == CONDITION and condition.get("status") == "True" for condition in listed):
        return None
    # The API server sets the time by which the pod should have ended, with its own grace period.
    due_s = datetime.fromisoformat(text(pod, "metadata", "deletionTimestamp")).timestamp() + GRACE_S
    name = node.metadata.name
    note = f"Did not end on node {name}, which cannot be reached: given up {GRACE_S:.0f} s after its grace period"
    condition = {
        "type": CONDITION,
        "status": "True",
        "reason": REASON,
        "message": note,
        "lastTransitionTime": to_json(moment(due_s)),
    }
    phase = status.get("phase")
    changes = {"conditions": [*listed, condition], "phase": phase if phase in ENDED_PHASES else "Failed"}
    return Recovery(due_s=due_s, status=changes, note=note)
