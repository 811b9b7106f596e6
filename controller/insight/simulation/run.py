"""Runs a scenario through the engine in virtual time. Each step: jobs end, jobs arrive, the engine decides until
nothing changes.

A simulated job stops and releases its quota the moment it is evicted, and goes on from its last checkpoint, or from
zero, when it is admitted again. Its pods are ready as soon as it is admitted, and its admission checks become Ready at
once. With pools of nodes it is admitted when its nodes are there.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from controller.insight.forecast.changes.changes import changes
from controller.insight.forecast.changes.never import never_of
from controller.insight.forecast.forecast import Forecast, Forecaster
from controller.insight.forecast.shown import brief
from controller.insight.simulation import report
from controller.insight.simulation.granted.bargains import WAITING_FOR_GRANT, Bargains
from controller.insight.simulation.manifests import Scenario
from controller.insight.simulation.pooled.implied import pooled
from controller.insight.simulation.pooled.runnodes import NODES_CHECK, WAITING_FOR_NODES, RunNodes
from controller.insight.simulation.pooled.secondpasses import SecondPasses
from controller.insight.simulation.progress import WorkLedger
from controller.insight.simulation.report import written_time
from controller.insight.simulation.settling import MOST_ENTRIES, Settling, UnsettledError
from controller.insight.simulation.submissions import Submission
from controller.insight.simulation.timeline import End, SimulationResult, TimelineEntry, TimelineEvent, Waits
from controller.insight.simulation.windows import Windows
from controller.objects.meta import Condition, is_true, with_condition
from controller.objects.workload import Workload
from controller.reconcile.lifecycle import lifecycle
from controller.reconcile.lifecycle.duetimes import DueTimes
from controller.reconcile.lifecycle.lifecycle import QueuePolicies
from controller.reconcile.lifecycle.pendingcause import blocked, of_decision, why
from controller.scheduler.cluster.incoming import gpus_of
from controller.scheduler.decisions import reasons, status
from controller.scheduler.decisions.decisions import (
    Admitted,
    Decision,
    Evicted,
    Pending,
    SecondPassFailed,
    SliceReplaced,
)
from controller.scheduler.decisions.evictionstatus import evicted
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.queues.found import last_found
from controller.scheduler.state.intake import local_queue_of

_REQUEUED_AT_ONCE: Final = (
    reasons.PREEMPTED,
    reasons.NODE_FAILURES,
    reasons.NODE_INTERRUPTED,
    reasons.BELOW_MINIMUM,
)
_STEPS: Final = 32
"""Steps of one workload at one moment: more would mean that two rules contradict each other."""
_SAMPLES: Final = 400
"""Samples of past use within its window, at most."""

Progress = Callable[[float, int, int], None]
"""Called with virtual seconds since the start, the number of jobs and requests that have ended, and of all of them."""


def simulate(
    scenario: Scenario,
    config: EngineConfig,
    *,
    until_s: float | None = None,
    progress: Progress = lambda _t, _done, _all: None,
    check: bool = False,
) -> SimulationResult:
    """The result of a scenario. ``until_s``: virtual seconds after which the run is cut off. ``check``: every sum is
    recomputed after every step.

    Raises UnsettledError.
    """
    return Run(scenario, config, until_s=until_s, check=check).result(progress)


class Run:
    def __init__(self, scenario: Scenario, config: EngineConfig, *, until_s: float | None, check: bool) -> None:
        scenario, config = pooled(scenario, config)
        self.engine = Engine(config)
        self._forecaster = Forecaster(endless=self._runs_for_ever)
        self.scenario = scenario
        self.now_s = scenario.base_s
        self.entries: list[TimelineEntry] = []
        self.workloads: dict[WorkloadKey, Workload] = {}
        """Workloads that have arrived and have not ended, in the order of their arrival."""
        self._config = config
        self._until_s = None if until_s is None else scenario.base_s + until_s
        self._check = check
        self._given = {WorkloadKey(submission.key): submission for submission in scenario.submissions}
        self._next = 0
        """Index of the submission that comes next."""
        self._ends, self._steps = DueTimes(), DueTimes()
        """Times at which running jobs end, and times at which workloads may have a next step for the time alone."""
        self._times_set = 0
        """The rank of the next due time: of several due at one time the one that was set first comes first."""
        self._waiting: dict[WorkloadKey, Pending | None] = {}
        """Workloads whose reason to wait may have changed in this step, with the last decision on each."""
        self._said: dict[WorkloadKey, str] = {}
        self._too_large: dict[str, str] = {}
        self._sampled_s = self.now_s
        self._done, self._everybody = 0, len(scenario.submissions) + len(scenario.requests)
        self._windows = Windows(self.now_s)
        self._second_passes = SecondPasses()
        self._holding = 0
        """A fingerprint of the workloads that hold quota and their flavors: of ``_prints``."""
        self._prints: dict[WorkloadKey, int] = {}
        self._work = WorkLedger()
        self._nodes = RunNodes(scenario, self.engine)
        self._bargains = Bargains(
            scenario,
            self,
            runs=self._left_s,
            ends_at=lambda: self._forecaster.ends_at(self.engine, self.now_s),
        )
        for loaded in scenario.objects:
            if not self._nodes.keeps(loaded):
                self.engine.put(loaded, self.now_s)
        self._nodes.show(self.now_s)
        for system, how in scenario.systems.items():
            self.engine.imply(system, self.now_s, how)

    def _runs_for_ever(self, key: WorkloadKey) -> bool:
        """Whether a workload never ends by itself: in a simulation that is known, because it has no run time."""
        return key in self._given and self._given[key].runtime_s is None

    @property
    def t(self) -> float:
        return round(self.now_s - self.scenario.base_s, 6)

    def result(self, progress: Progress) -> SimulationResult:
        settling = self._settling()
        while True:
            # One sample per step is enough: while nothing changes, a sample over a long time equals many over its
            # parts.
            self.engine.sample_usage(self.now_s)
            self.engine.sample_queues(self.now_s)
            self._sampled_s = self.now_s
            self._advance()
            self._settle(settling)
            self._record_waiting()
            self._nodes.settled(self.now_s)
            progress(self.t, self._done + self._bargains.over, self._everybody)
            next_s = self._next_s()
            if next_s is None or (self._until_s is not None and next_s > self._until_s):
                break
            if next_s > self.now_s:
                settling = self._settling()
                self.now_s = next_s
            if len(self.entries) > MOST_ENTRIES:
                raise UnsettledError(f"no end after {MOST_ENTRIES} events at {self.t:g} s: cut it off with --until")
        end_s = self.now_s
        if self._until_s is not None and next_s is not None:
            self.now_s = end_s = self._until_s
        last_t = round(end_s - self.scenario.base_s, 6) if next_s is not None else self._last_t()
        return SimulationResult(
            start=self._wall_time(0.0),
            timeline=tuple(self.entries),
            final=self._end(last_t),
            fragmentation=report.fragmentation(self.engine, end_s),
            nodes=tuple(report.nodes(self._nodes.pools.log, self.scenario.base_s)),
            too_large=self._too_large,
        )

    def _end(self, last_t: float) -> End:
        forecasts = self._forecaster.all(self.engine, self.now_s)
        awaiting = {key: self._awaiting(key) for key in self.workloads if self._nodes.awaits(key)}
        others = [(key, WAITING_FOR_GRANT, why_not) for key, why_not in self._bargains.waiting()]
        for key, reason, message in (*others, *self._second_passes.waiting()):
            awaiting[key] = Waits(workload=key, reason=reason, message=message)
        jobs = [each for key, each in self.workloads.items() if not self._bargains.owns(key)]
        end = report.end(self.engine, jobs, forecasts, self.now_s, last_t, told=self._dated, awaiting=awaiting)
        hours, cost = self._nodes.bill(self.now_s if self._until_s is None else self._until_s)
        lost = round(self._work.lost_gpu_seconds, 3)
        pending = report.as_of(end.pending, self._wall_time(self.t) or self.t)
        requests = self._bargains.ends()
        return msgspec.structs.replace(
            end, pending=pending, node_hours=hours, cost=cost, lost_gpu_seconds=lost, capacity_requests=requests
        )

    def _awaiting(self, key: WorkloadKey) -> Waits:
        """A workload that holds quota at the end and waits for its nodes."""
        in_s = self._nodes.ready_in_s(key, self.now_s)
        sentence = self._nodes.awaits_what(self.workloads[key], self.now_s)
        starts = brief(Forecast(at_s=self.now_s, from_s=in_s, likely_s=in_s, to_s=in_s))
        return Waits(workload=key, reason=WAITING_FOR_NODES, message=sentence, forecast=starts)

    def _dated(self, message: str) -> str:
        """The message as it is shown: with spans since the start in place of times, unless the start's time is told."""
        return message if self.scenario.start_told else report.in_virtual_time(message, self.scenario.base_s)

    def _wall_time(self, t: float) -> str | None:
        """The time at which ``t`` seconds have passed; None unless the start's time is told."""
        return written_time(self.scenario.base_s + t) if self.scenario.start_told else None

    def settle(self) -> None:
        """Decides until nothing changes at the first moment: for questions that need no timeline, no forecasts and no
        report.

        Raises UnsettledError.
        """
        settling = self._settling()
        next_s: float | None = self.now_s
        while next_s is not None and next_s <= self.now_s:
            self._advance()
            self._settle(settling)
            next_s = self._next_s()

    def sentence(self, key: WorkloadKey) -> str:
        """Why the workload waits, else its last event; empty for one that is not in the run."""
        workload = self.workloads.get(key)
        if workload is None:
            return ""
        if self._nodes.awaits(key):
            return self._nodes.awaits_what(workload, self.now_s)
        if not is_true(workload.status.conditions, "Admitted"):
            return why(self.engine, workload, self.now_s).message
        return next((entry.message for entry in reversed(self.entries) if entry.workload == key), "")

    def changes(self, key: WorkloadKey) -> list[str]:
        """The changes that would let a waiting workload start; first that none would, if it never starts as
        things are.
        """
        workload, pending = self.workloads.get(key), self.engine.state.queues.get(key)
        if workload is None or pending is None:
            return []
        record = last_found(self.engine.stories, pending)
        never = never_of(self.engine, pending, record) if record is not None else None
        found = changes(self.engine, workload, self.now_s, self._forecaster.ends_at(self.engine, self.now_s))
        return [*([f"Never, {never}"] if never is not None else []), *(change.sentence for change in found)]

    def _settling(self) -> Settling:
        # With the rule against eviction cycles a state may recur a few times before the rule ends the cycle.
        often = len(self.workloads) + 2 if self._config.extensions.no_eviction_cycles else 2
        return Settling(often)

    def _last_t(self) -> float:
        return self.entries[-1].t if self.entries else 0.0

    # -- time --------------------------------------------------------------------------------------------------------

    def _next_s(self) -> float | None:
        coming = self.scenario.submissions[self._next : self._next + 1]
        times = [
            self._ends.next_s(),
            self._steps.next_s(),
            self.engine.next_wakeup_s(calendars=False, without=self._second_passes.pointless(self.engine)),
            self._windows.next_s(self.engine, self.now_s, len(self.entries)),
            self.scenario.base_s + coming[0].arrival_s if coming else None,
            self._bargains.next_s(),
            self._nodes.pools.due_s(jobs_left=bool(coming or self.workloads or self._bargains)),
        ]
        next_s = min((max(time, self.now_s) for time in times if time is not None), default=None)
        end_s = self._until_s if next_s is None else next_s
        use_s = self._use_s()
        return use_s if use_s is not None and end_s is not None and use_s < end_s else next_s

    def _use_s(self) -> float | None:
        """The time of the next sample of past use, which grows and fades between two events; None if it decides
        nothing.
        """
        rules = self._config.queue_usage
        waits = rules is not None and self.engine.mirror and any(True for _ in self.engine.state.queues)
        if rules is None or not waits:
            return None
        return self._sampled_s + max(rules.interval_s, rules.span_s / _SAMPLES)

    def _advance(self) -> None:
        """Applies all that is due by now: ends first, so that jobs that arrive find what is free."""
        for key in self._ends.due(self.now_s):
            self._finish(key, "Succeeded", "Job finished successfully")
        for key, notice_s, sentence in self._nodes.interrupted(self.now_s):
            self._interrupted(key, notice_s, sentence)
        for key in self._nodes.advanced(self.now_s):
            self._nodes_there(key)
        submissions = self.scenario.submissions
        while self._next < len(submissions) and self.scenario.base_s + submissions[self._next].arrival_s <= self.now_s:
            self._arrive(submissions[self._next])
            self._next += 1
        self._bargains.arrive()
        for key in list(self._steps.due(self.now_s)):
            self._take_steps(key)

    def _set(self, times: DueTimes, key: WorkloadKey, due_s: float | None) -> None:
        times.set(key, due_s, rank=self._times_set)
        self._times_set += 1

    def _arrive(self, given: Submission) -> None:
        key = WorkloadKey(given.key)
        if given.grant:
            self.workloads[key] = given.workload
            self._waiting[key] = None
            self._bargains.join(given)
            return
        self.put(given.workload)
        self._waiting[key] = None
        self._take_steps(key)

    def _finish(self, key: WorkloadKey, reason: str, message: str) -> None:
        workload = self.workloads[key]
        self._stop(key)
        self._work.finish(key)
        self._record(workload, TimelineEvent.FINISHED, reason, message)
        self._ends.set(key, None)
        self._steps.set(key, None)
        finished = status.finished(workload, reason, message, self.now_s)
        if self._bargains.is_inside(key):
            self._bargains.left(key)
        else:
            self.engine.put(finished, self.now_s)
        self._forecaster.observe(finished)
        del self.workloads[key]
        self._said.pop(key, None)
        self._waiting.pop(key, None)
        self._done += 1

    # -- decisions ---------------------------------------------------------------------------------------------------

    def _settle(self, settling: Settling) -> None:
        engine = self.engine
        while not engine.settled(self.now_s) or self._bargains.settle():
            decisions = engine.cycle(self.now_s)
            for decision in decisions.made:
                self._carry_out(decision)
            if self._check:
                engine.validate()
                self._nodes.validate(self.now_s)
            settling.cycled(decisions, (self._holding, self._done, self._next, self._bargains.steps), self.t)
        if self._check:
            self._bargains.validate()

    def _carry_out(self, decision: Decision) -> None:
        key = decision.key
        match decision:
            case Admitted():
                self._second_passes.over(key)
                self.put(self._nodes.placed(decision.status(), self.now_s, self._config.gates))
                self._hold(key)
                self._waiting.pop(key, None)
                self._said.pop(key, None)
                if self._nodes.awaits(key):
                    self._waiting[key] = None
                self._answer_checks(key)
                self._begin(key, decision)
            case Evicted():
                self.put(decision.status())
                kind = TimelineEvent.PREEMPTED if decision.preemption is not None else TimelineEvent.EVICTED
                by = decision.by.key if decision.by is not None else None
                reason = decision.preemption.value if decision.preemption is not None else decision.reason
                self._record(self.workloads[key], kind, reason, decision.message, by=by)
                self._release(key, decision.reason, decision.message)
            case SliceReplaced():
                self._finish(key, reasons.WORKLOAD_SLICE_REPLACED, f"Replaced by the workload slice {decision.by}")
            case SecondPassFailed():
                self._waiting[key] = None
                self._second_passes.failed(decision, self.engine)
            case Pending():
                self._waiting[key] = decision

    def _answer_checks(self, key: WorkloadKey) -> None:
        answered = self._nodes.checks_answered(self.workloads[key])
        if answered is not None:
            self.put(answered)
            self._take_steps(key)

    def _begin(self, key: WorkloadKey, decision: Admitted | None = None) -> None:
        """Starts a workload that is admitted: its pods are ready, and its end is known if its run time is."""
        workload = self.workloads[key]
        if not is_true(workload.status.conditions, reasons.ADMITTED) or is_true(
            workload.status.conditions, reasons.PODS_READY
        ):
            return
        self._waiting.pop(key, None)
        self._said.pop(key, None)
        if self._bargains.owns(key):
            self._ready(key)
            return
        self._begin_work(key, gpus_of(self.engine.state.cluster.holders[key]))
        self._record(
            workload, TimelineEvent.ADMITTED, "Admitted", report.admitted(self.engine, key, decision, self.now_s)
        )
        if (too_large := report.too_large(self.engine, workload)) is not None:
            self._too_large.setdefault(key, too_large)
        self._ready(key)

    def _begin_work(self, key: WorkloadKey, gpus: float) -> None:
        left_s = self._left_s(key)
        self._work.begin(key, self._given[key].checkpoints, gpus, self.now_s)
        self._set(self._ends, key, None if left_s is None else self.now_s + left_s)

    def _left_s(self, key: WorkloadKey) -> float | None:
        given = self._given.get(key)
        return None if given is None else self._work.left_s(key, given.checkpoints, given.runtime_s)

    def _ready(self, key: WorkloadKey) -> None:
        """The pods of an admitted workload are ready."""
        ready = Condition(
            type=reasons.PODS_READY, status="True", reason="Started", last_transition_time=status.moment(self.now_s)
        )
        self._hold(key)
        self._conditions(key, ready)
        self._take_steps(key)

    def _nodes_there(self, key: WorkloadKey) -> None:
        """The last of the workload's nodes has come: it is admitted."""
        self._answer_checks(key)
        self._begin(key)

    def _interrupted(self, key: WorkloadKey, notice_s: float, message: str) -> None:
        """Evicts a workload, all of its pods, because nodes of it are interrupted."""
        before = self.workloads[key]
        self._work.stop(key, self._given[key].checkpoints, self.now_s, notice_s)
        self.put(evicted(before, reasons.NODE_INTERRUPTED, message, now_s=self.now_s))
        self._follow(key, before)

    def _release(self, key: WorkloadKey, reason: str, message: str) -> None:
        """Stops the workload's job: it gives back what it holds, and waits again unless it may not queue."""
        if self._bargains.owns(key):
            self.withdraw(key)
            self._bargains.lost(key, message)
            return
        self._ends.set(key, None)
        self._work.stop(key, self._given[key].checkpoints, self.now_s)
        gates = self._config.gates
        self._stop(key)
        workload = status.unreserved(
            self.workloads[key], PendingReason.PENDING_EVALUATION, message, now_s=self.now_s, gates=gates
        )
        workload = self._work.goes_on(workload, self._left_s(key))
        if reason in _REQUEUED_AT_ONCE:
            workload = status.requeued(workload, reason, message, self.now_s)
        self.put(workload)
        at = status.moment(self.now_s)
        stopped = Condition(type=reasons.PODS_READY, status="False", reason="WaitForStart", last_transition_time=at)
        self._conditions(key, stopped)
        self._said.pop(key, None)
        self._waiting[key] = None

    def _hold(self, key: WorkloadKey) -> None:
        """Notes the flavors of a workload that holds quota."""
        self._holding ^= self._prints.pop(key, 0)
        self._prints[key] = report.fingerprint(self.workloads[key])
        self._holding ^= self._prints[key]

    def _stop(self, key: WorkloadKey) -> None:
        self._second_passes.over(key)
        self._holding ^= self._prints.pop(key, 0)
        self._nodes.stopped(key, self.now_s)

    # -- steps of one workload ---------------------------------------------------------------------------------------

    def _take_steps(self, key: WorkloadKey) -> None:
        """Takes all steps that follow from a workload's conditions now: maximum execution time, stopped queues,
        deactivation.
        """
        for _ in range(_STEPS):
            workload = self.workloads.get(key)
            if workload is None:  # a request's, which has just lost its quota
                return
            step = lifecycle.step(workload, self._policies(workload), self._config, self.now_s)
            if step is None:
                self._set(self._steps, key, lifecycle.due_s(workload, self._config))
                return
            after = step.after
            if step.deactivate:
                after = msgspec.structs.replace(workload, spec=msgspec.structs.replace(workload.spec, active=False))
            self.put(after)
            self._follow(key, workload)
        raise UnsettledError(f"{key}: its conditions do not settle at {self.t:g} s")

    def _policies(self, workload: Workload) -> QueuePolicies:
        """The rules of the workload's queues; while its nodes are coming, our check beside theirs."""
        policies = lifecycle.queue_policies(self.engine, workload)
        if not self._nodes.awaits(WorkloadKey(workload.key)):
            return policies
        return msgspec.structs.replace(policies, checks=(*policies.checks, NODES_CHECK))

    def _follow(self, key: WorkloadKey, before: Workload) -> None:
        """Applies a step of the workload to its job."""
        after = self.workloads[key]
        evicted = next((condition for condition in after.status.conditions if condition.type == reasons.EVICTED), None)
        if evicted is not None and evicted.status == "True" and not is_true(before.status.conditions, reasons.EVICTED):
            self._record(after, TimelineEvent.EVICTED, evicted.reason, evicted.message)
            self._release(key, evicted.reason, evicted.message)
        elif before.status.conditions != after.status.conditions and key in self._said:
            self._waiting.setdefault(key, None)
        if key in self.workloads:
            self._begin(key)

    def put(self, workload: Workload) -> None:
        self.workloads[WorkloadKey(workload.key)] = workload
        self.engine.put(workload, self.now_s)
        if self._check:
            self.engine.validate()

    def _conditions(self, key: WorkloadKey, condition: Condition) -> None:
        workload = self.workloads[key]
        replace = msgspec.structs.replace
        conditions = with_condition(workload.status.conditions, condition)
        self.put(replace(workload, status=replace(workload.status, conditions=conditions)))

    # -- capacity requests -------------------------------------------------------------------------------------------

    def ask(self, given: Submission) -> None:
        """Puts a request's Workload into its queue."""
        key = WorkloadKey(given.key)
        self._given[key] = given
        self.put(given.workload)
        self._take_steps(key)

    def withdraw(self, key: WorkloadKey) -> None:
        """Takes a request's Workload out, whatever it holds."""
        self._stop(key)
        self._steps.set(key, None)
        namespace, _, name = key.partition("/")
        self.engine.drop(Workload, namespace, name, self.now_s)
        for known in (self.workloads, self._given, self._said, self._waiting):
            known.pop(key, None)

    def awaits_s(self, key: WorkloadKey) -> float:
        """The time at which the nodes of a request's Workload are there; 0 where none is waited for."""
        return self.now_s + self._nodes.ready_in_s(key, self.now_s) if self._nodes.awaits(key) else 0.0

    def begin_inside(self, workload: Workload, message: str) -> None:
        """A job starts inside of a grant: it is not the engine's."""
        key = WorkloadKey(workload.key)
        self.workloads[key] = workload
        self._waiting.pop(key, None)
        self._said.pop(key, None)
        self._begin_work(key, report.gpus(workload))
        self._record(workload, TimelineEvent.ADMITTED, "Admitted", message)

    def end_inside(self, key: WorkloadKey, reason: str, message: str) -> None:
        """A job inside of a grant is stopped, and waits again."""
        self._record(self.workloads[key], TimelineEvent.EVICTED, reason, message)
        self._ends.set(key, None)
        self._work.stop(key, self._given[key].checkpoints, self.now_s)
        self.workloads[key] = self._given[key].workload
        self._waiting[key] = None

    # -- the timeline ------------------------------------------------------------------------------------------------

    def _record(
        self, workload: Workload, kind: TimelineEvent, reason: str, message: str, *, by: str | None = None
    ) -> None:
        if self._bargains.owns(workload.key):
            return
        self.entries.append(
            TimelineEntry(
                t=self.t,
                time=self._wall_time(self.t),
                event=kind,
                workload=workload.key,
                cluster_queue=self.cluster_queue(workload),
                reason=reason,
                message=self._dated(message),
                flavors=report.flavors(workload),
                preempted_by=by,
                placement=report.placement(self.engine, workload),
            )
        )

    def _record_waiting(self) -> None:
        """Records the workloads that wait and why, where that is new: in the order of arrival, after the engine has
        settled.
        """
        changed = [key for key in self._waiting if key in self.workloads and not self._bargains.owns(key)]
        for key in sorted(changed, key=lambda waiting: (self._given[waiting].arrival_s, self._given[waiting].order)):
            reason, message = self._cause(key, self._waiting[key])
            if self._said.get(key) != reason:
                self._said[key] = reason
                self._record(self.workloads[key], TimelineEvent.PENDING, reason, message)
        self._waiting.clear()

    def _cause(self, key: WorkloadKey, decision: Pending | None) -> tuple[str, str]:
        """Why a workload waits: reason and message. ``decision``: the last one on it, if it was made now."""
        workload = self.workloads[key]
        if (told := self._bargains.waits(key) or self._second_passes.cause(key)) is not None:
            return told
        if self._nodes.awaits(key):
            return WAITING_FOR_NODES, self._nodes.awaits_what(workload, self.now_s)
        cause = blocked(self.engine, workload) or (
            of_decision(decision) if decision is not None else why(self.engine, workload, self.now_s)
        )
        rests = self._nodes.resting(self.now_s) if cause.reason is PendingReason.TOPOLOGY_PLACEMENT_FAILED else ""
        return str(cause.reason), f"{cause.message}; {rests}" if rests else cause.message

    def cluster_queue(self, workload: Workload) -> str:
        if workload.status.admission is not None:
            return workload.status.admission.cluster_queue
        local = self.engine.state.cluster.local_queues.get(local_queue_of(workload))
        return local.spec.cluster_queue if local is not None else ""
