"""Actions about a job and its workloads. A reconciler returns them in order; a shell carries them out.

A shell stops at the first action that fails and reconciles again: every action follows from the present objects, so
none is lost. All of one reconciliation concern one job; workloads have a name, in the job's namespace, and a uid.
"""

from typing import Literal

from controller.jobs.framework.kind import Patch
from controller.jobs.framework.raw import Json
from controller.objects.meta import Struct

FinishReason = Literal["Succeeded", "Failed", "OutOfSync", "OwnerNotFound", "WorkloadSliceReplaced", "FailedToStart"]
PodsReadyReason = Literal["WaitForStart", "Started", "WaitForRecovery", "Recovered"]


class CreateWorkload(Struct, frozen=True, kw_only=True):
    """Create a Workload; ``body`` is the whole object. A Workload of this name that exists already is the same one: not
    an error.
    """

    body: Json


class UpdateWorkload(Struct, frozen=True, kw_only=True):
    """Patch a Workload. ``patch`` is a merge patch (RFC 7386), conditional by the resourceVersion in it."""

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
    """Set ``status.reclaimablePods``; ``pods`` has all of it, by pod set."""

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

    ``reason``: PodsFailed or the reason of an eviction while the workload waits, then PodsReady.
    """

    name: str
    uid: str
    status: Literal["True", "False"]
    reason: str
    message: str


class SetGangScheduled(Struct, frozen=True, kw_only=True):
    """Set the workload's condition ``tessera.dev/GangScheduled``: what kube-scheduler says of its PodGroup."""

    name: str
    uid: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


class ReleaseQuota(Struct, frozen=True, kw_only=True):
    """Clear ``status.admission``, and set QuotaReserved and Admitted to False: nothing of the job runs any more.

    ``reason`` and ``message`` are those of the eviction; ``requeue``: Requeued becomes True at once.
    """

    name: str
    uid: str
    reason: str
    message: str
    requeue: bool


class HoldWorkload(Struct, frozen=True, kw_only=True):
    """Put the workload on hold or end that. ``on``: it gives up its quota and does not queue (Requeued False, reason
    OnHold); else it queues again.
    """

    name: str
    uid: str
    on: bool
    message: str


class StartJob(Struct, frozen=True, kw_only=True):
    """Send the patches that start the job. ``name`` and ``uid``: the workload by which it starts. The action fails if
    the API server drops a part of a patch.
    """

    patches: tuple[Patch, ...]
    name: str
    uid: str


class MakeGroup(Struct, frozen=True, kw_only=True):
    """Create the PodGroup of a start, before the job starts; ``body`` has no apiVersion, which is the one that is
    served. A PodGroup of this name that exists already is the same one.

    ``refused``: the action for a Workload whose group the API server refuses, without its message. ``told``: the
    message of the last refusal, empty for none.
    """

    body: Json
    refused: SetGangScheduled
    told: str


class LowerGroup(Struct, frozen=True, kw_only=True):
    """Patch a PodGroup that has started: fewer pods of it are left, and these make the gang. ``patch`` is a merge
    patch, conditional by the resourceVersion in it.
    """

    name: str
    patch: Json


class RemoveGroup(Struct, frozen=True, kw_only=True):
    """Delete the PodGroup of a start that is over; the API server keeps it until its pods are gone."""

    name: str
    uid: str


GroupAction = MakeGroup | LowerGroup | RemoveGroup


class StopJob(Struct, frozen=True, kw_only=True):
    patches: tuple[Patch, ...]


class UngatePods(Struct, frozen=True, kw_only=True):
    """Remove the scheduling gate ``gate`` from the job's pods until ``count`` of each pod set are without it."""

    gate: str
    counts: dict[str, int]


class AwaitPods(Struct, frozen=True, kw_only=True):
    """Send ``patches``, and reconcile again in a while: the job has ended, or is being deleted, and ``count`` of its
    pods have not ended.
    """

    count: int
    patches: tuple[Patch, ...] = ()


class AwaitOwner(Struct, frozen=True, kw_only=True):
    """Emit an Event that says why a child may not start yet beside its owner, and reconcile again in a while."""

    message: str


class EmitEvent(Struct, frozen=True, kw_only=True):
    """Emit an Event about the job."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class Refuse(Struct, frozen=True, kw_only=True):
    """Emit a Warning Event: the job, pod or group of pods cannot be queued. Nothing more happens until it changes."""

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
    | SetGangScheduled
    | ReleaseQuota
    | HoldWorkload
)
"""An action about the Workload alone, whatever it was made for."""

Action = WorkloadAction | GroupAction | StartJob | StopJob | UngatePods | AwaitPods | AwaitOwner | EmitEvent | Refuse
