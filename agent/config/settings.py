"""Everything that can be set, once it is all decided: plain values for the rest of the agent."""

from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from agent.health.settings import HealthSettings
from agent.mig.settings import MigSettings
from agent.mps.settings import MpsSettings
from agent.telemetry.settings import MetricsSettings
from deviceplugin.strategy import AllocationSpec
from inventory.ids import NodeName
from inventory.layout.entries import GpuLayoutSpec
from inventory.layout.sharing import LayoutSpec, ReplicaPolicy


class LogFormat(StrEnum):
    """How a log line is written."""

    LOGFMT = "logfmt"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severe line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Address(Struct, frozen=True):
    """Where to listen. ``host`` is an address without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class FallbackStrategy(StrEnum):
    """Which named configuration holds where nothing chooses one: ``default``, the only one, or none."""

    NAMED = "named"
    SINGLE = "single"
    EMPTY = "empty"


class ConfigFallback(Struct, frozen=True, kw_only=True):
    """What holds without a label and without ``--config``: ``default``, else the first strategy that finds a file."""

    default: str | None = None
    strategies: tuple[FallbackStrategy, ...] = (FallbackStrategy.NAMED, FallbackStrategy.SINGLE)


class LogSettings(Struct, frozen=True, kw_only=True):
    format: LogFormat = LogFormat.LOGFMT
    level: LogLevel = LogLevel.INFO


class LabelSettings(Struct, frozen=True, kw_only=True):
    """Node labels (NVIDIA's ``flags.gfd``, and ``labels``). Times in seconds; ``inf`` means once."""

    enabled: bool = True
    no_timestamp: bool = False
    sleep_interval_s: float = 60.0
    machine_type_file: Path = Path("/sys/class/dmi/id/product_name")


class EventSettings(Struct, frozen=True, kw_only=True):
    """Kubernetes Events about the node."""

    enabled: bool = True


class DriverSettings(Struct, frozen=True, kw_only=True):
    """Where the driver's files are, on the host and seen from the agent, and how CDI specs come about."""

    driver_root: Path = Path("/")
    dev_root: Path = Path("/")
    container_driver_root: Path = Path("/driver-root")
    cdi_hook_path: Path = Path("/usr/bin/nvidia-ctk")
    cdi_feature_flags: tuple[str, ...] = ()
    cdi_disable_hooks: tuple[str, ...] = ()


class Settings(Struct, frozen=True, kw_only=True):
    """The agent's settings. What stands beside the groups is fixed for the life of the process."""

    node_name: NodeName
    simulate: Path | None = None
    kubelet_dir: Path = Path("/var/lib/kubelet")
    kubelet_socket: str | None = None
    """None: ``kubelet.sock`` in the device-plugins folder. Empty: do not register."""
    cdi_dir: Path = Path("/var/run/cdi")
    config_dir: Path = Path("/available-configs")
    """Named configuration files; the node's label ``nvidia.com/device-plugin.config`` says which."""
    config_fallback: ConfigFallback = ConfigFallback()
    state_dir: Path = Path("/var/lib/tessera")
    mps_root: Path | None = None
    """Where MPS daemons keep their files; None: ``mps`` in the state folder."""
    metrics_address: Address | None = Address("0.0.0.0", 9400)  # noqa: S104 - Prometheus scrapes it from other nodes
    kubeconfig: Path | None = None
    """None: the service account's mount."""
    use_api_server: bool = True
    sys_root: Path = Path("/sys")
    proc_root: Path = Path("/proc")
    pid_root: Path | None = None
    """Where the processes on the GPUs are looked up; None: ``process_root`` decides."""
    fail_on_init_error: bool = True
    """Read and kept for the record: without GPUs or driver the agent idles, whatever this says."""
    imex_required: bool = False
    layout: LayoutSpec = LayoutSpec()
    gpu_layout: GpuLayoutSpec = GpuLayoutSpec()
    """The file's ``layout:``; a GpuLayout object that selects this node stands in its place."""
    replica_policy: ReplicaPolicy = ReplicaPolicy.DISTRIBUTED
    allocation: AllocationSpec = AllocationSpec()
    driver: DriverSettings = DriverSettings()
    mig: MigSettings = MigSettings()
    health: HealthSettings = HealthSettings()
    mps: MpsSettings = MpsSettings()
    labels: LabelSettings = LabelSettings()
    events: EventSettings = EventSettings()
    metrics: MetricsSettings = MetricsSettings()
    logging: LogSettings = LogSettings()

    @property
    def device_plugins_dir(self) -> Path:
        return self.kubelet_dir / "device-plugins"

    @property
    def registration_socket(self) -> Path | None:
        """Kubelet's socket to register at; None when the agent must not register."""
        if self.kubelet_socket == "":
            return None
        return Path(self.kubelet_socket) if self.kubelet_socket else self.device_plugins_dir / "kubelet.sock"

    @property
    def process_root(self) -> Path:
        """The procfs of the processes on the GPUs: simulated GPUs bring a /proc without any, their pods are real."""
        if self.pid_root is not None:
            return self.pid_root
        return self.proc_root if self.simulate is None else Path("/proc")
