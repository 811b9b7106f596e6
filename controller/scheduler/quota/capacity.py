"""Quotas as shares of the live, healthy capacity of each flavor.

A ClusterQueue or Cohort carries ``tessera.dev/quota-shares: {"a100": {"nvidia.com/gpu": "50%"}}``; instead of the
``nominalQuota`` of that flavor and resource this share of the allocatable amount of all Ready, schedulable nodes with
the flavor's labels counts. A node agent advertises only healthy devices, so a GPU that fails leaves the quota within a
second, and one that comes back returns to it. What the annotation does not name keeps its ``nominalQuota``. A flavor
with a node template counts as if all nodes were there that it may have.

Methods take a node and return the changed flavors; sums are kept, so a node costs one step for each flavor it belongs
to.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

import msgspec

from controller.objects.alike import one_dict, one_set
from controller.objects.core import Node
from controller.objects.queues import ResourceFlavor, ResourceQuota
from controller.scheduler.model.nodetemplate import NodeTemplateError, template_of
from controller.scheduler.model.podrequests import amounts
from controller.scheduler.model.resources import UNLIMITED, Amount, FlavorName, FlavorResource, ResourceName
from controller.scheduler.quota.queueusage import quantity_of
from controller.scheduler.quota.quotaspec import QuotaOwner, requoted
from inventory.api.names import QUOTA_SHARES

_PERCENT: Final = re.compile(r"(\d{1,7}(?:\.\d{1,4})?)%", re.ASCII)
_MAX_LENGTH: Final = 65_536


class QuotaShareError(ValueError):
    """The annotation cannot be used; the message is one line that says where and what was expected. The nominal quotas
    count.
    """


class Capacity:
    """Allocatable amounts by flavor, over the nodes that can take pods."""

    def __init__(self, *, coming: bool = False) -> None:
        """``coming``: flavors' node templates count."""
        self._comes = coming
        self._greatest: dict[FlavorName, Mapping[ResourceName, Amount]] = {}
        """What the nodes of a flavor with a template offer when all have come."""
        self._flavors: dict[FlavorName, Mapping[str, str]] = {}
        self._nodes: dict[str, Node] = {}
        self._counted: dict[str, tuple[frozenset[FlavorName], Mapping[ResourceName, Amount]]] = {}
        self._sums: dict[FlavorName, dict[ResourceName, Amount]] = {}

    def of(self, fr: FlavorResource) -> Amount:
        """What the flavor's nodes offer, those to come included; 0 where there are none."""
        there = self._sums.get(fr.flavor, {}).get(fr.resource, 0)
        return max(there, self._greatest[fr.flavor].get(fr.resource, 0)) if fr.flavor in self._greatest else there

    def of_flavor(self, flavor: FlavorName) -> Mapping[ResourceName, Amount]:
        """What the flavor's nodes that are there offer, by resource."""
        return self._sums.get(flavor, {})

    def set_node(self, node: Node) -> frozenset[FlavorName]:
        """Store a node. Returns the flavors whose capacity changed."""
        name = node.metadata.name
        self._nodes[name] = node
        flavors = one_set(self._flavors_of(node)) if node.takes_pods else frozenset[FlavorName]()
        return self._count(name, flavors, one_dict(amounts(node.status.allocatable)))

    def remove_node(self, name: str) -> frozenset[FlavorName]:
        self._nodes.pop(name, None)
        return self._count(name, frozenset(), {})

    def set_flavor(self, flavor: ResourceFlavor) -> frozenset[FlavorName]:
        name = FlavorName(flavor.metadata.name)
        greatest = _greatest(flavor) if self._comes else {}
        if self._flavors.get(name) == flavor.spec.node_labels and self._greatest.get(name, {}) == greatest:
            return frozenset()
        self._greatest.pop(name, None)
        if greatest:
            self._greatest[name] = greatest
        self._flavors[name] = flavor.spec.node_labels
        self._recount()
        return frozenset({name})

    def remove_flavor(self, name: FlavorName) -> frozenset[FlavorName]:
        self._greatest.pop(name, None)
        if self._flavors.pop(name, None) is None:
            return frozenset()
        self._recount()
        return frozenset({name})

    def validate(self) -> None:
        """Recompute the sums; AssertionError for a difference."""
        sums: dict[FlavorName, dict[ResourceName, Amount]] = {}
        for flavors, offered in self._counted.values():
            for flavor in flavors:
                for resource, amount in offered.items():
                    sums.setdefault(flavor, {})[resource] = sums.get(flavor, {}).get(resource, 0) + amount
        current = {
            flavor: {name: amount for name, amount in found.items() if amount} for flavor, found in self._sums.items()
        }
        recomputed = {
            flavor: {name: amount for name, amount in made.items() if amount} for flavor, made in sums.items()
        }
        if {key: amount for key, amount in current.items() if amount} != {
            key: amount for key, amount in recomputed.items() if amount
        }:
            raise AssertionError(f"capacity kept {current}, nodes offer {recomputed}")

    def _recount(self) -> None:
        for node in tuple(self._nodes.values()):
            self.set_node(node)

    def _flavors_of(self, node: Node) -> list[FlavorName]:
        labels = node.metadata.labels.items()
        return [name for name, wanted in self._flavors.items() if wanted.items() <= labels]

    def _count(
        self, name: str, flavors: frozenset[FlavorName], offered: Mapping[ResourceName, Amount]
    ) -> frozenset[FlavorName]:
        before = self._counted.pop(name, (frozenset[FlavorName](), {}))
        if flavors:
            self._counted[name] = (flavors, offered)
        if before == (flavors, offered):
            return frozenset()
        for sign, (named, amounts_) in ((-1, before), (1, (flavors, offered))):
            for flavor in named:
                sums = self._sums.setdefault(flavor, {})
                for resource, amount in amounts_.items():
                    sums[resource] = sums.get(resource, 0) + sign * amount
        return before[0] | flavors


def _greatest(flavor: ResourceFlavor) -> Mapping[ResourceName, Amount]:
    """What all nodes offer that the flavor's template says can be there at once; empty without one."""
    try:
        template = template_of(flavor)
    except NodeTemplateError:
        return {}
    if template is None or flavor.spec.topology_name is None:
        return {}
    return {name: min(amount * template.most, UNLIMITED) for name, amount in template.amounts.items()}


def shares_of(annotations: Mapping[str, str]) -> dict[FlavorResource, Fraction]:
    """The shares of the annotation, as fractions of 1. Raises QuotaShareError."""
    text = annotations.get(QUOTA_SHARES)
    if text is None:
        return {}
    try:
        read = msgspec.json.decode(text[:_MAX_LENGTH], type=dict[str, dict[str, str]])
    except (msgspec.DecodeError, RecursionError) as error:
        raise QuotaShareError(
            f'{QUOTA_SHARES}: expected {{"flavor": {{"resource": "50%"}}}}, found {text[:80]!r} ({error})'
        ) from None
    shares = {}
    for flavor, resources in read.items():
        for resource, share in resources.items():
            match = _PERCENT.fullmatch(share)
            if match is None:
                raise QuotaShareError(
                    f"{QUOTA_SHARES}: {flavor}/{resource}: expected a share like '50%', found {share[:40]!r}"
                )
            shares[FlavorResource(FlavorName(flavor), ResourceName(resource))] = Fraction(match[1]) / 100
    return shares


def resolved(owner: QuotaOwner, capacity: Capacity) -> QuotaOwner:
    """``owner`` with its shares as nominal quotas, rounded down. Raises QuotaShareError; the object then counts
    unchanged. A lending limit above the resulting quota is harmless: no queue lends more than it has.
    """
    shares = shares_of(owner.metadata.annotations)
    if not shares:
        return owner
    named: set[FlavorResource] = set()

    def shared(fr: FlavorResource, quota: ResourceQuota) -> ResourceQuota:
        named.add(fr)
        share = shares.get(fr)
        if share is None:
            return quota
        nominal = min(int(capacity.of(fr) * share), UNLIMITED)
        return msgspec.structs.replace(quota, nominal_quota=quantity_of(fr.resource, nominal))

    made = requoted(owner, shared)
    unknown = sorted(shares.keys() - named)
    if unknown:
        raise QuotaShareError(
            f"{QUOTA_SHARES}: {unknown[0].flavor}/{unknown[0].resource} is in none of the resource groups"
        )
    return made
