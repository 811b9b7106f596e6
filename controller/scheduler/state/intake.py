"""Turns a Workload object into what the engine keeps of it: a pending workload, a holder, or nothing."""

import hashlib
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, NamedTuple, TypeVar

import msgspec

from controller.objects.alike import one_dict
from controller.objects.meta import Resources, epoch_s, find_condition, is_true
from controller.objects.quantity import Quantity
from controller.objects.workload import PodSet, PodSetTopologyRequest, Workload, WorkloadSpec
from controller.scheduler.decisions import reasons
from controller.scheduler.dra.claims.book import first_naming
from controller.scheduler.flavors.plan import ALLOWED_FLAVORS, constraints
from controller.scheduler.kueue.variants import job_of
from controller.scheduler.model.caches import Bounded
from controller.scheduler.model.config import BackfillPolicy, EngineConfig
from controller.scheduler.model.deviceclaims import ClaimRules, WorkloadClaims
from controller.scheduler.model.limitrange import LimitSummary
from controller.scheduler.model.resources import ClusterQueueName, LocalQueueKey, WorkloadKey
from controller.scheduler.model.toldtimes import runtime_s
from controller.scheduler.model.workload import (
    PodSetRequests,
    WorkloadInfo,
    adjusted,
    effective_priority,
    queue_order_time_s,
    usage_of,
)
from controller.scheduler.queues.pending import PendingWorkload, placed, summed, timed
from controller.scheduler.quota.queuestate import Holder
from inventory.api.names import ABOVE_MINIMUM_OF, FLAVORS_GIVEN_UP, GANG, SPOT, STARTS_WITH

ADMISSION_GATED_BY = "kueue.x-k8s.io/admission-gated-by"
_PLACES = "kueue.x-k8s.io/podset-"
SLICE_REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"


_REMEMBERED = 4096
_Marks = tuple[int, int, str, str, str, str, str, str, str, str]
T = TypeVar("T")
_NOWHERE = ClusterQueueName("")


class WorkloadPhase(Enum):
    """The part of the engine in which a workload belongs, by what its object says."""

    FINISHED = auto()
    HOLDS = auto()
    PENDING = auto()
    HELD_BACK = auto()
    """The workload may not queue: it is not active, gated, about to be deactivated, or backs off."""


def standing(workload: Workload, config: EngineConfig) -> WorkloadPhase:
    conditions = workload.status.conditions
    if is_true(conditions, reasons.FINISHED):
        return WorkloadPhase.FINISHED
    if workload.status.admission is not None and is_true(conditions, reasons.QUOTA_RESERVED):
        return WorkloadPhase.HOLDS
    gated = config.gates.on("AdmissionGatedBy") and workload.metadata.annotations.get(ADMISSION_GATED_BY)
    requeued = find_condition(conditions, reasons.REQUEUED)
    waits = requeued is not None and requeued.status == "False"
    if waits or gated or not workload.spec.active or is_true(conditions, reasons.DEACTIVATION_TARGET):
        return WorkloadPhase.HELD_BACK
    return WorkloadPhase.PENDING


def local_queue_of(workload: Workload) -> LocalQueueKey:
    return LocalQueueKey(f"{workload.metadata.namespace}/{workload.spec.queue_name}")


def replaced_slice(workload: Workload, config: EngineConfig) -> WorkloadKey | None:
    """The elastic slice that this workload replaces; None for none."""
    if not config.gates.on("ElasticJobsViaWorkloadSlices"):
        return None
    key = workload.metadata.annotations.get(SLICE_REPLACES)
    return WorkloadKey(key) if key else None


class _Common(NamedTuple):
    """What workloads of one shape have in common. ``filled`` are the pod sets with the cluster's defaults in them."""

    shape: str
    given: tuple[PodSet, ...]
    filled: tuple[PodSet, ...]
    requests: tuple[PodSetRequests, ...]
    given_specs: dict[str, WorkloadSpec]
    filled_specs: dict[str, WorkloadSpec]
    """The last spec with these pod sets, by the LocalQueue that it names: workloads share it while they agree."""


class Shapes:
    """The shared parts of pending workloads of one shape, made and kept once: their pod sets and what these request. A
    hundred thousand workloads may wait, and most are alike: one takes 1,500 bytes and 10 us, without ``_known`` 2,060
    bytes and 28 us. ``_named`` saves 3 us more.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Common] = {}
        self._values: dict[object, Any] = {}
        self._named = Bounded[_Marks, tuple[tuple[PodSet, ...], str]](_REMEMBERED)
        """Shapes by the identity of pod sets, which are held here so that no other object gets their ids. The reader of
        workloads shares pod sets of equal text.
        """

    def forget(self) -> None:
        """Drop everything, after the defaults have changed."""
        self._known.clear()

    def pending_of(
        self,
        key: WorkloadKey,
        workload: Workload,
        config: EngineConfig,
        *,
        limits: LimitSummary,
        overheads: Mapping[str, Resources],
        claims: WorkloadClaims | None = None,
    ) -> tuple[PendingWorkload, Workload]:
        """The pending workload, and the workload as given. The pending workload has the namespace's defaults in its
        templates; these, and its ``claims`` as they are counted, belong to its shape. Both share all parts that they
        have in common with other workloads.
        """
        priority = effective_priority(workload, config.gates)
        place = (self._shape(workload, priority, claims), "" if limits.empty else workload.metadata.namespace)
        common = self._known.get(place)
        if common is None:
            if len(self._known) >= _REMEMBERED:
                self.forget()
            first = config.extensions.limits_before_defaults
            filled = adjusted(workload, overheads=overheads, limits=limits, limits_first=first)
            common = self._known[place] = _common(workload, filled, place[0], priority, config, claims)
        # Pod sets that the watch's reader has shared already are not replaced again.
        is_shared = workload.spec.pod_sets is common.given
        compacted = workload if is_shared else self._compact(workload, common.given, common.given_specs)
        info = WorkloadInfo(
            workload=compacted
            if common.filled is common.given
            else msgspec.structs.replace(compacted, spec=_spec(workload.spec, common.filled, common.filled_specs)),
            cluster_queue=_NOWHERE,
            pod_sets=common.requests,
            key=key,
            claims=claims,
        )
        pending = PendingWorkload(
            info,
            local_queue=self._once(local_queue_of(workload)),
            priority=priority,
            queued_at_s=queued_at_s(workload, config),
            shape=common.shape
            if config.extensions.backfill is BackfillPolicy.NONE and not config.extensions.leaving_nodes
            else timed(common.shape, runtime_s(workload)),
        )
        return pending, compacted

    def _shape(self, workload: Workload, priority: int, claims: WorkloadClaims | None) -> str:
        """``shape_of``, looked up by its inputs where that is quicker."""
        spec = workload.spec
        if claims is not None or spec.preemption_gates or workload.status.reclaimable_pods:
            return shape_of(workload, priority, claims)
        marks = (id(spec.pod_sets), priority, *_marks(workload))
        known = self._named.get(marks)
        if known is not None:
            return known[1]
        return self._named.remember(marks, (spec.pod_sets, shape_of(workload, priority, None)))[1]

    def _compact(self, workload: Workload, pod_sets: tuple[PodSet, ...], specs: dict[str, WorkloadSpec]) -> Workload:
        """An equal workload whose parts are the same objects as equal parts of other workloads."""
        replace, once, metadata = msgspec.structs.replace, self._once, workload.metadata
        owners = tuple(
            replace(owner, api_version=once(owner.api_version), kind=once(owner.kind))
            for owner in metadata.owner_references
        )
        return replace(
            workload,
            api_version=once(workload.api_version),
            kind=once(workload.kind),
            metadata=replace(
                metadata,
                namespace=once(metadata.namespace),
                finalizers=once(metadata.finalizers),
                owner_references=owners,
            ),
            spec=_spec(workload.spec, pod_sets, specs),
        )

    def _once(self, value: T) -> T:
        if len(self._values) >= _REMEMBERED:
            self._values.clear()
        found: T = self._values.setdefault(value, value)
        return found


def _common(
    given: Workload,
    filled: Workload,
    shape: str,
    priority: int,
    config: EngineConfig,
    claims: WorkloadClaims | None,
) -> _Common:
    changed = filled.spec.pod_sets != given.spec.pod_sets
    # An admission without the condition QuotaReserved says nothing about the requests of a pending workload.
    asking = msgspec.structs.replace(filled, status=msgspec.structs.replace(filled.status, admission=None))
    info = WorkloadInfo.of(asking, rules=config.request_rules, gates=config.gates, claims=claims)
    own = shape_of(filled, priority, claims) if changed else shape
    sums = None if claims is not None else _sums(filled, info.pod_sets, priority)
    return _Common(
        shape=own if sums is None else summed(own, sums),
        given=given.spec.pod_sets,
        filled=filled.spec.pod_sets if changed else given.spec.pod_sets,
        requests=info.pod_sets,
        given_specs={},
        filled_specs={},
    )


def _spec(given: WorkloadSpec, pod_sets: tuple[PodSet, ...], specs: dict[str, WorkloadSpec]) -> WorkloadSpec:
    """``given`` with these pod sets: the object that other workloads have already, where it is equal."""
    known = specs.get(given.queue_name)
    spec = msgspec.structs.replace(given, pod_sets=pod_sets)
    if known == spec:
        return known
    if len(specs) >= _REMEMBERED:
        specs.clear()
    specs[given.queue_name] = spec
    return spec


def holder_of(workload: Workload, config: EngineConfig, known: Holder | None = None) -> Holder:
    """The holder of a workload with quota, charged for what it takes by itself: shared claims are not in it. Raises
    TopologyEncodingError.
    """
    claims = named_claims(workload, config.claim_rules)
    info = WorkloadInfo.of(workload, rules=config.request_rules, gates=config.gates, claims=claims)
    conditions = workload.status.conditions
    reserved = find_condition(conditions, reasons.QUOTA_RESERVED)
    return Holder(
        info=info,
        cluster_queue=info.cluster_queue,
        local_queue=local_queue_of(workload),
        usage=one_dict(info.usage().assigned),
        priority=effective_priority(workload, config.gates),
        reserved_at_s=epoch_s(reserved.last_transition_time) if reserved is not None else 0.0,
        queued_at_s=queued_at_s(workload, config) if known is None else known.queued_at_s,
        evicted=is_true(conditions, reasons.EVICTED),
        admitted=is_true(conditions, reasons.ADMITTED),
    )


def queued_at_s(workload: Workload, config: EngineConfig) -> float:
    rules = config.wait_for_pods_ready
    by_eviction = rules is None or rules.requeue_by_eviction
    return queue_order_time_s(workload, timeout_requeues_by_eviction=by_eviction, gates=config.gates)


def named_claims(workload: Workload, rules: ClaimRules) -> WorkloadClaims | None:
    """The shared claims of a workload with quota; None where it has none, or they do not count."""
    if not rules.on or not rules.every_kind:
        return None
    named = first_naming(workload, _admitted_counts(workload), of_groups=True)
    return WorkloadClaims(named=named) if named else None


def _admitted_counts(workload: Workload) -> dict[str, int]:
    """The pods of each set for which the quota was given; some may have ended since. A charge stays in the flavor that
    it was given.
    """
    admission = workload.status.admission
    full = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
    return {
        given.name: full.get(given.name, 0) if given.count is None else given.count
        for given in (admission.pod_set_assignments if admission is not None else ())
    }


def shape_of(workload: Workload, priority: int, claims: WorkloadClaims | None = None) -> str:
    """A hash that is equal for workloads of one ClusterQueue that are tried alike: same pods, same priority, same
    constraints. What still counts of a pod set is in it too: reclaimable pods request nothing.
    """
    pod_sets = workload.spec.pod_sets
    shape = _digest(workload, pod_sets, priority, claims)
    if not any(pod_set.topology_request and pod_set.topology_request.names_places for pod_set in pod_sets):
        return shape
    # The part is always separate: an untimed shape equal to its quota shape would park all of that with itself.
    return placed(shape, _digest(workload, tuple(map(_anywhere, pod_sets)), priority, claims))


def _anywhere(pod_set: PodSet) -> PodSet:
    """The pod set as far as quota is concerned: the levels that it names decide on flavors, the way it asks for them
    does not.
    """
    asked, template = pod_set.topology_request, pod_set.template
    if asked is None:
        return pod_set
    annotations = {name: value for name, value in template.metadata.annotations.items() if not name.startswith(_PLACES)}
    return msgspec.structs.replace(
        pod_set,
        topology_request=PodSetTopologyRequest(
            required=",".join(sorted(_named(asked))),
            pod_set_group_name=asked.pod_set_group_name,
        ),
        template=msgspec.structs.replace(
            template, metadata=msgspec.structs.replace(template.metadata, annotations=annotations)
        ),
    )


def _named(asked: PodSetTopologyRequest) -> set[str]:
    named = (asked.required, asked.preferred, asked.pod_set_slice_required_topology, "*" if asked.unconstrained else "")
    inner = (layer.topology for layer in asked.podset_slice_required_topology_constraints)
    return {name for name in (*named, *inner) if name}


def _sums(workload: Workload, requests: tuple[PodSetRequests, ...], priority: int) -> str | None:
    """The shape of all workloads that request the same sums under the same constraints, however divided into pod sets.
    None where the pod sets' constraints differ, where some name a topology, or where fewer pods would do: there each
    pod set counts.
    """
    pod_sets = workload.spec.pod_sets
    under = {constraints(pod_set) for pod_set in pod_sets}
    if len(under) != 1 or any(pod_set.min_count is not None for pod_set in pod_sets):
        return None
    constrained = under.pop()
    if constrained is not None and constrained.places:
        return None
    return _hashed((usage_of(requests).unassigned, constrained), workload, priority, None)


def _digest(workload: Workload, pod_sets: tuple[PodSet, ...], priority: int, claims: WorkloadClaims | None) -> str:
    return _hashed((pod_sets, workload.status.reclaimable_pods), workload, priority, claims)


def _marks(workload: Workload) -> tuple[str, str, str, str, str, str, str, str]:
    """The parts of a workload's metadata that decisions depend on."""
    annotations = workload.metadata.annotations
    return (
        annotations.get(ALLOWED_FLAVORS, ""),
        annotations.get(SLICE_REPLACES, ""),
        annotations.get(ABOVE_MINIMUM_OF, ""),
        annotations.get(GANG, ""),
        annotations.get(SPOT, ""),
        annotations.get(FLAVORS_GIVEN_UP, ""),
        annotations.get(STARTS_WITH, ""),
        job_of(workload) or "",
    )


def _hashed(asked: object, workload: Workload, priority: int, claims: WorkloadClaims | None) -> str:
    """A hash of ``asked`` and everything else that decisions depend on."""
    parts = (asked, priority, *_marks(workload), workload.spec.preemption_gates, claims)
    return hashlib.sha256(_ENCODER.encode(parts)).hexdigest()[:16]


def _quantity(value: object) -> str:
    if isinstance(value, Quantity):
        return str(value.nanos)
    raise NotImplementedError(f"no JSON form for {type(value).__name__}")


_ENCODER = msgspec.json.Encoder(enc_hook=_quantity, order="sorted")
