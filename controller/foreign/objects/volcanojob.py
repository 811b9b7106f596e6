"""Volcano's Job and its Command: ``batch.volcano.sh/v1alpha1`` and ``bus.volcano.sh/v1alpha1``.

Pod templates and volume claims stay JSON, because the objects that are made of them must lose nothing. Values are as
users wrote them; the defaults that follow from other fields are in ``controller.foreign.jobs``.
"""

from typing import Any, Final

import msgspec

from controller.objects.meta import Int32, KubernetesObject, OwnerReference, Struct, Time

JOB_VERSION: Final = "batch.volcano.sh/v1alpha1"
COMMAND_VERSION: Final = "bus.volcano.sh/v1alpha1"


class LifecyclePolicy(Struct, frozen=True, kw_only=True):
    """A policy. ``event``, ``events`` or ``exit_code`` say when it applies; ``timeout`` is a duration as Go
    writes it.
    """

    action: str = ""
    event: str = ""
    events: tuple[str, ...] = ()
    exit_code: Int32 | None = None
    timeout: str | None = None


class NetworkTopology(Struct, frozen=True, kw_only=True):
    """A network topology. ``mode`` is hard or soft."""

    mode: str = ""
    highest_tier_allowed: Int32 | None = None
    highest_tier_name: str = ""


class PartitionPolicy(Struct, frozen=True, kw_only=True):
    total_partitions: Int32 = 0
    partition_size: Int32 = 0
    min_partitions: Int32 = 0
    network_topology: NetworkTopology | None = None


class DependsOn(Struct, frozen=True, kw_only=True):
    """Tasks that this one depends on. ``iteration`` is any or all; empty means all."""

    name: tuple[str, ...] = ()
    iteration: str = ""


class TaskSpec(Struct, frozen=True, kw_only=True):
    name: str = ""
    replicas: Int32 = 0
    min_available: Int32 | None = None
    template: dict[str, Any] = msgspec.field(default_factory=dict)
    policies: tuple[LifecyclePolicy, ...] = ()
    topology_policy: str = ""
    max_retry: Int32 | None = None
    depends_on: DependsOn | None = None
    partition_policy: PartitionPolicy | None = None


class VolumeSpec(Struct, frozen=True, kw_only=True):
    """A volume. ``volume_claim`` is the spec of a PersistentVolumeClaim."""

    mount_path: str = ""
    volume_claim_name: str = ""
    volume_claim: dict[str, Any] | None = None


class VolcanoJobSpec(Struct, frozen=True, kw_only=True):
    scheduler_name: str = ""
    min_available: Int32 = 0
    volumes: tuple[VolumeSpec, ...] = ()
    tasks: tuple[TaskSpec, ...] = ()
    policies: tuple[LifecyclePolicy, ...] = ()
    plugins: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    running_estimate: str | None = None
    queue: str = ""
    max_retry: Int32 | None = None
    ttl_seconds_after_finished: Int32 | None = None
    priority_class_name: str = ""
    min_success: Int32 | None = None
    network_topology: NetworkTopology | None = None


class JobState(Struct, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None


class JobCondition(Struct, frozen=True, kw_only=True):
    """A condition. ``status`` is a phase that the job was in; ``last_transition_time`` when that began."""

    status: str = ""
    last_transition_time: Time | None = None


class TaskState(Struct, frozen=True, kw_only=True):
    """The number of pods of one task by their phase."""

    phase: dict[str, Int32] = msgspec.field(default_factory=dict)


class VolcanoJobStatus(Struct, frozen=True, kw_only=True):
    """A job's status. It counts pods by phase; ``terminating`` ones are in no other count."""

    state: JobState = JobState()
    min_available: Int32 = 0
    task_status_count: dict[str, TaskState] = msgspec.field(default_factory=dict)
    pending: Int32 = 0
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0
    terminating: Int32 = 0
    unknown: Int32 = 0
    version: Int32 = 0
    retry_count: Int32 = 0
    running_duration: str | None = None
    controlled_resources: dict[str, str] = msgspec.field(default_factory=dict)
    conditions: tuple[JobCondition, ...] = ()


class VolcanoJob(KubernetesObject, frozen=True, kw_only=True):
    spec: VolcanoJobSpec = VolcanoJobSpec()
    status: VolcanoJobStatus = VolcanoJobStatus()


class VolcanoCommand(KubernetesObject, frozen=True, kw_only=True):
    """One order to a job or queue. It has no spec: its fields stand beside the metadata."""

    action: str = ""
    target: OwnerReference = OwnerReference()
    reason: str = ""
    message: str = ""
