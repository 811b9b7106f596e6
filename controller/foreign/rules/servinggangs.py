"""Deployments and StatefulSets whose pods are to start together, by Volcano's annotation on the object.

Volcano's controller makes a PodGroup of them. Here the pods of a Deployment are stamped through its template: they name
the group and its minimum themselves. A queued StatefulSet starts as a whole already: it only gets its queue's label.
"""

from typing import Final

from controller.foreign.podgroups.group import MIN_MEMBER
from controller.jobs.framework.foreignmarks import VOLCANO_QUEUES, ForeignQueue
from controller.jobs.framework.podview import SERVING, VOLCANO_GROUPS
from controller.jobs.framework.raw import Json, annotations, strings, text
from controller.jobs.framework.templated import replaced
from controller.jobs.rules import cel
from controller.scheduler.mirror.specs import System

DEPLOYMENT: Final = ("apps/v1", "Deployment")

_AT: Final = ("spec", "template", "metadata", "annotations")
_NAME: Final = "deployment-"
_ASKED: Final = cel.key("object.metadata.?annotations", MIN_MEMBER)


def is_asked(owner: Json) -> bool:
    """Whether the object is to be a gang. Raises JobError."""
    return bool(annotations(owner).get(MIN_MEMBER, ""))


def is_deployment(owner: Json) -> bool:
    return (text(owner, "apiVersion"), text(owner, "kind")) == DEPLOYMENT


def stamped(owner: Json, queue: str) -> Json:
    """A Deployment for this queue with its stamped template; the very same object if it asks for no gang.

    Raises JobError.
    """
    if not is_deployment(owner) or not is_asked(owner):
        return owner
    minimum = annotations(owner)[MIN_MEMBER]
    return replaced(owner, _AT, {**strings(owner, *_AT), **_stamps(owner, minimum, queue)})


def in_queue(owner: Json, queue: ForeignQueue) -> Json:
    """The object as it is stamped for this queue: KAI's queues have no such gangs. Raises JobError."""
    return stamped(owner, queue.name) if queue.system is System.VOLCANO else owner


def _stamps(owner: Json, minimum: str, queue: str) -> dict[str, str]:
    return {
        VOLCANO_GROUPS[0]: f"{_NAME}{text(owner, 'metadata', 'name')}",
        MIN_MEMBER: minimum,
        SERVING: "true",
        VOLCANO_QUEUES[0]: queue,
    }


IS_ASKED: Final = f"{_ASKED} != ''"
"""``is_asked`` in CEL."""


def _patch() -> str:
    values = {
        VOLCANO_GROUPS[0]: f"{cel.quoted(_NAME)} + object.metadata.name",
        MIN_MEMBER: _ASKED,
        SERVING: cel.quoted("true"),
        VOLCANO_QUEUES[0]: "variables.queue",
    }
    above = "object.spec.template.?metadata"
    parts = [
        f"({above}.hasValue() ? [] : [{cel.added(cel.quoted(cel.pointer(*_AT[:-1])), '{}')}])",
        f"({above}.?annotations.hasValue() ? [] : [{cel.added(cel.quoted(cel.pointer(*_AT)), '{}')}])",
    ]
    stamps = ", ".join(cel.added(cel.quoted(cel.pointer(*_AT, key)), value) for key, value in values.items())
    return f"{' + '.join(parts)} + [{stamps}]"


PATCH: Final = _patch()
"""The operations that stamp a Deployment, in CEL; its policy has the variable ``queue``."""
