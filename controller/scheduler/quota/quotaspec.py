"""Makes the quota node's spec of a ClusterQueue or Cohort object, and such objects with other quotas."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from controller.objects.quantity import Quantity
from controller.objects.queues import ClusterQueue, Cohort, FairSharing, ResourceGroup, ResourceQuota
from controller.scheduler.model.podrequests import amount_of
from controller.scheduler.model.resources import Amount, CohortName, FlavorName, FlavorResource, ResourceName
from controller.scheduler.quota.cells import NO_QUOTA, Quota
from controller.scheduler.quota.quotanode import QuotaNodeSpec

QuotaOwner = TypeVar("QuotaOwner", bound=ClusterQueue | Cohort)


def requoted(owner: QuotaOwner, change: Callable[[FlavorResource, ResourceQuota], ResourceQuota]) -> QuotaOwner:
    """The object with what ``change`` makes of the quota of each flavor and resource."""
    replace = msgspec.structs.replace
    groups = []
    for group in owner.spec.resource_groups:
        flavors = []
        for flavor in group.flavors:
            pairs = (
                (FlavorResource(FlavorName(flavor.name), ResourceName(each.name)), each) for each in flavor.resources
            )
            flavors.append(replace(flavor, resources=tuple(change(fr, quota) for fr, quota in pairs)))
        groups.append(replace(group, flavors=tuple(flavors)))
    return replace(owner, spec=replace(owner.spec, resource_groups=tuple(groups)))


def cluster_queue_spec(cluster_queue: ClusterQueue) -> QuotaNodeSpec:
    """The spec of a ClusterQueue's node. Without a cohort there is no parent, and no weight means 1. A resource that
    the group covers and a flavor leaves out has a quota of 0 there: the API refuses such an object, but a file may
    still hold one.
    """
    spec = cluster_queue.spec
    own = _spec(spec.cohort_name, spec.resource_groups, spec.fair_sharing)
    covered = {
        FlavorResource(FlavorName(flavor.name), ResourceName(name)): NO_QUOTA
        for group in spec.resource_groups
        for flavor in group.flavors
        for name in group.covered_resources
    }
    if covered.keys() <= own.quotas.keys():
        return own
    return msgspec.structs.replace(own, quotas={**covered, **own.quotas})


def cohort_spec(cohort: Cohort) -> QuotaNodeSpec:
    spec = cohort.spec
    return _spec(spec.parent_name, spec.resource_groups, spec.fair_sharing)


def _spec(parent: str, groups: Iterable[ResourceGroup], fair_sharing: FairSharing | None) -> QuotaNodeSpec:
    weight = fair_sharing.weight if fair_sharing is not None else None
    return QuotaNodeSpec(
        parent=CohortName(parent) if parent else None,
        quotas={
            FlavorResource(FlavorName(flavor.name), ResourceName(resource.name)): Quota(
                nominal=amount_of(resource.name, resource.nominal_quota),
                borrowing_limit=_limit(resource.name, resource.borrowing_limit),
                lending_limit=_limit(resource.name, resource.lending_limit),
            )
            for group in groups
            for flavor in group.flavors
            for resource in flavor.resources
        },
        weight=1.0 if weight is None else float(weight.fraction),
    )


def _limit(resource: str, limit: Quantity | None) -> Amount | None:
    return None if limit is None else amount_of(resource, limit)
