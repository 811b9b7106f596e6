"""Changed quotas of what-if: of ClusterQueues, and of mirrored Queues of Volcano and KAI. Pure."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from controller.insight.simulation.problems import meant
from controller.objects.kai import KaiQueue
from controller.objects.meta import KubernetesObject
from controller.objects.quantity import Quantity, QuantityError, parse_quantity
from controller.objects.queues import ClusterQueue
from controller.objects.volcanoqueue import VolcanoQueue
from controller.scheduler.mirror.specs import KAI_RESOURCES, KAI_UNITS
from controller.scheduler.model.podrequests import amounts
from controller.scheduler.model.resources import ResourceName


class WrongChangeError(ValueError):
    """The question cannot be simulated: a line for each problem."""


class QuotaChange(msgspec.Struct, frozen=True):
    """Another quota, a quantity as Kubernetes writes it. It replaces the nominal quota of a ClusterQueue or the quota
    of a KAI Queue; of a Volcano Queue its ``deserved``, or its ``capability`` if it has no ``deserved`` for the
    resource.
    """

    queue: str
    flavor: str
    resource: str
    nominal: str


def with_quotas(objects: Sequence[KubernetesObject], changes: Iterable[QuotaChange]) -> list[KubernetesObject]:
    """The objects with other quotas. Raises WrongChangeError for a quota that does not exist."""
    changed = list(objects)
    for change in changes:
        try:
            nominal = parse_quantity(change.nominal)
        except QuantityError as wrong:
            raise WrongChangeError(f"quotas: nominal of {change.queue[:63]}: {wrong}") from None
        if nominal.nanos < 0:
            raise WrongChangeError(
                f"quotas: nominal of {change.queue[:63]}: found {change.nominal}, expected 0 or more"
            )
        # A ClusterQueue takes its name before a Queue that would be mirrored under it.
        at = next((at for kind in _CHANGES for at in _places(changed, kind, change.queue)), None)
        if at is None:
            said = f"quotas: found queue {change.queue[:63]!r}"
            near = meant(change.queue, {each.metadata.name for each in changed if type(each) in _CHANGES})
            expected = "a ClusterQueue that is there, or a Queue of Volcano's or KAI's"
            raise WrongChangeError(f"{said}, expected {expected}{'.' if near else ''}{near}")
        changed[at] = _CHANGES[type(changed[at])](changed[at], change, nominal)
    return changed


def _places(objects: Sequence[KubernetesObject], kind: type[KubernetesObject], name: str) -> Iterable[int]:
    return (at for at, each in enumerate(objects) if type(each) is kind and each.metadata.name == name)


def _of_cluster_queue(queue: ClusterQueue, change: QuotaChange, nominal: Quantity) -> ClusterQueue:
    replace, found = msgspec.structs.replace, False
    groups = []
    for group in queue.spec.resource_groups:
        flavors = []
        for flavor in group.flavors:
            resources = []
            for resource in flavor.resources:
                if (flavor.name, resource.name) == (change.flavor, change.resource):
                    found = True
                    resources.append(replace(resource, nominal_quota=nominal))
                else:
                    resources.append(resource)
            flavors.append(replace(flavor, resources=tuple(resources)))
        groups.append(replace(group, flavors=tuple(flavors)))
    if not found:
        named = f"{change.resource[:63]} of flavor {change.flavor[:63]}"
        raise WrongChangeError(f"quotas: ClusterQueue {change.queue} has no quota of {named}")
    return replace(queue, spec=replace(queue.spec, resource_groups=tuple(groups)))


def _of_volcano(queue: VolcanoQueue, change: QuotaChange, nominal: Quantity) -> VolcanoQueue:
    """The Volcano Queue with the changed quota. A queue that has neither ``deserved`` nor ``capability`` for the
    resource gets none: one that deserves something changes the rules of its whole tree.
    """
    for field in ("deserved", "capability"):
        said = getattr(queue.spec, field)
        if change.resource in said:
            changed: dict[str, Any] = {field: {**said, change.resource: nominal}}
            return msgspec.structs.replace(queue, spec=msgspec.structs.replace(queue.spec, **changed))
    said = f"quotas: Queue {change.queue} of Volcano's says neither deserved nor capability of {change.resource[:63]}"
    raise WrongChangeError(f"{said}: its share follows from weights")


def _of_kai(queue: KaiQueue, change: QuotaChange, nominal: Quantity) -> KaiQueue:
    resource = ResourceName(change.resource)
    if resource not in KAI_RESOURCES:
        counted = ", ".join(KAI_RESOURCES)
        raise WrongChangeError(f"quotas: KAI counts {counted} of Queue {change.queue}, found {change.resource[:63]}")
    field, unit = KAI_UNITS[resource]
    resources = queue.spec.resources
    quota = amounts({resource: nominal})[resource] / unit
    changed: dict[str, Any] = {field: msgspec.structs.replace(getattr(resources, field), quota=quota)}
    replaced = msgspec.structs.replace(resources, **changed)
    return msgspec.structs.replace(queue, spec=msgspec.structs.replace(queue.spec, resources=replaced))


_CHANGES: Final[dict[type[KubernetesObject], Callable[[Any, QuotaChange, Quantity], KubernetesObject]]] = {
    ClusterQueue: _of_cluster_queue,
    VolcanoQueue: _of_volcano,
    KaiQueue: _of_kai,
}
