"""The queue of Volcano or KAI that a new object is for, in CEL: the API server itself writes it as Kueue's label.

The rules are those of ``controller.jobs.framework.foreignmarks``, with two bounds: only templates on the paths of the
kinds' table are read, and no policy sees another object. So an object for the queue of a PodGroup gets no label: a pod
is held all the same, and the controller reads the queue from its group.
"""

import re
from collections.abc import Iterable
from typing import Final

from controller.foreign.rules.ruled import System
from controller.jobs.framework.foreignmarks import (
    KUBEFLOW_QUEUE,
    SPARK_QUEUE,
    SPARK_SCHEDULER,
    TWO_QUEUES,
    TWO_SCHEDULERS,
    VOLCANO_QUEUES,
)
from controller.jobs.framework.kind import JobKind
from controller.jobs.framework.podview import KAI_GROUP, KAI_QUEUE, VOLCANO_GROUPS
from controller.jobs.rules import cel
from inventory.api.names import SCHEDULER_NAME

NAMES: Final[dict[System, str]] = {"volcano": "VOLCANO_SCHEDULERS", "kai": "KAI_SCHEDULERS"}
"""Placeholders for the list of names by which pods ask for the system's scheduler: each site has its own."""

_WILD: Final = re.compile(r"(.*?)(\[\]|\{\})\.(.*)")


def _templates(path: str) -> str:
    """The list of the templates at ``path`` in CEL, see ``JobKind.template_paths``."""
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
    """The object, and all pod templates in it, in CEL."""
    found = " + ".join(map(_templates, templates))
    return f"[dyn(object)] + ({found}).filter(t, t.?spec.?containers.hasValue())"


_LABELS: Final = "t.?metadata.?labels"
_ANNOTATIONS: Final = "t.?metadata.?annotations"


def _first(*values: str) -> str:
    """The first of these values that is not empty, in the marked object and then its templates, in CEL."""
    return f"string(m.map(t, {cel.any_of(*values)}).filter(s, s != '')[?0].orValue(''))"


_NAMED: Final = f"string({cel.field('t', 'spec', 'schedulerName')}.orValue(''))"
"""The scheduler's name, as a text for the compiler too: the API server's accepts no list of texts and optionals."""
_SCHEDULER: Final = cel.any_of(cel.key(_ANNOTATIONS, SCHEDULER_NAME), _NAMED)


def _text(*path: str) -> str:
    return f"string({cel.field('object', *path)}.orValue(''))"


_SCHEDULERS: Final = f"[{_text(*SPARK_SCHEDULER)}] + m.map(t, string({_SCHEDULER}))"
"""The schedulers that the object names; ``n`` in what follows."""
_MARKS: Final[dict[System, tuple[tuple[str, str], ...]]] = {
    "volcano": tuple((key, cel.key(where, key)) for key in VOLCANO_QUEUES for where in (_ANNOTATIONS, _LABELS)),
    "kai": ((KAI_QUEUE, cel.key(_LABELS, KAI_QUEUE)),),
}
"""Keys under which a queue is named, each with its value."""
_GROUPS: Final[dict[System, tuple[str, ...]]] = {"volcano": VOLCANO_GROUPS, "kai": (KAI_GROUP,)}
_ALL_MARKS: Final[dict[System, tuple[tuple[str, str], ...]]] = {
    "volcano": (*_MARKS["volcano"], *((key, cel.key(_ANNOTATIONS, key)) for key in VOLCANO_GROUPS)),
    "kai": _MARKS["kai"],
}
"""Keys that mark an object as a system's. KAI's pod-group annotation alone does not."""


def _grouped(system: System) -> str:
    """Whether the marked object, or a template, names a PodGroup of the system. KAI's pod-group annotation alone does
    not count.
    """
    is_named = f"{cel.any_of(*(cel.key(_ANNOTATIONS, key) for key in _GROUPS[system]))} != ''"
    if system == "kai":
        is_named += f" && ({_SCHEDULER} in {NAMES[system]} || {_LABELS}[?{cel.quoted(KAI_QUEUE)}].hasValue())"
    return f"m.exists(t, {is_named})"


def _values(marks: Iterable[tuple[str, str]]) -> str:
    return _first(*(value for _, value in marks))


def _named(system: System) -> str:
    """Whether the object names the system's scheduler."""
    return f"n.exists(s, s in {NAMES[system]})"


def _default(system: System) -> str:
    """The queue of an object that names only the system's scheduler."""
    if system == "kai":
        return cel.when(_named(system), cel.quoted("default-queue"))
    fallback = cel.quoted("default")
    by_spark = f"n[0] in {NAMES[system]}"
    of_kubeflow = cel.when(_named(system), cel.any_of(_text(*KUBEFLOW_QUEUE), fallback))
    return cel.when(by_spark, cel.any_of(_text(*SPARK_QUEUE), fallback), of_kubeflow)


def _of(kinds: Iterable[JobKind], told: str) -> str:
    """``told``, with the object's templates as ``m`` and its schedulers as ``n``."""
    paths = dict.fromkeys(path for kind in kinds for path in kind.template_paths)
    return f"[{_marked(paths)}].map(m, [{_SCHEDULERS}].map(n, {told})[0])[0]"


def queue_of(system: System, kinds: Iterable[JobKind]) -> str:
    """The queue as a text; empty if the object is for none of the system's queues, or for that of its PodGroup.

    Empty too if the object is the other system's, or if it is not known which one's it is (``conflict``). ``kinds``:
    the kinds that objects may have.
    """
    other: System = "kai" if system == "volcano" else "volcano"
    own, others = _named(system), _named(other)
    one_is_marked = " || ".join(f"{_values(_ALL_MARKS[each])} == ''" for each in (system, other))
    is_own = f"({own} != {others} ? {own} : !{own} && ({one_is_marked}))"
    queue = cel.any_of(_values(_MARKS[system]), cel.when(_grouped(system), "''", _default(system)))
    return _of(kinds, cel.when(is_own, queue))


def conflict(kinds: Iterable[JobKind]) -> str:
    """Why it is not known which system's the object is, as ``foreignmarks.conflict`` has it; empty if it is known."""
    names = [f"n.filter(s, s in {NAMES[system]})[?0].orValue('')" for system in ("volcano", "kai")]
    marks = [_shown(_ALL_MARKS["volcano"]), _shown(_ALL_MARKS["kai"])]
    of_schedulers = cel.text(
        cel.quoted(f"{TWO_SCHEDULERS}, found "), cel.shown("f[0]"), cel.quoted(" and "), cel.shown("f[1]")
    )
    of_queues = cel.text(cel.quoted(f"{TWO_QUEUES}, found "), "f[0]", cel.quoted(" and "), "f[1]")
    by_scheduler = f"[[{', '.join(names)}]].map(f, f[0] != '' && f[1] != '' ? {of_schedulers} : '')[0]"
    by_mark = f"[[{', '.join(marks)}]].map(f, f[0] != '' && f[1] != '' ? {of_queues} : '')[0]"
    named = f"({' || '.join(map(_named, NAMES))})"
    return _of(kinds, f"({named} ? {by_scheduler} : {by_mark})")


def _shown(marks: Iterable[tuple[str, str]]) -> str:
    """The first mark of the object with its value; empty for none."""
    pairs = ", ".join(f"[{cel.quoted(key)}, string({value})]" for key, value in marks)
    said = cel.text("p[0]", cel.quoted(" "), cel.shown("p[1]"))
    return (
        f"m.map(t, [{pairs}].filter(p, p[1] != '').map(p, {said})[?0].orValue('')).filter(s, s != '')[?0].orValue('')"
    )


def is_grouped(system: System) -> str:
    """Whether a pod that names none of the system's queues is in a PodGroup of it."""
    by_scheduler = f"m.exists(t, {_SCHEDULER} in {NAMES[system]})"
    return f"[[object]].map(m, {_grouped(system)} && {by_scheduler})[0]"
