"""Every setting, one row each: where it can be given and what it means. Flags, environment, file and docs are made from
this table.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from agent.config.parsers import (
    ADDRESS,
    DISCOVERY,
    DRIVER_NAME,
    DURATION,
    FAULT_CLASS,
    FILE_NAME,
    IMEX_CHANNELS,
    INTERVAL,
    IP_ADDRESSES,
    PATTERNS,
    sifted_xids,
    xids,
)
from agent.config.partkeys import KEYS as PARTS
from agent.config.remediationkeys import KEYS as REMEDIATION
from agent.config.settings import FallbackStrategy, HostnameLabel, LogFormat, LogLevel, XidErrors
from deviceplugin.strategy import DeviceIdStrategy, DeviceListStrategy
from inventory.layout.sharing import MigStrategy, ReplicaPolicy
from yamlfile.parsers import BOOL, PATH, TEXT, WORDS, Parser, integer, one_of, seconds, some_of


class Option(Struct, frozen=True, kw_only=True):
    """One setting. ``target`` is its place in Settings; without one it is read, checked and has no effect.

    ``flag`` is the command-line flag; the variable TESSERA_<FLAG> goes with it. ``env`` are NVIDIA's names, ``paths``
    the keys in the config file, the first of each being the usual one. ``default`` is text for people.
    """

    target: str = ""
    parser: Parser
    default: str
    help: str
    flag: str = ""
    env: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    empty_counts: bool = False
    """An environment variable that is set and empty counts as a value."""
    sift: Callable[[str], tuple[str, tuple[str, ...]]] | None = None
    """Splits a variable's text into what can be read, and the words that cannot, which are warned of and passed
    over.
    """
    empty_is_default: bool = False
    """A value that is given and empty, in the file or as a flag, counts as not given, as NVIDIA's paths and
    words do.
    """
    caution: Callable[[Any], str] | None = None
    """The warning for a given value; empty for none."""

    @property
    def name(self) -> str:
        """The setting's name in messages and in the reference."""
        return self.flag or self.paths[0] if self.flag or self.paths else self.env[0]

    @property
    def tessera_env(self) -> str | None:
        return f"TESSERA_{self.flag.removeprefix('--').upper().replace('-', '_')}" if self.flag else None

    def warning(self, value: Any) -> str:
        """The warning for a value that is given and has no effect; empty where there is none."""
        if self.caution is not None:
            return self.caution(value)
        return "" if self.target else self.help

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables, strongest first."""
        return (*([self.tessera_env] if self.tessera_env else []), *self.env)


def _own(flag: str, target: str, parser: Parser, default: str, text: str, **more: Any) -> Option:
    return Option(flag=flag, target=target, parser=parser, default=default, help=text, **more)


PROCESS: tuple[Option, ...] = (
    Option(
        flag="--config",
        target="config_file",
        parser=PATH,
        default="",
        help="configuration file: NVIDIA's device plugin's (version v1) as it is, our sections beside it",
        env=("CONFIG_FILE", "GFD_CONFIG_FILE"),
        empty_is_default=True,
    ),
    _own("--node-name", "node_name", TEXT, "the host's name", "this node's name in Kubernetes", env=("NODE_NAME",)),
    _own(
        "--node-addresses",
        "node_addresses",
        IP_ADDRESSES,
        "those of its routes and interfaces",
        "more addresses of this node: probes come from there, and have places of their own at --metrics-address",
        env=("NODE_IPS",),
    ),
    _own("--simulate", "simulate", PATH, "", "fleet file: simulated GPUs instead of the machine's own"),
    _own("--kubelet-dir", "kubelet_dir", PATH, "/var/lib/kubelet", "kubelet's folder"),
    Option(
        flag="--kubelet-socket",
        target="kubelet_socket",
        parser=TEXT,
        default="device-plugins/kubelet.sock in the kubelet's folder",
        help="where to register; empty: do not register",
        env=("KUBELET_SOCKET",),
        empty_counts=True,
    ),
    _own(
        "--config-dir",
        "config_dir",
        PATH,
        "/available-configs",
        "named configuration files, one of which the node's label nvidia.com/device-plugin.config chooses",
        env=("CONFIG_FILE_SRCDIR",),
    ),
    _own(
        "--default-config",
        "config_fallback.default",
        FILE_NAME,
        "",
        "the file of --config-dir that holds without that label and without --config",
        env=("DEFAULT_CONFIG",),
    ),
    _own(
        "--fallback-strategies",
        "config_fallback.strategies",
        some_of(FallbackStrategy),
        "named,single",
        "without a default the first that finds a file: named (default), single (the only one), empty (none)",
        env=("FALLBACK_STRATEGIES",),
    ),
    _own(
        "--plugins-dir",
        "plugins_dir",
        PATH,
        "plugins in the kubelet's folder",
        "where the socket for claims is; the kubelet must see it under the same path",
    ),
    _own(
        "--dra-driver",
        "dra_driver",
        DRIVER_NAME,
        "gpu.nvidia.com",
        "name as a driver of ResourceClaims; another where NVIDIA's own DRA driver runs too",
    ),
    _own("--cdi-dir", "cdi_dir", PATH, "/var/run/cdi", "where CDI spec files are written"),
    _own("--state-dir", "state_dir", PATH, "/var/lib/tessera", "checkpoint, last good configuration, local socket"),
    _own("--metrics-address", "metrics_address", ADDRESS, "0.0.0.0:9400", "metrics and health checks; none: neither"),
    _own("--kubeconfig", "kubeconfig", PATH, "in-cluster", "kubeconfig; none: run without an API server"),
    _own(
        "--api-spread",
        "api_spread_s",
        seconds(0, 600),
        "10",
        "seconds over which a fleet comes back to an API server that was away; about 1 for each 150 nodes",
    ),
    _own("--sys-root", "sys_root", PATH, "/sys", "where sysfs is: a recorded tree may stand in"),
    _own("--proc-root", "proc_root", PATH, "/proc", "where procfs is: a recorded tree may stand in"),
    _own("--pid-root", "pid_root", PATH, "the procfs", "procfs in which the processes on the GPUs are looked up"),
)
"""Settings that only flags and environment decide."""


def _nvidia(flag: str, path: str, target: str, parser: Parser, default: str, text: str, *, before: str = "") -> Option:
    """A setting whose variable has the flag's name, as most of NVIDIA's have, with ``before`` in front of it."""
    variable = before + flag.removeprefix("--").upper().replace("-", "_")
    return Option(flag=flag, target=target, parser=parser, default=default, help=text, env=(variable,), paths=(path,))


NVIDIA: tuple[Option, ...] = (
    Option(
        flag="--mig-strategy",
        target="layout.mig_strategy",
        parser=one_of(MigStrategy),
        default="none",
        help="how MIG instances become resources",
        env=("MIG_STRATEGY", "GFD_MIG_STRATEGY"),
        paths=("flags.migStrategy",),
    ),
    Option(
        flag="--fail-on-init-error",
        target="fail_on_init_error",
        parser=BOOL,
        default="true",
        help="accepted; without GPUs or driver the agent waits for them either way",
        caution=lambda end: "no effect: without GPUs or driver the agent waits and does not end" if end else "",
        env=("FAIL_ON_INIT_ERROR", "GFD_FAIL_ON_INIT_ERROR"),
        paths=("flags.failOnInitError",),
    ),
    Option(
        flag="--driver-root",
        target="driver.driver_root",
        parser=PATH,
        default="/",
        help="the driver's root folder on the host",
        env=("NVIDIA_DRIVER_ROOT",),
        paths=("flags.nvidiaDriverRoot",),
    ),
    Option(
        flag="--dev-root",
        target="driver.dev_root",
        parser=PATH,
        default="the driver root",
        help="the folder on the host below which /dev is",
        env=("NVIDIA_DEV_ROOT",),
        paths=("flags.nvidiaDevRoot",),
    ),
    Option(
        flag="--driver-root-ctr-path",
        target="driver.container_driver_root",
        parser=PATH,
        default="/driver-root",
        help="where the agent sees the driver root",
        env=("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
        paths=("flags.plugin.containerDriverRoot",),
    ),
    _nvidia(
        "--pass-device-specs",
        "flags.plugin.passDeviceSpecs",
        "allocation.pass_device_specs",
        BOOL,
        "false",
        "also hand over the device nodes themselves",
    ),
    _nvidia(
        "--device-list-strategy",
        "flags.plugin.deviceListStrategy",
        "allocation.strategies",
        some_of(DeviceListStrategy),
        "envvar",
        "how the container runtime learns a container's devices",
    ),
    _nvidia(
        "--device-id-strategy",
        "flags.plugin.deviceIDStrategy",
        "allocation.device_id",
        one_of(DeviceIdStrategy),
        "uuid",
        "what names a device inside the container",
    ),
    _nvidia(
        "--shared-devices-allocation-policy",
        "flags.plugin.sharedDevicesAllocationPolicy",
        "replica_policy",
        one_of(ReplicaPolicy),
        "distributed",
        "where the next replica comes from: the GPU with the fewest taken, or the most",
    ),
    _nvidia(
        "--cdi-annotation-prefix",
        "flags.plugin.cdiAnnotationPrefix",
        "allocation.cdi_annotation_prefix",
        TEXT,
        "cdi.k8s.io/",
        "prefix of the annotation of cdi-annotations",
    ),
    Option(
        flag="--nvidia-cdi-hook-path",
        target="driver.cdi_hook_path",
        parser=PATH,
        default="/usr/bin/nvidia-ctk",
        help="the CDI hook program on the host",
        env=("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
        paths=("flags.plugin.nvidiaCDIHookPath", "flags.plugin.nvidiaCTKPath"),
    ),
    _nvidia(
        "--cdi-feature-flags",
        "flags.plugin.cdiFeatureFlags",
        "driver.cdi_feature_flags",
        WORDS,
        "",
        "feature flags for nvidia-ctk when it generates the CDI specs",
    ),
    _nvidia(
        "--cdi-disable-hooks",
        "flags.plugin.cdiDisableHooks",
        "driver.cdi_disable_hooks",
        WORDS,
        "",
        "CDI hooks to leave out; all: every one",
    ),
    _nvidia(
        "--gdrcopy-enabled", "flags.gdrcopyEnabled", "allocation.gdrcopy", BOOL, "false", "containers also get GDRCopy"
    ),
    _nvidia(
        "--gds-enabled", "flags.gdsEnabled", "allocation.gds", BOOL, "false", "containers also get GPUDirect Storage"
    ),
    _nvidia(
        "--mofed-enabled",
        "flags.mofedEnabled",
        "allocation.mofed",
        BOOL,
        "false",
        "containers also get the InfiniBand devices",
    ),
    _nvidia(
        "--imex-channel-ids",
        "imex.channelIDs",
        "allocation.imex_channels",
        IMEX_CHANNELS,
        "",
        "IMEX channels for every container; only 0 exists",
    ),
    _nvidia("--imex-required", "imex.required", "imex_required", BOOL, "false", "missing IMEX channels are an error"),
    Option(
        target="labels.no_timestamp",
        parser=BOOL,
        default="false",
        help="leave out the label nvidia.com/gfd.timestamp",
        env=("GFD_NO_TIMESTAMP",),
        paths=("flags.gfd.noTimestamp",),
    ),
    Option(
        target="labels.sleep_interval_s",
        parser=DURATION,
        default="60s",
        help="how often labels are compared with what they should be",
        env=("GFD_SLEEP_INTERVAL",),
        paths=("flags.gfd.sleepInterval",),
    ),
    Option(
        target="labels.machine_type_file",
        parser=PATH,
        default="class/dmi/id/product_name in the sysfs root",
        help="file that holds the value of nvidia.com/gpu.machine",
        env=("GFD_MACHINE_TYPE_FILE",),
        paths=("flags.gfd.machineTypeFile",),
    ),
    Option(
        target="health.disabled_xids",
        parser=xids("all", "xids"),
        default="",
        help="XIDs that never count; xids: none counts; all: no health check of any kind",
        env=("DP_DISABLE_HEALTHCHECKS",),
        sift=sifted_xids,
        paths=("health.disabledXids",),
    ),
    Option(
        target="health.enabled_xids",
        parser=xids("all", "xids"),
        default="",
        help="XIDs that count although they are disabled or the program's own fault",
        env=("DP_ENABLE_HEALTHCHECKS",),
        sift=sifted_xids,
        paths=("health.enabledXids",),
    ),
    _nvidia(
        "--mps-root", "flags.mpsRoot", "mps_root", PATH, "mps in the state folder", "where MPS daemons keep their files"
    ),
    Option(
        flag="--device-discovery-strategy",
        parser=DISCOVERY,
        default="auto",
        help="how GPUs are found: auto and nvml are the same, NVML",
        caution=lambda _: "",
        env=("DEVICE_DISCOVERY_STRATEGY",),
        paths=("flags.deviceDiscoveryStrategy",),
    ),
    Option(
        parser=BOOL,
        default="",
        help="no effect: labels are written on the Node itself",
        env=("GFD_USE_NODE_FEATURE_API", "USE_NODE_FEATURE_API"),
        paths=("flags.useNodeFeatureAPI",),
    ),
    Option(
        parser=BOOL,
        default="",
        help="no effect: labels are kept for as long as the agent runs",
        env=("GFD_ONESHOT",),
        paths=("flags.gfd.oneshot",),
    ),
    Option(
        parser=TEXT,
        default="",
        help="no effect: labels are written on the Node itself",
        env=("GFD_OUTPUT_FILE",),
        paths=("flags.gfd.outputFile",),
    ),
)
"""NVIDIA's settings, under their names."""
NVIDIA = tuple(replace(option, empty_is_default=option.parser not in (TEXT, BOOL)) for option in NVIDIA)


def _key(path: str, target: str, parser: Parser, default: str, text: str, flag: str = "") -> Option:
    return Option(paths=(path,), target=target, parser=parser, default=default, help=text, flag=flag)


OWN: tuple[Option, ...] = (
    _key("health.enabled", "health.enabled", BOOL, "true", "false: only a GPU that is gone is taken out"),
    _key(
        "health.probationSeconds",
        "health.probation_s",
        seconds(0, 86400),
        "10",
        "how long a GPU must do well after repair",
    ),
    _key(
        "health.cleanProbes", "health.clean_probes", integer(1, 1000), "3", "good answers in a row that probation takes"
    ),
    _key("health.failedProbes", "health.failed_probes", integer(1, 1000), "3", "bad answers in a row before Unhealthy"),
    _key(
        "health.probeIntervalSeconds", "health.probe_interval_s", seconds(0.1, 3600), "5", "how often each GPU is asked"
    ),
    _key("health.probeTimeoutSeconds", "health.probe_timeout_s", seconds(0.1, 600), "2", "how long an answer may take"),
    _key("health.unknownXids", "health.unknown_xids", FAULT_CLASS, "reset", "class of XIDs the table does not have"),
    _key("health.eccUncorrected", "health.ecc_uncorrected", FAULT_CLASS, "reset", "class of uncorrected memory errors"),
    _key(
        "health.rowRemapPending", "health.row_remap_pending", FAULT_CLASS, "contained", "class of a pending row remap"
    ),
    _key("health.rowRemapFailure", "health.row_remap_failure", FAULT_CLASS, "replace", "class of a failed row remap"),
    _key("health.nvlinkDown", "health.nvlink_down", FAULT_CLASS, "degraded", "class of a direct NVLink that is down"),
    _key(
        "health.nvswitchLinkDown",
        "health.nvswitch_link_down",
        FAULT_CLASS,
        "reset",
        "class of an NVLink to an NVSwitch that is down",
    ),
    Option(
        flag="--metrics-interval",
        target="metrics.interval_s",
        parser=INTERVAL,
        default="15s",
        help="how often the GPUs are read for metrics; scrapes get the last reading",
        paths=("metrics.interval",),
    ),
    _nvidia(
        "--collectors",
        "metrics.collectors",
        "metrics.collectors",
        PATH,
        "the usual fields",
        "dcgm-exporter's collectors file (CSV): which fields are exported, as what type, with which help",
        before="DCGM_EXPORTER_",
    ),
    Option(
        target="metrics.hostname_label",
        parser=one_of(HostnameLabel),
        default="Hostname",
        help="the label that holds the node's name: newer dcgm-exporters write it small",
        paths=("metrics.hostnameLabel",),
    ),
    _key(
        "metrics.xidErrors",
        "metrics.xid_errors",
        one_of(XidErrors),
        "last",
        "DCGM_FI_DEV_XID_ERRORS: last, as dcgm-exporter, or worst, the XID of the worst open fault",
    ),
    _key(
        "metrics.xidShownSeconds",
        "metrics.xid_shown_s",
        seconds(1, 604_800),
        "600",
        "how long the last XID is shown; after that the worst open fault's, or 0",
    ),
    _nvidia(
        "--xid-count-window-size",
        "metrics.xidCountWindowMs",
        "metrics.xid_window_ms",
        integer(1000, 3_600_000),
        "300000",
        "window of DCGM_EXP_XID_ERRORS_COUNT, milliseconds",
        before="DCGM_EXPORTER_",
    ),
    _nvidia(
        "--clock-events-count-window-size",
        "metrics.clockEventsCountWindowMs",
        "metrics.clock_window_ms",
        integer(1000, 3_600_000),
        "300000",
        "window of DCGM_EXP_CLOCK_EVENTS_COUNT, milliseconds",
        before="DCGM_EXPORTER_",
    ),
    _nvidia(
        "--no-hostname",
        "metrics.noHostname",
        "metrics.no_hostname",
        BOOL,
        "false",
        "DCGM's series without the label with the node's name",
        before="DCGM_EXPORTER_",
    ),
    _nvidia(
        "--use-old-namespace",
        "metrics.oldNamespace",
        "metrics.old_names",
        BOOL,
        "false",
        "the labels uuid, pod_name, pod_namespace and container_name on DCGM's series, as dcgm-exporter 1.x",
        before="DCGM_EXPORTER_",
    ),
    _nvidia(
        "--replace-blanks-in-model-name",
        "metrics.replaceBlanksInModelName",
        "metrics.dashed_model",
        BOOL,
        "false",
        "dashes for blanks in the label modelName",
        before="DCGM_EXPORTER_",
    ),
    _nvidia(
        "--kubernetes-enable-pod-uid",
        "metrics.podUid",
        "metrics.pod_uid",
        BOOL,
        "false",
        "the pod's uid as label pod_uid of its DCGM series",
        before="DCGM_EXPORTER_",
    ),
    _nvidia(
        "--kubernetes-enable-pod-labels",
        "metrics.podLabels",
        "metrics.pod_labels",
        BOOL,
        "false",
        "the pod's labels as labels of its DCGM series, 16 at most",
        before="DCGM_EXPORTER_",
    ),
    _nvidia(
        "--kubernetes-pod-label-allowlist-regex",
        "metrics.podLabelAllowlist",
        "metrics.pod_label_allowlist",
        PATTERNS,
        "every label",
        "the pod's labels that may be such: regular expressions, one of which is found in the label's name",
        before="DCGM_EXPORTER_",
    ),
    *(_key(*row) for row in PARTS),
    Option(
        flag="--log-format",
        target="logging.format",
        parser=one_of(LogFormat),
        default="logfmt",
        help="how log lines are written",
        paths=("logging.format",),
    ),
    Option(
        flag="--log-level",
        target="logging.level",
        parser=one_of(LogLevel),
        default="info",
        help="the least severe line that is written",
        paths=("logging.level",),
    ),
    *(_key(*row) for row in REMEDIATION),
    _key("labels.enabled", "labels.enabled", BOOL, "true", "false: write no node labels"),
    _key("events.enabled", "events.enabled", BOOL, "true", "false: write no Kubernetes Events"),
)
"""Our own sections of the config file, at its top level."""

OPTIONS: tuple[Option, ...] = (*PROCESS, *NVIDIA, *OWN)
BY_PATH: dict[str, Option] = {path: option for option in OPTIONS for path in option.paths}
OWN_SECTIONS = ("layout", "health", "remediation", "mig", "mps", "metrics", "logging", "labels", "events")
"""An unknown key in one of these is an error; elsewhere NVIDIA's plugin is lenient, and so are we."""
FLAG_ALIASES = {
    "--config-file": "--config",
    "--nvidia-driver-root": "--driver-root",
    "--nvidia-dev-root": "--dev-root",
    "--container-driver-root": "--driver-root-ctr-path",
    "--nvidia-ctk-path": "--nvidia-cdi-hook-path",
}
"""NVIDIA's other names of the same flags."""
