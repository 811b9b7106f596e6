"""Actions about a job and its workloads. A reconciler returns them in order; a shell carries them out.

A shell stops at the first that fails and reconciles again: every action follows from the objects as they are, so
none is lost. All of one reconciliation concern one job; workloads have a name, in the job's namespace, and a uid.
"""

from typing import Literal

from controller.jobframework.kind import Patch
from controller.jobframework.raw import Json
from controller.objects.meta import Struct

FinishReason = Literal["Succeeded", "Failed", "OutOfSync", "OwnerNotFound", "WorkloadSliceReplaced", "FailedToStart"]
PodsReadyReason = Literal["WaitForStart", "Started", "WaitForRecovery", "Recovered"]


class CreateWorkload(Struct, frozen=True, kw_only=True):
    """``body`` is the whole object. One that is there already is the same one: not an error."""

    body: Json


class UpdateWorkload(Struct, frozen=True, kw_only=True):
    """``patch`` is a merge patch (RFC 7386), conditional by the resourceVersion in it."""

    name: str
    patch: Json


class DeleteWorkload(Struct, frozen=True, kw_only=True):
    name: str
    uid: str


class RemoveFinalizer(Struct, frozen=True, kw_only=True):
    """Take ``kueue.x-k8s.io/resource-in-use`` off the workload, so that it can be deleted."""

    name: str
    uid: str


class FinishWorkload(Struct, frozen=True, kw_only=True):
    """Set the condition Finished."""

    name: str
    uid: str
    reason: FinishReason
    message: str


class SetReclaimable(Struct, frozen=True, kw_only=True):
    """``pods`` by pod set, the complete ``status.reclaimablePods``."""

    name: str
    uid: str
    pods: dict[str, int]


class SetPodsReady(Struct, frozen=True, kw_only=True):
    """Set the condition PodsReady."""

    name: str
    uid: str
    status: Literal["True", "False"]
    reason: PodsReadyReason
    message: str


class SetWaitingForPods(Struct, frozen=True, kw_only=True):
    """Set the workload's condition WaitingForReplacementPods.

    ``reason``: PodsFailed or that of an eviction while it waits, then PodsReady.
    """

    name: str
    uid: str
    status: Literal["True", "False"]
    reason: str
    message: str


class ReleaseQuota(Struct, frozen=True, kw_only=True):
    """Nothing of the job runs any more: clear ``status.admission``, QuotaReserved and Admitted False.

    ``reason`` and ``message`` are those of the eviction; ``requeue``: Requeued becomes True at once.
    """

    name: str
    uid: str
    reason: str
    message: str
    requeue: bool


class HoldWorkload(Struct, frozen=True, kw_only=True):
    """``on``: it gives up its quota and does not queue (Requeued False, reason OnHold); else it queues again."""

    name: str
    uid: str
    on: bool
    message: str


class StartJob(Struct, frozen=True, kw_only=True):
    """``name`` and ``uid``: the workload by which it starts. It fails where the API server drops a part of a patch."""

    patches: tuple[Patch, ...]
    name: str
    uid: str


class StopJob(Struct, frozen=True, kw_only=True):
    patches: tuple[Patch, ...]


class UngatePods(Struct, frozen=True, kw_only=True):
    """Take the scheduling gate ``gate`` off the job's pods until ``count`` of each pod set are without it."""

    gate: str
    counts: dict[str, int]


class AwaitPods(Struct, frozen=True, kw_only=True):
    """The job has ended, or is being deleted, and ``count`` of its pods have not ended: after ``patches`` they are
    looked at again in a while.
    """

    count: int
    patches: tuple[Patch, ...] = ()


class AwaitOwner(Struct, frozen=True, kw_only=True):
    """A child that may not start yet beside its owner: an Event says why, and it is looked at again in a while."""

    message: str


class EmitEvent(Struct, frozen=True, kw_only=True):
    """An Event about the job."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class Refuse(Struct, frozen=True, kw_only=True):
    """The job, pod or group of pods cannot be queued: a Warning Event says why, and nothing more until it changes."""

    reason: str
    sentence: str


WorkloadAction = (
    CreateWorkload
    | UpdateWorkload
    | DeleteWorkload
    | RemoveFinalizer
    | FinishWorkload
    | SetReclaimable
    | SetPodsReady
    | SetWaitingForPods
    | ReleaseQuota
    | HoldWorkload
)
"""An action about the Workload alone, whatever it was made for."""

Action = WorkloadAction | StartJob | StopJob | UngatePods | AwaitPods | AwaitOwner | EmitEvent | Refuse
