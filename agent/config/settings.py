"""Every setting of the agent once flags, environment and file are read: plain values."""

from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct

from agent.health.remediation import Remediation
from agent.health.settings import HealthSettings
from deviceplugin.strategy import AllocationSpec
from inventory.devices import NodeName
from inventory.layout.entries import GpuLayoutSpec, WhenBusy
from inventory.layout.sharing import LayoutSpec, ReplicaPolicy

FIELD_MANAGER: Final = "tessera-agent"
"""The agent's name at the API server, for all that it writes there."""


class LogFormat(StrEnum):
    """The format of log lines."""

    LOGFMT = "logfmt"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severe line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Address(Struct, frozen=True):
    """An address to listen at. ``host`` is an address without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class FallbackStrategy(StrEnum):
    """A way to choose a named configuration where neither label nor flag does: the one named ``default``, the only one,
    or none.
    """

    NAMED = "named"
    SINGLE = "single"
    EMPTY = "empty"


class ConfigFallback(Struct, frozen=True, kw_only=True):
    """The choice of a configuration without a label and without ``--config``: ``default``, else the first strategy that
    finds a file.
    """

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
    """The places of the driver's files, on the host and seen from the agent, and how CDI specs are made."""

    driver_root: Path = Path("/")
    dev_root: Path = Path("/")
    container_driver_root: Path = Path("/driver-root")
    cdi_hook_path: Path = Path("/usr/bin/nvidia-ctk")
    cdi_feature_flags: tuple[str, ...] = ()
    cdi_disable_hooks: tuple[str, ...] = ()


class MigManager(StrEnum):
    """The program that follows the label nvidia.com/mig.config where no file is given. AUTO: NVIDIA's MIG manager where
    the GPU Operator's label has it on the node.
    """

    AUTO = "auto"
    AGENT = "agent"


class MigSettings(Struct, frozen=True, kw_only=True):
    """Settings of MIG layouts. ``config_file`` is mig-parted's, of which the node's label chooses a configuration;
    None: the label chooses among those that the MIG manager makes from the hardware.

    ``when_busy`` is for that label: mig-parted's file has no key for it.
    """

    config_file: Path | None = None
    manager: MigManager = MigManager.AUTO
    when_busy: WhenBusy = WhenBusy.REFUSE


class MpsSettings(Struct, frozen=True, kw_only=True):
    """Settings of MPS daemons. ``canary``: each daemon is tried by a client. ``shm_size_mib`` None: half of the memory,
    tmpfs's default.
    """

    control_program: Path = Path("nvidia-cuda-mps-control")
    multi_user: bool = False
    canary: bool = True
    private_shm: bool = True
    """Each device has a tmpfs of its own; without it daemons and clients meet in the agent's own /dev/shm, which is the
    host's.
    """
    shm_size_mib: int | None = None
    probe_interval_s: float = 10.0


class HostnameLabel(StrEnum):
    """The spelling of dcgm-exporter's label with the node's name: up to 4.x with a capital, after it without."""

    CAPITAL = "Hostname"
    SMALL = "hostname"


class XidErrors(StrEnum):
    """The XID that ``DCGM_FI_DEV_XID_ERRORS`` shows: the last of any kind, or that of the worst fault that is open."""

    LAST = "last"
    WORST = "worst"


class MetricsSettings(Struct, frozen=True):
    """Settings of metrics. ``collectors`` is a file in dcgm-exporter's form; None: the usual fields.

    An XID of no open fault is shown as the last one for ``xid_shown_s`` seconds after it was seen. The windows are
    those of dcgm-exporter's counts.
    """

    interval_s: float = 15.0
    collectors: Path | None = None
    hostname_label: HostnameLabel = HostnameLabel.CAPITAL
    xid_errors: XidErrors = XidErrors.LAST
    xid_shown_s: float = 600.0
    xid_window_ms: int = 300_000
    clock_window_ms: int = 300_000
    no_hostname: bool = False
    """Leave the label with the node's name off DCGM's series."""
    old_names: bool = False
    """Use dcgm-exporter 1.x's names of labels: uuid, pod_name, pod_namespace, container_name."""
    dashed_model: bool = False
    """Write modelName with dashes for blanks."""
    pod_uid: bool = False
    pod_labels: bool = False
    pod_label_allowlist: tuple[str, ...] = ()
    """Regular expressions for pod labels, checked when they were read."""


class Settings(Struct, frozen=True, kw_only=True):
    """The agent's settings. Fields outside of the groups are fixed for the life of the process."""

    node_name: NodeName
    node_addresses: tuple[str, ...] = ()
    simulate: Path | None = None
    kubelet_dir: Path = Path("/var/lib/kubelet")
    kubelet_socket: str | None = None
    """The kubelet's socket to register at. None: ``kubelet.sock`` in the device-plugins folder. Empty: do not
    register.
    """
    plugins_dir: Path | None = None
    """The kubelet's ``plugins``, under the path that the kubelet has for it; None: below ``kubelet_dir``."""
    dra_driver: str = "gpu.nvidia.com"
    """The driver's name in ResourceClaims. The default is NVIDIA's name, which its DeviceClasses and selectors use;
    another is needed where NVIDIA's driver runs too.
    """
    cdi_dir: Path = Path("/var/run/cdi")
    config_dir: Path = Path("/available-configs")
    """The folder of named configuration files; the node's label ``nvidia.com/device-plugin.config`` chooses one."""
    config_fallback: ConfigFallback = ConfigFallback()
    state_dir: Path = Path("/var/lib/tessera")
    mps_root: Path | None = None
    """The folder where MPS daemons keep their files; None: ``mps`` in the state folder."""
    metrics_address: Address | None = Address("0.0.0.0", 9400)  # noqa: S104 - Prometheus scrapes it from other nodes
    kubeconfig: Path | None = None
    """The kubeconfig file; None: the service account's mount."""
    use_api_server: bool = True
    api_spread_s: float = 10.0
    """The time in seconds over which the agents of a fleet spread requests that all of them make at once; 0: none."""
    sys_root: Path = Path("/sys")
    proc_root: Path = Path("/proc")
    pid_root: Path | None = None
    """The procfs where the processes on the GPUs are looked up; None: ``process_root`` decides."""
    fail_on_init_error: bool = True
    """NVIDIA's setting, read for its warning alone: without GPUs or driver the agent idles, whatever it says."""
    imex_required: bool = False
    layout: LayoutSpec = LayoutSpec()
    gpu_layout: GpuLayoutSpec = GpuLayoutSpec()
    """The file's ``layout:``; a GpuLayout object that selects this node stands in its place."""
    replica_policy: ReplicaPolicy = ReplicaPolicy.DISTRIBUTED
    allocation: AllocationSpec = AllocationSpec()
    driver: DriverSettings = DriverSettings()
    mig: MigSettings = MigSettings()
    health: HealthSettings = HealthSettings()
    remediation: Remediation = Remediation()
    mps: MpsSettings = MpsSettings()
    labels: LabelSettings = LabelSettings()
    events: EventSettings = EventSettings()
    metrics: MetricsSettings = MetricsSettings()
    logging: LogSettings = LogSettings()

    @property
    def device_plugins_dir(self) -> Path:
        return self.kubelet_dir / "device-plugins"

    @property
    def claims_dir(self) -> Path:
        """The folder in which each driver that is given claims has a folder with its socket."""
        return self.plugins_dir or self.kubelet_dir / "plugins"

    @property
    def registration_socket(self) -> Path | None:
        """The kubelet's socket to register at; None when the agent must not register."""
        if self.kubelet_socket == "":
            return None
        return Path(self.kubelet_socket) if self.kubelet_socket else self.device_plugins_dir / "kubelet.sock"

    @property
    def mps_dir(self) -> Path:
        """The folder where MPS daemons keep their files; fixed for the life of the process, as ``mps_root`` is."""
        return self.mps_root or self.state_dir / "mps"

    @property
    def process_root(self) -> Path:
        """The procfs of the processes on the GPUs: simulated GPUs bring a /proc without any, their pods are real."""
        if self.pid_root is not None:
            return self.pid_root
        return self.proc_root if self.simulate is None else Path("/proc")
