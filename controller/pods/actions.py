"""What is to be done about pods and their workload, beside the actions of ``controller.jobframework.actions``.

The rules are the same: in order, stop at the first that fails, reconcile again.
"""

from typing import Literal

from controller.jobframework.actions import (
    CreateWorkload,
    DeleteWorkload,
    EmitEvent,
    FinishWorkload,
    ReleaseQuota,
    RemoveFinalizer,
    SetPodsReady,
    SetReclaimable,
    UpdateWorkload,
)
from controller.jobframework.raw import Json
from controller.objects.meta import Struct


class PatchPod(Struct, frozen=True, kw_only=True):
    """``body`` is a merge patch (RFC 7386), conditional by the uid and resourceVersion in it."""

    name: str
    body: Json


class DeletePod(Struct, frozen=True, kw_only=True):
    """Set the condition TerminationTarget (``reason``, ``message``) on the pod's status, then delete it by its uid.

    In this order: the condition is how a later look tells this deletion from a person's.
    """

    name: str
    uid: str
    reason: str
    message: str


class SetWaitingForPods(Struct, frozen=True, kw_only=True):
    """Set the workload's condition WaitingForReplacementPods."""

    name: str
    uid: str
    status: Literal["True", "False"]
    reason: Literal["PodsMissing", "PodsComplete"]
    message: str


class RefusePod(Struct, frozen=True, kw_only=True):
    """The pod, or its group, cannot be queued: a Warning Event about it, and nothing more until something changes."""

    name: str
    uid: str
    reason: str
    sentence: str


PodAction = (
    CreateWorkload
    | UpdateWorkload
    | DeleteWorkload
    | RemoveFinalizer
    | FinishWorkload
    | SetReclaimable
    | SetPodsReady
    | ReleaseQuota
    | EmitEvent
    | PatchPod
    | DeletePod
    | SetWaitingForPods
    | RefusePod
)
