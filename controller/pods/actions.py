"""What is to be done about pods and their workload, beside the actions of ``controller.jobframework.actions``.

The rules are the same: in order, stop at the first that fails, reconcile again.
"""

from controller.jobframework.actions import EmitEvent, Refuse, WorkloadAction
from controller.jobframework.raw import Json
from controller.objects.meta import Struct


class PatchPod(Struct, frozen=True, kw_only=True):
    """``body`` is a merge patch (RFC 7386), conditional by the uid and resourceVersion in it."""

    name: str
    body: Json


class DeletePod(Struct, frozen=True, kw_only=True):
    """Set the condition TerminationTarget (``reason``, ``message``) on the pod's status, then delete it by its uid.

    In this order: the condition tells later that the queue deleted the pod, and not a user.
    """

    name: str
    uid: str
    reason: str
    message: str


PodAction = WorkloadAction | EmitEvent | PatchPod | DeletePod | Refuse
