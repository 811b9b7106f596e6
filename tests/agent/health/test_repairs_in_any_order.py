"""Repairs keep their rules in any order of faults, holders, resets, reboots, orders and deaths of the agent."""

from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.health.grants import AskFor, Grant
from agent.health.remediation import Action, Remediation, ResetMode, Want
from agent.health.repairs import BREAKER_GPUS, BREAKER_WINDOW_S, RepairCore
from agent.health.repairstate import Order, RepairState, ResetResult
from inventory.devices import GpuUuid
from tests.agent.health.test_repairs import OUT, TRIAL, WELL, A, B, C, again


class AnyOrder(RuleBasedStateMachine):
    """A node of three GPUs, as the core comes to see it. ``faulty`` is what each GPU's faults want; ``held`` who has
    it; ``resets`` are the resets that have begun, with their time.
    """

    @initialize(
        attempts=st.integers(1, 3),
        faults=st.integers(1, 4),
        by_grant=st.booleans(),
        reset=st.sampled_from([ResetMode.WHEN_FREE, ResetMode.DRAIN]),
    )
    def begin(self, attempts: int, faults: int, by_grant: bool, reset: ResetMode) -> None:
        self.settings = Remediation(reset=reset, attempts=attempts, retire_faults=faults, retire_within_s=1000.0)
        self.core = RepairCore(self.settings, by_grant=by_grant)
        self.given: set[tuple[GpuUuid, int]] = set()
        self.now_s = 0.0
        self.faulty: dict[GpuUuid, Action] = dict.fromkeys((A, B, C), Action.NONE)
        self.verdict = dict.fromkeys((A, B, C), WELL)
        self.held: set[GpuUuid] = set()
        self.resets: list[tuple[float, GpuUuid]] = []
        self.tries = dict.fromkeys((A, B, C), 0)
        self.retired: set[GpuUuid] = set()
        self.bad: set[GpuUuid] = set()

    def tell(self, gpu: GpuUuid) -> None:
        before = self.core.repair(gpu)
        action = self.faulty[gpu]
        want = Want(action=action, reason=f"{action}", cause="fault", since_s=self.now_s) if action else Want()
        for change in self.core.judged(gpu, want, self.verdict[gpu], self.now_s):
            if change.new is RepairState.RETIRED:
                self.retired.add(gpu)
            if change.new is None:
                self.tries[gpu] = 0
            if before is None and action is Action.REBOOT:
                assert change.new in (RepairState.REBOOT_WANTED, RepairState.RETIRED)

    @rule(gpu=st.sampled_from([A, B, C]), action=st.sampled_from([Action.RESET, Action.REBOOT]))
    def fault(self, gpu: GpuUuid, action: Action) -> None:
        if self.faulty[gpu] is not Action.REBOOT:
            self.faulty[gpu] = action
        self.verdict[gpu] = OUT
        self.tell(gpu)

    @rule(gpu=st.sampled_from([A, B, C]))
    def person_resets_or_reboots(self, gpu: GpuUuid) -> None:
        self.faulty[gpu], self.verdict[gpu] = Action.NONE, TRIAL
        self.core.reset_seen(gpu)
        self.tell(gpu)

    @rule(cured=st.sets(st.sampled_from([A, B, C])))
    def node_reboots(self, cured: set[GpuUuid]) -> None:
        self.core = again(self.core, same_boot=False, settings=self.settings)
        for gpu in (A, B, C):
            if self.core.repair(gpu) is None:
                self.tries[gpu] = 0
            if gpu in cured:
                self.faulty[gpu], self.verdict[gpu] = Action.NONE, TRIAL
            self.tell(gpu)

    @rule(gpu=st.sampled_from([A, B, C]))
    def probation_passes(self, gpu: GpuUuid) -> None:
        if self.faulty[gpu] is Action.NONE:
            self.verdict[gpu] = WELL
        self.tell(gpu)

    @rule(gpu=st.sampled_from([A, B, C]))
    def holder_comes_or_goes(self, gpu: GpuUuid) -> None:
        self.held ^= {gpu}

    @rule(seconds=st.sampled_from([1.0, 100.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(
        result=st.sampled_from(ResetResult),
        wrong=st.sampled_from(["", "a link is down"]),
        dies=st.sampled_from(["", "in reset", "before verifying"]),
    )
    @precondition(lambda self: bool(self.core.candidates(self.now_s)))
    def shell_acts(self, result: ResetResult, wrong: str, dies: str) -> None:
        gpu = self.core.candidates(self.now_s)[0]
        repair = self.core.repair(gpu)
        assert repair is not None
        if repair.state is RepairState.DRAINING:
            if gpu in self.held:
                self.core.held_by(gpu, "a pod", self.now_s)
                return
            assert self.faulty[gpu] is not Action.REBOOT, "a lost GPU is reset"
            if self.core.by_grant:
                ask = self.core.ask(gpu)
                assert ask is not None
                assert (gpu, ask.generation) in self.given, "a GPU is reset without a grant"
                self.given.discard((gpu, ask.generation))
            self.core.begun(gpu, self.now_s)
            self.resets.append((self.now_s, gpu))
            self.tries[gpu] += 1
            if result is ResetResult.DONE:
                self.faulty[gpu], self.verdict[gpu] = Action.NONE, TRIAL
            if dies == "in reset":
                self.agent_dies()
                return
            self.core.reset_ended(gpu, result, "why", self.now_s)
            if result is ResetResult.BUSY:
                self.tries[gpu] -= 1
                self.resets.pop()
            if result is not ResetResult.DONE or dies:
                if dies:
                    self.agent_dies()
                return
        self.core.verified(gpu, wrong, self.now_s)
        self.bad.discard(gpu)
        if wrong:
            self.bad.add(gpu)
        self.tell(gpu)

    @rule()
    def agent_dies(self) -> None:
        self.core = again(self.core, same_boot=True, settings=self.settings)
        for gpu in (A, B, C):
            self.tell(gpu)

    @rule()
    def person_says_never_and_thinks_again(self) -> None:
        for settings in (Remediation(), self.settings):
            for change in self.core.reconfigured(settings, self.now_s):
                self.tries[change.gpu] = 0
                self.bad.discard(change.gpu)
            self.core.validate()

    @rule(gpu=st.sampled_from([A, B, C]))
    def person_gives_back(self, gpu: GpuUuid) -> None:
        if self.core.returned(gpu, self.now_s) is not None:
            self.retired.discard(gpu)
            self.bad.discard(gpu)
            self.tries[gpu] = 0
            self.tell(gpu)

    @rule(gpu=st.sampled_from([A, B, C]))
    def shell_looks(self, gpu: GpuUuid) -> None:
        if gpu in self.held:
            self.core.held_by(gpu, "a pod", self.now_s, by_pods=True)
        else:
            self.core.free(gpu, self.now_s)
        self.core.lapse(self.now_s)
        ask = self.core.ask(gpu)
        assert ask is None or ask.action is not AskFor.DRAIN or self.settings.reset is ResetMode.DRAIN

    @rule(gpu=st.sampled_from([A, B, C]), age_s=st.sampled_from([0.0, 300.0, 700.0]), ahead=st.integers(-1, 1))
    @precondition(lambda self: self.core.by_grant)
    def controller_grants(self, gpu: GpuUuid, age_s: float, ahead: int) -> None:
        ask = self.core.ask(gpu)
        if ask is not None:
            generation = ask.generation + ahead
            grant = Grant(gpu=gpu, generation=generation, action=ask.action.value, granted_s=self.now_s - age_s)
            if self.core.granted([grant], self.now_s):
                assert (age_s < 600, ahead) == (True, 0)
                self.given.add((gpu, generation))

    @rule(gpu=st.sampled_from([A, B, C]), order=st.sampled_from([Order.START, Order.STOP, Order.RETIRE]))
    def person_orders(self, gpu: GpuUuid, order: Order) -> None:
        changes, answer = self.core.ordered(gpu, order, self.now_s)
        assert answer
        for change in changes:
            if order is Order.RETIRE:
                self.retired.add(gpu)
                self.tries[gpu] = 0
            if order is Order.STOP:
                assert self.core.repair(gpu) is None
                self.tries[gpu] = 0
                self.bad.discard(gpu)
            assert change.gpu == gpu
        self.tell(gpu)

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "core"):
            return
        self.core.validate()
        for gpu, tries in self.tries.items():
            assert tries <= self.settings.attempts, f"{gpu} is reset more often than it may be"
        for at_s, _ in () if self.core.by_grant else self.resets:
            others = {gpu for then_s, gpu in self.resets if at_s - BREAKER_WINDOW_S < then_s <= at_s}
            assert len(others) <= BREAKER_GPUS, "the breaker let another GPU"
        assert self.retired == {one.gpu for one in self.core.repairs() if one.state is RepairState.RETIRED}, (
            "a retired GPU is back, and nobody said so"
        )
        assert self.bad <= self.core.withheld().keys(), "a GPU that was found wrong is given out"
        for repair in self.core.repairs():
            ask = self.core.ask(repair.gpu)
            granted = not self.core.by_grant or (ask is not None and ask.until_s is not None)
            if repair.state is not RepairState.PROBATION and (granted or not repair.ordered or repair.attempt > 0):
                assert repair.gpu in self.core.withheld()
        ordered = {one.gpu for one in self.core.repairs() if one.ordered and one.awaits_reset}
        assert not ordered or not ordered.isdisjoint(self.core.withheld()), "the turn of one comes"


AnyOrder.TestCase.settings = hypothesis_settings(max_examples=120, stateful_step_count=30, deadline=None)
TestAnyOrder: Any = AnyOrder.TestCase
