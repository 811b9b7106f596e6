"""What a ClusterQueue's status says of its quota: how much of each flavor is reserved, how much is used by admitted
workloads, and how much of either is borrowed.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final

from controller.objects.quantity import MILLI_IN_NANO, NANO, Format, Quantity
from controller.objects.queues import FlavorUsage, ResourceUsage
from controller.scheduler.model.resources import CPU, UNLIMITED, Amount, FlavorResource, ResourceName
from controller.scheduler.quota.queuestate import Holder, QueueState

_MEBI: Final = 1 << 20
_MEGA: Final = 10**6
_BINARY = ("memory", "ephemeral-storage", "storage")


def quantity_of(resource: ResourceName, amount: Amount) -> Quantity:
    """An engine amount as the API writes it."""
    if resource == CPU:
        return Quantity(amount * MILLI_IN_NANO)
    binary = resource in _BINARY or resource.startswith("hugepages-")
    return Quantity(amount * NANO, Format.BINARY_SI if binary else Format.DECIMAL_SI)


def written(resource: ResourceName, amount: float) -> str:
    """An amount, which may be a fraction, as people write it: cores, and bytes to the mebibyte."""
    if math.isinf(amount):
        return "no limit"
    whole = round(amount)
    quantity = quantity_of(resource, whole)
    if quantity.format is Format.BINARY_SI and whole >= _MEBI and whole % _MEBI:
        decimal = whole % _MEGA == 0
        return str(Quantity(whole * NANO) if decimal else quantity_of(resource, whole // _MEBI * _MEBI))
    return str(quantity) if resource == CPU or whole == amount else f"{amount:g}"


def reservation(state: QueueState) -> tuple[FlavorUsage, ...]:
    """``status.flavorsReservation``: the usage of all workloads with quota."""
    return shown(state, sums(state.holders.values())[0])


def usage(state: QueueState) -> tuple[FlavorUsage, ...]:
    """``status.flavorsUsage``: the usage of admitted workloads only."""
    return shown(state, sums(state.holders.values())[1])


def sums(holders: Iterable[Holder]) -> tuple[dict[FlavorResource, Amount], dict[FlavorResource, Amount]]:
    """What the holders have reserved, and what the admitted ones of them use."""
    reserved: dict[FlavorResource, Amount] = {}
    used: dict[FlavorResource, Amount] = {}
    for holder in holders:
        for fr, amount in holder.usage.items():
            reserved[fr] = min(reserved.get(fr, 0) + amount, UNLIMITED)
            if holder.admitted:
                used[fr] = min(used.get(fr, 0) + amount, UNLIMITED)
    return reserved, used


def shown(state: QueueState, totals: Mapping[FlavorResource, Amount]) -> tuple[FlavorUsage, ...]:
    """The totals in the order of ``resourceGroups``; what no group names any more is not shown. A queue without a
    cohort never borrows.
    """
    spec, shown_groups = state.node.spec, []
    for group in state.groups:
        for flavor in group.flavors:
            resources = []
            for resource in group.resources:
                fr = FlavorResource(flavor, resource)
                quota = spec.quotas.get(fr) if spec is not None else None
                total = totals.get(fr, 0)
                borrows = state.node.parent is not None and quota is not None
                borrowed = max(0, total - quota.nominal) if borrows and quota is not None else 0
                total_, borrowed_ = quantity_of(resource, total), quantity_of(resource, borrowed)
                resources.append(ResourceUsage(name=resource, total=total_, borrowed=borrowed_))
            shown_groups.append(FlavorUsage(name=flavor, resources=tuple(resources)))
    return tuple(shown_groups)
