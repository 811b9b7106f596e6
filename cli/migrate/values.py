"""Values of Tessera's chart that say what a ClusterPolicy says."""

import re
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct, field

from agent.config.table import OPTIONS
from cli.migrate.fates import PARTS
from cli.migrate.parts import TOLERATIONS, set_value
from cli.words import migrating as say
from yamlfile.parsers import Unfit

Json = dict[str, Any]

_DRIVER_ROOT: Final = "/run/nvidia/driver"
_TOOLKIT: Final = "/usr/local/nvidia"
_MPS_PATH: Final = 40
_INTERVAL: Final = re.compile(r"[0-9]+(ms|s|m)")
_OURS: Final = re.compile(r"app\.kubernetes\.io/(name|instance|component|version|managed-by)|helm\.sh/chart")
_THEIRS: Final = ("app", "app.kubernetes.io/part-of")
_NOTES: Final = ("kubectl.kubernetes.io/default-container", "checksum/config")
READ: Final = frozenset(name for option in OPTIONS for name in option.env)
INSIDE: Final = frozenset(
    {
        "CONFIG_FILE",
        "CONFIG_FILE_SRCDIR",
        "CONTAINER_DRIVER_ROOT",
        "DCGM_EXPORTER_COLLECTORS",
        "DEFAULT_CONFIG",
        "DRIVER_ROOT_CTR_PATH",
        "FALLBACK_STRATEGIES",
        "GFD_CONFIG_FILE",
        "GFD_MACHINE_TYPE_FILE",
        "KUBELET_SOCKET",
        "NODE_IPS",
        "NODE_NAME",
    }
)
"""Variables that the agent reads, and whose values hold in the operator's containers alone."""
ANYHOW: Final = frozenset(
    {
        "DCGM_EXPORTER_KUBERNETES",
        "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE",
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_MIG_CONFIG_DEVICES",
        "NVIDIA_MIG_MONITOR_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
    }
)
"""Variables that say what the agent does anyhow (docs/migration-nvidia.md)."""
VALUES: Final = {
    "CDI_FEATURE_FLAGS": "cdi.featureFlags",
    "DCGM_EXPORTER_LISTEN": "metrics.port",
    "DEVICE_ID_STRATEGY": "deviceIDStrategy",
    "DEVICE_LIST_STRATEGY": "deviceListStrategy",
    "FAIL_ON_INIT_ERROR": "failOnInitError",
    "GDRCOPY_ENABLED": "gdrcopyEnabled",
    "GDS_ENABLED": "gdsEnabled",
    "MIG_STRATEGY": "migStrategy",
    "MOFED_ENABLED": "mofedEnabled",
    "MPS_ROOT": "mps.root",
    "NVIDIA_CDI_HOOK_PATH": "cdi.nvidiaHookPath",
    "NVIDIA_DRIVER_ROOT": "nvidiaDriverRoot",
    "PASS_DEVICE_SPECS": "compatWithCPUManager",
    "SHARED_DEVICES_ALLOCATION_POLICY": "sharedDevicesAllocationPolicy",
}
"""Variables for which the chart has a value: it sets them itself, and rights and folders of the agent follow from some.
A list with two of one name would be refused by the API server.
"""
_SWITCHES: Final = frozenset(
    {"FAIL_ON_INIT_ERROR", "GDRCOPY_ENABLED", "GDS_ENABLED", "MOFED_ENABLED", "PASS_DEVICE_SPECS"}
)
_LISTEN: Final = "DCGM_EXPORTER_LISTEN"
_PORT: Final = re.compile(r":([0-9]{1,5})\Z")
_LAST_PORT: Final = 65535
_USUAL_PORT: Final = 9400
SET_BY_CHART: Final = "TESSERA_"
"""How variables begin that are the agent's own: the chart sets them, or a plan."""


_BY_NAME: Final = {name: option for option in OPTIONS for name in option.env}


def fits(name: str, value: str) -> bool:
    """Whether the agent takes the value of one of NVIDIA's variables; an empty one counts as not given."""
    option = _BY_NAME[name]
    if not value:
        return True
    text, _ = option.sift(value) if option.sift is not None else (value, ())
    try:
        option.parser.convert(text)
    except Unfit:
        return False
    return True


def as_value(name: str, value: str) -> tuple[str, Any] | str | None:
    """The path and the value of ours for one of ``VALUES``; None where the chart does by default what it says; why not,
    where the chart does not take it.
    """
    path = VALUES[name]
    if name == _LISTEN:
        port = port_of(value)
        return say.NO_PORT if port is None else None if port == _USUAL_PORT else (path, port)
    if not fits(name, value):
        return say.variable_unfit(expected(name))
    if not value:
        return None
    if name == "MPS_ROOT":
        return (path, value) if is_mps_root(value) else say.MPS_PATH
    if name in ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_DRIVER_ROOT") and not value.startswith("/"):
        return say.NO_PATH
    if name in _SWITCHES:
        return path, value.strip().lower() in ("1", "t", "true", "yes", "on")
    if name == "DEVICE_LIST_STRATEGY" and "," in value:
        return path, [word.strip() for word in value.split(",")]
    return path, value


def port_of(address: str) -> int | None:
    """The port at which an exporter listens; None where none can be told. An empty address is the usual one."""
    if not address:
        return _USUAL_PORT
    found = _PORT.search(address)
    return int(found[1]) if found and 0 < int(found[1]) <= _LAST_PORT else None


def expected(name: str) -> str:
    """What one of NVIDIA's variables may hold, for people."""
    return _BY_NAME[name].parser.expected


class Taken(Struct):
    """``lost``: path below ``spec`` and reason, for what could not become a value."""

    values: Json = field(default_factory=dict)
    lost: list[tuple[str, str]] = field(default_factory=list)


def taken(spec: Json) -> Taken:
    """The values that a ClusterPolicy's ``spec`` becomes. All its values are allowed; null counts as not given."""
    mapped = Taken()
    _devices(spec, mapped)
    _paths(spec, mapped)
    _daemonsets(_of(spec, "daemonsets"), mapped)
    if _is_on(spec, "devicePlugin"):
        _plugin(_of(spec, "devicePlugin"), mapped)
    if _is_on(spec, "dcgmExporter"):
        _exporter(_of(spec, "dcgmExporter"), mapped)
    if variables := list(_variables(spec, mapped)):
        mapped.values["env"] = variables
    return mapped


def cluster_taken(spec: Json) -> Taken:
    """Values that a GPUCluster's ``spec`` becomes, but for what is about its DRA driver alone."""
    mapped = Taken()
    _paths(spec, mapped)
    _daemonsets(_of(spec, "daemonsets"), mapped)
    if _is_on(spec, "dcgmExporter"):
        _exporter(_of(spec, "dcgmExporter"), mapped)
    only = {"dcgmExporter": _of(spec, "dcgmExporter")}
    if variables := list(_variables(only, mapped)):
        mapped.values["env"] = variables
    return mapped


def is_mps_root(path: str) -> bool:
    """Whether the chart takes the folder: sockets lie below it."""
    return path.startswith("/") and len(path) <= _MPS_PATH and "\n" not in path


def is_interval(text: str) -> bool:
    return _INTERVAL.fullmatch(text) is not None


def _of(value: Json, *keys: str) -> Json:
    for key in keys:
        value = value.get(key) or {}
    return value


def _is_on(spec: Json, part: str) -> bool:
    """The operator's parts are on where nothing is said."""
    return _of(spec, part).get("enabled") is not False


def _devices(spec: Json, found: Taken) -> None:
    """How containers get devices, as the operator sets its device plugin."""
    values, cdi = found.values, _of(spec, "cdi")
    if strategy := _of(spec, "mig").get("strategy"):
        values["migStrategy"] = strategy
    if _of(spec, "gds").get("enabled"):
        values |= {"gdsEnabled": True, "mofedEnabled": True}
    if _of(spec, "gdrcopy").get("enabled"):
        values["gdrcopyEnabled"] = True
    if cdi.get("enabled") is not False:
        values["deviceListStrategy"] = ["cdi-annotations", "cdi-cri"]
        root = _of(spec, "toolkit").get("installDir") or _TOOLKIT
        if _is_on(spec, "toolkit") and _absolute(root, "toolkit.installDir", found):
            values["cdi"] = {"nvidiaHookPath": f"{root.rstrip('/')}/toolkit/nvidia-cdi-hook"}
        if cdi.get("nriPluginEnabled"):
            # There is no RuntimeClass then: the agent opens the device files itself.
            values["compatWithCPUManager"] = True
            return
    values["runtimeClassName"] = _of(spec, "operator").get("runtimeClass") or "nvidia"


def _paths(spec: Json, found: Taken) -> None:
    paths = _of(spec, "hostPaths")
    if _is_on(spec, "driver"):
        root = paths.get("driverInstallDir") or _DRIVER_ROOT
        if _absolute(root, "hostPaths.driverInstallDir", found):
            found.values["nvidiaDriverRoot"] = root
    kubelet = paths.get("kubeletRootDir")
    if kubelet and _absolute(kubelet, "hostPaths.kubeletRootDir", found):
        found.values["kubeletDir"] = kubelet


def _absolute(path: str, at: str, found: Taken) -> bool:
    if not path.startswith("/"):
        found.lost.append((at, say.NO_PATH))
    return path.startswith("/")


def _daemonsets(given: Json, found: Taken) -> None:
    """What holds for the pods of all of the operator's parts holds for the agent's."""
    values = found.values
    for theirs, ours in (("labels", "podLabels"), ("annotations", "podAnnotations")):
        words = given.get(theirs) or {}
        own = {key for key in words if _OURS.fullmatch(key) or key in _NOTES}
        found.lost += [(f"daemonsets.{theirs}[{key}]", say.label_kept(key)) for key in words if key in own]
        # The operator sets none of these labels either.
        kept = {key: word or "" for key, word in words.items() if key not in own and key not in _THEIRS}
        if kept:
            values[ours] = kept
    if tolerations := [{key: value for key, value in each.items() if value is not None}
                       for each in given.get("tolerations") or [] if each]:  # fmt: skip
        values["tolerations"] = [*TOLERATIONS, *(each for each in tolerations if each not in TOLERATIONS)]
    if given.get("priorityClassName"):
        values["priorityClassName"] = given["priorityClassName"]
    if given.get("podSecurityContext"):
        values["podSecurityContext"] = given["podSecurityContext"]
    most = _of(given, "rollingUpdate").get("maxUnavailable")
    if given.get("updateStrategy") == "OnDelete":
        values["updateStrategy"] = {"type": "OnDelete"}
    elif most:
        rolling = {"maxUnavailable": int(most) if re.fullmatch(r"[0-9]{1,9}", most) else most}
        values["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": rolling}


def _plugin(plugin: Json, found: Taken) -> None:
    config = _of(plugin, "config")
    if config.get("name"):
        found.values["config"] = {"name": config["name"]}
        if "/" in (config.get("default") or ""):
            found.lost.append(("devicePlugin.config.default", say.FILE_NAME))
        elif config.get("default"):
            found.values["config"]["default"] = config["default"]
    if root := _of(plugin, "mps").get("root"):
        if is_mps_root(root):
            found.values["mps"] = {"root": root}
        else:
            found.lost.append(("devicePlugin.mps.root", say.MPS_PATH))


def _exporter(exporter: Json, found: Taken) -> None:
    metrics: Json = {}
    if exporter.get("hostPID") is not None:
        metrics["hostPID"] = exporter["hostPID"]
    service_monitor = _of(exporter, "serviceMonitor")
    if service_monitor.get("enabled"):
        monitor: Json = {"enabled": True}
        if service_monitor.get("additionalLabels"):
            monitor["labels"] = {key: word or "" for key, word in service_monitor["additionalLabels"].items()}
        if is_interval(service_monitor.get("interval") or ""):
            monitor["interval"] = service_monitor["interval"]
        elif service_monitor.get("interval"):
            found.lost.append(("dcgmExporter.serviceMonitor.interval", say.INTERVAL))
        metrics["serviceMonitor"] = monitor
    if metrics:
        found.values["metrics"] = metrics


def _variables(spec: Json, found: Taken) -> Iterator[Json]:
    """The agent's variables. One that two parts have is the first part's, in the order of the parts."""
    seen = set[str]()
    for name, value in _fields_as_variables(_of(spec, "dcgmExporter"), found) if _is_on(spec, "dcgmExporter") else ():
        seen.add(name)
        yield {"name": name, "value": value}
    for part in PARTS:
        if part == "migManager" or not _is_on(spec, part):
            continue
        for variable in _of(spec, part).get("env") or []:
            name = (variable or {}).get("name") or ""
            if name in seen or name in ANYHOW or not name:
                continue
            seen.add(name)
            if name in VALUES:
                _set(f"{part}.env[{name}]", name, variable.get("value") or "", found)
            elif name in INSIDE or name.startswith(SET_BY_CHART):
                found.lost.append((f"{part}.env[{name}]", say.variable_set(name)))
            elif name in READ and not fits(name, variable.get("value") or ""):
                found.lost.append((f"{part}.env[{name}]", say.variable_unfit(expected(name))))
            elif name in READ:
                yield {"name": name, "value": variable.get("value") or ""}
            else:
                found.lost.append((f"{part}.env[{name}]", say.variable_unread(name)))


def _set(at: str, name: str, value: str, found: Taken) -> None:
    """Sets the chart's value for a variable. The operator lets its own field win over the variable."""
    there: Any = found.values
    for key in VALUES[name].split("."):
        there = there.get(key) if isinstance(there, dict) else None
    became = as_value(name, value) if there is None else None
    if isinstance(became, str):
        found.lost.append((at, became))
    elif became is not None:
        set_value(found.values, *became)


def _fields_as_variables(exporter: Json, found: Taken) -> Iterator[tuple[str, str]]:
    """Fields of the exporter that are variables of the agent's."""
    for key, name in (("enablePodLabels", "POD_LABELS"), ("enablePodUID", "POD_UID")):
        if exporter.get(key):
            yield f"DCGM_EXPORTER_KUBERNETES_ENABLE_{name}", "true"
    patterns = [each for each in exporter.get("podLabelAllowlistRegex") or [] if each]
    if any("," in each for each in patterns):
        found.lost.append(("dcgmExporter.podLabelAllowlistRegex", say.PATTERNS))
    elif patterns:
        yield "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", ",".join(patterns)
