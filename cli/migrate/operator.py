"""NVIDIA's GPU Operator: what a ClusterPolicy says, and a GPUCluster where that stands instead.

Pure: parsed documents in, a part of a plan out. What the operator makes of a field is as in its
controllers/object_controls.go (the functions that transform the DaemonSet of the device plugin, and the common ones);
which label has an operand on a node, as in its controllers/nodelabeling_controller.go.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agent.config.settings import MigManager
from cli.migrate.claims import gates, gpus_of, layout, objects, serve
from cli.migrate.fates import CLUSTER_ROWS, PARTS, ROWS, Fate, Row
from cli.migrate.inputs import Inputs
from cli.migrate.nvidia import (
    beside_policy,
    differing,
    field_files,
    parted_files,
    plugin_beside,
    plugin_files,
    unplanned,
    variables,
)
from cli.migrate.parts import Json, Part, Step, Told
from cli.migrate.podspecs import GPU_MARKS
from cli.migrate.shapes import SPEC
from cli.migrate.steps import handed_over, labelled, labelled_all, patched
from cli.migrate.values import Taken, cluster_taken, taken
from cli.words import migrating as say
from controller.insight.simulation.documents import Document

GPU_OPERATOR: Final = "gpu-operator"
"""The namespace of the operator where the document does not tell it."""
_HELM_NAMESPACE: Final = "meta.helm.sh/release-namespace"
_POLICY_OF_CHART: Final = "cluster-policy"
_PLUGIN_PODS: Final = "app in (nvidia-device-plugin-daemonset,nvidia-device-plugin-mps-control-daemon)"
"""Labels that the operator gives to pods of its device plugin, and of the daemons that share GPUs by MPS for it."""
_FIRST: Final = ("migManager", "devicePlugin")
"""Parts that go before the agent comes: two of them would cut, or serve, the same GPUs."""
_MIG_MANAGER: Final = "TESSERA_MIG_MANAGER"
_PLUGIN_ON: Final = "nvidia.com/gpu.deploy.device-plugin"
CLAIMS_ON: Final = "nvidia.com/gpu.deploy.dra-driver"
_EXPORTER_ON: Final = "nvidia.com/gpu.deploy.dcgm-exporter"
_OPERANDS_ON: Final = "nvidia.com/gpu.deploy.operands"
_WORKLOAD: Final = "nvidia.com/gpu.workload.config"
_VIRTUAL: Final = ("vm-passthrough", "vm-vgpu")
MOVED: Final = "moved-to-tessera"
"""The value of the operator's label on nodes that went over: the operator leaves values alone that it did not write."""
_DEFAULT_MIG: Final = "default-mig-parted-config"


_DEFAULTS: Final[Json] = {
    "mig": {"strategy": "single"},
    "migManager": {"config": {"default": "all-disabled"}},
}
"""Values that the operator's chart has where nothing is given, and that say something else than nothing does in a
ClusterPolicy. A null takes a default away, as in Helm.
"""


def _over(defaults: Json, given: Json) -> Json:
    merged = defaults | given
    for key, value in defaults.items():
        if isinstance(value, dict) and isinstance(given.get(key), dict):
            merged[key] = _over(value, given[key])
    return merged


def policy_of_chart(values: Document) -> Document:
    """The ClusterPolicy that the operator's chart makes of its values; keys of the chart's own are left out."""
    spec = {key: value for key, value in values.data.items() if key in SPEC.fields}
    for part, defaults in _DEFAULTS.items():
        there = spec.get(part, {})
        if isinstance(there, dict):
            spec[part] = _over(defaults, there)
    for path in (("devicePlugin", "config"), ("migManager", "config"), ("dcgmExporter", "config"), ("migManager", "gpuClientsConfig")):  # noqa: E501  # fmt: skip
        outer = spec.get(path[0])
        if isinstance(outer, dict) and isinstance(outer.get(path[1]), dict):
            inner = {key: value for key, value in outer[path[1]].items() if key in ("name", "default")}
            spec[path[0]] = outer | {path[1]: inner}
    for part in ("operator", "driver", "validator"):
        if isinstance(spec.get(part), dict):
            known = SPEC.fields[part].fields
            spec[part] = {key: value for key, value in spec[part].items() if key in known}
    body = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": _POLICY_OF_CHART}}
    return values.having(body | {"spec": spec})


def cluster_policy(document: Document, inputs: Inputs, nodes: tuple[str, ...]) -> Part:
    """The part of a ClusterPolicy whose values are all allowed. ``nodes``: these alone move, by their labels; empty:
    all at once, by the ClusterPolicy.
    """
    spec = document.data.get("spec") or {}
    space = _namespace(document.data)
    mapped = taken(spec)
    serves = _of(spec, "devicePlugin").get("enabled") is not False
    place = {"nodeSelector": {_PLUGIN_ON: "false"}} if nodes else {"affinity": _served(spec)}
    part = Part(mapped.values | (place if serves else {}), agent=serves)
    for key in _OF_DEVICES if not serves else ():
        part.drop(key)
    _files(spec, space, inputs, part)
    part.loses(_lost(spec, mapped, ROWS))
    part.keeps(_kept(spec, ROWS))
    name, enabled = document.data["metadata"]["name"], {each: _of(spec, each).get("enabled") for each in PARTS}
    on = {each: words for each, words in PARTS.items() if enabled[each] is not False}
    for node in nodes:
        for component, (words, label) in on.items():
            key, do = f"nvidia.com/gpu.deploy.{label}", say.leave_node(words, node)
            before = _label_of(inputs, node, key)
            if component == "devicePlugin":
                part.after(handed_over(do, node, key, _PLUGIN_PODS, space, before))
            elif serves and component in _FIRST:
                part.after(labelled(do, node, key, "false", before))
            else:
                part.follow(f"spec.{component}", labelled(do, node, key, "false", before))
    for component, (words, _) in on.items() if not nodes else ():
        ends = (_PLUGIN_PODS, space) if component == "devicePlugin" else None
        step = _switched(words, "clusterpolicies.nvidia.com", name, component, enabled[component], ends)
        if serves and component in _FIRST:
            part.before(step)
        else:
            part.follow(f"spec.{component}", step)
    if "migManager" in on and "mig" not in part.values and not nodes:
        # The operator goes on marking nodes for its MIG manager, which is off.
        part.runs_with([{"name": _MIG_MANAGER, "value": MigManager.AGENT.value}])
    return part


_OF_DEVICES: Final = ("cdi", "compatWithCPUManager", "deviceListStrategy")
"""Values that say how the operator's device plugin gives devices to containers."""


_OF_PLUGIN: Final = {
    "migStrategy": ("mig.strategy", "none"),
    "nvidiaDriverRoot": ("hostPaths.driverInstallDir", "/"),
    "runtimeClassName": ("operator.runtimeClass", ""),
}
"""Values that a device plugin beside the operator has of its own: their paths in ``spec``, and its defaults."""


def with_operator(document: Document, inputs: Inputs, nodes: tuple[str, ...]) -> list[Part]:
    """The part of a ClusterPolicy, and that of NVIDIA's programs beside it. Who serves GPUs comes first: its values
    win, and the agents go where it was.
    """
    part = cluster_policy(document, inputs, nodes)
    space = _namespace(document.data)
    if nodes:
        part.loses(unplanned(inputs, space))
        return [part]
    other = beside_policy(document.data.get("spec") or {}, space, inputs)
    if other.agent and not part.agent:
        for key, (path, usual) in _OF_PLUGIN.items() if plugin_beside(inputs, space) else ():
            value = part.values.get(key)
            if part.drop(key) and value != other.values.get(key, usual):
                part.lose(f"spec.{path}: {value}", say.plugins_own(usual or say.NO_RUNTIME_CLASS))
        return [other, part]
    for key in ("nodeSelector", "affinity"):
        if other.drop(key):
            other.lose(f"{say.PROGRAMS_BESIDE}: {key}", say.other_place(say.OPERATORS_PLUGIN))
    other.loses(differing(part.values, other.values, say.PROGRAMS_BESIDE))
    return [part, other]


def _served(spec: Json) -> Json:
    """The chart's own affinity, without the nodes that the operator gives no device plugin: those that people told to
    do without it, or without all operands, and those of virtual machines where it has such.
    """
    asked: list[Json] = [{"key": key, "operator": "NotIn", "values": ["false"]} for key in (_OPERANDS_ON, _PLUGIN_ON)]
    virtual = _of(spec, "sandboxWorkloads")
    if virtual.get("enabled"):
        # A node without the label has the default.
        if virtual.get("defaultWorkload") in (None, "", "container"):
            asked.append({"key": _WORKLOAD, "operator": "NotIn", "values": list(_VIRTUAL)})
        else:
            asked.append({"key": _WORKLOAD, "operator": "In", "values": ["container"]})
    terms = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}, *asked]} for key, value in GPU_MARKS
    ]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def gpu_cluster(document: Document, inputs: Inputs, nodes: tuple[str, ...]) -> Part:
    """The part of a GPUCluster, as ``cluster_policy``. It has no switch for the driver: the label of nodes has, and
    agents run where it says so.
    """
    spec = document.data.get("spec") or {}
    space = _namespace(document.data)
    mapped = cluster_taken(spec)
    value = "false" if nodes else MOVED
    part = Part(mapped.values | {"nodeSelector": {CLAIMS_ON: value}}, agent=True)
    serve(part)
    exporter = _of(spec, "dcgmExporter")
    if name := _of(exporter, "config").get("name"):
        field_files(inputs, part, space=space, named=name)
    driver = _of(spec, "draDriver")
    plugin = _of(driver, "gpus", "kubeletPlugin")
    variables("spec.draDriver.gpus.kubeletPlugin.env", plugin.get("env"), part)
    part.loses(_lost(spec, mapped, CLUSTER_ROWS))
    part.keeps(_kept(spec, CLUSTER_ROWS))
    gates("spec.draDriver.featureGates", driver.get("featureGates"), part)
    if _of(driver, "computeDomains").get("enabled") is not False:
        part.lose("spec.draDriver.computeDomains", say.DOMAINS_LEAVE)
    objects(inputs, part)
    part.loses(unplanned(inputs, space))
    name, on = document.data["metadata"]["name"], exporter.get("enabled")
    if nodes:
        for node in nodes:
            labels = [(say.leave_node("DRA driver", node), CLAIMS_ON, value)]
            labels += [(say.leave_node("dcgm-exporter", node), _EXPORTER_ON, "false")] if on is not False else []
            for do, key, new in labels:
                part.after(labelled(do, node, key, new, _label_of(inputs, node, key)))
    else:
        part.before(labelled_all(say.LEAVE_NODES, CLAIMS_ON, value, "true"))
        if on is not False:
            part.after(_switched("dcgm-exporter", "gpuclusters.nvidia.com", name, "dcgmExporter", on))
    part.after(layout({CLAIMS_ON: value}, gpus_of(inputs)))
    return part


def _label_of(inputs: Inputs, node: str, key: str) -> str | None:
    """The value of a node's label; the operator's own where the node was not read, None where it has none."""
    for each in inputs.nodes:
        if each.data["metadata"].get("name") == node:
            value = (each.data["metadata"].get("labels") or {}).get(key)
            return None if value is None else str(value)
    return "true"


def _switched(
    words: str, resource: str, name: str, part: str, before: Any, ends: tuple[str, str] | None = None
) -> Step:
    there, back = ({"spec": {part: {"enabled": value}}} for value in (False, before))
    return patched(say.switch_off(words), resource, name, there, back, ends=ends)


def _of(value: Json, *keys: str) -> Json:
    for key in keys:
        value = value.get(key) or {}
    return value


def _files(spec: Json, space: str, inputs: Inputs, part: Part) -> None:
    """The ConfigMaps that a ClusterPolicy names: the agent mounts copies of them."""
    is_on = {each: _of(spec, each).get("enabled") is not False for each in PARTS}
    if (name := _of(spec, "devicePlugin", "config").get("name")) and is_on["devicePlugin"]:
        files = [each for each in inputs.plugin_files if not each.owner or each.owner[1] == name]
        if files:
            plugin_files(inputs, part, named=name)
            default = _of(spec, "devicePlugin", "config").get("default")
            names = {re.sub(r"\.ya?ml$", "", each.name) if not each.owner else each.name for each in files}
            if default and default not in names:
                part.lose("spec.devicePlugin.config.default", say.no_file(default))
        else:
            part.lose("spec.devicePlugin.config", say.MPS)
        part.copied(space, name, say.PLUGIN_CONFIG)
    elif is_on["devicePlugin"]:
        plugin_files(inputs, part)
    name = _of(spec, "migManager", "config").get("name")
    if is_on["migManager"] and (inputs.parted_files or name not in (None, "", _DEFAULT_MIG)):
        parted_files(inputs, part, space=space, named=name if name not in (None, _DEFAULT_MIG) else "")
    name = _of(spec, "dcgmExporter", "config").get("name")
    if is_on["dcgmExporter"] and (name or inputs.field_files):
        field_files(inputs, part, space=space, named=name or "")


def _namespace(data: Json) -> str:
    """The operator's namespace, as it says itself, else as Helm installed it."""
    status, notes = data.get("status") or {}, data["metadata"].get("annotations") or {}
    told = status.get("namespace") or (notes.get(_HELM_NAMESPACE) if isinstance(notes, dict) else None)
    return told if isinstance(told, str) and told else GPU_OPERATOR


def _lost(spec: Json, found: Taken, rows: Mapping[str, Row]) -> list[Told]:
    every = [Told(f"spec.{path}", row.why) for path, row, _ in _given(spec, Fate.LOST, rows)]
    every += [Told(f"spec.{path}", why) for path, why in found.lost]
    return sorted(dict.fromkeys(every), key=lambda each: each.what)


def _kept(spec: Json, rows: Mapping[str, Row]) -> Iterator[Told]:
    for path, row, value in _given(spec, Fate.KEPT, rows):
        if not (isinstance(value, dict) and value.get("enabled") is False):
            yield Told(f"spec.{path}", row.why)


def _given(spec: Json, fate: Fate, rows: Mapping[str, Row]) -> Iterator[tuple[str, Row, Any]]:
    """Path, row and value of the fields with this fate that say something, parts that are off left out."""
    for path, row in rows.items():
        part = path.partition(".")[0]
        if row.fate is not fate or (part in PARTS and _of(spec, part).get("enabled") is False):
            continue
        value: Any = spec
        for key in path.split("."):
            value = (value or {}).get(key)
        if _says_something(value) and value not in row.usual:
            yield path, row, value


def _says_something(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_says_something, value.values()))
    return value not in (None, False, "", [])
