"""Variants of one job, each allowed other flavors, of which one runs at a time (KEP-8691, concurrent admission).

A variant is owned by the Workload of the job. The earlier its flavor stands in the ClusterQueue's list, the better the
variant: one that can start replaces worse ones, and none starts beside a better one.
"""

from collections.abc import Iterable

from controller.objects.workload import Workload
from controller.scheduler.cluster.incoming import PreemptionReason, Target
from controller.scheduler.decisions.records import Rule
from controller.scheduler.decisions.sentences import listed
from controller.scheduler.model.resources import FlavorName
from controller.scheduler.queues.entry import Entry
from controller.scheduler.quota.queuestate import Holder, QueueState

Found = tuple[Rule, str, tuple[Target, ...]]


def job_of(workload: Workload) -> str | None:
    """The uid of the Workload that ``workload`` is a variant of; None for one that is no variant."""
    for owner in workload.metadata.owner_references:
        if owner.controller and owner.kind == "Workload":
            return owner.uid
    return None


def against(entry: Entry) -> Found | None:
    """The decision that other variants with quota mean for this one: the rule, its detail, the victims. None if they do
    not decide.
    """
    queue, workload = entry.incoming.queue, entry.incoming.info.workload
    job = job_of(workload)
    if job is None:
        return None
    siblings = [
        holder for holder in queue.holders.values() if job_of(holder.info.workload) == job and holder.key != entry.key
    ]
    if not siblings:
        return None
    ranks = {flavor: rank for group in queue.groups for rank, flavor in enumerate(group.flavors)}
    own = [choice.flavor for pod_set in entry.assignment.pod_sets for choice in pod_set.choices.values()]
    rank = _worst(own, ranks)
    better = [holder for holder in siblings if _worst(_flavors(holder), ranks) <= rank]
    if better:
        return Rule.BETTER_VARIANT_ADMITTED, listed(holder.key for holder in better), ()
    if not _acceptable(queue, rank, ranks):
        return Rule.VARIANT_NOT_ACCEPTABLE, ", ".join(sorted(set(own))), ()
    targets = tuple(Target(holder, PreemptionReason.IN_CLUSTER_QUEUE) for holder in siblings)
    return Rule.MIGRATES, listed(holder.key for holder in siblings), targets


def _acceptable(queue: QueueState, rank: int, ranks: dict[FlavorName, int]) -> bool:
    """Whether the queue's policy lets a variant of this rank replace a running one."""
    policy = queue.object.spec.concurrent_admission_policy
    if policy is None:
        return True
    if policy.migration.mode == "RetainFirstAdmission":
        return False
    constraints = policy.migration.constraints
    last = constraints.last_acceptable_flavor_name if constraints is not None else None
    return last is None or rank <= ranks.get(FlavorName(last), len(ranks))


def _flavors(holder: Holder) -> Iterable[FlavorName]:
    return (fr.flavor for fr in holder.usage)


def _worst(flavors: Iterable[FlavorName], ranks: dict[FlavorName, int]) -> int:
    return max((ranks.get(flavor, len(ranks)) for flavor in flavors), default=len(ranks))
