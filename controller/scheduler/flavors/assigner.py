"""Which flavors a pending workload would get, and how well they fit: the first half of nomination.

``assign`` goes pod set by pod set and resource group by resource group; what one pod set takes counts against the next.
It changes nothing. Everything that does not depend on usage is compiled once (``plan``); the choice among the flavors
of one group is in ``scan``, the places of pods on nodes in ``topologystep``. Sources: KEP-79, KEP-582, KEP-2724.

It costs a few comparisons for each flavor-resource that is tried. Beyond that it asks the preemption oracle about a
flavor-resource that does not fit, and placement about pods that need places.
"""

from collections.abc import Iterable, Mapping

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.flavors.assignment import (
    Assignment,
    Bookmark,
    FlavorAttempt,
    FlavorChoice,
    Mode,
    NoFitReason,
    PodSetChoice,
)
from controller.scheduler.flavors.plan import FlavorPlan, GroupPlan, Plans, SetPlan
from controller.scheduler.flavors.scan import FungibilityRules, GroupRequest, PreemptionOracle, scan
from controller.scheduler.flavors.topologystep import conflicts, place, requests
from controller.scheduler.model.config import QuotaCheckStrategy
from controller.scheduler.model.resources import PODS, UNLIMITED, Amount, FlavorName, FlavorResource, ResourceName
from controller.scheduler.model.workload import PodSetRequests
from controller.scheduler.quota.queuestate import QueueState

Pinned = Mapping[str, Mapping[ResourceName, FlavorName]]
"""Pod set -> resource -> the only flavor to consider."""

_NO_CHOICES: Mapping[ResourceName, FlavorChoice] = {}


def pinned_to(assignment: Assignment) -> Pinned:
    """The flavors of an earlier assignment, to be kept when it is computed again within a cycle."""
    return {
        pod_set.name: {resource: choice.flavor for resource, choice in pod_set.choices.items()}
        for pod_set in assignment.pod_sets
    }


class FlavorAssigner:
    """Assigns flavors. Reads the cluster as it is at each call, inside trials too. The engine has one for its whole
    life.
    """

    def __init__(self, cluster: Cluster, oracle: PreemptionOracle) -> None:
        config = cluster.config
        self.cluster = cluster
        self.oracle = oracle
        self.ignores_undeclared = (
            config.gates.on("QuotaCheckStrategy")
            and config.quota_check_strategy is QuotaCheckStrategy.IGNORE_UNDECLARED
        )
        self.own_places = config.extensions.own_places
        self._plans = Plans(cluster)
        self._rules: dict[QueueState, tuple[int, FungibilityRules]] = {}
        self._keeps_progress = config.gates.on("FlavorFungibilityPreserveScanProgress")
        self._fungible = config.gates.on("FlavorFungibility")
        self.never_done = not self._fungible and not config.extensions.whole_searches
        """Whether a search always counts as having more flavors to try. With that gate off Kueue takes no flavor that a
        pod set got for the last one: its workload is tried again at once, before those behind it.
        """

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

        ``bookmark`` says which flavors the last try got to; a void one is ignored. ``cycle`` numbers the scheduling
        cycles; without it a bookmark counts as of the last one. With ``allowed`` only these flavors are looked at, and
        the bookmark is returned unchanged. A pod set that finds no flavor ends the search: the pod sets after it are
        not in the answer.
        """
        plan = self._plans.of(incoming)
        tried = None
        if bookmark is not None and allowed is None:
            tried = self._tried(incoming.queue, bookmark, cycle)
        shortcut = plan.shortcut if self._fungible and counts is None and allowed is None else None
        if shortcut is not None and tried is None and incoming.replaces is None:
            pod_sets = incoming.info.pod_sets
            if shortcut.fits(pod_sets):
                answer = shortcut.answer(pod_sets, counts_pods=plan.counts_pods)
                return answer.assign(_bookmark(incoming.queue, shortcut.tried, cycle))
        rules = self._rules_of(incoming.queue)
        run = _Run(self, incoming, plan, rules, tried, counts=counts, allowed=allowed, cycle=cycle)
        if tried is not None and bookmark is not None:
            run.overtaken = bookmark.overtaken
        for together in plan.sets:
            if not run.add(together):
                break
        return run.finish(bookmark if allowed is not None else None)

    def plan(self, incoming: Incoming) -> FlavorPlan:
        """The compiled plan of the workload: which flavors are open to its pod sets, whatever is in use."""
        return self._plans.of(incoming)

    def by_sums(self, plan: FlavorPlan) -> bool:
        """Whether the answer holds for every workload that asks for the same sums under the same constraints.

        Pod sets are weighed one after another, each with what those before it take: the last pod set that asks for a
        resource is weighed with the sum over all, and none before it fares worse where the oracle is monotonic.
        """
        return plan.no_choice and not plan.counts_pods and self.oracle.is_monotonic

    def _rules_of(self, queue: QueueState) -> FungibilityRules:
        known = self._rules.get(queue)
        if known is None or known[0] != queue.version:
            if len(self._rules) > 2 * len(self.cluster.queues):
                self._rules.clear()
            known = self._rules[queue] = (queue.version, FungibilityRules(queue.policies, self.cluster.config))
        return known[1]

    def _tried(
        self, queue: QueueState, bookmark: Bookmark, cycle: int | None
    ) -> tuple[Mapping[ResourceName, int], ...] | None:
        """The flavors that were tried before, to resume after them; None to begin at the first."""
        if not self._fungible or not bookmark.more_flavors() or bookmark.groups != queue.groups:
            return None
        recent = cycle is None or bookmark.cycle >= cycle - 1
        if self._keeps_progress and recent:
            return bookmark.tried
        if bookmark.quota_generation != queue.node.quota_generation() or not bookmark.free:
            return None
        more = any(now > then for now, then in zip(_free_now(queue), bookmark.free, strict=True))
        return None if more else bookmark.tried


class _Run:
    """One call of ``assign``, pod set by pod set. ``_usage`` is the sum over those entries of ``_chosen`` that have
    choices.
    """

    def __init__(
        self,
        assigner: FlavorAssigner,
        incoming: Incoming,
        plan: FlavorPlan,
        rules: FungibilityRules,
        tried: tuple[Mapping[ResourceName, int], ...] | None,
        *,
        counts: Mapping[str, int] | None,
        allowed: Pinned | None,
        cycle: int | None,
    ) -> None:
        self._assigner = assigner
        self._cycle = cycle
        self._incoming = incoming
        self._plan = plan
        self._counts = counts
        self._allowed = allowed
        self._rules = rules
        self._chosen: dict[int, PodSetChoice] = {}
        self._usage: dict[FlavorResource, Amount] = {}
        self._refused = False
        self._reason = NoFitReason.NONE
        self._hopeless: dict[FlavorResource, Amount] | None = None
        if len(plan.sets) > 1 and assigner.oracle.is_monotonic:
            self._hopeless = {}
        self.tried = tried
        self.overtaken = False

    def add(self, together: SetPlan) -> bool:
        """Choose flavors for the next pod set, or for pod sets that share their flavors. False if some resource found
        none.
        """
        whole = self._incoming.info.pod_sets
        pod_sets = [whole[index] for index in together.members]
        if (counts := self._counts) is not None:
            pod_sets = [each.scaled_to(counts.get(each.name, each.count)) for each in pod_sets]
        asked = [self._asked(pod_set) for pod_set in pod_sets]
        total = asked[0] if len(asked) == 1 else _sum(asked)
        missing = self._undeclared(together, total) if together.undeclared else ()
        attempts: list[FlavorAttempt] = []
        choices: dict[ResourceName, FlavorChoice] = {}
        refused, reason = bool(missing), NoFitReason.NONE
        kept_flavors, held = self._replaced(pod_sets) if self._incoming.replaces is not None else (None, None)
        pinned = None if self._allowed is None else _merged(self._allowed.get(each.name) for each in pod_sets)
        for group in together.groups:
            start = self._start(together.members[0], group) if self.tried is not None else 0
            request = GroupRequest(
                self._incoming,
                total,
                self._usage,
                start,
                kept=kept_flavors,
                held=held,
                pinned=pinned,
                hopeless=self._hopeless,
            )
            scanned = scan(group, request, self._rules, self._assigner.oracle)
            attempts += scanned.attempts
            # The reasons of groups that did find a flavor count too. Kueue takes resources by name, and a resource that
            # no group declares voids the reasons before it.
            if not missing or max(group.resources) > missing[-1]:
                reason = max(reason, scanned.no_fit_reason)
            if scanned.choices:
                choices.update(scanned.choices)
            else:
                refused = True
        self._refused, self._reason = refused, reason
        tried = tuple(attempts)
        problems: tuple[str, ...] = ()
        if missing:
            problems = tuple(f"cluster queue {self._incoming.queue.name} has no quota on {name}" for name in missing)
        for index, pod_set, own in zip(together.members, pod_sets, asked, strict=True):
            own_choices: Mapping[ResourceName, FlavorChoice] = (
                choices if len(asked) == 1 else _share(choices, own, together.on_nodes)
            )
            if len(asked) > 1 and self._assigner.own_places and index in self._plan.asking:
                own_choices = _beside(choices, own_choices, together.on_nodes)
            self._chosen[index] = PodSetChoice(
                name=pod_set.name,
                count=pod_set.count,
                requests=own,
                choices=_NO_CHOICES if refused else own_choices,
                attempts=tried,
                problems=problems,
                delayed_topology=bool(together.delayed and not together.delayed.isdisjoint(_flavors(own_choices))),
                refused=refused,
            )
        if not refused:
            self._take(choices, total, held)
        return not refused

    def finish(self, bookmark: Bookmark | None) -> Assignment:
        """The assignment. ``bookmark`` replaces the one that this run would make."""
        chosen = [self._chosen[index] for index in sorted(self._chosen)]
        if self._refused:
            mode, by_quota, reason = Mode.NO_FIT, True, self._reason or NoFitReason.NoMatchingFlavor
        else:
            mode, by_quota, reason = _worst(chosen), False, NoFitReason.NONE
            if self._plan.on_nodes or self._plan.asking or self._plan.implied:
                short = mode is Mode.NO_CANDIDATES
                chosen, reason = self._placed(chosen)
                mode = _worst(chosen)
                by_quota = short and mode is Mode.NO_CANDIDATES
        return Assignment(
            pod_sets=tuple(chosen),
            mode=mode,
            by_quota=by_quota,
            by_sums=self._counts is None and self._allowed is None and self._assigner.by_sums(self._plan),
            usage=self._usage,
            borrowing=0 if self._refused else _most_borrowed(chosen),
            no_fit_reason=reason,
            bookmark=bookmark if bookmark is not None else self._bookmark(),
        )

    def _bookmark(self) -> Bookmark:
        queue = self._incoming.queue
        tried = self._progress()
        unfinished = bool(tried) and any(index != -1 for indexes in tried for index in indexes.values())
        return Bookmark(
            tried=tried,
            quota_generation=queue.node.quota_generation(),
            groups=queue.groups,
            cycle=-1 if self._cycle is None else self._cycle,
            free=_free_now(queue) if unfinished else (),
            overtaken=self.overtaken,
        )

    def _progress(self) -> tuple[Mapping[ResourceName, int], ...]:
        """The last flavor tried, by pod set and resource. If only one pod set was tried and it was refused, the next
        try begins anew.
        """
        if self._refused and len(self._chosen) == 1:
            return ()
        sets = map(self._chosen.get, range(len(self._incoming.info.pod_sets)))
        return tuple(
            {}
            if pod_set is None
            else {
                name: 0 if self._assigner.never_done else choice.tried_index for name, choice in pod_set.choices.items()
            }
            for pod_set in sets
        )

    def _asked(self, pod_set: PodSetRequests) -> Mapping[ResourceName, Amount]:
        return {**pod_set.requests, PODS: pod_set.count} if self._plan.counts_pods else pod_set.requests

    def _undeclared(self, together: SetPlan, total: Mapping[ResourceName, Amount]) -> tuple[ResourceName, ...]:
        """The resources without quota in the queue, sorted by name. A request of 0 is no request."""
        if self._assigner.ignores_undeclared:
            return ()
        return tuple(sorted(resource for resource in together.undeclared if total[resource]))

    def _start(self, index: int, group: GroupPlan) -> int:
        """The index of the flavor after the last one tried; 0 where all were tried or nothing is known."""
        if self.tried is None or index >= len(self.tried):
            return 0
        return self.tried[index].get(group.resources[0], -1) + 1

    def _replaced(
        self, pod_sets: Iterable[PodSetRequests]
    ) -> tuple[Mapping[ResourceName, FlavorName] | None, Mapping[ResourceName, Amount] | None]:
        """The flavors and amounts of these pod sets in the slice that the workload replaces; None if it
        replaces none.
        """
        if self._incoming.replaces is None:
            return None, None
        names = {pod_set.name for pod_set in pod_sets}
        old = [pod_set for pod_set in self._incoming.replaces.info.pod_sets if pod_set.name in names]
        return _merged(held.flavors for held in old), _sum(held.requests for held in old)

    def _take(
        self,
        choices: Mapping[ResourceName, FlavorChoice],
        total: Mapping[ResourceName, Amount],
        held: Mapping[ResourceName, Amount] | None,
    ) -> None:
        for name, choice in choices.items():
            fr = FlavorResource(choice.flavor, name)
            amount = total[name] if held is None else max(0, total[name] - held.get(name, 0))
            self._usage[fr] = min(self._usage.get(fr, 0) + amount, UNLIMITED)

    def _placed(self, chosen: list[PodSetChoice]) -> tuple[list[PodSetChoice], NoFitReason]:
        chosen = conflicts(chosen, self._plan)
        if any(choice.refused for choice in chosen):
            homeless = any(choice.refused and not choice.choices for choice in chosen)
            return chosen, NoFitReason.NoMatchingFlavor if homeless else NoFitReason.NONE
        cluster, replaces = self._assigner.cluster, self._incoming.replaces
        wanted = requests(cluster, self._incoming, chosen, self._plan)
        if not wanted:
            return chosen, NoFitReason.NONE
        if replaces is None:
            return place(cluster, wanted, chosen)
        with cluster.trial():
            cluster.vacate(replaces)
            return place(cluster, wanted, chosen)


def _worst(chosen: Iterable[PodSetChoice]) -> Mode:
    return min((choice.mode for choice in chosen), default=Mode.FIT)


def _sum(asked: Iterable[Mapping[ResourceName, Amount]]) -> dict[ResourceName, Amount]:
    total: dict[ResourceName, Amount] = {}
    for sums in asked:
        for name, amount in sums.items():
            total[name] = min(total.get(name, 0) + amount, UNLIMITED)
    return total


def _flavors(choices: Mapping[ResourceName, FlavorChoice]) -> set[FlavorName]:
    return {choice.flavor for choice in choices.values()}


def _merged(flavors: Iterable[Mapping[ResourceName, FlavorName] | None]) -> dict[ResourceName, FlavorName]:
    return {name: flavor for each in flavors if each is not None for name, flavor in each.items()}


def _share(
    choices: Mapping[ResourceName, FlavorChoice],
    own: Mapping[ResourceName, Amount],
    on_nodes: frozenset[FlavorName],
) -> dict[ResourceName, FlavorChoice]:
    """The part of a group's flavors that one pod set gets: those of its own resources. A pod set that asks for nothing
    still runs on the nodes of the others.
    """
    if own:
        return {name: choice for name, choice in choices.items() if name in own}
    return {name: choice for name, choice in choices.items() if choice.flavor in on_nodes}


def _beside(
    choices: Mapping[ResourceName, FlavorChoice],
    given: Mapping[ResourceName, FlavorChoice],
    on_nodes: frozenset[FlavorName],
) -> Mapping[ResourceName, FlavorChoice]:
    """The flavors of a pod set in a group, if it asks for a topology: where its own flavors name none, it runs on the
    nodes of the other pod sets. Kueue lets it wait for ever.
    """
    if not on_nodes.isdisjoint(_flavors(given)):
        return given
    return {**given, **{name: choice for name, choice in choices.items() if choice.flavor in on_nodes}}


def _free_now(queue: QueueState) -> tuple[Amount, ...]:
    """What the queue could use of each flavor-resource now."""
    cells = queue.node.cells
    return tuple(cells[fr].available() for fr in queue.flavor_resources)


def _most_borrowed(chosen: Iterable[PodSetChoice]) -> int:
    return max((choice.borrow for pod_set in chosen for choice in pod_set.choices.values()), default=0)


def _bookmark(queue: QueueState, tried: tuple[Mapping[ResourceName, int], ...], cycle: int | None) -> Bookmark:
    return Bookmark(tried, queue.node.quota_generation(), "", queue.groups, -1 if cycle is None else cycle)
