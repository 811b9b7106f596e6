"""The agent's own figures for Prometheus: devices served, calls and their durations, and changes of health.

Every label's values are bounded by the node's hardware and configuration; nothing here grows with time or with pods.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from agent.health.repairstate import RepairChange, RepairState
from agent.health.states import HealthState, Transition
from agent.mps.core import DaemonState, Phase
from agent.serving.figures import Figure, Figures, Kind
from agent.telemetry.exposition import Family, Writer, labels
from inventory import __version__
from inventory.devices import ResourceName

if TYPE_CHECKING:
    from kube.metrics import Registry

HEALTH = Family("tessera_gpu_device_health", "gauge", "1 for the state that the device is in.")
MOST_XIDS = 64
"""The most different XIDs of one GPU with a series of their own."""
MOST_REASONS = 64
"""The most different reasons for a change of health with series of their own: most carry an XID."""
REPAIR_BUCKETS_S = (5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
"""The bounds of the buckets in seconds: a GPU that a pod holds is waited for."""
CLAIM_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 45.0)
"""The bounds of the buckets in seconds, up to the time that the kubelet waits."""
LATENCY_BUCKETS_S = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0)


OURS = (
    Figure(Kind.GAUGE, "tessera_agent_info", "Version of the agent.", ("version",)),
    Figure(
        Kind.COUNTER, "tessera_agent_registrations_total", "Registrations with the kubelet.", ("resource", "result")
    ),
    Figure(Kind.GAUGE, "tessera_agent_list_and_watch_streams", "Open ListAndWatch streams.", ("resource",)),
    Figure(
        Kind.COUNTER,
        "tessera_agent_calls_total",
        "Allocate and GetPreferredAllocation calls answered.",
        ("resource", "method", "result"),
    ),
    Figure(
        Kind.HISTOGRAM,
        "tessera_agent_call_duration_seconds",
        "Time from request to answer.",
        ("method",),
        LATENCY_BUCKETS_S,
    ),
    Figure(
        Kind.GAUGE,
        "tessera_agent_devices",
        "Devices by resource: in the inventory, advertised as Healthy, and allocatable in the kubelet's own view. "
        "They differ for long only when something is wrong.",
        ("resource", "view"),
    ),
    Figure(
        Kind.COUNTER,
        "tessera_agent_health_transitions_total",
        "Changes of a device's health state.",
        ("from_state", "to_state", "reason"),
    ),
    Figure(Kind.COUNTER, "tessera_gpu_xid_errors_total", "XID events since the agent started.", ("UUID", "xid")),
    Figure(Kind.COUNTER, "tessera_agent_gpu_samples_total", "Looks at a GPU for its figures.", ("result",)),
    Figure(Kind.GAUGE, "tessera_agent_sample_duration_seconds", "How long the last pass over the GPUs took."),
    Figure(
        Kind.GAUGE,
        "tessera_agent_mps_daemon_ready",
        "1 while the device's MPS daemon takes clients.",
        ("device",),
    ),
    Figure(
        Kind.GAUGE,
        "tessera_agent_mps_daemon_restarts",
        "How often it was lost or did not start.",
        ("device",),
    ),
    Figure(
        Kind.COUNTER,
        "tessera_agent_claim_calls_total",
        "ResourceClaims prepared and given back, each try.",
        ("method", "result"),
    ),
    Figure(
        Kind.HISTOGRAM,
        "tessera_agent_claim_duration_seconds",
        "Time from request to answer for one ResourceClaim.",
        ("method",),
        CLAIM_BUCKETS_S,
    ),
    Figure(
        Kind.GAUGE,
        "tessera_agent_claim_devices",
        "Devices that are given out by claim: published, tainted among them, and held by claims.",
        ("type", "view"),
    ),
    Figure(
        Kind.COUNTER,
        "tessera_gpu_repairs_total",
        "Steps of the repair of GPUs, and how each ended.",
        ("step", "result"),
    ),
    Figure(
        Kind.HISTOGRAM,
        "tessera_gpu_repair_seconds",
        "Time from a GPU's fault to its return, where it was repaired.",
        (),
        REPAIR_BUCKETS_S,
    ),
    Figure(Kind.GAUGE, "tessera_gpu_reboot_wanted", "GPUs that only a reboot of the node helps."),
    Figure(Kind.GAUGE, "tessera_gpu_retired", "GPUs that are out for good, until a person gives them back."),
    Figure(Kind.GAUGE, "tessera_agent_driver_up", "1 while an NVML session is open."),
    Figure(Kind.COUNTER, "tessera_agent_config_reloads_total", "Reloads of the config.", ("result",)),
)


class AgentMetrics:
    """The agent's figures, in a registry of their own, so that tests and several agents in one process do not meet. It
    is the device plugins' Observer.
    """

    def __init__(self, *texts: Callable[[], bytes]) -> None:
        """``texts`` are whole families of others, written behind the agent's own."""
        self._figures = Figures(OURS)
        self._figures.set("tessera_agent_info", __version__, value=1)
        self._texts = texts
        self._states: dict[str, HealthState] = {}
        self._health = b""
        self._xids_seen: dict[str, set[int]] = {}
        self._reasons: set[str] = set()

    @cached_property
    def registry(self) -> "Registry":
        """The library's registry. The first access loads the library, for which a start has no time."""
        from agent.serving.exposition import registry_of

        return registry_of(self._figures, (lambda: self._health, *self._texts))

    # -- the Observer of the device plugins

    def registered(self, resource: ResourceName, error: str | None) -> None:
        self._figures.count("tessera_agent_registrations_total", resource, _result(error))

    def stream_opened(self, resource: ResourceName) -> None:
        self._figures.count("tessera_agent_list_and_watch_streams", resource)

    def stream_closed(self, resource: ResourceName) -> None:
        self._figures.count("tessera_agent_list_and_watch_streams", resource, by=-1)

    def called(self, resource: ResourceName, method: str, duration_s: float, error: str | None) -> None:
        self._figures.count("tessera_agent_calls_total", resource, method, _result(error))
        self._figures.observe("tessera_agent_call_duration_seconds", method, value=duration_s)

    # -- the Observer of the claims

    def claim_called(self, method: str, duration_s: float, result: str) -> None:
        """Count one call about a claim. ``result`` is ``ok`` or the kind of error."""
        self._figures.count("tessera_agent_claim_calls_total", method, result)
        self._figures.observe("tessera_agent_claim_duration_seconds", method, value=duration_s)

    def claim_devices(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Set the counts by type and view; keys that are no longer there lose their series."""
        for key, number in counts.items():
            self._figures.set("tessera_agent_claim_devices", *key, value=number)
        self._figures.keep("tessera_agent_claim_devices", counts)

    # -- the daemon's own figures

    def devices(self, counts: Iterable[tuple[ResourceName, dict[str, int]]]) -> None:
        """Set the device counts by resource and view; resources that are no longer there lose their series."""
        shown: set[tuple[str, ...]] = set()
        for resource, views in counts:
            for view, number in views.items():
                self._figures.set("tessera_agent_devices", resource, view, value=number)
                shown.add((resource, view))
        self._figures.keep("tessera_agent_devices", shown)

    def transition(self, change: Transition) -> None:
        if len(self._reasons) < MOST_REASONS:
            self._reasons.add(change.reason)
        reason = change.reason if change.reason in self._reasons else "other"
        self._figures.count("tessera_agent_health_transitions_total", change.old.value, change.new.value, reason)

    def states(self, states: dict[str, HealthState]) -> None:
        """Set the state of every device, by UUID; devices that are gone lose their series.

        The series are kept as text: they are most of the agent's series and seldom change, and the library writes each
        anew each time.
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
        """Count one XID. Once a GPU has shown too many different ones, further numbers are counted together."""
        seen = self._xids_seen.setdefault(uuid, set())
        if len(seen) < MOST_XIDS:
            seen.add(xid)
        self._figures.count("tessera_gpu_xid_errors_total", uuid, str(xid) if xid in seen else "other")

    def sampled(self, read: int, failed: int, duration_s: float) -> None:
        """Count a pass over the GPUs."""
        self._figures.count("tessera_agent_gpu_samples_total", "ok", by=read)
        self._figures.count("tessera_agent_gpu_samples_total", "error", by=failed)
        self._figures.set("tessera_agent_sample_duration_seconds", value=duration_s)

    def mps(self, daemons: Iterable[DaemonState]) -> None:
        """Set the figures of the MPS daemons; those that are gone lose their series."""
        shown: set[tuple[str, ...]] = set()
        for daemon in daemons:
            shown.add((daemon.device,))
            self._figures.set("tessera_agent_mps_daemon_ready", daemon.device, value=daemon.phase is Phase.READY)
            self._figures.set("tessera_agent_mps_daemon_restarts", daemon.device, value=daemon.restarts)
        for name in ("tessera_agent_mps_daemon_ready", "tessera_agent_mps_daemon_restarts"):
            self._figures.keep(name, shown)

    def repaired(self, change: RepairChange) -> None:
        """Count one step of a repair; a reboot that it makes wanted counts as a step of its own."""
        self._figures.count("tessera_gpu_repairs_total", change.step, change.result)
        if change.new is RepairState.REBOOT_WANTED and change.step != "reboot":
            self._figures.count("tessera_gpu_repairs_total", "reboot", "wanted")
        if change.repair_s is not None:
            self._figures.observe("tessera_gpu_repair_seconds", value=change.repair_s)

    def retired(self, number: int) -> None:
        self._figures.set("tessera_gpu_retired", value=number)

    def reboots_wanted(self, number: int) -> None:
        self._figures.set("tessera_gpu_reboot_wanted", value=number)

    def driver_up(self, *, up: bool) -> None:
        self._figures.set("tessera_agent_driver_up", value=up)

    def reloaded(self, error: str | None) -> None:
        self._figures.count("tessera_agent_config_reloads_total", _result(error))

    def exposition(self) -> bytes:
        """The text for Prometheus (version 0.0.4): the agent's own figures, then the GPUs'. NVML is not asked."""
        return self.registry.exposition()


class CallObserver:
    """Counts the calls of the device plugins, and has pod resources read soon after each Allocate.

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
