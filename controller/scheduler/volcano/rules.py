"""The rules of Volcano's proportion and capacity plugins in one form, and the bound that keeps a job out of its KAI
Queue, in words.

``QueueRules.settle`` determines once in a session what each Queue may have; the other methods answer for one job. Each
is called with a tree that counts everything decided in the session so far.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from controller.scheduler.kai.proportion import limits
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.queues import Amounts, QueueShare, added, subtracted, within
from controller.scheduler.kai.proportion.reclaim import Victims
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.resources import ResourceName
from controller.scheduler.quota.queueusage import written
from controller.scheduler.volcano import proportion
from controller.scheduler.volcano.tree import FairTree

Key = tuple[bool | float | int | str, ...]
"""A sort key of a Queue: smaller keys come first. All keys of one tree have the same form."""
_NONE: Amounts = {}


class Bounds(Protocol):
    """The bounds that keep a job out of its Queue, however much is free."""

    def settle(self, tree: FairTree) -> None:
        """Give each Queue its share and its limit, from what is requested."""

    def refusal(self, tree: FairTree, leaf: QueueName, need: Amounts, *, preemptible: bool) -> str:
        """Why the job may not start in its Queue, however much is free; empty where it may."""


class QueueRules(Bounds, Protocol):
    def key(self, tree: FairTree, name: QueueName, next_job: Amounts = _NONE, victims: Amounts = _NONE) -> Key:
        """The sort key of a Queue among its siblings: the job of the first one is tried next, the job of the last one
        is the first victim.
        """

    def never(self, tree: FairTree, leaf: QueueName, need: Amounts, *, preemptible: bool) -> str:
        """A sentence that the job alone is more than its Queue, or one above, may ever have, so that waiting does not
        help; empty where it is not.
        """

    def may_reclaim(self, tree: FairTree, leaf: QueueName, need: Amounts) -> bool:
        """Whether the job may take from other Queues at all. Limits of Queues above its own may be its victims' too:
        ``refusal`` is called again after these have gone.
        """

    def full(self, tree: FairTree, leaf: QueueName, need: Amounts) -> tuple[QueueName, ResourceName] | None:
        """The lowest Queue above the job's own that cannot take the job, and the resource of which it has too much:
        some victim that holds the resource must be below that Queue. None if all Queues can.
        """

    def allows(self, tree: FairTree, leaf: QueueName, need: Amounts, victims: Victims, *, preemptible: bool) -> bool:
        """Whether the job may take exactly these victims, given in the order of eviction."""


def bounds_for(tree: FairTree) -> Bounds:
    return Kai() if tree.system is System.KAI else rules_for(tree)


def rules_for(tree: FairTree) -> QueueRules:
    """The rules of Volcano's capacity plugin for a tree in which some Queue has ``deserved`` set, else those of its
    proportion plugin.
    """
    return CapacityPlugin() if any(spec.quota for spec in tree.specs.values()) else Proportion()


class Kai:
    """The bound that keeps a job out of its Queue, in words; a turn of gangs (``GangTurn``) decides on
    everything else.
    """

    def settle(self, tree: FairTree) -> None:
        """Sets limits only. The gangs compute their shares themselves, and no bound follows from them."""
        tree.settle(
            {name: {} for name in tree.specs}, {QueueName(spec.name): spec.limit for spec in tree.specs.values()}
        )

    def refusal(self, tree: FairTree, leaf: QueueName, need: Amounts, *, preemptible: bool) -> str:
        found = limits.over(tree.path(leaf), need, preemptible=preemptible)
        if found is None:
            return ""
        reason, queue = found
        over_limit = reason is limits.OverReason.OVER_LIMIT
        bound, has = (queue.limit, queue.allocated) if over_limit else (queue.quota, queue.non_preemptible)
        after = limits.added_to(need, has)
        resource = next(each for each in sorted(after) if not within({each: after[each]}, bound))
        what = "limit" if over_limit else "quota, which is all that non-preemptible jobs may have,"
        return _said(reason.value, queue.name, f"{what} of", resource, bound.get(resource, 0.0), has, need)

    def never(self, tree: FairTree, leaf: QueueName, need: Amounts, *, preemptible: bool) -> str:
        """See ``QueueRules.never``; a Queue's quota bounds jobs that are never preempted."""
        asked = {resource: amount for resource, amount in need.items() if amount > 0.0}
        queues = tree.path(leaf)
        bounds = [queue.limit for queue in queues] + [queue.quota for queue in queues if not preemptible]
        if all(within(asked, bound) for bound in bounds):
            return ""
        return self.refusal(tree, leaf, need, preemptible=preemptible)


def _said(
    reason: str, queue: str, bound_name: str, resource: ResourceName, bound: float, has: Amounts, need: Amounts
) -> str:
    having, most, asked = (written(resource, amount) for amount in (has.get(resource, 0.0), bound, need[resource]))
    return f"{reason}: Queue {queue} has {having} {resource} of its {bound_name} {most} and the job asks for {asked}"


class _Volcano:
    """What both of Volcano's plugins share."""

    def key(self, tree: FairTree, name: QueueName, next_job: Amounts = _NONE, victims: Amounts = _NONE) -> Key:  # noqa: ARG002
        spec, queue = tree.specs[name], tree.queues[name]
        return -spec.priority, proportion.order_share(queue, queue.fair_share), spec.created_s, spec.name

    def _limits(self, tree: FairTree) -> dict[QueueName, Amounts]:
        limit_of: dict[QueueName, Amounts] = {}
        for parent, siblings in tree.downwards():
            guaranteed: Amounts = {}
            for name in siblings:
                guaranteed = added(guaranteed, tree.specs[name].guarantee)
            total = tree.total if parent is None else limit_of[parent]
            for name in siblings:
                spec = tree.specs[name]
                limit_of[name] = proportion.real_limit(total, spec.limit, spec.guarantee, guaranteed)
        return limit_of

    def full(self, tree: FairTree, leaf: QueueName, need: Amounts) -> tuple[QueueName, ResourceName] | None:
        for queue in tree.path(leaf)[-2::-1]:
            resource = proportion.beyond(queue, need, queue.limit)
            if resource is not None:
                return queue.name, resource
        return None

    def _over_limit(self, queues: Iterable[QueueShare], need: Amounts) -> str:
        for queue in queues:
            resource = proportion.beyond(queue, need, queue.limit)
            if resource is not None:
                bound = queue.limit[resource]
                return _said("OverCapability", queue.name, "capability of", resource, bound, queue.allocated, need)
        return ""

    def never(self, tree: FairTree, leaf: QueueName, need: Amounts, *, preemptible: bool) -> str:  # noqa: ARG002
        return self._over_limit(
            (queue for queue in tree.path(leaf) if any(need[name] > queue.limit.get(name, math.inf) for name in need)),
            need,
        )

    def allows(
        self,
        tree: FairTree,
        leaf: QueueName,  # noqa: ARG002
        need: Amounts,
        victims: Victims,
        *,
        preemptible: bool,  # noqa: ARG002
    ) -> bool:
        return all(self._may_lose(tree, name, need, taken) for name, taken in victims.items())

    def _may_lose(self, tree: FairTree, name: QueueName, need: Amounts, taken: Sequence[Amounts]) -> bool:
        spec, queue = tree.specs[name], tree.queues[name]
        if not spec.reclaimable:
            return False
        has: Amounts = queue.allocated
        for amounts in taken:
            if not proportion.is_victim(has, amounts, need, queue.fair_share, spec.guarantee):
                return False
            has = subtracted(has, amounts)
        return True


class Proportion(_Volcano):
    """The proportion plugin. It has no hierarchy: a Queue with others below it bounds them only by its capability."""

    def settle(self, tree: FairTree) -> None:
        limits_ = self._limits(tree)
        shares: dict[QueueName, dict[ResourceName, float]] = {name: {} for name in tree.specs}
        for resource in tree.resources():
            askers = [
                proportion.VolcanoQueueRequest(
                    queue=name,
                    weight=tree.specs[name].weight_of(resource),
                    request=tree.requested[name].get(resource, 0.0),
                    limit=limits_[name].get(resource, math.inf),
                    guarantee=tree.specs[name].guarantee.get(resource, 0.0),
                )
                for name in sorted(tree.leaves)
                if tree.requested[name]
            ]
            for name, part in proportion.by_weight(tree.total[resource], askers).items():
                shares[name][resource] = part
        tree.settle(shares, limits_)

    def refusal(self, tree: FairTree, leaf: QueueName, need: Amounts, *, preemptible: bool) -> str:  # noqa: ARG002
        return self._over_share(tree.queues[leaf], need) or self._over_limit(tree.path(leaf), need)

    def _over_share(self, queue: QueueShare, need: Amounts) -> str:
        resource = proportion.beyond(queue, need, queue.fair_share)
        if resource is None:
            return ""
        bound = queue.fair_share[resource]
        return _said("OverDeserved", queue.name, "part by weight of", resource, bound, queue.allocated, need)

    def may_reclaim(self, tree: FairTree, leaf: QueueName, need: Amounts) -> bool:
        queue = tree.queues[leaf]
        return not (self._over_share(queue, need) or self._over_limit((queue,), need))


class CapacityPlugin(_Volcano):
    """The capacity plugin. The share of a Queue is its ``deserved``, whatever is requested."""

    def settle(self, tree: FairTree) -> None:
        tree.settle({QueueName(spec.name): spec.quota for spec in tree.specs.values()}, self._limits(tree))

    def refusal(self, tree: FairTree, leaf: QueueName, need: Amounts, *, preemptible: bool) -> str:  # noqa: ARG002
        return self._over_limit(tree.path(leaf), need)

    def may_reclaim(self, tree: FairTree, leaf: QueueName, need: Amounts) -> bool:
        queue = tree.queues[leaf]
        return proportion.deserves(queue, need) and not self._over_limit((queue,), need)
