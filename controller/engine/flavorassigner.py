"""Which flavors a pending workload would get, and how well they fit: the first half of nomination.

``assign`` goes pod set by pod set and resource group by resource group; what one pod set takes counts against the next.
It changes nothing. Everything that does not depend on usage comes from ``flavorplan``, the choice among flavors is
``flavorscan``, the place of pods on nodes ``topologystep``. Sources: KEP-79, KEP-582, KEP-2724.
"""

from collections.abc import Iterable, Mapping

from controller.engine.assignment import (
    Assignment,
    Bookmark,
    FlavorAttempt,
    FlavorChoice,
    Mode,
    NoFitReason,
    PodSetChoice,
)
from controller.engine.cluster import Cluster
from controller.engine.config import QuotaCheckStrategy
from controller.engine.flavorplan import PODS, GroupPlan, Plan, Plans, SetPlan, Shortcut
from controller.engine.flavorscan import Oracle, Request, Rules, scan
from controller.engine.incoming import Incoming
from controller.engine.queuestate import QueueState
from controller.engine.resources import UNLIMITED, Amount, FlavorName, FlavorResource, ResourceName
from controller.engine.topologystep import conflicts, place, requests
from controller.engine.workload import PodSetRequests

__all__ = ["FlavorAssigner", "Oracle", "Pinned", "pinned_to"]

Pinned = Mapping[str, Mapping[ResourceName, FlavorName]]
"""Pod set -> resource -> the only flavor to consider."""

_NO_CHOICES: Mapping[ResourceName, FlavorChoice] = {}


def pinned_to(assignment: Assignment) -> Pinned:
    """The flavors of an earlier assignment, to be kept when it is computed again within a cycle."""
    return {
        one.name: {resource: choice.flavor for resource, choice in one.choices.items()} for one in assignment.pod_sets
    }


class FlavorAssigner:
    """Reads the cluster as it stands at each call, inside trials too. One for the life of the engine."""

    def __init__(self, cluster: Cluster, oracle: Oracle) -> None:
        config = cluster.config
        self.cluster = cluster
        self.oracle = oracle
        self._plans = Plans(cluster)
        self._rules: dict[QueueState, tuple[int, Rules]] = {}
        self._keeps_progress = config.gates.on("FlavorFungibilityPreserveScanProgress")
        self._fungible = config.gates.on("FlavorFungibility")
        self.ignores_undeclared = (
            config.gates.on("QuotaCheckStrategy")
            and config.quota_check_strategy is QuotaCheckStrategy.IGNORE_UNDECLARED
        )

    def assign(
        self,
        incoming: Incoming,
        *,
        bookmark: Bookmark | None = None,
        counts: Mapping[str, int] | None = None,
        allowed: Pinned | None = None,
    ) -> Assignment:
        """The flavors for all pods, or for ``counts`` of them by pod set.

        ``bookmark`` says which flavors the last try got to; one that is void is passed over. With ``allowed`` nothing
        but these flavors is looked at, and the bookmark is handed on as it is. A pod set that finds no flavor ends the
        search: those after it are not in the answer.
        """
        plan = self._plans.of(incoming)
        if plan.shortcut is not None and bookmark is None and counts is None and allowed is None:
            at_once = _first_fits(incoming, plan, plan.shortcut)
            if at_once is not None:
                return at_once
        run = _Run(self, incoming, plan, counts, allowed)
        run.tried = self._tried(incoming.queue, bookmark) if allowed is None else None
        for pod_sets in plan.sets:
            if not run.add(pod_sets):
                break
        return run.finish(bookmark if allowed is not None else None)

    def rules(self, queue: QueueState) -> Rules:
        known = self._rules.get(queue)
        if known is None or known[0] != queue.version:
            if len(self._rules) > 2 * len(self.cluster.queues):
                self._rules.clear()
            known = self._rules[queue] = (queue.version, Rules(queue.policies, self.cluster.config))
        return known[1]

    def _tried(self, queue: QueueState, bookmark: Bookmark | None) -> tuple[Mapping[ResourceName, int], ...] | None:
        if bookmark is None or not self._fungible or bookmark.groups != queue.groups:
            return None
        if not self._keeps_progress and bookmark.quota_generation != queue.node.quota_generation():
            return None
        return bookmark.tried


def _first_fits(incoming: Incoming, plan: Plan, shortcut: Shortcut) -> Assignment | None:
    """The answer where the first open flavor has room within the queue's own quota; None: it takes a whole run."""
    if incoming.replaces is not None:
        return None
    pod_set = incoming.info.pod_sets[0]
    asked = {**pod_set.requests, PODS: pod_set.count} if plan.counts_pods else pod_set.requests
    usage = {}
    for name, fr, cell in shortcut.cells:
        amount = asked[name]
        if amount > cell.available() or (cell.parent is not None and cell.usage + amount > cell.subtree_quota):
            return None
        usage[fr] = amount
    queue = incoming.queue
    choice = PodSetChoice(
        name=pod_set.name,
        count=pod_set.count,
        requests=asked,
        choices=shortcut.choices,
        attempts=shortcut.attempts,
    )
    bookmark = Bookmark(shortcut.tried, queue.node.quota_generation(), "", queue.groups)
    return Assignment(pod_sets=(choice,), mode=Mode.FIT, usage=usage, bookmark=bookmark)


class _Run:
    """One call of ``assign``: what has been chosen so far."""

    __slots__ = (
        "_allowed",
        "_assigner",
        "_chosen",
        "_counts",
        "_incoming",
        "_plan",
        "_reason",
        "_refused",
        "_rules",
        "_usage",
        "tried",
    )

    def __init__(
        self,
        assigner: FlavorAssigner,
        incoming: Incoming,
        plan: Plan,
        counts: Mapping[str, int] | None,
        allowed: Pinned | None,
    ) -> None:
        self._assigner = assigner
        self._incoming = incoming
        self._plan = plan
        self._counts = counts
        self._allowed = allowed
        self._rules = assigner.rules(incoming.queue)
        self._chosen: dict[int, PodSetChoice] = {}
        self._usage: dict[FlavorResource, Amount] = {}
        self._refused = False
        self._reason = NoFitReason.NONE
        self.tried: tuple[Mapping[ResourceName, int], ...] | None = None

    def add(self, together: SetPlan) -> bool:
        """Choose for the next pod set, or for those that share their flavors. False: some resource found none."""
        pod_sets = [self._pod_set(index) for index in together.members]
        asked = [self._asked(pod_set) for pod_set in pod_sets]
        total = asked[0] if len(asked) == 1 else _sum(asked)
        problems = self._undeclared(together, total) if together.undeclared else ()
        attempts: list[FlavorAttempt] = []
        choices: dict[ResourceName, FlavorChoice] = {}
        self._refused = bool(problems)
        self._reason = NoFitReason.NoMatchingFlavor if problems else NoFitReason.NONE
        kept, held = self._replaced(pod_sets) if self._incoming.replaces is not None else (None, None)
        pinned = None if self._allowed is None else _merged(self._allowed.get(one.name) for one in pod_sets)
        for group in together.groups:
            start = self._start(together.members[0], group) if self.tried is not None else 0
            request = Request(self._incoming, total, self._usage, start, kept=kept, held=held, pinned=pinned)
            found = scan(group, request, self._rules, self._assigner.oracle)
            attempts += found.attempts
            if found.choices:
                choices.update(found.choices)
            else:
                self._refused = True
                self._reason = max(self._reason, found.no_fit_reason)
        tried = tuple(attempts)
        for index, pod_set, own in zip(together.members, pod_sets, asked, strict=True):
            given = choices if len(asked) == 1 else _share(choices, own, together.on_nodes)
            self._chosen[index] = PodSetChoice(
                name=pod_set.name,
                count=pod_set.count,
                requests=own,
                choices=_NO_CHOICES if self._refused else given,
                attempts=tried,
                problems=problems,
                delayed_topology=bool(together.delayed and not together.delayed.isdisjoint(_flavors(given))),
                refused=self._refused,
            )
        if not self._refused:
            self._take(choices, total, held)
        return not self._refused

    def finish(self, bookmark: Bookmark | None) -> Assignment:
        """The answer; ``bookmark`` instead of an own one."""
        chosen = [self._chosen[index] for index in sorted(self._chosen)]
        reason = self._reason
        if self._plan.on_nodes and not self._refused:
            chosen, reason = self._placed(chosen)
        queue = self._incoming.queue
        return Assignment(
            pod_sets=tuple(chosen),
            mode=min((one.mode for one in chosen), default=Mode.FIT),
            usage=self._usage,
            borrowing=max((choice.borrow for one in chosen for choice in one.choices.values()), default=0),
            no_fit_reason=reason,
            bookmark=bookmark
            or Bookmark(
                tried=self._progress(),
                quota_generation=queue.node.quota_generation(),
                groups=queue.groups,
            ),
        )

    def _progress(self) -> tuple[Mapping[ResourceName, int], ...]:
        """A pod set without choices starts anew."""
        if self._refused and len(self._chosen) == 1:
            return ()
        sets = map(self._chosen.get, range(len(self._incoming.info.pod_sets)))
        return tuple(
            {} if one is None else {name: choice.tried_index for name, choice in one.choices.items()} for one in sets
        )

    def _pod_set(self, index: int) -> PodSetRequests:
        pod_set = self._incoming.info.pod_sets[index]
        return pod_set if self._counts is None else pod_set.scaled_to(self._counts.get(pod_set.name, pod_set.count))

    def _asked(self, pod_set: PodSetRequests) -> Mapping[ResourceName, Amount]:
        return {**pod_set.requests, PODS: pod_set.count} if self._plan.counts_pods else pod_set.requests

    def _undeclared(self, together: SetPlan, total: Mapping[ResourceName, Amount]) -> tuple[str, ...]:
        """Asking for none of a resource is asking for nothing."""
        if self._assigner.ignores_undeclared:
            return ()
        name = self._incoming.queue.name
        return tuple(f"cluster queue {name} has no quota on {one}" for one in together.undeclared if total[one])

    def _start(self, index: int, group: GroupPlan) -> int:
        """The flavor after the last one tried; all were tried where there is none, or nothing is known."""
        if self.tried is None or index >= len(self.tried):
            return 0
        start = self.tried[index].get(group.resources[0], -1) + 1
        return start if start <= group.last else 0

    def _replaced(
        self, pod_sets: Iterable[PodSetRequests]
    ) -> tuple[Mapping[ResourceName, FlavorName] | None, Mapping[ResourceName, Amount] | None]:
        """Flavors and amounts of these pod sets in the slice that this one replaces."""
        if self._incoming.replaces is None:
            return None, None
        names = {one.name for one in pod_sets}
        old = [one for one in self._incoming.replaces.info.pod_sets if one.name in names]
        return _merged(one.flavors for one in old), _sum(one.requests for one in old)

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
        on_nodes = self._plan.on_nodes
        chosen = conflicts(chosen, on_nodes)
        wanted = requests(self._incoming, chosen, on_nodes)
        if not wanted or any(one.refused for one in chosen):
            return chosen, NoFitReason.NONE
        return place(self._assigner.cluster, wanted, chosen)


def _sum(asked: Iterable[Mapping[ResourceName, Amount]]) -> dict[ResourceName, Amount]:
    total: dict[ResourceName, Amount] = {}
    for one in asked:
        for name, amount in one.items():
            total[name] = min(total.get(name, 0) + amount, UNLIMITED)
    return total


def _flavors(choices: Mapping[ResourceName, FlavorChoice]) -> set[FlavorName]:
    return {choice.flavor for choice in choices.values()}


def _merged(flavors: Iterable[Mapping[ResourceName, FlavorName] | None]) -> dict[ResourceName, FlavorName]:
    return {name: flavor for one in flavors if one is not None for name, flavor in one.items()}


def _share(
    choices: Mapping[ResourceName, FlavorChoice],
    own: Mapping[ResourceName, Amount],
    on_nodes: frozenset[FlavorName],
) -> dict[ResourceName, FlavorChoice]:
    """What of a group's flavors one pod set gets: those of its own resources.

    One that asks for nothing still runs on the nodes of the others.
    """
    if own:
        return {name: choice for name, choice in choices.items() if name in own}
    return {name: choice for name, choice in choices.items() if choice.flavor in on_nodes}
