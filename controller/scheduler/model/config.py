"""The engine's configuration as plain data, independent of files and API versions.

``controller.config`` makes it from Kueue's configuration file; tests and ``tessera simulate`` may write it down
directly. By default every feature that can be off is off, including those that Kueue does not have.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from controller.scheduler.model.cron import Cron
from controller.scheduler.model.deviceclaims import ClaimRules
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.podrequests import RequestRules
from controller.scheduler.model.resources import ResourceName

MAX_GRACE_S: Final = 600.0
"""The grace that the chart raises pods to where nobody says another."""


class PreemptionStrategy(StrEnum):
    """``fairSharing.preemptionStrategies``: between which shares one queue may preempt another's workload."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


BOTH_STRATEGIES: Final = (
    PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,
    PreemptionStrategy.LESS_THAN_INITIAL_SHARE,
)


class FairSharing(msgspec.Struct, frozen=True, kw_only=True):
    """Cohorts share by dominant resource share; ``strategies`` are tried in this order."""

    strategies: tuple[PreemptionStrategy, ...] = BOTH_STRATEGIES


class AdmissionFairSharing(msgspec.Struct, frozen=True, kw_only=True):
    """LocalQueues of one ClusterQueue are ordered by past usage, which halves every ``half_life_s``.

    A half-life of 0 keeps no history. ``resource_weights`` counts 1 for what it does not name. Source: KEP 4136.
    """

    half_life_s: float
    sampling_interval_s: float = 300.0
    resource_weights: Mapping[ResourceName, float] = {}


_HALF_LIVES: Final = 10.0


class QueueUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Foreign Queues that share by past usage too; ``weight`` is the k of their system. Usage of the last ``window_s``
    counts, halved every ``half_life_s`` (0: all of it counts alike), sampled every ``interval_s``.

    ``tumbles_from_s``: windows follow each other from this time on, and usage begins anew with each. ``cron``: usage
    begins anew whenever the schedule fires, and no more than ``window_s`` of it counts. What Prometheus measured counts
    for ``stale_s`` after it was queried.
    """

    weight: float = 1.0
    window_s: float = 168 * 3600.0
    half_life_s: float = 0.0
    interval_s: float = 60.0
    tumbles_from_s: float | None = None
    cron: Cron | None = None
    stale_s: float = 300.0

    @property
    def span_s(self) -> float:
        """How far back usage counts, in seconds: after ten half-lives less than a thousandth is left."""
        return min(self.window_s, _HALF_LIVES * self.half_life_s) if self.half_life_s else self.window_s

    def begin_s(self, now_s: float) -> float:
        """The time before which usage does not count."""
        if self.tumbles_from_s is not None:
            return now_s - (now_s - self.tumbles_from_s) % self.window_s
        slides_s = now_s - self.window_s
        return slides_s if self.cron is None else max(slides_s, self.cron.last_s(now_s))


class WaitForPodsReady(msgspec.Struct, frozen=True, kw_only=True):
    """Workloads whose pods are not all ready in time are evicted and wait longer each time. Source: KEP 349.

    ``timeout_s`` counts from admission, ``recovery_timeout_s`` from a pod's failure (None: no such limit). The n-th
    requeue waits ``backoff_base_s * 2**(n-1)``, at most ``backoff_max_s``; after ``backoff_limit_count`` of them (None:
    never) the workload is deactivated. ``requeue_by_eviction``: the workload queues by the time of its eviction, else
    by that of its creation. Where the condition PodsReady does not exist yet the time counts from ``looks_since_s`` at
    the earliest: a Kueue that waits for no pods writes none, and its workloads may have run for weeks when they are
    taken over.
    """

    timeout_s: float = 1800.0
    recovery_timeout_s: float | None = 1800.0
    block_admission: bool = False
    requeue_by_eviction: bool = True
    backoff_limit_count: int | None = None
    backoff_base_s: float = 60.0
    backoff_max_s: float = 3600.0
    looks_since_s: float = 0.0


class QuotaCheckStrategy(StrEnum):
    """The meaning of a request for a resource for which the ClusterQueue has no quota."""

    BLOCK_UNDECLARED = "BlockUndeclared"
    IGNORE_UNDECLARED = "IgnoreUndeclared"


class BackfillPolicy(StrEnum):
    """Whether a blocked head of a queue keeps a reservation that no later workload may delay."""

    NONE = "none"
    CONSERVATIVE = "conservative"


class VictimOrder(StrEnum):
    """Which victim of equal policy rank is preempted first: the newest admission, or the least lost resource-time."""

    NEWEST = "newest"
    LEAST_LOST = "leastLost"


class MinimumRuntime(msgspec.Struct, frozen=True, kw_only=True):
    """How long an admitted workload runs before it may be preempted, in seconds; 0 is not at all.

    A ClusterQueue's annotation takes precedence over ``by_priority_class`` (WorkloadPriorityClass or PriorityClass, by
    name), and that over ``default_s``.
    """

    default_s: float = 0.0
    by_priority_class: Mapping[str, float] = {}

    def of(self, priority_class: str, *, queue_s: float | None = None) -> float:
        """Seconds for a workload of this class (empty: none) in a queue whose annotation says ``queue_s``."""
        return self.by_priority_class.get(priority_class, self.default_s) if queue_s is None else queue_s

    def protects(self, *, queue_s: float | None = None) -> bool:
        """Whether any workload in such a queue is protected."""
        return bool(self.default_s or any(self.by_priority_class.values())) if queue_s is None else queue_s > 0


class Consolidation(msgspec.Struct, frozen=True, kw_only=True):
    """Running workloads move so that a waiting one fits. ``every_queue``: in ClusterQueues too, else only in trees of
    foreign Queues. A workload moves after it has run for ``minimum_runtime_s``; in any hour at most ``moves_per_hour``
    workloads of all queues together do. ``frees_nodes``: they also move so that a whole node is free, while none waits.
    """

    every_queue: bool = False
    frees_nodes: bool = False
    minimum_runtime_s: float = 600.0
    moves_per_hour: int = 30


class InterruptionRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a flavor's nodes are taken away too often: more than ``too_often`` times for each day of a node, over
    ``window_s``; 0: never.
    """

    window_s: float = 86400.0
    too_often: float = 1.0


class Extensions(msgspec.Struct, frozen=True, kw_only=True):
    """Features that Kueue does not have, one field for each. With all off the behaviour is Kueue's."""

    reserve_for_preemptor: bool = False
    """Capacity of evicted workloads is reserved for the preemptor until it starts."""
    no_eviction_cycles: bool = False
    """No two workloads evict each other without a change from outside."""
    minimum_runtime: MinimumRuntime | None = None
    """None: off, and queues' annotations are ignored as well."""
    backfill: BackfillPolicy = BackfillPolicy.NONE
    victim_order: VictimOrder = VictimOrder.NEWEST
    keep_linked_gpus: bool = False
    """Nodes are chosen so that large blocks of linked GPUs stay whole for later requests."""
    empty_nodes: float = 0.0
    """How many nodes more a job may be spread over to leave one empty; 0: empty nodes are worth nothing."""
    quota_from_capacity: bool = False
    """Quotas may be written as shares of live healthy capacity."""
    consolidation: Consolidation | None = None
    """None: no workload moves."""
    takeovers_first: bool = False
    """A workload that takes over quota and asks for nothing new does not wait behind the head of its ClusterQueue."""
    limits_before_defaults: bool = False
    """A limit without a request becomes the request, before the default request of a LimitRange does."""
    whole_searches: bool = False
    """A flavor that others took from a workload is asked again before the workload is parked."""
    requests_withdrawn: bool = False
    """A workload takes back its request for nodes once its pods have places without it; nodes that come for a request
    are kept for its workload; one whose nodes are taken away queues again, and one whose nodes never come gets the next
    flavor.
    """
    own_places: bool = False
    """Each pod set is placed by its own request: a leader's node rules hold for its node, and a pod set that asks for
    no quota and no topology needs no place.
    """
    leaving_nodes: bool = False
    """No pod is placed on a node that an autoscaler or a cloud has marked as leaving, whatever the pod tolerates."""
    leaving_taints: frozenset[str] = frozenset()
    """Taints by which nodes leave, beside those that are known of autoscalers and clouds."""
    priced_flavors: bool = False
    """A ClusterQueue may say that its flavors are tried by their prices."""
    spot_words: bool = False
    """Jobs and queues may say that flavors of spot nodes are not for them, come first, or are to stay a part."""
    max_grace_s: float = MAX_GRACE_S
    """The time between SIGTERM and SIGKILL that pods may be given for a checkpoint, whatever their template says."""
    spot_labels: tuple[tuple[str, str], ...] = ()
    """Labels by which nodes are spot, beside those that are known of providers, each with its value."""
    interruptions: InterruptionRules | None = None
    """Flavors whose nodes are taken away too often are tried after the others; None: the order is that of the queue."""
    coming_nodes: bool = False
    """Nodes that a flavor's template says can come count: a workload that fits with them gets its quota, and waits."""
    fewest_pods_told: bool = False
    """A workload that may start with fewer pods waits for the reason for which the fewest of them wait, and says their
    number.
    """
    exact_fair_sharing: bool = False
    """Fair sharing compares shares anew after each admission and after each victim of the preemptor's own; at equal
    shares of cohorts the lower priority gives way; a cohort takes back its own quota whatever its share is.
    """


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The complete configuration of the engine; None stands for a feature that is off."""

    gates: FeatureGates = msgspec.field(default_factory=FeatureGates)
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    queue_usage: QueueUsage | None = None
    wait_for_pods_ready: WaitForPodsReady | None = None
    quota_check_strategy: QuotaCheckStrategy = QuotaCheckStrategy.BLOCK_UNDECLARED
    request_rules: RequestRules = msgspec.field(default_factory=RequestRules)
    claim_rules: ClaimRules = ClaimRules()
    extensions: Extensions = Extensions()
