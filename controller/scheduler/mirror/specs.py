"""The settings of a Queue of Volcano's or KAI's, in the engine's amounts and in one form for both. Amounts are floats
in the engine's units (thousandths of a core, bytes, devices); ``math.inf`` is no limit.
"""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NewType

import msgspec

from controller.foreign.objects.kai import UNBOUNDED, KaiQueue, KaiQuota
from controller.foreign.objects.volcanoqueue import VolcanoQueue
from controller.objects.meta import LabelSelector, Resources, epoch_s
from controller.scheduler.model.podrequests import amounts
from controller.scheduler.model.resources import CPU, ResourceName
from yamlfile.parsers import Unfit, go_duration

GPU: Final = ResourceName("nvidia.com/gpu")
MEMORY: Final = ResourceName("memory")
_MEGABYTE: Final = 1_000_000
KAI_UNITS: Final = {CPU: ("cpu", 1), MEMORY: ("memory", _MEGABYTE), GPU: ("gpu", 1)}
"""The field of a KAI Queue's resources for each resource, and how many of the engine's units one of theirs is."""
KAI_RESOURCES: Final = tuple(KAI_UNITS)
"""The resources that KAI counts; all models of GPUs are one number."""
VOLCANO_ROOT: Final = "root"
"""Volcano's queue above all others; it exists without an object, and takes no jobs."""

_DEFAULT_PRIORITY: Final = 100

QueueOwner = KaiQueue | VolcanoQueue
MirroredName = NewType("MirroredName", str)
"""metadata.name of a Queue of either system."""

Bounds = Mapping[ResourceName, float]


class System(StrEnum):
    """The system that a Queue is an object of."""

    KAI = "kai"
    VOLCANO = "volcano"

    @property
    def parent_field(self) -> str:
        """The field of a Queue that names its parent."""
        return "spec.parentQueue" if self is System.KAI else "spec.parent"


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine serves a system's Queues. ``namespaces``: those whose jobs may use them. ``places``: jobs get
    nodes from the engine; otherwise they get only quota, and the system's own scheduler chooses nodes. ``levels``: node
    labels above the host, the widest first, by which jobs may ask for a topology.
    """

    places: bool = True
    levels: tuple[str, ...] = ()
    namespaces: LabelSelector = LabelSelector()


ADOPTED: Final = Adoption()


class QueueSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One Queue. ``parent`` is empty at the top.

    ``quota``: KAI's quota, Volcano's ``deserved``; only Volcano has ``guarantee``. A resource without ``limit`` has
    none in Volcano, and allows nothing in KAI; each resource has a number in ``weight``, or ``even_weight``.
    ``stopped``: closed itself; a Queue that is closed together with one above it is not. ``preempt_min_runtime_s`` and
    ``reclaim_min_runtime_s``: how long a victim must have run; None where the parent's value counts.
    """

    system: System
    name: MirroredName
    parent: MirroredName
    quota: Bounds = {}
    limit: Bounds = {}
    weight: Bounds = {}
    even_weight: float = 0.0
    guarantee: Bounds = {}
    priority: int = 0
    created_s: float = 0.0
    uid: str = ""
    stopped: bool = False
    reclaimable: bool = True
    strict_fifo: bool = False
    preempt_min_runtime_s: float | None = None
    reclaim_min_runtime_s: float | None = None
    implied: bool = False
    """Whether the Queue has no object: it gives up its name to any Queue that has one."""

    def weight_of(self, resource: ResourceName) -> float:
        return self.weight.get(resource, self.even_weight)


class QueueSpecError(ValueError):
    """The Queue cannot be mirrored; the message is one sentence with field, value found, value expected."""


def system_of(kind: type[QueueOwner]) -> System:
    return System.KAI if kind is KaiQueue else System.VOLCANO


def spec_of(queue: QueueOwner) -> QueueSpec:
    """The settings of a Queue. Raises QueueSpecError."""
    return _of_kai(queue) if isinstance(queue, KaiQueue) else _of_volcano(queue)


def _of_kai(queue: KaiQueue) -> QueueSpec:
    spec, meta = queue.spec, queue.metadata
    quotas: dict[ResourceName, tuple[KaiQuota, int]] = {
        resource: (getattr(spec.resources, field), unit) for resource, (field, unit) in KAI_UNITS.items()
    }
    return QueueSpec(
        system=System.KAI,
        name=MirroredName(meta.name),
        parent=MirroredName(spec.parent_queue),
        quota={resource: _bound(said.quota, unit) for resource, (said, unit) in quotas.items()},
        limit={resource: _bound(said.limit, unit) for resource, (said, unit) in quotas.items()},
        weight={resource: max(0.0, said.over_quota_weight) for resource, (said, _) in quotas.items()},
        priority=_DEFAULT_PRIORITY if spec.priority is None else spec.priority,
        created_s=epoch_s(meta.creation_timestamp),
        uid=meta.uid,
        preempt_min_runtime_s=_seconds(spec.preempt_min_runtime, "spec.preemptMinRuntime"),
        reclaim_min_runtime_s=_seconds(spec.reclaim_min_runtime, "spec.reclaimMinRuntime"),
    )


def _bound(said: float, unit: int) -> float:
    return math.inf if said == UNBOUNDED else said * unit


def _seconds(said: str | None, where: str) -> float | None:
    if said is None:
        return None
    try:
        return 0.0 if said == "0" else go_duration(said)
    except Unfit:
        raise QueueSpecError(f"{where}: expected a duration such as '10m', found {said[:40]!r}") from None


def _of_volcano(queue: VolcanoQueue) -> QueueSpec:
    spec, meta = queue.spec, queue.metadata
    for groups in (spec.affinity.node_group_affinity, spec.affinity.node_group_anti_affinity) if spec.affinity else ():
        if groups is not None and groups.required_during_scheduling_ignored_during_execution:
            raise QueueSpecError("spec.affinity: expected no required node groups: pods name their nodes themselves")
    top = VOLCANO_ROOT in (meta.name, spec.parent)
    return QueueSpec(
        system=System.VOLCANO,
        name=MirroredName(meta.name),
        parent=MirroredName("" if top else spec.parent),
        quota=_amounts(spec.deserved, "spec.deserved"),
        limit=_amounts(spec.capability, "spec.capability"),
        guarantee=_amounts(spec.guarantee.resource, "spec.guarantee.resource"),
        even_weight=float(spec.weight),
        priority=spec.priority,
        created_s=epoch_s(meta.creation_timestamp),
        uid=meta.uid,
        stopped=not queue.status.open and not queue.closed_by_parent,
        reclaimable=spec.reclaimable,
        strict_fifo=spec.dequeue_strategy == "fifo",
    )


def _amounts(given: Resources, where: str) -> dict[ResourceName, float]:
    for name, quantity in given.items():
        if quantity.nanos < 0:
            raise QueueSpecError(f"{where}[{name[:63]}]: expected a quantity of at least 0, found {quantity}")
    return {name: float(amount) for name, amount in amounts(given).items()}


def implied_queues(system: System) -> tuple[QueueSpec, ...]:
    """The Queues that a system has before anybody creates one."""
    if system is System.VOLCANO:
        return (
            QueueSpec(
                system=system,
                name=MirroredName("default"),
                parent=MirroredName(""),
                even_weight=1.0,
                implied=True,
            ),
        )
    parent = QueueSpec(
        system=system,
        name=MirroredName("default-parent-queue"),
        parent=MirroredName(""),
        quota=dict.fromkeys(KAI_RESOURCES, math.inf),
        limit=dict.fromkeys(KAI_RESOURCES, math.inf),
        weight=dict.fromkeys(KAI_RESOURCES, 1.0),
        priority=_DEFAULT_PRIORITY,
        implied=True,
    )
    leaf = msgspec.structs.replace(parent, name=MirroredName("default-queue"), parent=parent.name)
    return parent, leaf
