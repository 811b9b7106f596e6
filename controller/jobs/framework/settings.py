"""The input of a reconciliation besides the job: settings, and other objects of the cluster."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from controller.jobs.framework.charge import Charge
from controller.jobs.framework.kind import JobKind, Look, no_objects
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.raw import Json
from controller.jobs.framework.tiers import Tiers
from controller.objects.meta import LabelSelector, OwnerReference
from controller.objects.nativegroups import NativeGroup
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import Workload
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.claimplan import ClaimPlan

DevicePlan = Callable[[WorkloadKey, str, str], Sequence[tuple[str, ...]]]
"""Returns, for a workload, a pod set and a node, the UUIDs of each pod that is planned there; empty if none is
planned."""

ClaimDevices = Callable[[WorkloadKey, str], ClaimPlan]
"""Returns, for a workload and a pod set, the devices that are planned for the claims of its pods."""


def no_claim_devices(_workload: WorkloadKey, _pod_set: str) -> ClaimPlan:
    """A ``ClaimDevices`` that leaves the choice of devices to the scheduler."""
    return {}


def no_plan(_workload: WorkloadKey, _pod_set: str, _node: str) -> Sequence[tuple[str, ...]]:
    """A ``DevicePlan`` that leaves the choice of devices to the scheduler."""
    return ()


def is_never_spare(_pod: Json) -> bool:
    return False


def has_not_ended(_namespace: str, _job: OwnerReference) -> bool:
    return False


def takes_spot(_workload: Workload) -> bool:
    return False


def has_no_workload(_uid: str) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """Settings of the configuration, by the names of their keys. ``wait_for_pods_ready``: the condition PodsReady is
    kept. ``keeps_minimum``: serving objects may have a minimum of replicas. ``charges_to_the_end``: a job that has
    ended holds its quota while its pods run. ``injected``: by the name of an init container that a kind's controller
    puts into pods, its requests. ``tiers``: what the tiers of a network topology mean.
    """

    manage_jobs_without_queue_name: bool = False
    managed_jobs_namespace_selector: LabelSelector = field(default_factory=LabelSelector)
    label_keys_to_copy: tuple[str, ...] = ()
    wait_for_pods_ready: bool = True
    keeps_minimum: bool = False
    charges_to_the_end: bool = False
    injected: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tiers: Tiers = ()
    gates: FeatureGates = field(default_factory=FeatureGates)
    off_spot: tuple[Json, ...] = ()
    """Expressions that no spot node meets, see ``offspot``; none where no job keeps off them."""


@dataclass(frozen=True, kw_only=True)
class ClusterObjects:
    """Other objects of the cluster, out of the watches' copies. Functions return None if there is no such object."""

    flavor: Callable[[str], ResourceFlavor | None]
    workload_priority: Callable[[str], int | None]
    """Returns the value of a WorkloadPriorityClass."""
    pod_priority: Callable[[str], int | None]
    """Returns the value of a PriorityClass."""
    global_default: Callable[[], tuple[str, int] | None]
    """Returns name and value of the PriorityClass that is the cluster's default."""
    owner: Callable[[str, OwnerReference], Json | None]
    """Returns an object of a kind that may own jobs, by namespace and reference."""
    is_job_kind: Callable[[str, str], bool]
    """Whether apiVersion and kind are those of jobs that are queued, by this or another controller."""
    is_admitted: Callable[[str], bool]
    """Whether the workload of the job with this uid is admitted."""
    has_ended: Callable[[str, OwnerReference], bool] = has_not_ended
    """Whether a job, of a kind that is queued here, has finished; by its namespace and a reference to it."""
    may_be_spare: Callable[[Json], bool] = is_never_spare
    """Whether a new pod of a serving object may be above its minimum of replicas: true until it is known not to be."""
    has_workload: Callable[[str], bool] = has_no_workload
    """Whether a Workload names the object with this uid as its controller."""
    device_plan: DevicePlan = no_plan
    claim_devices: ClaimDevices = no_claim_devices
    is_off_spot: Callable[[Workload], bool] = takes_spot
    """Whether the workload, or its queues, want no spot node for it."""
    look: Look = no_objects
    """Returns objects that kinds of jobs read, see ``JobKind.reads``."""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the watches show it; ``job`` is None once it is gone.

    ``workloads``: the Workloads that the job controls (by the uid of their controller), and the prebuilt one that it
    names. ``gated_pods``: the number of its pods that still wait behind the gate of elastic jobs. ``left_pods``: by pod
    set, the pods that have not ended of a job that has, or is being deleted; "" for pods that name no pod set; None if
    they were not counted. ``charge``: what the Workload of the job above it is charged for and what runs by that,
    without this job; None unless the job is a child that starts by that. ``unread``: why it is not known what is above
    such a child. ``groups``: the PodGroups that the controller has made for starts by these Workloads; None if it makes
    none, or the API has none. ``controlled``: the PodGroups that the job itself controls, made by the Job controller.
    ``named``: those that its pod templates name, None for one that is not there. ``stranded``: the number of its pods
    that kube-scheduler has no node for any more while others of its gang run, in a group of others.
    """

    kind: JobKind
    job: Json | None
    workloads: tuple[SeenWorkload, ...] = ()
    namespace_labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    gated_pods: int = 0
    left_pods: Mapping[str, int] | None = None
    stranded: int = 0
    charge: Charge | None = None
    unread: str = ""
    groups: tuple[NativeGroup, ...] | None = None
    controlled: tuple[NativeGroup, ...] = ()
    named: Mapping[str, NativeGroup | None] = msgspec.field(default_factory=dict)


def kept_off_spot(settings: JobSettings, cluster: ClusterObjects, workload: Workload) -> tuple[Json, ...]:
    """Expressions of the nodes that the workload's pods are kept to at their start; none where all are open to them."""
    return settings.off_spot if settings.off_spot and cluster.is_off_spot(workload) else ()
