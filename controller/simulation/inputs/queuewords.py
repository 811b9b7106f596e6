"""A job without a queue: what stands in the label's place, and which queues its namespace has."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from controller.jobframework.names import QUEUE_NAME
from controller.simulation.documents import Document, warned
from controller.simulation.inputs.problems import listed, nearest, shown
from controller.simulation.inputs.sources import Path_

_NAME: Final = QUEUE_NAME.partition("/")[2]
_TEMPLATES: Final = (("spec", "template"), ("spec", "jobTemplate"))
_MAPS: Final = ("labels", "annotations")


def no_queue(document: Document, queues: Collection[str]) -> str:
    """The warning of a job that names no queue and is passed over. ``queues``: those of its namespace."""
    namespace = str(document.data["metadata"].get("namespace", ""))
    expected = (
        f"a LocalQueue of {namespace}: {listed(queues)}" if queues else f"a LocalQueue of {namespace} (it has none)"
    )
    path, found, value = next(_in_its_place(document.data), (("metadata", "labels"), "", None))
    near = nearest(value, queues) if isinstance(value, str) else ""
    meant = f" Did you mean {QUEUE_NAME}: {near}?" if near else ""
    said = f"found {found or 'no label ' + QUEUE_NAME}, expected the label {QUEUE_NAME} with {expected}"
    return warned(document.told(path, f"{said}. It is passed over.{meant}".removesuffix(".")))


def unknown_queue(document: Document, queues: Mapping[str, Collection[str]]) -> str:
    """The warning of a job whose queue is not there; empty where it is, or none is named.

    ``queues``: LocalQueues by namespace.
    """
    metadata = document.data["metadata"]
    namespace, labels = str(metadata.get("namespace") or "default"), metadata.get("labels")
    name = labels.get(QUEUE_NAME) if isinstance(labels, dict) else None
    there = queues.get(namespace, ())
    if not isinstance(name, str) or not name or name in there:
        return ""
    elsewhere = {space for space, names in queues.items() if name in names}
    hint = "Create it, or correct the label."
    if near := nearest(name, there):
        hint += f" Did you mean {near}?"
    elif elsewhere:
        space = nearest(namespace, elsewhere) or min(elsewhere)
        hint = f"Create it, or correct the namespace. Did you mean metadata.namespace: {space}?"
    expected = (
        f"a LocalQueue of {namespace}: {listed(there)}" if there else f"a LocalQueue of {namespace} (it has none)"
    )
    said = f"found {shown(name)}, expected {expected}. {hint}".removesuffix(".")
    return warned(document.told(("metadata", "labels", QUEUE_NAME), said))


def _in_its_place(data: Mapping[str, Any]) -> Iterator[tuple[Path_, str, Any]]:
    """What was likely meant to be the label: its path, what it is, and its value."""
    for path in ((), *_TEMPLATES):
        at: Any = data
        for step in (*path, "metadata"):
            at = at.get(step) if isinstance(at, dict) else None
        for part in _MAPS:
            pairs = at.get(part) if isinstance(at, dict) else None
            for key, value in pairs.items() if isinstance(pairs, dict) else ():
                where = (*path, "metadata", part, str(key))
                if key == QUEUE_NAME and path:
                    yield where, "the queue on the pods' template", value
                elif key != QUEUE_NAME and nearest(str(key).rpartition("/")[2], (_NAME,)):
                    yield where, f"the {part.removesuffix('s')} {str(key)[:63]}", value
