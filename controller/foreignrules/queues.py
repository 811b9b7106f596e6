"""The queue of Volcano's or KAI's that a new object is for, in CEL: what the API server itself writes as Kueue's label.

As ``controller.jobframework.foreignmarks`` reads it, with two bounds: templates are looked at where they are
``spec.template``, and no policy sees another object, so what is for the queue of a PodGroup of Volcano's gets no label.
"""

from typing import Final

from controller.foreignrules.ruled import System
from controller.jobframework.foreignmarks import KAI_QUEUE, VOLCANO_QUEUES
from controller.jobframework.podview import VOLCANO_GROUPS
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


def _by_scheduler(queue: str) -> str:
    kept = [cel.key(f"{metadata}.?annotations", SCHEDULER_NAME) for metadata in _METADATA]
    named = [f"string({spec}.?schedulerName.orValue(''))" for spec in _SPECS]
    return cel.when(f"[{', '.join([*kept, *named])}].exists(s, s in {NAMES})", cel.quoted(queue))


def _of_kai() -> str:
    return cel.any_of(_marked("labels", KAI_QUEUE), _by_scheduler("default-queue"))


def _of_volcano() -> str:
    said = [_marked(where, *VOLCANO_QUEUES) for where in ("annotations", "labels")]
    grouped = f"{_marked('annotations', *VOLCANO_GROUPS)} != ''"
    return cel.any_of(*said, cel.when(grouped, "''", _by_scheduler("default")))


QUEUE: Final[dict[System, str]] = {"volcano": _of_volcano(), "kai": _of_kai()}
"""A text, empty where the object is for none of the system's."""
