"""Which flavors a pending workload would get, and how well they fit: the first half of nomination.

``assign`` goes pod set by pod set and resource group by resource group; what one pod set takes counts against the next.
It changes nothing. Everything that does not depend on usage comes from ``flavorplan``, the choice among flavors is
``flavorscan``, the way through pod sets and groups ``flavorrun``, the place of pods on nodes ``topologystep``.
Sources: KEP-79, KEP-582, KEP-2724.
"""

from collections.abc import Mapping

from controller.engine.cluster.cluster import Cluster
from controller.engine.cluster.incoming import Incoming
from controller.engine.flavors.assignment import Assignment, Bookmark, Mode, PodSetChoice
from controller.engine.flavors.plan import Answer, Plans, Shortcut
from controller.engine.flavors.run import Pinned, Run, Setting, free_now
from controller.engine.flavors.scan import PreemptionOracle, Request, Rules, weigh_alone
from controller.engine.model.config import QuotaCheckStrategy
from controller.engine.model.resources import ResourceName
from controller.engine.quota.queuestate import QueueState

__all__ = ["FlavorAssigner", "Pinned", "pinned_to"]


def pinned_to(assignment: Assignment) -> Pinned:
    """The flavors of an earlier assignment, to be kept when it is computed again within a cycle."""
    return {
        one.name: {resource: choice.flavor for resource, choice in one.choices.items()} for one in assignment.pod_sets
    }


class FlavorAssigner:
    """Reads the cluster as it stands at each call, inside trials too. One for the life of the engine."""

    def __init__(self, cluster: Cluster, oracle: PreemptionOracle) -> None:
        config = cluster.config
        self._cluster = cluster
        self._plans = Plans(cluster)
        self._rules: dict[QueueState, tuple[int, Rules]] = {}
        self._keeps_progress = config.gates.on("FlavorFungibilityPreserveScanProgress")
        self._fungible = config.gates.on("FlavorFungibility")
        self._setting = Setting(
            cluster,
            oracle,
            ignores_undeclared=config.gates.on("QuotaCheckStrategy")
            and config.quota_check_strategy is QuotaCheckStrategy.IGNORE_UNDECLARED,
        )

    def assign(
        self,
        incoming: Incoming,
        *,
        bookmark: Bookmark | None = None,
        counts: Mapping[str, int] | None = None,
        allowed: Pinned | None = None,
        cycle: int | None = None,
    ) -> Assignment:
        """The flavors for all pods, or for ``counts`` of them by pod set.

        ``bookmark`` says which flavors the last try got to; one that is void is passed over. ``cycle`` numbers the
        scheduling cycles; without it a bookmark counts as of the last one. With ``allowed`` nothing but these flavors
        is looked at, and the bookmark is handed on as it is. A pod set that finds no flavor ends the search: those
        after it are not in the answer.
        """
        plan = self._plans.of(incoming)
        tried = None
        if bookmark is not None and allowed is None:
            tried = self._tried(incoming.queue, bookmark, cycle)
        if plan.shortcut is not None and self._fungible and tried is None and counts is None and allowed is None:
            shortcut = plan.shortcut
            answer = shortcut.answer(incoming.info.pod_sets[0], counts_pods=plan.counts_pods)
            if incoming.replaces is None:
                if _has_room(answer):
                    return answer.assignment or answer.assign(_bookmark(incoming.queue, shortcut.tried, cycle))
                if shortcut.single:
                    return self._contested(incoming, shortcut, answer, cycle)
        rules = self._rules_of(incoming.queue)
        run = Run(self._setting, incoming, plan, rules, counts=counts, allowed=allowed, cycle=cycle)
        run.tried = tried
        for pod_sets in plan.sets:
            if not run.add(pod_sets):
                break
        return run.finish(bookmark if allowed is not None else None)

    def _contested(self, incoming: Incoming, shortcut: Shortcut, answer: Answer, cycle: int | None) -> Assignment:
        """What a run would answer where one flavor alone is open, and it has not simply room."""
        queue, pod_set = incoming.queue, answer.of
        request = Request(incoming, answer.requests, {})
        attempt, choices = weigh_alone(shortcut.option, request, self._rules_of(queue), self._setting.oracle)
        refused = attempt.mode is Mode.NO_FIT
        chosen = PodSetChoice(
            name=pod_set.name,
            count=pod_set.count,
            requests=answer.requests,
            choices=choices,
            attempts=(*shortcut.attempts[:-1], attempt),
            refused=refused,
        )
        return Assignment(
            pod_sets=(chosen,),
            mode=chosen.mode,
            usage={} if refused else answer.usage,
            borrowing=max([choice.borrow for choice in choices.values()], default=0),
            no_fit_reason=attempt.no_fit_reason,
            bookmark=_bookmark(queue, () if refused else shortcut.tried, cycle),
        )

    def _rules_of(self, queue: QueueState) -> Rules:
        known = self._rules.get(queue)
        if known is None or known[0] != queue.version:
            if len(self._rules) > 2 * len(self._cluster.queues):
                self._rules.clear()
            known = self._rules[queue] = (queue.version, Rules(queue.policies, self._cluster.config))
        return known[1]

    def _tried(
        self, queue: QueueState, bookmark: Bookmark, cycle: int | None
    ) -> tuple[Mapping[ResourceName, int], ...] | None:
        """Where to go on; None for the start."""
        if not self._fungible or not bookmark.more_flavors() or bookmark.groups != queue.groups:
            return None
        recent = cycle is None or bookmark.cycle >= cycle - 1
        if self._keeps_progress and recent:
            return bookmark.tried
        if bookmark.quota_generation != queue.node.quota_generation() or not bookmark.free:
            return None
        more = any(now > then for now, then in zip(free_now(queue), bookmark.free, strict=True))
        return None if more else bookmark.tried


def _has_room(answer: Answer) -> bool:
    """Whether the first open flavor holds all that is asked for within the queue's own quota."""
    for cell, amount in answer.asked:
        if (cell.parent is not None and cell.usage + amount > cell.subtree_quota) or amount > cell.available():
            return False
    return True


def _bookmark(queue: QueueState, tried: tuple[Mapping[ResourceName, int], ...], cycle: int | None) -> Bookmark:
    return Bookmark(tried, queue.node.quota_generation(), "", queue.groups, -1 if cycle is None else cycle)
