"""Helm values of other charts, as tables by path: what becomes a value of ours, what is lost, what stays.

A row holds for its path and for all below it, but for those that have a row of their own.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from cli.migrate.fates import Fate
from cli.migrate.parts import Json, Part
from cli.migrate.shapes import (
    BOOL,
    ENV,
    INT,
    LABELS,
    TEXT,
    TEXTS,
    Misfit,
    Shape,
    Type,
    items,
    misfits,
    obj,
    words,
)
from cli.words import migrating as say
from controller.insight.simulation.sources import Path_


class ChartRow(Struct, frozen=True):
    """What becomes of a value. ``to``: the path of ours for MAPPED; empty where code of its own maps it.

    ``shape``: the values that are allowed. ``usual``: values that lose nothing.
    """

    fate: Fate
    to: str = ""
    why: str = ""
    shape: Shape | None = None
    usual: tuple[Any, ...] = ()


Rows = Mapping[str, ChartRow]


def mapped(shape: Shape, to: str = "") -> ChartRow:
    return ChartRow(Fate.MAPPED, to, shape=shape)


def lost(why: str, *usual: Any, shape: Shape | None = None) -> ChartRow:
    return ChartRow(Fate.LOST, why=why, usual=usual, shape=shape)


def kept(why: str) -> ChartRow:
    return ChartRow(Fate.KEPT, why=why)


MOOT: Final = ChartRow(Fate.MOOT)
_NAME: Final = Shape(Type.STRING, pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", name="the name of an object")
_ANY: Final = Shape(Type.OBJECT, each=None)
_TOLERATIONS: Final = items(obj(effect=TEXT, key=TEXT, operator=TEXT, tolerationSeconds=INT, value=TEXT))
_PODS: Final[dict[str, ChartRow]] = {
    "affinity": mapped(_ANY, "affinity"),
    "fullnameOverride": MOOT,
    "global": MOOT,
    "image": MOOT,
    "imagePullSecrets": MOOT,
    "nameOverride": MOOT,
    "namespaceOverride": MOOT,
    "nodeSelector": mapped(LABELS, "nodeSelector"),
    "podAnnotations": mapped(LABELS, "podAnnotations"),
    "podLabels": mapped(LABELS, "podLabels"),
    "podSecurityContext": MOOT,
    "priorityClassName": mapped(TEXT, "priorityClassName"),
    "resources": lost(say.RESOURCES),
    "runtimeClassName": mapped(TEXT, "runtimeClassName"),
    "securityContext": MOOT,
    "serviceAccount": MOOT,
    "tolerations": mapped(_TOLERATIONS),
}
_STRATEGY: Final = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")

DEVICE_PLUGIN: Final[Rows] = _PODS | {
    "allowDefaultNamespace": MOOT,
    "args": lost(say.ARGUMENTS),
    "cdi.featureFlags": mapped(TEXT, "cdi.featureFlags"),
    "cdi.nvidiaHookPath": mapped(TEXT, "cdi.nvidiaHookPath"),
    "compatWithCPUManager": mapped(BOOL, "compatWithCPUManager"),
    "componentSelectorLabels": MOOT,
    "config.default": mapped(TEXT, "config.default"),
    "config.fallbackStrategies": mapped(items(words("named", "single", "empty")), "config.fallbackStrategies"),
    "config.map": mapped(LABELS),
    "config.name": mapped(TEXT),
    "deviceDiscoveryStrategy": ChartRow(Fate.MAPPED, shape=words("auto", "nvml", "tegra")),
    "deviceIDStrategy": mapped(words("uuid", "index"), "deviceIDStrategy"),
    "deviceListStrategy": mapped(Shape(Type.EITHER)),
    "devicePlugin.containers.main.env": mapped(ENV),
    "devicePlugin.enableHostNetwork": lost(say.HOST_NETWORK, shape=BOOL),
    "devicePlugin.enabled": ChartRow(Fate.SWITCHED, shape=BOOL),
    "failOnInitError": mapped(BOOL, "failOnInitError"),
    "gdrcopyEnabled": mapped(BOOL, "gdrcopyEnabled"),
    "gdsEnabled": mapped(BOOL, "gdsEnabled"),
    "gfd.enableHostNetwork": lost(say.HOST_NETWORK, shape=BOOL),
    "gfd.enabled": ChartRow(Fate.SWITCHED, shape=BOOL),
    "gfd.nameOverride": MOOT,
    "gfd.namespaceOverride": MOOT,
    "gfd.noTimestamp": mapped(BOOL),
    "gfd.securityContext": MOOT,
    "gfd.sleepInterval": mapped(TEXT),
    "migStrategy": mapped(words("none", "single", "mixed"), "migStrategy"),
    "mofedEnabled": mapped(BOOL, "mofedEnabled"),
    "mps.enableHostNetwork": lost(say.HOST_NETWORK, shape=BOOL),
    "mps.enableHostPID": MOOT,
    "mps.root": mapped(TEXT),
    "nfd": kept(say.NFD),
    "nvidiaDriverRoot": mapped(TEXT),
    "podLabels": mapped(LABELS, "podLabels"),
    "selectorLabelsOverride": MOOT,
    "sharedDevicesAllocationPolicy": mapped(words("distributed", "packed"), "sharedDevicesAllocationPolicy"),
    "updateStrategy": mapped(Shape(Type.OBJECT, each=None), "updateStrategy"),
}
_MONITOR: Final = "serviceMonitor"
EXPORTER: Final[Rows] = _PODS | {
    "affinity": lost(say.AFFINITY),
    "arguments": mapped(TEXTS),
    "basicAuth": lost(say.WEB_CONFIG),
    "customMetrics": mapped(TEXT),
    "extraConfigMapVolumes": lost(say.VOLUMES),
    "extraEnv": mapped(ENV),
    "extraHostVolumes": lost(say.VOLUMES),
    "extraVolumeMounts": lost(say.VOLUMES),
    "hostNetwork": lost(say.HOST_NETWORK, shape=BOOL),
    "hpcJobMapping": lost(say.HPC_JOBS),
    "kubernetesDRA": MOOT,
    "mapPodsMetrics": MOOT,
    "rollingUpdate": MOOT,
    "service.address": MOOT,
    "service.annotations": lost(say.SERVICE_ANNOTATIONS),
    "service.clusterIP": lost(say.SERVICE),
    "service.enable": mapped(BOOL, "metrics.service"),
    "service.port": mapped(INT, "metrics.port"),
    "service.type": lost(say.SERVICE, "ClusterIP", shape=TEXT),
    f"{_MONITOR}.additionalLabels": mapped(LABELS, "metrics.serviceMonitor.labels"),
    f"{_MONITOR}.apiVersion": MOOT,
    f"{_MONITOR}.enabled": mapped(BOOL, "metrics.serviceMonitor.enabled"),
    f"{_MONITOR}.honorLabels": MOOT,
    f"{_MONITOR}.interval": mapped(TEXT),
    f"{_MONITOR}.metricRelabelings": lost(say.RELABELINGS),
    f"{_MONITOR}.relabelings": lost(say.RELABELINGS),
    f"{_MONITOR}.scrapeTimeout": lost(say.SCRAPE_TIMEOUT),
    "tlsServerConfig": lost(say.WEB_CONFIG),
    "updateStrategy": MOOT,
}
CLAIMS: Final[Rows] = {
    **{key: row for key, row in _PODS.items() if key not in ("resources", "nodeSelector", "affinity", "tolerations")},
    "allowDefaultNamespace": MOOT,
    "controller": kept(say.DOMAINS_CONTROLLER),
    "featureGates": mapped(Shape(Type.OBJECT, each=BOOL)),
    "gpuResourcesEnabledOverride": MOOT,
    "kubeletPlugin.affinity": mapped(_ANY, "affinity"),
    "kubeletPlugin.containers": lost(say.RESOURCES),
    "kubeletPlugin.kubeletPluginsDirectoryPath": MOOT,
    "kubeletPlugin.kubeletRegistrarDirectoryPath": MOOT,
    "kubeletPlugin.nodeSelector": mapped(LABELS, "nodeSelector"),
    "kubeletPlugin.podAnnotations": mapped(LABELS, "podAnnotations"),
    "kubeletPlugin.podSecurityContext": MOOT,
    "kubeletPlugin.priorityClassName": mapped(TEXT, "priorityClassName"),
    "kubeletPlugin.tolerations": mapped(_TOLERATIONS),
    "kubeletPlugin.updateStrategy": mapped(_ANY, "updateStrategy"),
    "logVerbosity": MOOT,
    "nvidiaCDIHookPath": mapped(TEXT),
    "nvidiaCtkPath": mapped(TEXT),
    "nvidiaDriverRoot": mapped(TEXT),
    "resources.computeDomains.enabled": ChartRow(Fate.SWITCHED, shape=BOOL),
    "resources.gpus.enabled": ChartRow(Fate.SWITCHED, shape=BOOL),
    "selectorLabelsOverride": MOOT,
    "webhook": MOOT,
}
KUEUE: Final[Rows] = {
    "controllerManager.featureGates": mapped(items(obj(enabled=BOOL, name=TEXT))),
    "controllerManager.imagePullSecrets": MOOT,
    "controllerManager.livenessProbe": MOOT,
    "controllerManager.manager": lost(say.CONTROLLER_POD),
    "controllerManager.nodeSelector": mapped(LABELS, "controller.nodeSelector"),
    "controllerManager.podDisruptionBudget": MOOT,
    "controllerManager.readinessProbe": MOOT,
    "controllerManager.replicas": mapped(INT),
    "controllerManager.tolerations": mapped(_TOLERATIONS, "controller.tolerations"),
    "controllerManager.topologySpreadConstraints": lost(say.CONTROLLER_POD),
    "enableCertManager": ChartRow(Fate.MAPPED, shape=BOOL),
    "enableKueueViz": ChartRow(Fate.LOST, why=say.KUEUE_VIZ, shape=BOOL),
    "enableMutatingAdmissionPolicy": MOOT,
    "enablePrometheus": mapped(BOOL, "metrics.serviceMonitor.enabled"),
    "enableVisibilityAPF": lost(say.VISIBILITY_APF, shape=BOOL),
    "fullnameOverride": mapped(_NAME),
    "global": MOOT,
    "kubernetesClusterDomain": MOOT,
    "kueueViz": MOOT,
    "managerConfig.controllerManagerConfigYaml": mapped(TEXT),
    "metrics": lost(say.METRICS_TLS),
    "metricsService": lost(say.METRICS_SERVICE),
    "mutatingWebhook": MOOT,
    "nameOverride": mapped(_NAME),
    "webhookService": MOOT,
}
_NO_PROGRAM: Final = "its own program"
KAI: Final[Rows] = {
    **dict.fromkeys(
        ("binder", "crdupgrader", "global", "operator", "podgroupcontroller", "postCleanup", "queuecontroller",
         "topologyMigration", "admission", "podgrouper"), MOOT),
    "admission.gpuPodRuntimeClassName": lost(say.RUNTIME_CLASS_OF_PODS, "", shape=TEXT),
    "defaultQueue": lost(say.DEFAULT_QUEUE),
    "global.clusterAutoscaling": lost(say.SCALING_PODS, shape=BOOL),
    "global.gpuSharing": kept(say.FRACTIONS),
    "global.namespaceLabelSelector": lost(say.NAMESPACES_OF_KAI),
    "global.podLabelSelector": lost(say.NAMESPACES_OF_KAI),
    "nodescaleadjuster": MOOT,
    "podgrouper.queueLabelKey": lost(say.QUEUE_LABEL, "kai.scheduler/queue", shape=TEXT),
    "scheduler": MOOT,
    "scheduler.actions": lost(say.KAI_ACTIONS),
    "scheduler.placementStrategy": lost(say.PLACEMENT, "binpack", shape=words("binpack", "spread")),
}  # fmt: skip
VOLCANO: Final[Rows] = {
    "basic": MOOT,
    "custom": MOOT,
    "custom.colocation_enable": lost(say.COLOCATION, shape=BOOL),
    "custom.scheduler_config_override": mapped(TEXT),
    "custom.scheduler_name": mapped(TEXT),
    "custom.webhooks_namespace_selector_expressions": lost(say.NAMESPACES_OF_VOLCANO),
    "service": MOOT,
}


def row_at(path: str, rows: Rows) -> ChartRow | None:
    """The row that holds for a path; None where there is none."""
    while path:
        if row := rows.get(path):
            return row
        path = path.rpartition(".")[0]
    return None


def given(values: Json, path: str) -> Any:
    """The value at a dotted path; None where there is none."""
    found: Any = values
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def wrong_values(values: Json, rows: Rows) -> Iterator[Misfit]:
    """Every value that its chart does not allow; with an empty ``expected``, those of no row."""
    for path, row in rows.items():
        value = given(values, path)
        steps: Path_ = tuple(path.split("."))
        if row.shape is not None:
            yield from misfits(value, row.shape, steps)
    yield from _strangers(values, rows, ())


def _strangers(values: Json, rows: Rows, path: Path_) -> Iterator[Misfit]:
    for key, value in values.items():
        inner = (*path, str(key))
        dotted = ".".join(map(str, inner))
        if row_at(dotted, rows) is not None:
            continue
        if not any(each.startswith(f"{dotted}.") for each in rows):
            yield Misfit(inner, "", "")
        elif isinstance(value, dict):
            yield from _strangers(value, rows, inner)
        elif value is not None:
            yield Misfit(inner, str(value), "an object")


def apply(values: Json, rows: Rows, chart: str, part: Part) -> None:
    """Adds what the rows say of a chart's values to a part."""
    for path, row in rows.items():
        value = given(values, path)
        if value in (None, "", [], {}) or (row.fate is Fate.LOST and value is False):
            continue
        below = [each for each in rows if each.startswith(f"{path}.")]
        if row.fate is Fate.MAPPED and row.to:
            part.take(row.to, value)
        elif row.fate is Fate.LOST and value not in row.usual:
            part.lose(f"{chart}: {path}", row.why)
        elif row.fate is Fate.KEPT and not below and value is not False:
            part.keep(f"{chart}: {path}", row.why)
