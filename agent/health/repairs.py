"""The state machine of the repairs of GPUs that the verdict has taken out. Pure.

    Unhealthy -> Draining -> Resetting -> Verifying -> Probation -> Healthy
                    |            |            |            |
                    |            +-- failed: Draining again, and after the last attempt RebootWanted
                    +-- lost, or NVML wants a reboot: RebootWanted;    the same fault too often: Retired

    judged(gpu, want, state, now_s), begun, reset_ended, verified, held_by, unable, ordered, returned -> RepairChange
    held_by, free -> asks -> the controller -> granted -> candidates

The verdict (``machine.HealthCore``) stays what it is. What follows from it and from the calls of the shell is here: the
shell asks ``candidates`` which GPU may be reset, and ``begun`` is called before the first step. ``now_s`` is in seconds
of a clock that goes on over restarts.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from agent.health.grants import Ask, AskFor, Asks, Grant
from agent.health.remediation import Action, RebootMode, Remediation, ResetMode, Want
from agent.health.repairstate import (
    ACTING,
    Order,
    Repair,
    RepairChange,
    RepairSnapshot,
    RepairState,
    ResetResult,
    interrupted,
    rebooted,
    resumed,
)
from agent.health.states import HealthState
from agent.words import repairs as words
from inventory.devices import GpuUuid

BREAKER_GPUS = 2
BREAKER_WINDOW_S = 600.0
"""The breaker of a node without an API server: at most BREAKER_GPUS are reset within BREAKER_WINDOW_S seconds, and one
at a time.
"""


_WITHHELD = frozenset(RepairState) - {RepairState.PROBATION}
_TRIED = frozenset({RepairState.RESETTING, RepairState.VERIFYING, RepairState.PROBATION})
_STEP = {RepairState.DRAINING: "drain", RepairState.PROBATION: "return", RepairState.REBOOT_WANTED: "reboot"}
"""The step that is under way in a state; what ends it from outside is told of it."""


class RepairCore:
    """The repairs of one node. Its owner calls it from one place.

    ``_repairs`` has at most one GPU in Resetting or Verifying: it is the breaker's, and its last reset stands in
    ``_resets``. A GPU without a repair has nothing done about it, and asks for nothing. One in ``_stopped`` has no
    repair until its faults are gone: a person has ended it.
    """

    def __init__(self, settings: Remediation, *, by_grant: bool = False) -> None:
        """``by_grant``: a reset takes a grant of the controller, in place of the breaker of this node."""
        self.settings = settings
        self.by_grant = by_grant
        self._asks = Asks()
        self._stopped: set[GpuUuid] = set()
        self._repairs: dict[GpuUuid, Repair] = {}
        self._faults: dict[GpuUuid, dict[str, tuple[float, ...]]] = {}
        self._open: dict[GpuUuid, frozenset[str]] = {}
        self._resets: dict[GpuUuid, float] = {}
        self._reset_before_s: float | None = None
        """When the GPU in Resetting was reset last: a reset that is refused leaves the breaker as it was."""

    # -- what the verdict says -----------------------------------------------------------------------------------

    def judged(self, gpu: GpuUuid, want: Want, state: HealthState, now_s: float) -> tuple[RepairChange, ...]:
        """Take the verdict on a GPU: the repair that its faults want, and its state. Returns the changes, none or one.

        Whatever took the faults away (a person's reset or reboot, too) ends a repair that has not begun.
        """
        repair, off = self._repairs.get(gpu), self.settings.reset is ResetMode.NEVER
        gone = want.action is Action.NONE and want.due_s is None
        if gone and not want.absent:
            self._open.pop(gpu, None)
        if repair is None:
            if gone:
                self._stopped.discard(gpu)
            return () if off or gpu in self._stopped else self._opened(gpu, want, now_s)
        if repair.state is RepairState.RETIRED:
            return ()
        if want.action is not Action.NONE and gpu not in self._open:
            # It had gone, as after a reset, and is there again.
            self._counted(gpu, want.reason, now_s)
        if repair.state in ACTING:
            return ()
        if off:
            return (self._switched_off(repair, now_s),)
        return self._goes_on(repair, want, state, now_s)

    def _goes_on(self, repair: Repair, want: Want, state: HealthState, now_s: float) -> tuple[RepairChange, ...]:
        """Take the verdict on a GPU in repair that nothing is done about at this moment."""
        gone = want.action is Action.NONE and want.due_s is None
        if want.action is not Action.NONE and (count := self._times(repair.gpu, want.reason, now_s)) >= self._most:
            note = words.too_often(want.cause, count, f"{self.settings.retire_within_s:g}")
            return (self._moved(repair, RepairState.RETIRED, "retire", "retired", note, now_s),)
        if want.absent and not (repair.wrong or repair.doubted):
            # A board that is gone has the verdict of one: what it needs is known when it is back.
            return (self._over(repair, _STEP[repair.state], "cleared", words.board_gone(), now_s),)
        well = gone and not want.absent and state is not HealthState.UNHEALTHY
        if repair.doubted and well:
            return self._verified_first(repair, now_s)
        if repair.state is RepairState.REBOOT_WANTED:
            over = well and not repair.wrong
            return (self._over(repair, "reboot", "over", words.cleared(), now_s),) if over else ()
        if want.action is Action.REBOOT:
            repair = replace(repair, reason=want.reason, cause=want.cause)
            return (self._moved(repair, RepairState.REBOOT_WANTED, "reboot", "wanted", want.cause, now_s),)
        if repair.state is RepairState.PROBATION:
            return self._on_probation(repair, want, state, now_s)
        return self._still_draining(repair, want, state, now_s)

    def _opened(self, gpu: GpuUuid, want: Want, now_s: float) -> tuple[RepairChange, ...]:
        if want.action is Action.NONE:
            return ()
        count = self._counted(gpu, want.reason, now_s)
        new, step, result = RepairState.DRAINING, "drain", "begun"
        note = want.cause
        if count >= self._most:
            new, step, result = RepairState.RETIRED, "retire", "retired"
            note = words.too_often(want.cause, count, f"{self.settings.retire_within_s:g}")
        elif want.action is Action.REBOOT:
            new, step, result = RepairState.REBOOT_WANTED, "reboot", "wanted"
        return (self._made(gpu, new, want, step, result, note, now_s),)

    def _counted(self, gpu: GpuUuid, reason: str, now_s: float) -> int:
        """Count this fault, unless it has stayed open since it was counted; how often it came within the time."""
        of_gpu, still = self._faults.setdefault(gpu, {}), self._open.get(gpu, frozenset())
        recent = self._recent(gpu, reason, now_s)
        of_gpu[reason] = tuple(recent if reason in still else (*recent, now_s)[-self._most :])
        self._open[gpu] = still | {reason}
        return len(of_gpu[reason])

    def _recent(self, gpu: GpuUuid, reason: str, now_s: float) -> list[float]:
        times = self._faults.get(gpu, {}).get(reason, ())
        return [at for at in times if now_s - self.settings.retire_within_s < at <= now_s]

    def _times(self, gpu: GpuUuid, reason: str, now_s: float) -> int:
        """How often this fault has been counted within the time."""
        return len(self._recent(gpu, reason, now_s))

    @property
    def _most(self) -> int:
        return self.settings.retire_faults

    def _on_probation(self, repair: Repair, want: Want, state: HealthState, now_s: float) -> tuple[RepairChange, ...]:
        if want.action is Action.RESET:
            return (self._failed(repair, "return", "again", want.cause, now_s),)
        if want.action is Action.NONE and state.advertised_healthy:
            note = words.returned_as_ordered() if repair.ordered else words.returned()
            return (self._over(repair, "return", "returned", note, now_s),)
        return ()

    def _verified_first(self, repair: Repair, now_s: float) -> tuple[RepairChange, ...]:
        """A GPU that was doubted has no fault any more: it is verified, once no other is in action."""
        if any(each.state in ACTING for each in self._repairs.values()):
            return ()
        step, result = ("verify", "interrupted") if repair.interrupted else ("reboot", "over")
        return (self._moved(repair, RepairState.VERIFYING, step, result, words.verified_first(), now_s),)

    def _still_draining(self, repair: Repair, want: Want, state: HealthState, now_s: float) -> tuple[RepairChange, ...]:
        if repair.doubted:
            again = want.action is Action.RESET
            return (self._failed(repair, "reboot", "wanted", want.cause, now_s),) if again else ()
        if want.action is Action.RESET or (want.due_s is None and (repair.wrong or repair.ordered)):
            # An interrupted reset of a GPU without a fault is known by nothing but that it was observed.
            if repair.interrupted and repair.attempt >= self.settings.attempts:
                # That it was interrupted has been told by the restart.
                return (self._failed(repair, "reboot", "wanted", words.interrupted(), now_s),)
            return ()
        if want.due_s is not None or state is HealthState.UNHEALTHY:
            return ()
        if repair.interrupted and self._may_verify(repair.gpu, now_s):
            # The reset that the agent died in has taken place: it is verified as any other.
            step, result = ("verify", "interrupted") if repair.was_reset else ("reset", "done")
            return (self._moved(repair, RepairState.VERIFYING, step, result, repair.note, now_s),)
        return () if repair.interrupted else (self._over(repair, "drain", "cleared", words.cleared(), now_s),)

    # -- what the shell does -------------------------------------------------------------------------------------

    def candidates(self, now_s: float) -> tuple[GpuUuid, ...]:
        """The GPUs that may be reset or verified now, those that wait longest first; the breaker, or the controller,
        lets no other.
        """
        if acting := [repair.gpu for repair in self._repairs.values() if repair.state in ACTING]:
            return tuple(acting)
        if self.settings.reset is ResetMode.NEVER:
            return ()
        waiting = [repair for repair in self._repairs.values() if repair.awaits_reset]
        waiting.sort(key=lambda repair: (repair.since_s, repair.gpu))
        return tuple(repair.gpu for repair in waiting if self._let(repair.gpu, now_s))

    def breaker_open_s(self, now_s: float) -> float | None:
        """The time at which the breaker lets another GPU be reset; None while it does."""
        # A clock that was set back must not hold the breaker until it has caught up.
        recent = sorted(min(at, now_s) for at in self._resets.values() if now_s - BREAKER_WINDOW_S < at)
        return recent[-BREAKER_GPUS] + BREAKER_WINDOW_S if len(recent) >= BREAKER_GPUS else None

    def _let(self, gpu: GpuUuid, now_s: float) -> bool:
        """Whether the breaker lets this GPU be reset; another attempt at one that it let is no other GPU."""
        if self.by_grant:
            ask = self._asks.get(gpu)
            return ask is not None and ask.lets(AskFor.RESET, now_s)
        at = self._resets.get(gpu)
        return self.breaker_open_s(now_s) is None or (at is not None and now_s - BREAKER_WINDOW_S < at)

    def _may_verify(self, gpu: GpuUuid, now_s: float) -> bool:
        """Whether a reset that took place may be verified: that disturbs nobody, and takes no grant."""
        if self.by_grant:
            return not any(repair.state in ACTING for repair in self._repairs.values())
        return gpu in self.candidates(now_s)

    def begun(self, gpu: GpuUuid, now_s: float) -> RepairChange:
        """Begin a reset: nobody has the GPU, and no list has it as Healthy. It must be one of ``candidates``."""
        assert gpu in self.candidates(now_s), f"{gpu} may not be reset now"
        repair = self._repairs[gpu]
        repair = replace(repair, attempt=repair.attempt + 1, interrupted=False, was_reset=False)
        self._reset_before_s = self._resets.get(gpu)
        self._resets[gpu] = now_s
        return self._moved(repair, RepairState.RESETTING, "drain", "free", words.resetting(repair.attempt), now_s)

    def reset_ended(self, gpu: GpuUuid, result: ResetResult, detail: str, now_s: float) -> RepairChange:
        """The reset has ended. One that was refused because somebody has the GPU is no attempt, and none to the
        breaker.
        """
        repair = self._repairs[gpu]
        assert repair.state is RepairState.RESETTING, f"{gpu} is {repair.state}"
        if result is ResetResult.DONE:
            repair = replace(repair, wrong=False, ordered=False)
            return self._moved(repair, RepairState.VERIFYING, "reset", result.value, detail or words.reset(), now_s)
        if result is ResetResult.BUSY:
            repair = replace(repair, attempt=repair.attempt - 1)
            del self._resets[gpu]
            if self._reset_before_s is not None:
                self._resets[gpu] = self._reset_before_s
            return self._moved(repair, RepairState.DRAINING, "reset", result.value, detail, now_s)
        return self._failed(repair, "reset", result.value, detail, now_s)

    def verified(self, gpu: GpuUuid, wrong: str, now_s: float) -> RepairChange:
        """The GPU was looked at after its reset; ``wrong`` is empty where all is as it should be."""
        repair = self._repairs[gpu]
        assert repair.state is RepairState.VERIFYING, f"{gpu} is {repair.state}"
        if wrong:
            return self._failed(replace(repair, wrong=True), "verify", "failed", wrong, now_s)
        repair = replace(repair, interrupted=False, was_reset=False, doubted=False)
        return self._moved(repair, RepairState.PROBATION, "verify", "passed", words.verified(), now_s)

    def unverified(self, gpu: GpuUuid, why: str) -> bool:
        """Take that a GPU in Verifying could not be looked at, as ``why`` says: it stays there. True where that is
        news.
        """
        repair = self._repairs[gpu]
        assert repair.state is RepairState.VERIFYING, f"{gpu} is {repair.state}"
        return self._noted(repair, why)

    def reset_seen(self, gpu: GpuUuid) -> None:
        """Record that a reset of the GPU was observed. Where none of ours is under way it is a person's: what was
        ordered before it is past, and a GPU that was found wrong, or that our resets did not help, is doubted.
        """
        repair = self._repairs.get(gpu)
        if repair is not None and repair.state not in ACTING:
            failed = repair.attempt > 0 and repair.state is RepairState.REBOOT_WANTED
            doubted = repair.doubted or repair.wrong or failed
            self._repairs[gpu] = replace(repair, wrong=False, ordered=False, doubted=doubted)

    def held_by(self, gpu: GpuUuid, who: str, now_s: float, *, by_pods: bool = False, held_back: bool = False) -> bool:
        """A GPU in Draining waits, for what ``who`` says in one line. True where that is news. ``by_pods``: pods have
        it, and with ``drain`` the controller is asked to let them leave. ``held_back``: so does the node's breaker.
        """
        repair = self._repairs.get(gpu)
        if repair is None or repair.state is not RepairState.DRAINING:
            return False
        if self.by_grant and by_pods and self.settings.reset is ResetMode.DRAIN:
            self._asks.ask(gpu, AskFor.DRAIN, now_s)
        else:
            self._asks.withdraw(gpu)
        return self._noted(replace(repair, held_back=held_back), who)

    def free(self, gpu: GpuUuid, now_s: float, note: str = "") -> bool:
        """Take that nobody has a GPU in Draining: the controller is asked for its reset. True where that is news.
        ``note``: why it will not grant it; empty where it may.
        """
        repair = self._repairs.get(gpu)
        if repair is None or repair.state is not RepairState.DRAINING or not self.by_grant:
            return False
        news = self._asks.ask(gpu, AskFor.RESET, now_s)
        return self._noted(repair, note or words.reset_asked()) or news

    def _noted(self, repair: Repair, note: str) -> bool:
        self._repairs[repair.gpu] = replace(repair, note=note)
        return repair.note != note

    def granted(self, grants: Iterable[Grant], now_s: float) -> bool:
        """Take the controller's grants as they are now. True where one lets a step happen."""
        return self._asks.granted(grants, now_s)

    def lapse(self, now_s: float) -> bool:
        """Ask anew where a grant has lapsed. True where one has."""
        return self._asks.lapse(now_s)

    def unable(self, gpu: GpuUuid, why: str, now_s: float) -> RepairChange:
        """Record that the GPU cannot be reset by itself, as ``why`` says: it wants a reboot."""
        return self._moved(self._repairs[gpu], RepairState.REBOOT_WANTED, "reboot", "wanted", why, now_s)

    def returned(self, gpu: GpuUuid, now_s: float) -> RepairChange | None:
        """A person gives a retired GPU back, and its faults are counted anew. None where it is not retired."""
        repair = self._repairs.get(gpu)
        if repair is None or repair.state is not RepairState.RETIRED:
            return None
        self._faults.pop(gpu, None)
        self._open.pop(gpu, None)
        return self._over(repair, "retire", "returned", words.given_back(), now_s)

    # -- what a person orders ------------------------------------------------------------------------------------

    def ordered(self, gpu: GpuUuid, order: str, now_s: float) -> tuple[tuple[RepairChange, ...], str]:
        """Obey a person's order, or refuse it. Returns the changes, none or one, and the answer in one line."""
        repair = self._repairs.get(gpu)
        if order not in frozenset(Order):
            return (), words.order_unknown(repr(order[:40]))
        if repair is not None and repair.state in ACTING:
            return (), words.order_too_late(repair.state.value)
        match Order(order):
            case Order.START:
                return self._start(gpu, repair, now_s)
            case Order.STOP:
                return self._stop(repair, now_s)
            case Order.RETIRE:
                return self._retire(gpu, repair, now_s)
            case Order.RETURN:
                back = self.returned(gpu, now_s)
                return ((), words.order_not_retired()) if back is None else ((back,), words.order_returned())

    def _start(self, gpu: GpuUuid, repair: Repair | None, now_s: float) -> tuple[tuple[RepairChange, ...], str]:
        if self.settings.reset is ResetMode.NEVER:
            return (), words.order_never()
        if repair is not None:
            return (), _has_one(repair)
        self._stopped.discard(gpu)
        want = Want(reason="Ordered", cause=words.by_order(), since_s=now_s)
        change = self._made(gpu, RepairState.DRAINING, want, "drain", "begun", want.cause, now_s, ordered=True)
        return (change,), words.order_started()

    def _stop(self, repair: Repair | None, now_s: float) -> tuple[tuple[RepairChange, ...], str]:
        if repair is None:
            return (), words.order_no_repair()
        if repair.state is RepairState.RETIRED:
            return (), words.order_retired()
        self._stopped.add(repair.gpu)
        return (self._over(repair, _STEP[repair.state], "stopped", words.stopped(), now_s),), words.order_stopped()

    def _retire(self, gpu: GpuUuid, repair: Repair | None, now_s: float) -> tuple[tuple[RepairChange, ...], str]:
        if self.settings.reset is ResetMode.NEVER:
            return (), words.order_never()
        note = words.retired_by_order()
        self._stopped.discard(gpu)
        if repair is None:
            want = Want(reason="Ordered", cause=note, since_s=now_s)
            return (self._made(gpu, RepairState.RETIRED, want, "retire", "retired", note, now_s),), words.order_out()
        if repair.state is RepairState.RETIRED:
            return (), _has_one(repair)
        return (self._moved(repair, RepairState.RETIRED, "retire", "retired", note, now_s),), words.order_out()

    # -- settings, discovery, restart ----------------------------------------------------------------------------

    def reconfigured(self, settings: Remediation, now_s: float) -> tuple[RepairChange, ...]:
        """Take new settings. With ``never`` every repair ends, but for a reset that is under way; what is retired
        stays so, since that is no repair.
        """
        self.settings = settings
        if settings.reset is not ResetMode.NEVER:
            for repair in self._repairs.values():
                if repair.state is RepairState.REBOOT_WANTED:
                    self._ask_for_reboot(repair.gpu, now_s)
            return ()
        stays = ACTING | {RepairState.RETIRED}
        ending = [repair for repair in self._repairs.values() if repair.state not in stays]
        return tuple(self._switched_off(repair, now_s) for repair in ending)

    def keep(self, gpus: Iterable[GpuUuid]) -> None:
        """Drop what is known of boards that are not on this node any more; a reset that is under way ends first."""
        here = {*gpus, *(repair.gpu for repair in self._repairs.values() if repair.state in ACTING)}
        for known in (self._repairs, self._faults, self._open, self._resets):
            for gpu in [gpu for gpu in known if gpu not in here]:
                del known[gpu]
        self._asks.keep(here)
        self._stopped &= here

    def snapshot(self) -> RepairSnapshot:
        asks, generations = self._asks.snapshot()
        return RepairSnapshot(
            repairs=tuple(self._repairs.values()),
            faults={gpu: dict(counts) for gpu, counts in self._faults.items()},
            resets=dict(self._resets),
            asks=asks,
            generations=generations,
            stopped=tuple(sorted(self._stopped)),
            open=dict(self._open),
        )

    def restore(self, snapshot: RepairSnapshot, *, same_boot: bool, now_s: float) -> tuple[RepairChange, ...]:
        """Take what an earlier agent knew. A reset that it died in goes on as ``interrupted``, which is a change; a
        reboot has ended every repair but Retired, and those of GPUs that a reset of ours did not help, as far as is
        known: they are verified before they return.
        """
        self._faults = {gpu: dict(counts) for gpu, counts in snapshot.faults.items()}
        self._resets = dict(snapshot.resets)
        known = (resumed(each) if same_boot else rebooted(each, now_s) for each in snapshot.repairs)
        self._repairs = {repair.gpu: repair for repair in known if repair is not None}
        asking = {gpu: ask for gpu, ask in snapshot.asks.items() if gpu in self._repairs}
        self._asks.restore(asking if same_boot else {}, snapshot.generations)
        self._stopped = set(snapshot.stopped) if same_boot else set()
        self._open = dict(snapshot.open) if same_boot else {}
        died = [repair for repair in snapshot.repairs if repair.state is RepairState.RESETTING and same_boot]
        return tuple(interrupted(repair.gpu, now_s) for repair in died)

    # -- queries -------------------------------------------------------------------------------------------------

    def repairs(self) -> tuple[Repair, ...]:
        return tuple(self._repairs.values())

    @property
    def idle(self) -> bool:
        """Whether a verdict changes nothing: nothing is repaired, and no fault is open that was counted."""
        return self.settings.reset is ResetMode.NEVER and not self._repairs and not self._open

    def repair(self, gpu: GpuUuid) -> Repair | None:
        return self._repairs.get(gpu)

    def stopped(self, gpu: GpuUuid) -> bool:
        """Whether a person has ended the GPU's repair, and its faults have not gone since."""
        return gpu in self._stopped

    def ask(self, gpu: GpuUuid) -> Ask | None:
        """The ask for the GPU; None where nothing is asked for."""
        ask = self._asks.get(gpu)
        return ask if ask is not None and ask.stands else None

    def withheld(self) -> Mapping[GpuUuid, str]:
        """The GPUs that no new container gets for their repair, each with one line why."""
        waiting = self._in_service()
        return {
            repair.gpu: words.withheld(repair.state.value)
            for repair in self._repairs.values()
            if repair.state in _WITHHELD and repair.gpu not in waiting
        }

    def _in_service(self) -> frozenset[GpuUuid]:
        """The GPUs without a fault that are ordered to be reset and stay in service: those that the controller has not
        granted, but for the first of them, which is kept free so that its turn comes.
        """
        if not self.by_grant:
            return frozenset()
        ordered = [repair for repair in self._repairs.values() if repair.awaits_reset and repair.ordered]
        waiting = [repair for repair in ordered if repair.attempt == 0 and not self._is_granted(repair.gpu)]
        waiting.sort(key=lambda repair: (repair.since_s, repair.gpu))
        return frozenset(repair.gpu for repair in waiting[1:])

    def _is_granted(self, gpu: GpuUuid) -> bool:
        ask = self._asks.get(gpu)
        return ask is not None and ask.until_s is not None

    def validate(self) -> None:
        """Recompute the invariants."""
        acting = [repair for repair in self._repairs.values() if repair.state in ACTING]
        assert len(acting) <= 1, "two GPUs are in action"
        for gpu, repair in self._repairs.items():
            assert gpu == repair.gpu, "a repair is filed under another GPU"
            assert repair.attempt >= 0, f"{gpu} has attempts below none"
            tried = repair.state in _TRIED
            assert not tried or repair.attempt > 0, f"{gpu} is {repair.state} without an attempt"
            assert not tried or gpu in self._resets, f"{gpu} is {repair.state}, and the breaker does not know it"
            doubts = repair.interrupted or repair.doubted
            assert not doubts or repair.attempt > 0, f"{gpu} was interrupted in no reset, or is doubted without one"
            assert not doubts or gpu in self._resets, f"{gpu} was reset, and the breaker does not know it"
            told = repair.wrong or repair.ordered
            assert not told or not tried or repair.state is RepairState.RESETTING, (
                f"{gpu} is {repair.state}, and is not"
            )
        for of_gpu in self._faults.values():
            assert all(tuple(sorted(times)) == times for times in of_gpu.values()), "counts are out of order"
        for gpu, reasons in self._open.items():
            assert reasons <= self._faults.get(gpu, {}).keys(), f"{gpu} has an open fault that was never counted"
        self._asks.validate()
        asks, _ = self._asks.snapshot()
        for gpu, ask in asks.items():
            asking = self._repairs.get(gpu)
            assert asking is not None, f"{gpu} asks, and has no repair"
            waits = RepairState.REBOOT_WANTED if ask.action is AskFor.REBOOT else RepairState.DRAINING
            assert asking.state is waits, f"{gpu} is {asking.state}, and asks for {ask.action}"
        assert self._stopped.isdisjoint(self._repairs), "a repair that was stopped goes on"

    # -- steps ---------------------------------------------------------------------------------------------------

    def _failed(self, repair: Repair, step: str, result: str, why: str, now_s: float) -> RepairChange:
        """An attempt did not help: the next one, or a reboot after the last."""
        last = repair.doubted or repair.attempt >= self.settings.attempts
        new = RepairState.REBOOT_WANTED if last else RepairState.DRAINING
        note = words.attempts_over(repair.attempt, why) if last else words.attempt_failed(repair.attempt, why)
        repair = replace(repair, interrupted=False, was_reset=False, doubted=False)
        return self._moved(repair, new, step, result, note, now_s)

    def _made(
        self,
        gpu: GpuUuid,
        new: RepairState,
        want: Want,
        step: str,
        result: str,
        note: str,
        now_s: float,
        *,
        ordered: bool = False,
    ) -> RepairChange:
        """A repair begins."""
        since_s, why, cause = want.since_s, want.reason, want.cause
        begun = Repair(gpu=gpu, state=new, since_s=now_s, fault_s=since_s, reason=why, cause=cause, ordered=ordered)
        self._repairs[gpu] = replace(begun, note=note)
        if new is RepairState.REBOOT_WANTED:
            self._ask_for_reboot(gpu, now_s)
        return RepairChange(gpu=gpu, old=None, new=new, step=step, result=result, note=note, at_s=now_s)

    def _ask_for_reboot(self, gpu: GpuUuid, now_s: float) -> None:
        if self.by_grant and self.settings.reboot is RebootMode.ASK:
            self._asks.ask(gpu, AskFor.REBOOT, now_s)
        else:
            self._asks.used(gpu)

    def _moved(self, repair: Repair, new: RepairState, step: str, result: str, note: str, now_s: float) -> RepairChange:
        self._repairs[repair.gpu] = replace(repair, state=new, since_s=now_s, note=note, held_back=False)
        self._asks.used(repair.gpu)
        if new is RepairState.REBOOT_WANTED:
            self._ask_for_reboot(repair.gpu, now_s)
        return RepairChange(gpu=repair.gpu, old=repair.state, new=new, step=step, result=result, note=note, at_s=now_s)

    def _switched_off(self, repair: Repair, now_s: float) -> RepairChange:
        return self._over(repair, _STEP[repair.state], "ended", words.switched_off(), now_s)

    def _over(self, repair: Repair, step: str, result: str, note: str, now_s: float) -> RepairChange:
        del self._repairs[repair.gpu]
        self._asks.used(repair.gpu)
        back = result == "returned" and step == "return"
        return RepairChange(
            gpu=repair.gpu,
            old=repair.state,
            new=None,
            step=step,
            result=result,
            note=note,
            at_s=now_s,
            repair_s=max(0.0, now_s - repair.fault_s) if back else None,
        )


def _has_one(repair: Repair) -> str:
    """Refuse an order for a GPU that has a repair."""
    return words.order_retired() if repair.state is RepairState.RETIRED else words.order_in_repair(repair.state.value)
