"""The queue of Volcano's or KAI's that a new object is for, in CEL: what the API server itself writes as Kueue's label.

As ``controller.jobframework.foreignmarks`` reads it, with two bounds: templates are looked at where they are
``spec.template``, and no policy sees another object. So what is for the queue of a PodGroup gets no label: a pod is
held all the same, and the controller reads the queue from its group.
"""

from typing import Final

from controller.foreignrules.ruled import System
from controller.jobframework.foreignmarks import VOLCANO_QUEUES
from controller.jobframework.podview import KAI_GROUP, KAI_QUEUE, VOLCANO_GROUPS
from controller.jobrules import cel
from inventory.api.names import SCHEDULER_NAME

NAMES: Final = "SCHEDULERS"
"""Stands for the list of names by which pods ask for the system's scheduler: each site has its own."""

_METADATA: Final = ("object.metadata", "object.?spec.?template.?metadata")
_SPECS: Final = ("object.?spec", "object.?spec.?template.?spec")


def _marked(where: str, *keys: str) -> str:
    """What the object says under these keys of ``where``, else its template.

    A text for the compiler too: the API server's takes no list or choice of what is one and what may be one.
    """
    return f"string({cel.any_of(*(cel.key(f'{metadata}.?{where}', key) for metadata in _METADATA for key in keys))})"


def _by_scheduler() -> str:
    kept = [cel.key(f"{metadata}.?annotations", SCHEDULER_NAME) for metadata in _METADATA]
    named = [f"string({spec}.?schedulerName.orValue(''))" for spec in _SPECS]
    return f"[{', '.join([*kept, *named])}].exists(s, s in {NAMES})"


def _grouped(*keys: str) -> str:
    return f"{_marked('annotations', *keys)} != ''"


def _default(queue: str, *groups: str) -> str:
    """Of what names the system's scheduler alone: what is in a PodGroup is for the group's queue."""
    return cel.when(_grouped(*groups), "''", cel.when(_by_scheduler(), cel.quoted(queue)))


def _of_volcano() -> str:
    said = [_marked(where, *VOLCANO_QUEUES) for where in ("annotations", "labels")]
    return cel.any_of(*said, _default("default", *VOLCANO_GROUPS))


QUEUE: Final[dict[System, str]] = {
    "volcano": _of_volcano(),
    "kai": cel.any_of(_marked("labels", KAI_QUEUE), _default("default-queue", KAI_GROUP)),
}
"""A text, empty where the object is for none of the system's, or for that of its PodGroup."""
GROUPED: Final[dict[System, str]] = {
    "volcano": f"{_grouped(*VOLCANO_GROUPS)} && {_by_scheduler()}",
    "kai": f"{_grouped(KAI_GROUP)} && {_by_scheduler()}",
}
"""Whether a pod that names none of the system's queues is in a PodGroup of it."""
