"""What files hold that a plan is made from: objects, chart values and configuration files, told apart by their keys,
and programs, told apart by their images and commands.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml
from msgspec import Struct, field

from controller.insight.simulation.documents import Document
from controller.insight.simulation.sources import Path_

Json = dict[str, Any]

_CSV_LINE: Final = re.compile(r"\s*DCGM_[A-Za-z0-9_]+\s*,")
_BLOCK: Final = re.compile(r"[|>][-+0-9]*\s*(#.*)?$")


class Text(Struct, frozen=True):
    """The text of a configuration file: a file of its own, or a key of a ConfigMap.

    ``first_line``: that of the text in ``file``, counted from 1; 0 where the text does not stand there line by line.
    ``owner`` is ``(namespace, name)`` of its ConfigMap, empty for a file of its own; ``name`` its key, or the file's.
    """

    file: str
    name: str
    text: str
    first_line: int = 1
    owner: tuple[str, ...] = ()
    at: int = 1
    """The line that is told where ``first_line`` is 0."""

    def place(self, line: int) -> str:
        """``FILE:LINE`` of a line of the text, counted from 1."""
        return f"{self.file}:{self.first_line + line - 1 if self.first_line else self.at}"

    @property
    def whose(self) -> str:
        """The text's name in a plan."""
        return f"ConfigMap {self.owner[1]}, {self.name}" if self.owner else self.name


class Values(Struct, frozen=True):
    """Helm values of one chart."""

    chart: str
    document: Document


class Inputs(Struct):
    """Everything that was read, by what it is. ``others`` are objects that no part of a plan is made from:
    ``live.read_cluster`` empties it, since a cluster has many.
    """

    policies: list[Document] = field(default_factory=list)
    drivers: list[Document] = field(default_factory=list)
    gpu_clusters: list[Document] = field(default_factory=list)
    plugin_files: list[Text] = field(default_factory=list)
    parted_files: list[Text] = field(default_factory=list)
    mig_extras: list[Text] = field(default_factory=list)
    """Files of the MIG manager's hooks, and of the host's services that it stops."""
    field_files: list[Text] = field(default_factory=list)
    """Lists of metrics: ``_read`` adds those that are files, ``sort_in`` those of ConfigMaps and chart values."""
    scheduler_files: list[Text] = field(default_factory=list)
    kueue_files: list[Text] = field(default_factory=list)
    kueue_inert: list[list[tuple[str, str]]] = field(default_factory=list)
    """Keys without effect of each of ``kueue_files``, with the reason: ``judge_kueue`` fills it."""
    kueue_wrong: list[str] = field(default_factory=list)
    """Lines for what Kueue would not take in ``kueue_files``: ``judge_kueue`` fills it."""
    inert_gates: dict[str, str] = field(default_factory=dict)
    """Kueue's feature gates that have no effect here, with the reason: ``judge_kueue`` fills it."""
    values: list[Values] = field(default_factory=list)
    nodes: list[Document] = field(default_factory=list)
    namespaces: list[Document] = field(default_factory=list)
    workloads: list[Document] = field(default_factory=list)
    """DaemonSets and Deployments of the systems that a plan replaces."""
    release: list[Document] = field(default_factory=list)
    """DaemonSets and Deployments of a Tessera that is installed already."""
    claims: list[Document] = field(default_factory=list)
    kueue: list[Document] = field(default_factory=list)
    volcano: list[Document] = field(default_factory=list)
    kai: list[Document] = field(default_factory=list)
    others: list[Document] = field(default_factory=list)
    unreadable: list[Document] = field(default_factory=list)
    """Mappings that are neither objects nor any configuration that is known."""
    is_live: bool = False
    """Whether a cluster was read, all of it: what is not here is not there. ``live.read_cluster`` sets it."""

    def chart(self, name: str) -> list[Document]:
        return [each.document for each in self.values if each.chart == name]


MOST_VALUES: Final = 1_000_000
"""The most values of one document."""
KUEUE_GROUPS: Final = ("kueue.x-k8s.io",)
CONFIGURATION: Final = "config.kueue.x-k8s.io"
_VOLCANO: Final = tuple(
    f"{each}.volcano.sh" for each in ["batch", "bus", "flow", "nodeinfo", "scheduling", "shard", "topology", "training"]
)
_KAI: Final = ("scheduling.run.ai", "kai.scheduler")
_DRA: Final = ("resource.k8s.io", "resource.nvidia.com")

_CHARTS: Final[tuple[tuple[str, frozenset[str], int], ...]] = (
    ("gpu-operator", frozenset({"driver", "toolkit", "dcgmExporter", "migManager", "devicePlugin", "validator", "gfd",
                                "nodeStatusExporter", "dcgm", "ccManager", "gdrcopy", "gds", "sandboxWorkloads",
                                "vgpuManager", "operator", "mig", "cdi"}), 2),
    ("gpu-operator", frozenset({"driver", "toolkit", "dcgmExporter", "migManager", "devicePlugin"}), 1),
    ("kueue", frozenset({"managerConfig", "enableKueueViz", "kueueViz", "controllerManager", "enableVisibilityAPF",
                         "enableCertManager", "enablePrometheus"}), 1),
    ("dra-driver", frozenset({"gpuResourcesEnabledOverride", "kubeletPlugin"}), 1),
    ("dcgm-exporter", frozenset({"customMetrics", "arguments", "extraEnv", "basicAuth", "kubernetesDRA",
                                 "serviceMonitor", "hpcJobMapping"}), 1),
    ("kai-scheduler", frozenset({"podgrouper", "podgroupcontroller", "binder", "queuecontroller", "scheduler",
                                 "nodescaleadjuster", "defaultQueue"}), 1),
    ("volcano", frozenset({"basic", "custom"}), 1),
    ("device-plugin", frozenset({"migStrategy", "deviceListStrategy", "deviceIDStrategy", "failOnInitError", "gfd",
                                 "compatWithCPUManager", "deviceDiscoveryStrategy", "gdrcopyEnabled", "gdsEnabled",
                                 "mofedEnabled", "sharedDevicesAllocationPolicy", "nvidiaDriverRoot", "config",
                                 "mps", "nfd"}), 1),
)  # fmt: skip
"""Charts by keys of which so many stand in their values alone, in the order in which they are tried."""


def size_of(value: Any, known: dict[int, int] | None = None) -> int:
    """The number of values in a document, every alias counted as often as it stands; ``MOST_VALUES`` and one where
    there are more, or where a value holds itself.
    """
    if not isinstance(value, dict | list):
        return 1
    known = {} if known is None else known
    if (there := known.get(id(value))) is not None:
        return there
    known[id(value)] = MOST_VALUES + 1  # of a value that holds itself
    inner = value.values() if isinstance(value, dict) else value
    known[id(value)] = min(MOST_VALUES + 1, 1 + sum(size_of(each, known) for each in inner))
    return known[id(value)]


_FILES_IN_VALUES: Final[dict[str, tuple[tuple[tuple[str, ...], str], ...]]] = {
    "device-plugin": ((("config", "map"), ""),),
    "gpu-operator": ((("devicePlugin", "config", "data"), ""), (("migManager", "config", "data"), "")),
    "kueue": ((("managerConfig",), "controllerManagerConfigYaml"),),
    "dcgm-exporter": (((), "customMetrics"),),
    "volcano": ((("custom",), "scheduler_config_override"),),
}
"""Where files stand in a chart's values: the path of a map, and the key; any key where that is empty."""


def is_fields(text: str) -> bool:
    """Whether a text is dcgm-exporter's list of fields (CSV)."""
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return _CSV_LINE.match(next(lines, "")) is not None


def sort_in(document: Document, found: Inputs, text: str = "") -> None:
    """Adds a document to what was read. ``text``: that of the file, where the document is all of it."""
    data = document.data
    if "apiVersion" in data and "kind" in data:
        if document.group == CONFIGURATION:
            found.kueue_files.append(_whole(document, text))
        elif "metadata" in data and is_ours(document):
            found.release.append(document)
        elif "metadata" in data:
            _object(document, found)
        else:
            found.unreadable.append(document)
    elif (kind := kind_of_file(data)) is not None:
        getattr(found, kind).append(_whole(document, text))
    elif (chart := chart_of(data)) is not None:
        found.values.append(Values(chart, document))
        for one in _files_in_values(chart, document):
            _add_text(one, found)
    else:
        found.unreadable.append(document)


def chart_of(data: Mapping[str, Any]) -> str | None:
    """The chart whose values these are; None where that cannot be told."""
    keys = set(data)
    if isinstance(data.get("resources"), dict) and {"gpus", "computeDomains"} & set(data["resources"]):
        return "dra-driver"
    return next((name for name, own, least in _CHARTS if len(keys & own) >= least), None)


def kind_of_file(data: Mapping[str, Any]) -> str | None:
    """The list of ``Inputs`` that a configuration file belongs to, by its keys; None where that cannot be told."""
    keys = set(data)
    if "mig-configs" in keys:
        return "parted_files"
    if str(data.get("apiVersion", "")).startswith(CONFIGURATION):
        return "kueue_files"
    if keys & {"hooks", "systemd-services"} and keys <= {"version", "hooks", "systemd-services"}:
        return "mig_extras"
    if "version" in keys and (keys == {"version"} or keys & _PLUGIN_KEYS):
        return "plugin_files"
    if {"actions", "tiers"} & keys and isinstance(data.get("tiers", []), list):
        return "scheduler_files"
    return None


_PLUGIN_KEYS: Final = frozenset(
    {"flags", "resources", "sharing", "imex", "health", "layout", "metrics", "mig", "mps", "remediation"}
)


def _object(document: Document, found: Inputs) -> None:
    match document.version, document.kind:
        case "nvidia.com/v1", "ClusterPolicy":
            found.policies.append(document)
        case "nvidia.com/v1alpha1", "GPUCluster":
            found.gpu_clusters.append(document)
        case "nvidia.com/v1alpha1", "NVIDIADriver":
            found.drivers.append(document)
        case "v1", "ConfigMap":
            _config_map(document, found)
        case "v1", "Node":
            found.nodes.append(document)
        case "v1", "Namespace":
            found.namespaces.append(document)
        case "apps/v1", ("DaemonSet" | "Deployment") if system_of(document) is not None:
            found.workloads.append(document)
        case _ if document.group in _DRA:
            found.claims.append(document)
        case _ if document.group in KUEUE_GROUPS:
            found.kueue.append(document)
        case _ if document.group in _VOLCANO:
            found.volcano.append(document)
        case _ if document.group in _KAI:
            found.kai.append(document)
        case _:
            found.others.append(document)


def _config_map(document: Document, found: Inputs) -> None:
    known = [each for each in list(texts_of(document)) if _add_text(each, found)]
    if not known:
        found.others.append(document)


def texts_of(document: Document) -> Iterator[Text]:
    """The files in a ConfigMap, with their lines where they stand in it line by line."""
    metadata, data = document.data["metadata"], document.data.get("data")
    owner = (str(metadata.get("namespace") or "default"), str(metadata.get("name")))
    for name, text in data.items() if isinstance(data, dict) else ():
        if isinstance(text, str):
            yield _inner(document, ("data", str(name)), text, str(name), owner)


def _inner(document: Document, path: Path_, text: str, name: str, owner: tuple[str, ...] = ()) -> Text:
    place = document.place(path)
    file, _, line = place.rpartition(":")
    if not line.isdigit():
        return Text(document.file, name, text, 0, owner)
    stands = document.source is not None and _BLOCK.search(document.source.text_of_line(int(line))) is not None
    return Text(file, name, text, int(line) + 1 if stands else 0, owner, int(line))


def _add_text(one: Text, found: Inputs) -> bool:
    """Adds a file to what was read, where it is known by its content or its name."""
    if is_fields(one.text):
        found.field_files.append(one)
        return True
    # The first line of each key is enough: who reads the file says what is wrong with it.
    keys = {line.partition(":")[0].strip("'\"") for line in one.text.splitlines() if re.match(r"['\"A-Za-z]", line)}
    if "apiVersion" in keys and CONFIGURATION in one.text:
        kind: str | None = "kueue_files"
    else:
        kind = kind_of_file({key: [] for key in keys})
    if kind is None and one.text.lstrip().startswith("{"):
        kind = "plugin_files" if '"version"' in one.text else None
    if kind is not None:
        getattr(found, kind).append(one)
    return kind is not None


def _files_in_values(chart: str, document: Document) -> Iterator[Text]:
    """Configuration files that stand in a chart's values."""
    for path, only in _FILES_IN_VALUES.get(chart, ()):
        data: Any = document.data
        for key in path:
            data = data.get(key) if isinstance(data, dict) else None
        for name, text in data.items() if isinstance(data, dict) else ():
            if isinstance(text, str) and text and only in ("", name):
                yield _inner(document, (*path, str(name)), text, str(name))


def _whole(document: Document, text: str) -> Text:
    name = document.file.rpartition("/")[2] if text else f"{document.file}, document {document.number}"
    if text:
        return Text(document.file, name, text)
    again = yaml.safe_dump(document.data, sort_keys=False)
    return Text(document.file, name, again, 0, (), int(document.place().rpartition(":")[2]))


_OF_NVIDIAS_PLUGIN: Final = {
    "nvidia-device-plugin": "plugin",
    "gpu-feature-discovery": "discovery",
    "mps-control-daemon": "mps",
}
"""Programs of the image of NVIDIA's device plugin, told apart by the command, and the system of each."""
_SYSTEMS: Final = {
    "k8s-device-plugin": "plugin",
    "gpu-feature-discovery": "discovery",
    "mps-control-daemon": "mps",
    "dcgm-exporter": "exporter",
    "k8s-mig-manager": "mig",
    "dra-driver-nvidia-gpu": "claims",
    "k8s-dra-driver": "claims",
    "k8s-dra-driver-gpu": "claims",
    "nvidia-dra-driver-gpu": "claims",
    "kueue": "kueue",
    "kueue-rhel9": "kueue",
    "vc-agent": "volcano",
    "vc-controller-manager": "volcano",
    "vc-scheduler": "volcano",
    "vc-webhook-manager": "volcano",
    "kai-scheduler": "kai",
}
"""Last segments of images' names, and the system of each."""
_KAI_FOLDER: Final = "kai-scheduler"
"""KAI's images are called after their program alone, below this folder."""
_OTHERS_FOLDERS: Final = ("amd", "rocm")
"""Folders of vendors whose device plugin's image is called as NVIDIA's is."""
_ARCHITECTURE: Final = re.compile(r"-(amd64|arm64)$")
_CONFIG_MANAGER: Final = "config-manager"
_STOPPED: Final = {
    "DaemonSet": frozenset({"claims", "discovery", "exporter", "mig", "mps", "plugin", "volcano"}),
    "Deployment": frozenset({"kai", "kueue", "volcano"}),
}
"""Systems whose objects of a kind go with a migration. The Deployments of NVIDIA's DRA driver stay."""


class Image(Struct, frozen=True):
    """A reference of an image; ``tag`` and ``digest`` may be empty."""

    repository: str
    tag: str
    digest: str


def image_of(reference: str) -> Image:
    """The parts of a reference: a registry's port is no tag."""
    name, _, digest = reference.partition("@")
    head, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    return Image(f"{head}{slash}{last}", tag, digest)


def system_of(document: Document) -> str | None:
    """The system that a DaemonSet or a Deployment belongs to, by the commands and images of its containers. A manager
    of configuration files stands beside a program and tells nothing of it.
    """
    containers = [each for each in _listed(document, "containers") if not is_config_manager(each)]
    for each in containers:
        for word in _words(each):
            for program, system in _OF_NVIDIAS_PLUGIN.items():
                if re.search(rf"(^|[/\s]){program}($|[\s;&])", word):
                    return system
    named = (_by_name(str(each.get("image") or "")) for each in containers)
    return next((each for each in named if each), None)


def is_ours(document: Document) -> bool:
    """Whether Tessera's chart made the object, whatever its release is called."""
    labels = document.data["metadata"].get("labels")
    chart = str(labels.get(_CHART_LABEL)) if isinstance(labels, dict) else ""
    return document.version == "apps/v1" and document.kind in _STOPPED and _OUR_CHART.fullmatch(chart) is not None


_CHART_LABEL: Final = "helm.sh/chart"
_OUR_CHART: Final = re.compile(r"tessera-[0-9].*")


def is_replaced(document: Document) -> bool:
    """Whether a migration has to stop the DaemonSet or the Deployment: a plan has a step for it, and the check tells
    it while it has pods. NVIDIA's DRA driver for ComputeDomains alone stays.
    """
    system = system_of(document)
    if system == "claims" and {str(each.get("name")) for each in _listed(document, "containers")} == {_DOMAINS}:
        return False
    return system in _STOPPED.get(document.kind, ())


_DOMAINS: Final = "compute-domains"
"""The container of NVIDIA's driver for ComputeDomains in the DaemonSet that it shares with the one for GPUs."""


def config_managers(document: Document) -> list[Json]:
    """The containers that choose a configuration file by the node's label, the first ones among them."""
    found = [*_listed(document, "initContainers"), *_listed(document, "containers")]
    return [each for each in found if is_config_manager(each)]


def is_config_manager(container: Json) -> bool:
    """Whether a container of NVIDIA's plugin chooses its configuration file."""
    return any(word.rpartition("/")[2] == _CONFIG_MANAGER for word in _words(container)[:1])


def _by_name(reference: str) -> str | None:
    *folders, last = image_of(reference).repository.split("/")
    last = _ARCHITECTURE.sub("", last)
    folder = folders[-1] if folders else ""
    if folder == _KAI_FOLDER:
        return "kai"
    return None if folder in _OTHERS_FOLDERS else _SYSTEMS.get(last)


def _words(container: Json) -> list[str]:
    command = container.get("command")
    return [str(word) for word in command] if isinstance(command, list) else []


def _listed(document: Document, key: str) -> Iterator[Json]:
    spec: Any = document.data
    for each in ("spec", "template", "spec"):
        spec = spec.get(each) if isinstance(spec, dict) else None
    found = spec.get(key) if isinstance(spec, dict) else None
    yield from (each for each in found or () if isinstance(each, dict)) if isinstance(found, list) else ()
