"""The quota of a foreign Queue that a simulated change replaces. Pure."""

import math
from typing import Any, Final

import msgspec

from controller.foreign.objects.kai import KaiQueue
from controller.foreign.objects.volcanoqueue import VolcanoQueue
from controller.objects.quantity import Quantity
from controller.scheduler.mirror.specs import KAI_RESOURCES, KAI_UNITS, QueueOwner, QueueSpec, System
from controller.scheduler.model.podrequests import amounts
from controller.scheduler.model.resources import ResourceName

FOREIGN_QUEUE: Final = "a Queue of Volcano's or KAI's"
"""What a change of quota may name beside a ClusterQueue, in a sentence."""


class NoSuchQuotaError(ValueError):
    """The Queue has no quota of the resource that a change could replace."""


def changeable(spec: QueueSpec, resource: ResourceName) -> float | None:
    """The quota of a mirrored queue that a simulated change replaces, in the engine's amounts; None if it has none."""
    found = spec.quota.get(resource)
    if found is None and spec.system is System.VOLCANO:
        found = spec.limit.get(resource)
    return None if found is None or math.isinf(found) or spec.implied else found


def with_quota(queue: QueueOwner, resource: str, nominal: Quantity) -> QueueOwner:
    """The Queue with another quota: KAI's quota; Volcano's ``deserved``, or its ``capability`` if it has no
    ``deserved`` for the resource. Raises NoSuchQuotaError.
    """
    return _of_kai(queue, resource, nominal) if isinstance(queue, KaiQueue) else _of_volcano(queue, resource, nominal)


def _of_volcano(queue: VolcanoQueue, resource: str, nominal: Quantity) -> VolcanoQueue:
    """The Volcano Queue with the changed quota. A queue that has neither ``deserved`` nor ``capability`` for the
    resource gets none: one that deserves something changes the rules of its whole tree.
    """
    for field in ("deserved", "capability"):
        amounts = getattr(queue.spec, field)
        if resource in amounts:
            changed: dict[str, Any] = {field: {**amounts, resource: nominal}}
            return msgspec.structs.replace(queue, spec=msgspec.structs.replace(queue.spec, **changed))
    name = queue.metadata.name
    problem = f"Queue {name} of Volcano's says neither deserved nor capability of {resource[:63]}"
    raise NoSuchQuotaError(f"{problem}: its share follows from weights")


def _of_kai(queue: KaiQueue, resource: str, nominal: Quantity) -> KaiQueue:
    name = ResourceName(resource)
    if name not in KAI_RESOURCES:
        counted = ", ".join(KAI_RESOURCES)
        raise NoSuchQuotaError(f"KAI counts {counted} of Queue {queue.metadata.name}, found {resource[:63]}")
    field, unit = KAI_UNITS[name]
    resources = queue.spec.resources
    quota = amounts({name: nominal})[name] / unit
    changed: dict[str, Any] = {field: msgspec.structs.replace(getattr(resources, field), quota=quota)}
    replaced = msgspec.structs.replace(resources, **changed)
    return msgspec.structs.replace(queue, spec=msgspec.structs.replace(queue.spec, resources=replaced))
