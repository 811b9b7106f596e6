"""What becomes of each field of a ClusterPolicy, and of a GPUCluster, as a table by path.

A row holds for its field and for all below it, but for those that have a row of their own.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from cli.words import migrating as say


class Fate(StrEnum):
    """What becomes of a field."""

    MAPPED = "becomes a value of the chart"
    SWITCHED = "is switched off by a step"
    KEPT = "stays the operator's"
    LOST = "is lost"
    MOOT = "is about a program that goes, or says what holds here anyhow"


class Row(NamedTuple):
    """``why`` is for KEPT and LOST. ``usual`` are values that lose nothing."""

    fate: Fate
    why: str = ""
    usual: tuple[str, ...] = ()


PARTS: Final = {
    "migManager": ("MIG manager", "mig-manager"),
    "devicePlugin": ("device plugin", "device-plugin"),
    "gfd": ("feature discovery", "gpu-feature-discovery"),
    "dcgmExporter": ("dcgm-exporter", "dcgm-exporter"),
}
"""The operator's parts that the agent stands in for, in the order in which they go: their name for people, and the end
of the label ``nvidia.com/gpu.deploy.*`` by which the operator has them on a node.
"""

_GOES: Final = {
    "args": Row(Fate.LOST, say.ARGUMENTS),
    "enabled": Row(Fate.SWITCHED),
    "env": Row(Fate.MAPPED),
    "hostNetwork": Row(Fate.LOST, say.HOST_NETWORK),
    "image": Row(Fate.MOOT),
    "imagePullPolicy": Row(Fate.MOOT),
    "imagePullSecrets": Row(Fate.MOOT),
    "repository": Row(Fate.MOOT),
    "resources": Row(Fate.LOST, say.RESOURCES),
    "version": Row(Fate.MOOT),
}

ROWS: Final[dict[str, Row]] = {
    **{f"{part}.{key}": row for part in PARTS for key, row in _GOES.items()},
    "ccManager": Row(Fate.KEPT, say.CONFIDENTIAL),
    "cdi.default": Row(Fate.KEPT, say.CDI),
    "cdi.enabled": Row(Fate.MAPPED),
    "cdi.nriPluginEnabled": Row(Fate.MAPPED),
    "daemonsets.annotations": Row(Fate.MAPPED),
    "daemonsets.labels": Row(Fate.MAPPED),
    "daemonsets.podSecurityContext": Row(Fate.MAPPED),
    "daemonsets.priorityClassName": Row(Fate.MAPPED),
    "daemonsets.rollingUpdate": Row(Fate.MAPPED),
    "daemonsets.tolerations": Row(Fate.MAPPED),
    "daemonsets.updateStrategy": Row(Fate.MAPPED),
    "dcgm": Row(Fate.KEPT, say.DCGM),
    "dcgmExporter.annotations": Row(Fate.LOST, say.EXPORTER_ANNOTATIONS),
    "dcgmExporter.config": Row(Fate.MAPPED),
    "dcgmExporter.enablePodLabels": Row(Fate.MAPPED),
    "dcgmExporter.enablePodUID": Row(Fate.MAPPED),
    "dcgmExporter.hostPID": Row(Fate.MAPPED),
    "dcgmExporter.hpcJobMapping": Row(Fate.LOST, say.HPC_JOBS),
    "dcgmExporter.podLabelAllowlistRegex": Row(Fate.MAPPED),
    "dcgmExporter.service.internalTrafficPolicy": Row(Fate.LOST, say.SERVICE, ("Cluster",)),
    "dcgmExporter.service.type": Row(Fate.LOST, say.SERVICE, ("ClusterIP",)),
    "dcgmExporter.serviceMonitor.additionalLabels": Row(Fate.MAPPED),
    "dcgmExporter.serviceMonitor.enabled": Row(Fate.MAPPED),
    "dcgmExporter.serviceMonitor.honorLabels": Row(Fate.MOOT),
    "dcgmExporter.serviceMonitor.interval": Row(Fate.MAPPED),
    "dcgmExporter.serviceMonitor.relabelings": Row(Fate.LOST, say.RELABELINGS),
    "dcgmExporter.serviceMonitor.scrapeTimeout": Row(Fate.LOST, say.SCRAPE_TIMEOUT),
    "devicePlugin.config": Row(Fate.MAPPED),
    "devicePlugin.mps.root": Row(Fate.MAPPED),
    "driver": Row(Fate.KEPT, say.DRIVER),
    "gdrcopy": Row(Fate.KEPT, say.MODULES),
    "gdrcopy.enabled": Row(Fate.MAPPED),
    "gds": Row(Fate.KEPT, say.MODULES),
    "gds.enabled": Row(Fate.MAPPED),
    "hostPaths.driverInstallDir": Row(Fate.MAPPED),
    "hostPaths.kubeletRootDir": Row(Fate.MAPPED),
    "hostPaths.rootFS": Row(Fate.KEPT, say.HOST_ROOT, ("/",)),
    "kataManager": Row(Fate.KEPT, say.KATA),
    "kataSandboxDevicePlugin": Row(Fate.KEPT, say.VIRTUAL),
    "mig.strategy": Row(Fate.MAPPED),
    "migManager.config.default": Row(Fate.LOST, say.MIG_DEFAULT),
    "migManager.config.name": Row(Fate.MAPPED),
    "migManager.env": Row(Fate.LOST, say.MIG_VARIABLES),
    "migManager.gpuClientsConfig": Row(Fate.LOST, say.MIG_CLIENTS),
    "nodeStatusExporter": Row(Fate.KEPT, say.STATUS),
    "operator": Row(Fate.KEPT, say.OPERATOR),
    "operator.runtimeClass": Row(Fate.MAPPED),
    "psa": Row(Fate.KEPT, say.SECURITY),
    "psp": Row(Fate.KEPT, say.SECURITY),
    "sandboxDevicePlugin": Row(Fate.KEPT, say.VIRTUAL),
    "sandboxWorkloads": Row(Fate.KEPT, say.VIRTUAL),
    "toolkit": Row(Fate.KEPT, say.TOOLKIT),
    "toolkit.installDir": Row(Fate.MAPPED),
    "validator": Row(Fate.KEPT, say.VALIDATOR),
    "vfioManager": Row(Fate.KEPT, say.VIRTUAL),
    "vgpuDeviceManager": Row(Fate.KEPT, say.VIRTUAL),
    "vgpuManager": Row(Fate.KEPT, say.VIRTUAL),
}
"""The rows by the path of their field below ``spec``."""

_CLAIMS: Final = "draDriver"
_DOMAINS: Final = f"{_CLAIMS}.computeDomains"
CLUSTER_ROWS: Final[dict[str, Row]] = {
    **{path: row for path, row in ROWS.items()
       if path.partition(".")[0] in ("daemonsets", "dcgm", "dcgmExporter", "hostPaths") and path != "hostPaths.rootFS"},
    f"{_DOMAINS}.controller": Row(Fate.KEPT, say.DOMAINS_CONTROLLER),
    f"{_DOMAINS}.enabled": Row(Fate.SWITCHED),
    f"{_DOMAINS}.kubeletPlugin": Row(Fate.MOOT),
    f"{_CLAIMS}.featureGates": Row(Fate.MAPPED),
    f"{_CLAIMS}.gpus.kubeletPlugin.env": Row(Fate.MAPPED),
    f"{_CLAIMS}.gpus.kubeletPlugin.healthcheck": Row(Fate.LOST, say.HEALTH_CHECK),
    f"{_CLAIMS}.gpus.kubeletPlugin.resources": Row(Fate.LOST, say.RESOURCES),
    **dict.fromkeys((f"{_CLAIMS}.{key}" for key in ("image", "imagePullPolicy", "imagePullSecrets", "repository",
                                                   "version")), Row(Fate.MOOT)),
}  # fmt: skip
"""Rows of a GPUCluster. That a ComputeDomain leaves with its DaemonSet is told once, for ``enabled``."""


def row_of(path: str, rows: Mapping[str, Row] = ROWS) -> Row | None:
    """The row that holds for a field; None where there is none."""
    while path:
        if row := rows.get(path):
            return row
        path = path.rpartition(".")[0]
    return None
