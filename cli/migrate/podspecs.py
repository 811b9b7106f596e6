"""Where pods of a DaemonSet go, and what they ask of a node, as values of the agent's pods. Pure."""

from typing import Any, Final

from cli.migrate.chartvalues import given
from cli.migrate.inputs import Inputs
from cli.migrate.parts import Json, Part
from cli.words import migrating as say
from controller.insight.simulation.documents import Document
from inventory.api.names import REPLACED

_SAME: Final = ("nodeSelector", "priorityClassName", "runtimeClassName")
_COMPARED: Final = (*_SAME, "affinity", "tolerations")
GPU_MARKS: Final = (
    ("feature.node.kubernetes.io/pci-10de.present", "true"),
    ("feature.node.kubernetes.io/cpu-model.vendor_id", "NVIDIA"),
    ("nvidia.com/gpu.present", "true"),
)
"""Labels of nodes that the chart's own affinity asks for: one of them."""
_PREFIX: Final = "nvidia.com/"


def placed_as(sets: list[Document], inputs: Inputs, part: Part) -> None:
    """The agents go where the first of these DaemonSets is; what others say differently is lost."""
    if not sets:
        return
    first, *others = ((document, _spec(document)) for document in sets)
    spec = first[1]
    for key in _SAME:
        if spec.get(key):
            part.take(key, spec[key])
    part.tolerates(spec.get("tolerations"))
    if spec.get("affinity"):
        part.take("affinity", spec["affinity"])
    elif "affinity" not in part.values and not _are_marked(inputs):
        # The DaemonSet has none: the chart's own would keep the agents from nodes without its labels.
        part.take("affinity", None)
    for document, other in others:
        for key in _COMPARED:
            if (other.get(key) or None) != (spec.get(key) or None):
                part.lose(f"{_name(document)}: {key}", say.other_place(_name(first[0])))
    for document in sets:
        _lost(document, part)


def _lost(document: Document, part: Part) -> None:
    spec = _spec(document)
    if spec.get("hostNetwork"):
        part.lose(f"{_name(document)}: hostNetwork", say.HOST_NETWORK)
    if any(given(each, "resources") for each in spec.get("containers") or ()):
        part.lose(f"{_name(document)}: resources", say.RESOURCES)


def _name(document: Document) -> str:
    return f"DaemonSet {document.data['metadata']['name']}"


def _spec(document: Document) -> Json:
    """The pods' spec, without the label by which a plan holds a DaemonSet still."""
    spec: Json = dict(document.data["spec"]["template"]["spec"])
    selector = spec.get("nodeSelector") or {}
    return spec | {"nodeSelector": {key: value for key, value in selector.items() if key != REPLACED}}


def _are_marked(inputs: Inputs) -> bool:
    """Whether every node that was read and offers GPUs has a label that the chart's own affinity asks for."""
    found = [each.data["metadata"].get("labels") or {} for each in inputs.nodes if _offers(each)]
    return bool(found) and all(any(labels.get(key) == value for key, value in GPU_MARKS) for labels in found)


def _offers(node: Document) -> bool:
    amounts: Any = given(node.data, "status.capacity")
    return isinstance(amounts, dict) and any(str(key).startswith(_PREFIX) for key in amounts)
