"""Which repairs of GPUs may go on. Pure: what agents ask, labels of nodes, flavors and time in; grants out.

A GPU is in action for a window after it was granted a step, for as long as it may act on the grant, and while it is
reset or verified. Of each flavor at most a budget of GPUs is in action, and of the nodes of one domain of a named level
only one has such GPUs. The oldest ask comes first; a GPU that is in action already takes no more of the budget with its
next step. Nodes of no flavor are a group of their own. The grants in the GpuNodes and the repairs that are under way
are the whole record, so that a new leader counts what the one before granted (decision 144). The grants of a GpuNode
that goes count on, and are written into the one that comes in its place, where they permit nothing any more. For a
leader that begins while a GpuNode is away they stand in its flavor as well (decision 174).

The breaker of a flavor has tripped while its budget holds an ask back. It heals when grants leave the window. A person
lifts it: from then on, what was granted before does not count in that flavor. Nodes of no flavor have no object of
their own: their breaker is lifted by any of their GpuNodes.
"""

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Final

from msgspec import Struct

from controller.cluster.config.settings import RemediationRules
from controller.reconcile.repairs.grantrecords import GrantRecord
from controller.reconcile.repairs.grants import REBOOT, RESET, Ask, Grant, NodeRepairs, moment_s, newest
from inventory.api.gpunode import GRANT_LASTS_S, MAX_GPUS
from inventory.api.names import NO_FLAVOR, NVSENTINEL_MANAGED

FORMER: Final = 0
"""The generation of grants that count and permit nothing, since no ask has it: their GpuNode has gone meanwhile."""
_IDLE: Final = NodeRepairs()


class Why(Enum):
    """Why an ask is held back."""

    BUDGET = auto()
    LEVEL = auto()
    UNMANAGED = auto()
    """The node's label says that nobody repairs it."""
    NO_NODE = auto()
    """No Node has this name: what may be done there cannot be known."""
    FULL = auto()
    """The node's list of grants has as many entries as it may have."""


class RepairNode(Struct, frozen=True, kw_only=True):
    """A Node. ``in_maintenance``: it is prepared for a reboot, by the controller, as its agent had asked."""

    labels: Mapping[str, str] = {}
    in_maintenance: bool = False


class RepairFlavor(Struct, frozen=True, kw_only=True):
    """A ResourceFlavor. ``resumed_s``: when a person last lifted its breaker; 0 for never. ``recorded``: the grants
    that it says were given to GPUs of its nodes.
    """

    node_labels: Mapping[str, str] = {}
    resumed_s: float = 0.0
    recorded: GrantRecord = {}


class HeldBack(Struct, frozen=True, kw_only=True):
    """An ask that is not granted. ``group``: the flavor whose budget is spent, with its ``budget``; ``level`` and
    ``other``: the label and the node of the same domain that is in action.
    """

    ask: Ask
    why: Why
    group: str = NO_FLAVOR
    budget: int = 0
    level: str = ""
    other: str = ""


class Tripped(Struct, frozen=True, kw_only=True):
    """The breaker of a flavor that holds asks back: since when, at which budget, and how many."""

    since_s: float
    budget: int
    waiting: int


class Decisions(Struct, frozen=True, kw_only=True):
    """The result of one decision. ``lists``: all grants of each node whose GpuNode has others."""

    lists: Mapping[str, tuple[Grant, ...]] = {}
    granted: tuple[tuple[str, Grant], ...] = ()
    """The new grants, with their node."""
    held_back: tuple[HeldBack, ...] = ()
    tripped: Mapping[str, Tripped] = {}
    """Breakers that have tripped, by flavor."""


class RepairBreaker:
    """``decide`` is to be called after each event and at ``next_due_s``.

    ``_ours`` has what this leader granted and the GpuNode may not show yet; ``failed`` takes it back. For a node whose
    GpuNode has gone it has FORMER grants alone. ``_gone`` has Nodes that went while grants of theirs counted: these
    count in the same flavors and domains on. ``_lifted``: when a person last lifted the breaker of nodes of no flavor,
    by the GpuNode that says so.

    Caches that ``validate`` recomputes: ``_groups`` of nodes that were asked about, ``_totals`` of GPUs by group, None
    where it is stale; ``_busy`` has the nodes with asks, repairs under way, or grants.
    """

    def __init__(self, rules: RemediationRules) -> None:
        self.rules = rules
        self._nodes: dict[str, RepairNode] = {}
        self._flavors: dict[str, RepairFlavor] = {}
        self._gone: dict[str, RepairNode] = {}
        self._repairs: dict[str, NodeRepairs] = {}
        self._lifted: dict[str, float] = {}
        self._ours: dict[str, dict[str, Grant]] = {}
        self._busy: set[str] = set()
        self._groups: dict[str, tuple[str, ...]] = {}
        self._totals: dict[str, int] | None = None
        self._due_s: float | None = None
        self._uses: dict[str, int] = {}
        """GPUs in action by group, as long as none is granted: a storm asks for each of its GPUs."""
        self._now_s = 0.0
        """The time of the decision under way."""

    # -- events ------------------------------------------------------------------------------------------------------

    def set_repairs(self, node: str, repairs: NodeRepairs | None) -> bool:
        """Notes what the GpuNode says; None: it is gone, and what was granted there counts on. Returns whether anything
        has changed.
        """
        before = self._repairs.get(node)
        if before == repairs:
            return False
        if (before or _IDLE).gpus != (repairs or _IDLE).gpus:
            self._totals = None
        if repairs is None:
            former = {gpu: Grant(gpu, FORMER, each.action, each.granted_s) for gpu, each in self._known(node).items()}
            self._repairs.pop(node, None)
            self._ours.pop(node, None)
            if former:
                self._ours[node] = former
        else:
            self._repairs[node] = repairs
        if repairs is not None and repairs.lifted_s:
            self._lifted[node] = repairs.lifted_s
        else:
            self._lifted.pop(node, None)
        self._note_busy(node)
        return True

    def set_node(self, name: str, node: RepairNode | None) -> bool:
        """Notes a Node; None: it is gone. Returns whether anything has changed."""
        before = self._nodes.get(name)
        if before == node:
            return False
        if node is not None:
            self._nodes[name] = node
            self._gone.pop(name, None)
        elif (gone := self._nodes.pop(name, None)) is not None and name in self._busy:
            self._gone[name] = gone
        self._groups.pop(name, None)
        self._totals = None
        return True

    def set_flavor(self, name: str, flavor: RepairFlavor | None) -> bool:
        """Notes a flavor; None: it is gone. Returns whether anything has changed."""
        before = self._flavors.get(name)
        if before == flavor:
            return False
        if flavor is None:
            del self._flavors[name]
        else:
            self._flavors[name] = flavor
        if before is None or flavor is None or before.node_labels != flavor.node_labels:
            self._groups.clear()
            self._totals = None
        if flavor is not None:
            self._recall(flavor)
        return True

    def failed(self, node: str, grants: tuple[Grant, ...]) -> None:
        """Takes back what could not be written, but not what counted before."""
        ours = self._ours.get(node, {})
        for grant in grants:
            if ours.get(grant.gpu) == grant and grant.generation != FORMER:
                del ours[grant.gpu]
        if not ours:
            self._ours.pop(node, None)
        self._note_busy(node)

    # -- questions ---------------------------------------------------------------------------------------------------

    def decide(self, now_s: float) -> Decisions:
        """Grants what may go on now, and counts it from now on."""
        self._now_s = now_s
        self._prune(now_s)
        in_action = self._in_action(now_s)
        self._uses.clear()
        granted: list[tuple[str, Grant]] = []
        held: list[HeldBack] = []
        for ask in self._open_asks(now_s):
            refused = self._refusal(ask, in_action, now_s)
            if refused is not None:
                held.append(refused)
                continue
            grant = Grant(ask.gpu, ask.generation, ask.action, moment_s(now_s))
            self._ours.setdefault(ask.node, {})[ask.gpu] = grant
            in_action[ask.node, ask.gpu] = now_s
            self._uses.clear()
            granted.append((ask.node, grant))
        lists = {node: self._due_list(node, now_s) for node in sorted(self._busy)}
        ends = [grant.granted_s + self._kept_s for grants in lists.values() for grant in grants]
        self._due_s = min(ends, default=None)
        return Decisions(
            lists={
                node: grants
                for node, grants in lists.items()
                if node in self._repairs and dict(self._repairs[node].grants) != {each.gpu: each for each in grants}
            },
            granted=tuple(granted),
            held_back=tuple(held),
            tripped=self._tripped(held, in_action),
        )

    def lets(self, node: str, gpu: str, now_s: float) -> bool:
        """Whether one more repair would be granted now, of this GPU. Asks that wait in its flavors come first."""
        groups = {*self._groups_of(node)}
        if any(groups & {*self._groups_of(ask.node)} for ask in self._open_asks(now_s)):
            return False
        self._now_s = now_s
        self._uses.clear()
        return self._refusal(Ask(node, gpu, 0, RESET), self._in_action(now_s), now_s) is None

    def next_due_s(self) -> float | None:
        """The time at which the first grant leaves the window; None if there is none."""
        return self._due_s

    def answer(self, ask: Ask, now_s: float) -> Grant | None:
        """The grant that the agent has for this ask, and may act on."""
        grant = self._known(ask.node).get(ask.gpu)
        return grant if ask.is_answered_by(grant, now_s) else None

    def remembers(self, node: str) -> bool:
        """Whether there are grants of the node that its GpuNode does not show, or did not when they were last looked
        at.
        """
        return node in self._ours

    def counted(self, flavor: str, now_s: float) -> GrantRecord:
        """The grants that count in the flavor now, or would if nobody had lifted its breaker: those that GpuNodes show,
        and those of GpuNodes that have gone.
        """
        grants_by_node: dict[str, dict[str, float]] = {}
        for node in self._busy:
            if flavor not in self._groups_of(node):
                continue
            former = (grant for grant in self._ours.get(node, {}).values() if grant.generation == FORMER)
            for gpu, grant in newest([*self._repairs.get(node, _IDLE).grants.values(), *former]).items():
                if now_s < grant.granted_s + self._kept_s:
                    grants_by_node.setdefault(node, {})[gpu] = min(grant.granted_s, now_s)
        return grants_by_node

    def flavors_of(self, node: str) -> tuple[str, ...]:
        """The flavors that select the node; NO_FLAVOR where none does."""
        return self._groups_of(node)

    def validate(self) -> None:
        """Recomputes the caches. Raises AssertionError."""
        busy = {name for name, each in self._repairs.items() if not each.is_idle} | self._ours.keys()
        assert self._busy == busy, "the index of nodes with repairs has drifted"
        assert all(groups == self._flavors_of(name) for name, groups in self._groups.items()), "groups have drifted"
        if self._totals is not None:
            assert self._totals == self._sums(), "the GPUs of the groups have drifted"
        for name in self._ours.keys() - self._repairs.keys():
            former = all(grant.generation == FORMER for grant in self._ours[name].values())
            assert former, "grants for a node without a GpuNode"
        assert self._gone.keys() <= self._busy - self._nodes.keys(), "Nodes are kept of which nothing counts"
        lifted = {name: each.lifted_s for name, each in self._repairs.items() if each.lifted_s}
        assert self._lifted == lifted, "the times of lifted breakers have drifted"
        assert all(ours for ours in self._ours.values()), "an empty entry of grants"

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _kept_s(self) -> float:
        """A grant counts until the window is over, and for as long as an agent may act on it."""
        return max(self.rules.window_s, GRANT_LASTS_S)

    def _recall(self, flavor: RepairFlavor) -> None:
        """Count what the flavor says was granted, where no GpuNode says so."""
        for node, gpus in flavor.recorded.items():
            known = self._known(node)
            lost = {
                gpu: Grant(gpu, FORMER, RESET, at_s)
                for gpu, at_s in gpus.items()
                if gpu not in known or known[gpu].granted_s < at_s
            }
            if not lost:
                continue
            self._ours[node] = {**self._ours.get(node, {}), **lost}
            self._note_busy(node)
            if node not in self._nodes:
                before = self._gone.get(node)
                labels = {**flavor.node_labels, **(before.labels if before is not None else {})}
                self._gone[node] = RepairNode(labels=labels)
                self._groups.pop(node, None)

    def _note_busy(self, node: str) -> None:
        if node in self._ours or not self._repairs.get(node, _IDLE).is_idle:
            self._busy.add(node)
            return
        self._busy.discard(node)
        if self._gone.pop(node, None) is not None:
            self._groups.pop(node, None)

    def _known(self, node: str) -> dict[str, Grant]:
        """All grants of the node: those in its GpuNode, and those that are on their way there."""
        return newest([*self._repairs.get(node, _IDLE).grants.values(), *self._ours.get(node, {}).values()])

    def _due_list(self, node: str, now_s: float) -> tuple[Grant, ...]:
        """The list that the GpuNode should have. A time after ``now_s``, by another leader's clock, becomes now."""
        return tuple(
            grant if grant.granted_s <= now_s else Grant(grant.gpu, grant.generation, grant.action, moment_s(now_s))
            for grant in self._known(node).values()
            if now_s < grant.granted_s + self._kept_s
        )

    def _prune(self, now_s: float) -> None:
        """Forgets grants of this leader that the GpuNode shows, or that count no more."""
        for node, ours in list(self._ours.items()):
            seen = self._repairs.get(node, _IDLE).grants
            left = {
                gpu: grant
                for gpu, grant in ours.items()
                if seen.get(gpu) != grant and now_s < grant.granted_s + self._kept_s
            }
            if left:
                self._ours[node] = left
            else:
                del self._ours[node]
            self._note_busy(node)

    def _in_action(self, now_s: float) -> dict[tuple[str, str], float]:
        """GPUs in action by node and UUID, each with the time from which on it counts."""
        in_action: dict[tuple[str, str], float] = {}
        for node in self._busy:
            for gpu, grant in self._known(node).items():
                if now_s < grant.granted_s + self._kept_s:
                    in_action[node, gpu] = min(grant.granted_s, now_s)
            for gpu, since_s in self._repairs.get(node, _IDLE).under_way.items():
                in_action[node, gpu] = max(in_action.get((node, gpu), 0.0), min(since_s or now_s, now_s))
        return in_action

    def _open_asks(self, now_s: float) -> list[Ask]:
        """Asks without a grant that holds: first those whose last grant has just ended, then the oldest. An agent whose
        grant has lapsed asks with a new generation.
        """

        def order(ask: Ask) -> tuple[bool, float, str, str]:
            return ask.gpu not in self._known(ask.node), ask.since_s, ask.node, ask.gpu

        return sorted((ask for ask in self._asks() if self.answer(ask, now_s) is None), key=order)

    def _asks(self) -> Iterator[Ask]:
        for node in self._busy:
            known = self._nodes.get(node)
            for ask in self._repairs.get(node, _IDLE).asks:
                if ask.action != REBOOT or known is None or not known.in_maintenance:
                    yield ask

    def _refusal(self, ask: Ask, in_action: Mapping[tuple[str, str], float], now_s: float) -> HeldBack | None:
        node = self._nodes.get(ask.node)
        if node is None:
            return HeldBack(ask=ask, why=Why.NO_NODE)
        if node.labels.get(NVSENTINEL_MANAGED) == "false":
            return HeldBack(ask=ask, why=Why.UNMANAGED)
        listed = self._due_list(ask.node, now_s)
        if len(listed) >= MAX_GPUS and all(grant.gpu != ask.gpu for grant in listed):
            return HeldBack(ask=ask, why=Why.FULL)
        own_s = in_action.get((ask.node, ask.gpu))
        for group in self._groups_of(ask.node):
            budget = self.rules.budget.of(self._gpus_of(group))
            counts = own_s is not None and own_s >= self._resumed_s(group)
            if budget == 0 or (not counts and self._used(group, in_action) >= budget):
                return HeldBack(ask=ask, why=Why.BUDGET, group=group, budget=budget)
        if own_s is not None:
            return None
        return next(self._near(ask, node, in_action), None)

    def _near(self, ask: Ask, node: RepairNode, in_action: Mapping[tuple[str, str], float]) -> Iterator[HeldBack]:
        """The levels at which another node of the same domain has GPUs in action."""
        others = {name for name, _ in in_action} - {ask.node}
        for level in self.rules.levels:
            domain = node.labels.get(level)
            for other in sorted(others) if domain is not None else ():
                known = self._nodes.get(other) or self._gone.get(other)
                if known is not None and known.labels.get(level) == domain:
                    yield HeldBack(ask=ask, why=Why.LEVEL, level=level, other=other)

    def _used(self, group: str, in_action: Mapping[tuple[str, str], float]) -> int:
        found = self._uses.get(group)
        if found is None:
            found = self._uses[group] = len(self._counted(group, in_action))
        return found

    def _counted(self, group: str, in_action: Mapping[tuple[str, str], float]) -> list[float]:
        """The times from which on the GPUs of the group count that are in action."""
        resumed_s = self._resumed_s(group)
        return [at_s for (node, _), at_s in in_action.items() if at_s >= resumed_s and group in self._groups_of(node)]

    def _tripped(self, held: list[HeldBack], in_action: Mapping[tuple[str, str], float]) -> dict[str, Tripped]:
        """Derived from the record alone, so that a new leader says the same: the breaker trips when the last GPU of the
        budget was granted, or when the first ask came after that.
        """
        tripped: dict[str, Tripped] = {}
        waiting: dict[str, list[HeldBack]] = {}
        for each in held:
            if each.why is Why.BUDGET:
                waiting.setdefault(each.group, []).append(each)
        for group, asks in waiting.items():
            first_s = min(each.ask.since_s for each in asks)
            full_s = max(self._counted(group, in_action), default=0.0)
            tripped[group] = Tripped(since_s=max(first_s, full_s), budget=asks[0].budget, waiting=len(asks))
        return tripped

    def _resumed_s(self, group: str) -> float:
        """When the breaker was last lifted. A time to come says nothing: nothing would count until then."""
        if group == NO_FLAVOR:
            return max((at_s for at_s in self._lifted.values() if at_s <= self._now_s), default=0.0)
        flavor = self._flavors.get(group)
        return flavor.resumed_s if flavor is not None and flavor.resumed_s <= self._now_s else 0.0

    def _groups_of(self, node: str) -> tuple[str, ...]:
        found = self._groups.get(node)
        if found is None:
            found = self._groups[node] = self._flavors_of(node)
        return found

    def _flavors_of(self, node: str) -> tuple[str, ...]:
        known = self._nodes.get(node) or self._gone.get(node)
        if known is None:
            return (NO_FLAVOR,)
        labels = known.labels.items()
        found = sorted(name for name, flavor in self._flavors.items() if flavor.node_labels.items() <= labels)
        return tuple(found) or (NO_FLAVOR,)

    def _gpus_of(self, group: str) -> int:
        if self._totals is None:
            self._totals = self._sums()
        return self._totals.get(group, 0)

    def _sums(self) -> dict[str, int]:
        sums: dict[str, int] = {}
        for node, repairs in self._repairs.items():
            for group in self._flavors_of(node):
                sums[group] = sums.get(group, 0) + repairs.gpus
        return sums
