"""The agent's own figures for Prometheus: what it serves, to whom, how fast, and how its devices' health moves.

Every label's values are bounded by the node's hardware and configuration; nothing here grows with time or with pods.
"""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import Counter, Gauge, Histogram, ProcessCollector

from agent.health.states import HealthState, Transition
from agent.mps.core import DaemonState, Phase
from agent.telemetry.exposition import Family, Writer, labels
from inventory import __version__
from inventory.devices import ResourceName
from kube.metrics import KeptText, Registry

HEALTH = Family("tessera_gpu_device_health", "gauge", "1 for the state that the device is in.")
MOST_XIDS = 64
"""Different XIDs of one GPU with a series of their own."""
MOST_REASONS = 64
"""Different reasons for a change of health with series of their own: most carry an XID."""
CLAIM_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 45.0)
"""Up to the time that the kubelet waits."""
LATENCY_BUCKETS_S = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0)


class AgentMetrics:
    """One registry of its own, so that tests and several agents in one process do not meet. Is a plugin Observer."""

    def __init__(self) -> None:
        self.registry = registry = Registry()
        ProcessCollector(registry=registry)
        info = Gauge("tessera_agent_info", "Version of the agent.", ["version"], registry=registry)
        info.labels(__version__).set(1)
        self._registrations = Counter(
            "tessera_agent_registrations_total",
            "Registrations with the kubelet.",
            ["resource", "result"],
            registry=registry,
        )
        self._streams = Gauge(
            "tessera_agent_list_and_watch_streams",
            "Open ListAndWatch streams.",
            ["resource"],
            registry=registry,
        )
        self._calls = Counter(
            "tessera_agent_calls_total",
            "Allocate and GetPreferredAllocation calls answered.",
            ["resource", "method", "result"],
            registry=registry,
        )
        self._latency = Histogram(
            "tessera_agent_call_duration_seconds",
            "Time from request to answer.",
            ["method"],
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self._devices = Gauge(
            "tessera_agent_devices",
            "Devices by resource: in the inventory, advertised as Healthy, and allocatable in the kubelet's own view. "
            "They differ for long only when something is wrong.",
            ["resource", "view"],
            registry=registry,
        )
        self._transitions = Counter(
            "tessera_agent_health_transitions_total",
            "Changes of a device's health state.",
            ["from_state", "to_state", "reason"],
            registry=registry,
        )
        self._xids = Counter(
            "tessera_gpu_xid_errors_total",
            "XID events since the agent started.",
            ["UUID", "xid"],
            registry=registry,
        )
        self._sampled = Counter(
            "tessera_agent_gpu_samples_total",
            "Looks at a GPU for its figures.",
            ["result"],
            registry=registry,
        )
        self._sample_time = Gauge(
            "tessera_agent_sample_duration_seconds",
            "How long the last pass over the GPUs took.",
            registry=registry,
        )
        self._mps_ready = Gauge(
            "tessera_agent_mps_daemon_ready",
            "1 while the device's MPS daemon takes clients.",
            ["device"],
            registry=registry,
        )
        self._mps_restarts = Gauge(
            "tessera_agent_mps_daemon_restarts",
            "How often it was lost or did not start.",
            ["device"],
            registry=registry,
        )
        self._claim_calls = Counter(
            "tessera_agent_claim_calls_total",
            "ResourceClaims prepared and given back, each try.",
            ["method", "result"],
            registry=registry,
        )
        self._claim_latency = Histogram(
            "tessera_agent_claim_duration_seconds",
            "Time from request to answer for one ResourceClaim.",
            ["method"],
            buckets=CLAIM_BUCKETS_S,
            registry=registry,
        )
        self._claim_devices = Gauge(
            "tessera_agent_claim_devices",
            "Devices that are given out by claim: published, tainted among them, and held by claims.",
            ["type", "view"],
            registry=registry,
        )
        self._driver = Gauge("tessera_agent_driver_up", "1 while an NVML session is open.", registry=registry)
        self._reloads = Counter(
            "tessera_agent_config_reloads_total",
            "Reloads of the config.",
            ["result"],
            registry=registry,
        )
        registry.register(KeptText(lambda: self._health))
        self._shown: dict[ResourceName, set[str]] = {}
        self._mps: set[str] = set()
        self._claim_views: set[tuple[str, str]] = set()
        self._states: dict[str, HealthState] = {}
        self._health = b""
        self._xids_seen: dict[str, set[int]] = {}
        self._reasons: set[str] = set()

    # The plugin room's Observer.

    def registered(self, resource: ResourceName, error: str | None) -> None:
        self._registrations.labels(resource, _result(error)).inc()

    def stream_opened(self, resource: ResourceName) -> None:
        self._streams.labels(resource).inc()

    def stream_closed(self, resource: ResourceName) -> None:
        self._streams.labels(resource).dec()

    def called(self, resource: ResourceName, method: str, duration_s: float, error: str | None) -> None:
        self._calls.labels(resource, method, _result(error)).inc()
        self._latency.labels(method).observe(duration_s)

    # The claims' Observer.

    def claim_called(self, method: str, duration_s: float, result: str) -> None:
        """``result`` is ``ok`` or what kind of error it was."""
        self._claim_calls.labels(method, result).inc()
        self._claim_latency.labels(method).observe(duration_s)

    def claim_devices(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Set the counts by type and view; those that are no longer there lose their series."""
        for key, number in counts.items():
            self._claim_devices.labels(*key).set(number)
        for key in self._claim_views - counts.keys():
            self._claim_devices.remove(*key)
        self._claim_views = set(counts)

    # The daemon's own.

    def devices(self, counts: Iterable[tuple[ResourceName, dict[str, int]]]) -> None:
        """Set the device counts by resource and view; resources that are no longer there lose their series."""
        shown: dict[ResourceName, set[str]] = {}
        for resource, views in counts:
            for view, number in views.items():
                self._devices.labels(resource, view).set(number)
                shown.setdefault(resource, set()).add(view)
        for resource, gone in self._shown.items():
            for view in gone - shown.get(resource, set()):
                self._devices.remove(resource, view)
        self._shown = shown

    def transition(self, change: Transition) -> None:
        if len(self._reasons) < MOST_REASONS:
            self._reasons.add(change.reason)
        reason = change.reason if change.reason in self._reasons else "other"
        self._transitions.labels(change.old.value, change.new.value, reason).inc()

    def states(self, states: dict[str, HealthState]) -> None:
        """The state of every device, by UUID; devices that are gone lose their series.

        Kept as text: they are most of the agent's series and seldom change, and the library writes each anew each time.
        """
        if states == self._states:
            return
        self._states = dict(states)
        writer = Writer([HEALTH])
        for uuid, current in states.items():
            for state in HealthState:
                writer.add(HEALTH.name, labels([("uuid", uuid), ("state", state.value)]), state is current)
        self._health = writer.text()

    def xid(self, uuid: str, xid: int) -> None:
        """Count one. A GPU that makes up numbers has them counted together once there are too many."""
        seen = self._xids_seen.setdefault(uuid, set())
        if len(seen) < MOST_XIDS:
            seen.add(xid)
        self._xids.labels(uuid, str(xid) if xid in seen else "other").inc()

    def sampled(self, read: int, failed: int, duration_s: float) -> None:
        """A pass over the GPUs."""
        self._sampled.labels("ok").inc(read)
        self._sampled.labels("error").inc(failed)
        self._sample_time.set(duration_s)

    def mps(self, daemons: Iterable[DaemonState]) -> None:
        """The MPS daemons as they are; those that are gone lose their series."""
        shown = set()
        for daemon in daemons:
            shown.add(daemon.device)
            self._mps_ready.labels(daemon.device).set(daemon.phase is Phase.READY)
            self._mps_restarts.labels(daemon.device).set(daemon.restarts)
        for device in self._mps - shown:
            self._mps_ready.remove(device)
            self._mps_restarts.remove(device)
        self._mps = shown

    def driver_up(self, *, up: bool) -> None:
        self._driver.set(up)

    def reloaded(self, error: str | None) -> None:
        self._reloads.labels(_result(error)).inc()

    def exposition(self) -> bytes:
        """What Prometheus gets, as text (version 0.0.4): the agent's own figures, then the GPUs'. NVML is not asked."""
        return self.registry.exposition()


class CallObserver:
    """Counts what the device plugins tell, and has a look taken at pod resources soon after each Allocate.

    ``listened`` is called each time the kubelet has begun to listen to a resource.
    """

    def __init__(
        self, metrics: AgentMetrics, allocated: Callable[[], None], listened: Callable[[], None] = lambda: None
    ) -> None:
        self.registered = metrics.registered
        self._listened = listened
        self.stream_closed = metrics.stream_closed
        self._metrics = metrics
        self._allocated = allocated

    def stream_opened(self, resource: ResourceName) -> None:
        self._metrics.stream_opened(resource)
        self._listened()

    def called(self, resource: ResourceName, method: str, duration_s: float, error: str | None) -> None:
        self._metrics.called(resource, method, duration_s, error)
        if method == "Allocate" and error is None:
            self._allocated()


def _result(error: str | None) -> str:
    return "ok" if error is None else "error"
