"""One resource group for one request: its flavors are tried in order, and the best of those tried is taken.

Trying a flavor is arithmetic on the queue's cells; where that does not settle it, the preemption oracle is asked about
each flavor-resource by itself. The queue's ``flavorFungibility`` decides which of two flavors is better, and whether a
flavor is good enough to look no further (KEP-582).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.flavors.assignment import (
    FlavorAttempt,
    FlavorChoice,
    Mode,
    NoFitReason,
    Possibility,
    QuotaNoFit,
)
from controller.scheduler.flavors.plan import FlavorOption, GroupPlan
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.resources import UNLIMITED, Amount, FlavorName, FlavorResource, ResourceName
from controller.scheduler.quota.cells import Cell
from controller.scheduler.quota.queuestate import Policies

_MODES = {
    Possibility.NO_CANDIDATES: Mode.NO_CANDIDATES,
    Possibility.PREEMPT: Mode.PREEMPT,
    Possibility.RECLAIM: Mode.RECLAIM,
}
_POSSIBILITIES = {mode: possibility for possibility, mode in _MODES.items()}

FlavorRank = tuple[int, int, int]


class PreemptionOracle(Protocol):
    """What preemption could do for one flavor-resource alone, without regard to topology."""

    @property
    def is_monotonic(self) -> bool:
        """Whether an amount that cannot be freed implies the same for every larger amount."""

    def simulate(self, incoming: Incoming, fr: FlavorResource, amount: Amount) -> tuple[Possibility, int]:
        """Whether ``amount`` could be freed, by preempting whom, and the level at which the queue would then
        borrow.
        """


class FungibilityRules:
    """The policies of one queue that decide among its flavors."""

    def __init__(self, policies: Policies, config: EngineConfig) -> None:
        self.fungible = config.gates.on("FlavorFungibility")
        self.borrow_before_preempt = policies.preference != "PreemptionOverBorrowing"
        self.stop_at_borrow = policies.when_can_borrow != "TryNextFlavor"
        self.stop_at_preempt = policies.when_can_preempt != "TryNextFlavor"
        # A missing policy is not Never here, though it yields no candidates (as in Kueue).
        self.preempt_while_borrowing = policies.borrow_within_cohort != "Never" or (
            config.fair_sharing is not None and policies.reclaim_within_cohort != "Never"
        )

    def rank(self, mode: Mode, borrow: int) -> FlavorRank:
        """The sort key of a flavor; larger is better. Under every preference "no fit" is worst, then "no
        candidates".
        """
        if mode <= Mode.NO_CANDIDATES:
            return (mode, -borrow, 0)
        if self.borrow_before_preempt:
            return (Mode.PREEMPT, mode, -borrow)
        return (Mode.PREEMPT, -borrow, mode)

    def stand_rank(self, stand: tuple[Mode, int]) -> FlavorRank:
        return self.rank(*stand)

    def good_enough(self, mode: Mode, borrow: int) -> bool:
        """Whether a flavor is good enough to look no further."""
        if not self.fungible:
            return mode is Mode.FIT
        if mode <= Mode.NO_CANDIDATES:
            return False
        return (mode is Mode.FIT or self.stop_at_preempt) and (borrow == 0 or self.stop_at_borrow)


class GroupRequest:
    """The request to one resource group. ``assumed`` is what earlier pod sets of the workload have taken already.

    ``kept``: the flavors on which an elastic slice must stay; ``held``: what its predecessor holds of each resource, so
    that only the increase is requested. ``pinned``: the only flavor to look at, by resource. ``hopeless``: amounts for
    which the oracle found no victims; pod sets of one workload share it, and only ``simulated`` writes it.
    """

    def __init__(
        self,
        incoming: Incoming,
        amounts: Mapping[ResourceName, Amount],
        assumed: Mapping[FlavorResource, Amount],
        start: int = 0,
        *,
        kept: Mapping[ResourceName, FlavorName] | None = None,
        held: Mapping[ResourceName, Amount] | None = None,
        pinned: Mapping[ResourceName, FlavorName] | None = None,
        hopeless: dict[FlavorResource, Amount] | None = None,
    ) -> None:
        self.hopeless = hopeless
        self.incoming = incoming
        self.amounts = amounts
        self.assumed = assumed
        self.start = start
        self.kept = kept
        self.held = held
        self.pinned = pinned

    def amount(self, name: ResourceName, fr: FlavorResource) -> Amount:
        """What all pod sets so far, this one included, would be charged for this flavor-resource."""
        amount = self.amounts[name]
        if self.held is not None:
            amount = max(0, amount - self.held.get(name, 0))
        return amount + self.assumed.get(fr, 0) if self.assumed else amount

    def simulated(self, oracle: PreemptionOracle, fr: FlavorResource, amount: Amount) -> tuple[Possibility, int]:
        """The oracle's answer. Where a smaller amount of an earlier pod set found no candidates, no further search is
        made.
        """
        if self.hopeless is None:
            return oracle.simulate(self.incoming, fr, amount)
        if (least := self.hopeless.get(fr)) is not None and amount >= least:
            return Possibility.NO_CANDIDATES, self.incoming.queue.node.borrow_level(fr, amount).height
        possibility, level = oracle.simulate(self.incoming, fr, amount)
        if possibility is Possibility.NO_CANDIDATES:
            self.hopeless[fr] = amount
        return possibility, level


class ScanResult(NamedTuple):
    """The result of a scan. ``choices`` is empty where no flavor is better than no fit. ``no_fit_reason``: why tried
    flavors did not fit, also where another one did; NONE where all did.
    """

    choices: dict[ResourceName, FlavorChoice]
    attempts: list[FlavorAttempt]
    no_fit_reason: NoFitReason = NoFitReason.NONE


def least_severe(attempts: list[FlavorAttempt]) -> NoFitReason:
    """The reason of the flavor that is nearest to fitting, which says what is waited for; NONE where no
    attempt failed.
    """
    return min((attempt.no_fit_reason for attempt in attempts if attempt.mode is Mode.NO_FIT), default=NoFitReason.NONE)


_Stand = tuple[Mode, int]
"""The mode and the borrow level of one resource."""
_FITS: Final[_Stand] = (Mode.FIT, 0)
_UNFIT: Final[_Stand] = (Mode.NO_FIT, 0)


def scan(group: GroupPlan, request: GroupRequest, rules: FungibilityRules, oracle: PreemptionOracle) -> ScanResult:
    """Try the flavors from index ``request.start`` on, and choose the best."""
    attempts: list[FlavorAttempt] = []
    best: FlavorOption | None = None
    highest: FlavorRank = (Mode.NO_FIT, 0, 0)
    stands: list[_Stand] = []
    tried = -1
    for option in group.options[request.start :]:
        pinned = request.pinned
        if pinned is not None and any(pinned.get(name) != option.name for name in group.resources):
            continue
        tried = option.index
        if option.problem is not None:
            attempts.append(option.refusal)
            continue
        attempt, option_stands = _try(option, request, rules, oracle)
        attempts.append(attempt)
        if attempt.mode is Mode.NO_FIT:
            continue
        rank = rules.rank(attempt.mode, attempt.borrow)
        stop = rules.good_enough(attempt.mode, attempt.borrow)
        if stop or rank > highest:
            highest, best, stands = rank, option, option_stands
        if stop:
            break
    if best is None:
        return ScanResult({}, attempts, least_severe(attempts))
    place = tried if tried != group.last and rules.fungible else -1
    choices = {
        name: _choice(best, mode, borrow, place) for name, (mode, borrow) in zip(group.resources, stands, strict=True)
    }
    return ScanResult(choices, attempts, least_severe(attempts) if len(attempts) > 1 else NoFitReason.NONE)


def _choice(option: FlavorOption, mode: Mode, borrow: int, tried: int) -> FlavorChoice:
    ready = option.fitting
    if mode is Mode.FIT and borrow == 0 and tried == ready.tried_index:
        return ready
    return FlavorChoice(option.name, mode, borrow, tried)


def _try(
    option: FlavorOption, request: GroupRequest, rules: FungibilityRules, oracle: PreemptionOracle
) -> tuple[FlavorAttempt, list[_Stand]]:
    """How the request fits one flavor, resource by resource in the group's order."""
    if request.kept is not None:
        conflict = _slice_conflict(option, request.kept)
        if conflict:
            reason = NoFitReason.NoMatchingFlavor
            return FlavorAttempt(flavor=option.name, mode=Mode.NO_FIT, no_fit_reason=reason, problem=conflict), []
    for name, fr, cell in option.cells:
        amount = request.amount(name, fr)
        borrows = cell.parent is not None and cell.usage + amount > cell.subtree_quota
        if borrows or (amount > cell.available() and amount):
            return _weigh(option, request, rules, oracle)
    return option.fits, [_FITS] * len(option.cells)


def _weigh(
    option: FlavorOption, request: GroupRequest, rules: FungibilityRules, oracle: PreemptionOracle
) -> tuple[FlavorAttempt, list[_Stand]]:
    """``_try`` for a request that is not simply within what is free of the queue's own quota. The oracle is asked last,
    and not at all where some resource does not fit anyway.
    """
    stands: list[_Stand] = []
    short: list[QuotaNoFit] = []
    unsettled: list[tuple[int, FlavorResource, Amount]] = []
    reason, unfit_borrow = NoFitReason.NONE, 0
    node = request.incoming.queue.node
    for index, (name, fr, cell) in enumerate(option.cells):
        amount = request.amount(name, fr)
        available = cell.available()
        if amount <= available or amount == 0:
            borrows = cell.parent is not None and cell.usage + amount > cell.subtree_quota
            stands.append((Mode.FIT, node.borrow_level(fr, amount).height) if borrows else _FITS)
            continue
        potential = cell.potential()
        short.append(_shortfall(name, cell, amount, available, potential))
        stands.append(_UNFIT)
        if amount > potential:
            reason, unfit_borrow = NoFitReason.ExceedsMaxQuota, 0
            continue
        if cell.nominal >= amount or rules.preempt_while_borrowing:
            unsettled.append((index, fr, amount))
            continue
        level = node.borrow_level(fr, amount)
        if level.below_root:
            unsettled.append((index, fr, amount))
        elif reason is NoFitReason.NONE:
            reason, unfit_borrow = NoFitReason.WaitingForQuota, level.height
    if reason is not NoFitReason.NONE:
        mode, borrow = Mode.NO_FIT, unfit_borrow
    else:
        for index, fr, amount in unsettled:
            possibility, after = request.simulated(oracle, fr, amount)
            stands[index] = (_MODES[possibility], after)
        mode, borrow = min(stands, key=rules.stand_rank) if len(stands) > 1 else stands[0]
    attempt = FlavorAttempt(
        flavor=option.name,
        mode=mode,
        borrow=borrow,
        possibility=_POSSIBILITIES.get(mode),
        no_fit_reason=reason,
        shortfalls=tuple(short),
    )
    return attempt, stands


def _slice_conflict(option: FlavorOption, kept: Mapping[ResourceName, FlavorName]) -> str:
    """Why the flavor is not open to a slice that replaces another: the slice must stay on its flavors. Empty if it may
    have the flavor.
    """
    for name, _, _ in option.cells:
        flavor = kept.get(name, option.name)
        if flavor != option.name:
            return f"the slice that this one replaces has {name} on flavor {flavor}"
    return ""


def _shortfall(name: ResourceName, cell: Cell, needed: Amount, available: Amount, potential: Amount) -> QuotaNoFit:
    return QuotaNoFit(
        resource=name,
        needed=needed,
        available=max(available, 0),
        potential=min(potential, UNLIMITED),
        nominal=min(cell.nominal, UNLIMITED),
        used=cell.usage,
    )
