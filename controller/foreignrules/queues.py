"""The queue of Volcano's or KAI's that a new object is for, in CEL: what the API server itself writes as Kueue's label.

As ``controller.jobframework.foreignmarks`` reads it, with two bounds: templates are looked at where the kinds' table
says that they lie, and no policy sees another object. So what is for the queue of a PodGroup gets no label: a pod is
held all the same, and the controller reads the queue from its group.
"""

import re
from collections.abc import Iterable
from typing import Final

from controller.foreignrules.ruled import System
from controller.jobframework.foreignmarks import KUBEFLOW_QUEUE, SPARK_QUEUE, SPARK_SCHEDULER, VOLCANO_QUEUES
from controller.jobframework.kind import JobKind
from controller.jobframework.podview import KAI_GROUP, KAI_QUEUE, VOLCANO_GROUPS
from controller.jobrules import cel
from inventory.api.names import SCHEDULER_NAME

NAMES: Final = "SCHEDULERS"
"""Stands for the list of names by which pods ask for the system's scheduler: each site has its own."""

_WILD: Final = re.compile(r"(.*?)(\[\]|\{\})\.(.*)")


def _templates(path: str) -> str:
    """A list of the templates at ``path``, see ``JobKind.template_paths``."""
    wild = _WILD.fullmatch(path)
    if wild is None:
        above, last = path.rsplit(".", 1)
        return f"({_optional(path)}.hasValue() ? [dyn(object.{above}.{last})] : [])"
    before, kind, after = wild.groups()
    empty, item = ("[]", "x") if kind == "[]" else ("{}", f"object.{before}[x]")
    there = f"dyn({_optional(before)}.orValue({empty})).filter(x, {cel.field(item, *after.split('.'))}.hasValue())"
    return f"{there}.map(x, dyn({item}.{after}))"


def _optional(path: str) -> str:
    return cel.field("object", *path.split("."))


def _marked(templates: Iterable[str]) -> str:
    """The object, and all templates in it that are of pods."""
    found = " + ".join(map(_templates, templates))
    return f"[dyn(object)] + ({found}).filter(t, t.?spec.?containers.hasValue())"


_LABELS: Final = "t.?metadata.?labels"
_ANNOTATIONS: Final = "t.?metadata.?annotations"


def _first(*values: str) -> str:
    """Of what is marked, in its order, the first of these values that is not empty."""
    return f"string(m.map(t, {cel.any_of(*values)}).filter(s, s != '')[?0].orValue(''))"


def _grouped(*keys: str) -> str:
    return f"{_first(*(cel.key(_ANNOTATIONS, key) for key in keys))} != ''"


_NAMED: Final = f"string({cel.field('t', 'spec', 'schedulerName')}.orValue(''))"
"""A text for the compiler too: the API server's takes no list of what is one and what may be one."""
_SCHEDULER: Final = cel.any_of(cel.key(_ANNOTATIONS, SCHEDULER_NAME), _NAMED)
_BY_SCHEDULER: Final = f"m.exists(t, {_SCHEDULER} in {NAMES})"
_MARKS: Final[dict[System, tuple[str, ...]]] = {
    "volcano": tuple(cel.key(where, key) for key in VOLCANO_QUEUES for where in (_ANNOTATIONS, _LABELS)),
    "kai": (cel.key(_LABELS, KAI_QUEUE),),
}
_GROUPS: Final[dict[System, tuple[str, ...]]] = {"volcano": VOLCANO_GROUPS, "kai": (KAI_GROUP,)}


def _text(*path: str) -> str:
    return f"string({cel.field('object', *path)}.orValue(''))"


def _default(system: System) -> str:
    """Of what names the system's scheduler alone."""
    by_spark = f"{_text(*SPARK_SCHEDULER)} in {NAMES}"
    if system == "kai":
        return cel.when(f"{by_spark} || {_BY_SCHEDULER}", cel.quoted("default-queue"))
    fallback = cel.quoted("default")
    of_kubeflow = cel.when(_BY_SCHEDULER, cel.any_of(_text(*KUBEFLOW_QUEUE), fallback))
    return cel.when(by_spark, cel.any_of(_text(*SPARK_QUEUE), fallback), of_kubeflow)


def queue_of(system: System, kinds: Iterable[JobKind]) -> str:
    """A text, empty where the object is for none of the system's queues, or for that of its PodGroup.

    ``kinds``: those that objects may be of.
    """
    paths = dict.fromkeys(path for kind in kinds for path in kind.template_paths)
    told = cel.any_of(_first(*_MARKS[system]), cel.when(_grouped(*_GROUPS[system]), "''", _default(system)))
    return f"[{_marked(paths)}].map(m, {told})[0]"


def is_grouped(system: System) -> str:
    """Whether a pod that names none of the system's queues is in a PodGroup of it."""
    return f"[[object]].map(m, {_grouped(*_GROUPS[system])} && {_BY_SCHEDULER})[0]"
