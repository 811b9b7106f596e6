"""A job without a queue: what stands in the label's place, and which queues its namespace has."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from controller.insight.simulation.documents import Document, warned
from controller.insight.simulation.problems import expected_one, nearest, shown
from controller.insight.simulation.sources import Path_
from controller.jobs.framework.names import QUEUE_NAME

_DOMAIN, _, _NAME = QUEUE_NAME.partition("/")
_LABEL: Final = ("metadata", "labels", QUEUE_NAME)
_TEMPLATES: Final = (("spec", "template"), ("spec", "jobTemplate"))
_MAPS: Final = ("labels", "annotations")


def passed_over(document: Document, queues: Collection[str]) -> str:
    """The warning of a job that names no queue and is left out. ``queues``: the LocalQueues of its namespace."""
    return warned(no_queue(document, queues, "It is passed over"))


def no_queue(document: Document, queues: Collection[str], next_step: str = "Write the label") -> str:
    """The line of a job that names no queue."""
    namespace = str(document.data["metadata"].get("namespace", ""))
    nothing = (("metadata", "labels"), f"no label {QUEUE_NAME}", None)
    return _no_queue(document, queues, namespace, next(_in_its_place(document.data), nothing), next_step)


def _no_queue(
    document: Document, queues: Collection[str], namespace: str, instead: tuple[Path_, str, Any], next_step: str
) -> str:
    """``instead``: the path of what stands in the label's place, what it is, and its value."""
    expected = expected_one(f"LocalQueue of {namespace}", queues, "it has none")
    path, found, value = instead
    near = nearest(value, queues) if isinstance(value, str) else ""
    meant = f". Did you mean {QUEUE_NAME}: {near}?" if near else ""
    return document.told(path, f"found {found}, expected the label {QUEUE_NAME} with {expected}. {next_step}{meant}")


_BY_SPEC: Final = ("CapacityRequest", "Workload")
"""Kinds whose spec names the LocalQueue."""


def mistaken_label(document: Document, queues: Collection[str], namespace: str = "") -> str:
    """The line of an object that names no queue and has a label or annotation of its own that is almost the one which
    does; empty for any other.
    """
    own = [each for each in _in_its_place(document.data) if each[0][0] == "metadata"]
    if queue_of(document)[1] or not own or any(path[-1] == QUEUE_NAME for path, _, _ in own):
        return ""
    return _no_queue(document, queues, namespace, own[0], "Correct it")


def queue_of(document: Document) -> tuple[Path_, str]:
    """The path of the LocalQueue that the object names, and its name; empty where it names none."""
    data = document.data
    labels, spec = data["metadata"].get("labels"), data.get("spec")
    path, given = (("spec", "queueName"), spec) if document.kind in _BY_SPEC else (_LABEL, labels)
    name = given.get(path[-1]) if isinstance(given, dict) else None
    return path, name if isinstance(name, str) else ""


def unknown_queue(document: Document, queues: Mapping[str, Collection[str]], *, namespace: str | None = None) -> str:
    """The warning of a job whose queue does not exist; empty if it exists, or none is named.

    ``queues``: LocalQueues by namespace. ``namespace``: where the object goes; None: the namespace that it names.
    """
    namespace = namespace or str(document.data["metadata"].get("namespace") or "default")
    path, name = queue_of(document)
    there = queues.get(namespace, ())
    if not name or name in there:
        return ""
    elsewhere = {space for space, names in queues.items() if name in names}
    hint = f"Create it, or correct the {'label' if path == _LABEL else 'name'}."
    if near := nearest(name, there):
        hint += f" Did you mean {near}?"
    elif elsewhere:
        space = nearest(namespace, elsewhere) or min(elsewhere)
        hint = f"Create it, or correct the namespace. Did you mean metadata.namespace: {space}?"
    expected = expected_one(f"LocalQueue of {namespace}", there, "it has none")
    said = f"found {shown(name)}, expected {expected}. {hint}".removesuffix(".")
    return warned(document.told(path, said))


def _in_its_place(data: Mapping[str, Any]) -> Iterator[tuple[Path_, str, Any]]:
    """Labels, annotations and fields that were likely meant to be the label: path, what it is, and value."""
    for path in ((), *_TEMPLATES):
        at: Any = data
        for step in (*path, "metadata"):
            at = at.get(step) if isinstance(at, dict) else None
        for part in _MAPS:
            pairs = at.get(part) if isinstance(at, dict) else None
            for key, value in pairs.items() if isinstance(pairs, dict) else ():
                where = (*path, "metadata", part, str(key))
                if key == QUEUE_NAME:
                    yield where, "the queue on the pods' template" if path else shown(value), value
                elif _is_almost(str(key)):
                    yield where, f"the {part.removesuffix('s')} {str(key)[:63]}", value


def _is_almost(key: str) -> bool:
    """Whether a key is a misspelling of the label. The label of a foreign queue is another one, not a
    misspelling.
    """
    domain, _, name = key.rpartition("/")
    return bool(nearest(name, (_NAME,))) and (not domain or bool(nearest(domain, (_DOMAIN,))))
