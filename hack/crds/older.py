"""The structs of ``kueue.x-k8s.io/v1beta1``, made from those of v1beta2 by what the older version has otherwise.

Nothing decides on them: the API server stores and hands out v1beta2, and ``controller.objects.conversion`` converts raw
JSON. They are for the schemas of the older version alone. Source: Kueue's v1beta1 API.

Renamed since: ClusterQueue ``cohort`` (``cohortName``) and ``admissionChecks`` (``admissionChecksStrategy``), Workload
``priorityClassName`` with ``priorityClassSource`` (``priorityClassRef``) and the misspelt
``accumulatedPastExexcutionTimeSeconds``, LocalQueue status ``flavorUsage`` (``flavorsUsage``), and a topology
assignment's plain ``domains`` (compressed ``slices``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin

import msgspec

from controller.objects import queues, workload
from controller.objects.core import Taint
from controller.objects.meta import Int32, Int64, Struct, Time


class ClusterQueuePendingWorkload(Struct, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""


class ClusterQueuePendingWorkloadsStatus(Struct, frozen=True, kw_only=True):
    """The heads of a queue, once; nothing writes it any more."""

    cluster_queue_pending_workload: tuple[ClusterQueuePendingWorkload, ...] = ()
    last_change_time: Time | None = None


class FlavorTopology(Struct, frozen=True, kw_only=True):
    name: str = ""
    levels: tuple[str, ...] = ()


class LocalQueueFlavorStatus(Struct, frozen=True, kw_only=True):
    """What a flavor is, for users who may not read ResourceFlavors."""

    name: str = ""
    resources: tuple[str, ...] = ()
    node_labels: dict[str, str] = msgspec.field(default_factory=dict)
    node_taints: tuple[Taint, ...] = ()
    topology: FlavorTopology | None = None


class TopologyDomainAssignment(Struct, frozen=True, kw_only=True):
    """``values``: the domain's label value at each level, highest first; ``count``: pods in it."""

    values: tuple[str, ...] = ()
    count: Int32 = 0


PriorityClassSource = Literal["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""]


@dataclass(frozen=True)
class Otherwise:
    """What v1beta1 has otherwise in one struct: fields that it does not have, and types of those it has in their place
    or besides. Every field is optional."""

    without: Sequence[str] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)


DIFFERENCES: Final[Mapping[type[Struct], Otherwise]] = {
    # ``Borrow`` and ``Preempt`` are older words for MayStopSearch.
    queues.FlavorFungibility: Otherwise(
        fields={
            "when_can_borrow": Literal["MayStopSearch", "TryNextFlavor", "Borrow"] | None,
            "when_can_preempt": Literal["MayStopSearch", "TryNextFlavor", "Preempt"] | None,
        }
    ),
    queues.AdmissionScope: Otherwise(fields={"admission_mode": str | None}),
    queues.ClusterQueueSpec: Otherwise(
        without=("cohort_name", "concurrent_admission_policy"),
        # Names of admission checks that hold for every flavor.
        fields={"cohort": str, "admission_checks": tuple[str, ...]},
    ),
    queues.FairSharingStatus: Otherwise(
        fields={"admission_fair_sharing_status": queues.AdmissionFairSharingStatus | None}
    ),
    queues.ClusterQueueStatus: Otherwise(
        fields={"pending_workloads_status": ClusterQueuePendingWorkloadsStatus | None}
    ),
    queues.LocalQueueStatus: Otherwise(
        without=("flavors_usage",),
        fields={"flavor_usage": tuple[queues.FlavorUsage, ...], "flavors": tuple[LocalQueueFlavorStatus, ...]},
    ),
    # It had no effect.
    queues.AdmissionCheckSpec: Otherwise(fields={"retry_delay_minutes": Int64 | None}),
    workload.PodSetTopologyRequest: Otherwise(without=("podset_slice_required_topology_constraints",)),
    workload.WorkloadSpec: Otherwise(
        without=("priority_class_ref", "preemption_gates"),
        fields={"priority_class_name": str, "priority_class_source": PriorityClassSource},
    ),
    workload.TopologyAssignment: Otherwise(
        without=("slices",), fields={"domains": tuple[TopologyDomainAssignment, ...]}
    ),
    workload.PodSetAssignment: Otherwise(fields={"delayed_topology_request": str | None}),
    workload.WorkloadStatus: Otherwise(
        without=("accumulated_past_execution_time_seconds", "preemption_gates"),
        fields={"accumulated_past_exexcution_time_seconds": Int32 | None},  # the API's own spelling
    ),
}


class OlderStructs:
    """By struct of v1beta2 the one of v1beta1: itself where neither it nor a part of it differs."""

    def __init__(self, differences: Mapping[type[Struct], Otherwise]) -> None:
        self._differences = differences
        self._made: dict[type, type] = {}

    def __getitem__(self, newer: type) -> type:
        if newer not in self._made:
            self._made[newer] = self._make(newer)
        return self._made[newer]

    def _make(self, newer: type) -> type:
        otherwise = self._differences.get(newer, Otherwise())
        own = {each.name: each.type for each in msgspec.structs.fields(cast(type[msgspec.Struct], newer))}
        unknown = set(otherwise.without) - set(own)
        assert not unknown, f"{newer.__name__}: no fields {sorted(unknown)}"
        older = {name: self._type(type_) for name, type_ in own.items() if name not in otherwise.without}
        older |= otherwise.fields
        if older == own:
            return newer
        optional = [(name, type_ | None, None) for name, type_ in older.items()]
        return msgspec.defstruct(newer.__name__, optional, module=__name__, frozen=True, kw_only=True, rename="camel")

    def _type(self, given: Any) -> Any:
        """The type with every struct in it replaced by the older one."""
        if isinstance(given, type) and issubclass(given, msgspec.Struct):
            return self[given]
        origin, parts = get_origin(given), get_args(given)
        if origin is tuple:
            return cast(Any, tuple)[self._type(parts[0]), ...]
        if origin in (Union, UnionType) and len(parts) == 2 and NoneType in parts:  # noqa: PLR2004 - a type or None
            (only,) = (part for part in parts if part is not NoneType)
            return self._type(only) | None
        return given


V1BETA1: Final = OlderStructs(DIFFERENCES)
