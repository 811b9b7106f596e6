"""The result of a simulation, as data. ``-o json`` prints these structs: every key is always present."""

from enum import StrEnum

import msgspec


class TimelineEvent(StrEnum):
    ADMITTED = "Admitted"
    PREEMPTED = "Preempted"
    """The workload was evicted for another workload."""
    EVICTED = "Evicted"
    """The workload was evicted for any other cause."""
    FINISHED = "Finished"
    PENDING = "Pending"
    """The workload waits, or waits for another reason than before."""
    GRANTED = "Granted"
    """This and those below are of CapacityRequests: the answer, and what became of it."""
    OFFERED = "Offered"
    REFUSED = "Refused"
    EXPIRED = "Expired"
    RELEASED = "Released"


class TimelinePlacement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Pods of one set in one domain. ``devices``: UUIDs, pod after pod; empty where nothing is known of them.
    ``domains``: by level, the domains above.

    ``node`` is empty where the topology ends above the nodes.
    """

    pod_set: str
    node: str
    pods: int
    devices: tuple[str, ...] = ()
    domains: dict[str, str] = {}


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One event. ``flavors``: by pod set and resource, of a workload that holds or held quota.

    ``t``: seconds since the start; ``time``: the time in RFC 3339, if that of the start is told. ``reason``: the
    condition's reason code. ``cluster_queue`` is empty if the LocalQueue does not exist.
    """

    t: float
    time: str | None = None
    event: TimelineEvent
    workload: str
    cluster_queue: str
    reason: str
    message: str
    flavors: dict[str, dict[str, str]] = {}
    preempted_by: str | None = None
    placement: tuple[TimelinePlacement, ...] = ()


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that waits at the end. ``forecast``: see ``controller.insight.forecast.shown.brief``."""

    workload: str
    reason: str
    message: str
    forecast: dict[str, float | str | None] | None = None


class QueueEnd(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A ClusterQueue at the end, by resource over all of its flavors: cores, bytes, devices.

    ``share``: used / (nominal + borrowing limit) of the resource for which that is largest; without a limit, what the
    cohort could lend counts instead. ``weighted_share``: Kueue's ``status.fairSharing.weightedShare``.
    """

    usage: dict[str, int | float]
    borrowed: dict[str, int | float]
    share: float
    weighted_share: int


class RequestOffer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An offer of a CapacityRequest. Times are seconds since the start; ``until`` None: without an end."""

    id: str
    units: int
    from_: float = msgspec.field(name="from")
    until: float | None
    flavor: str
    stands_until: float
    held: bool
    why: str


class RequestEnd(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of a CapacityRequest at the end, with seconds since the start in place of times. ``workload``: the
    one that holds its units, as ``preempted_by`` names it. ``used``: units that jobs run on.
    """

    state: str
    units: int
    from_: float | None = msgspec.field(name="from")
    until: float | None
    flavor: str
    offers: tuple[RequestOffer, ...]
    accepted: str
    message: str
    workload: str
    used: int


class End(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state after the last entry, or at the time at which the run was cut off.

    ``node_hours``: by pool, until its last node has gone or the run ends; ``cost``: these by the pools' prices.
    ``lost_gpu_seconds``: GPUs by work since the last checkpoint, over all stops of jobs.
    """

    t: float
    pending: tuple[Waits, ...]
    running: tuple[str, ...]
    cluster_queues: dict[str, QueueEnd]
    node_hours: dict[str, float] = {}
    cost: float = 0.0
    lost_gpu_seconds: float = 0.0
    capacity_requests: dict[str, RequestEnd] = {}
    """CapacityRequests that have arrived, by ``NAMESPACE/NAME``."""


class NodeEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What happens to a node; ``pool`` is empty for one of no pool. ``event``: see ``pools.nodepools.NodeEvent``."""

    t: float
    event: str
    node: str
    pool: str


class Spread(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Free GPUs, how many of them the run's mix of requests could not use in expectation, and that as a ratio.

    ``largest``: by level, the free GPUs of the domain that has most.
    """

    free: float
    unusable: float
    ratio: float
    largest: dict[str, int]


class Fragmentation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One flavor's nodes while no workload runs, and at the end."""

    flavor: str
    before: Spread
    after: Spread


class SimulationResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``too_large``: by workload that was admitted without a place, that no node is large enough for one of its pods.
    In a cluster these would hold their quota and not run. ``start``: the time of the start, if it is told.
    """

    start: str | None = None
    timeline: tuple[TimelineEntry, ...]
    final: End
    fragmentation: tuple[Fragmentation, ...] = ()
    nodes: tuple[NodeEntry, ...] = ()
    too_large: dict[str, str] = {}
