"""Changed quotas of what-if: of ClusterQueues, and of mirrored foreign Queues. Pure."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from controller.cluster.watching.kinds import FOREIGN_QUEUES
from controller.foreign.rules.quotachange import FOREIGN_QUEUE, NoSuchQuotaError, with_quota
from controller.insight.simulation.problems import meant
from controller.objects.meta import KubernetesObject
from controller.objects.quantity import Quantity, QuantityError, parse_quantity
from controller.objects.queues import ClusterQueue
from controller.scheduler.mirror.specs import QueueOwner


class WrongChangeError(ValueError):
    """The question cannot be simulated: a line for each problem."""


class QuotaChange(msgspec.Struct, frozen=True):
    """Another quota, a quantity as Kubernetes writes it. It replaces the nominal quota of a ClusterQueue, or that of
    a foreign Queue which ``with_quota`` says.
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
            expected = f"a ClusterQueue that is there, or {FOREIGN_QUEUE}"
            raise WrongChangeError(f"{said}, expected {expected}{'.' if near else ''}{near}")
        changed[at] = _CHANGES[type(changed[at])](changed[at], change, nominal)
    return changed


def _places(objects: Sequence[KubernetesObject], kind: type[KubernetesObject], name: str) -> Iterable[int]:
    return (at for at, each in enumerate(objects) if type(each) is kind and each.metadata.name == name)


def _of_cluster_queue(queue: ClusterQueue, change: QuotaChange, nominal: Quantity) -> ClusterQueue:
    replace, has_quota = msgspec.structs.replace, False
    groups = []
    for group in queue.spec.resource_groups:
        flavors = []
        for flavor in group.flavors:
            resources = []
            for resource in flavor.resources:
                if (flavor.name, resource.name) == (change.flavor, change.resource):
                    has_quota = True
                    resources.append(replace(resource, nominal_quota=nominal))
                else:
                    resources.append(resource)
            flavors.append(replace(flavor, resources=tuple(resources)))
        groups.append(replace(group, flavors=tuple(flavors)))
    if not has_quota:
        named = f"{change.resource[:63]} of flavor {change.flavor[:63]}"
        raise WrongChangeError(f"quotas: ClusterQueue {change.queue} has no quota of {named}")
    return replace(queue, spec=replace(queue.spec, resource_groups=tuple(groups)))


def _of_foreign(queue: QueueOwner, change: QuotaChange, nominal: Quantity) -> QueueOwner:
    try:
        return with_quota(queue, change.resource, nominal)
    except NoSuchQuotaError as wrong:
        raise WrongChangeError(f"quotas: {wrong}") from None


_CHANGES: Final[dict[type[KubernetesObject], Callable[[Any, QuotaChange, Quantity], KubernetesObject]]] = {
    ClusterQueue: _of_cluster_queue,
    **dict.fromkeys(FOREIGN_QUEUES.values(), _of_foreign),
}
