"""The repairs of this node: connects the decisions of ``agent.health.repairs`` with the agent's other parts.

    health events -> judged -> RepairCore -> candidates -> one attempt at a time (``attempt_shell``)
    RepairCore -> node_state.withhold, journal, log, Events, metrics
    RepairCore asks -> node_state.repairs -> GpuNode; its own GpuNode -> requested -> granted, ordered

The daemon tells it of health events, discoveries, holders and settings. Nothing is done, and nothing but a retired GPU
is withheld, while ``remediation.reset`` is ``never``. With an API server each reset takes a grant of the controller.
"""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from agent.config.settings import Settings
from agent.hardware.monitor import GpuMonitor
from agent.health.events import (
    Event,
    ProbeFailed,
    ProbeOk,
    ProbeReason,
    RecoveryAction,
    ResetObserved,
    Verified,
    XidSeen,
)
from agent.health.grants import Grant
from agent.health.losses import Losses
from agent.health.remediation import Action, ResetMode, Want, unrepaired, wanted
from agent.health.repairs import BREAKER_GPUS, BREAKER_WINDOW_S, RepairCore
from agent.health.repairstate import Answered, Repair, RepairChange, RepairState, ResetResult
from agent.health.states import Transition
from agent.mig.node import MigNode
from agent.mps.node import REPAIR, MpsNode
from agent.nodestate import NodeState, ShownRepair
from agent.process.tasks import Alarm
from agent.repair.attempt_shell import Attempt, verified
from agent.repair.befores import Before, Befores
from agent.repair.journal_shell import JournalEntry, RepairJournal
from agent.repair.telling_shell import RepairListener, RepairReporter, RepairTeller
from agent.repair.tool_shell import ResetTool
from agent.repair.units import ResetUnit, reset_unit, takes_along
from agent.words import repairs as words
from inventory.api.names import NVSENTINEL_MANAGED
from inventory.devices import GpuUuid
from kube.loglines import LIMIT

log = logging.getLogger(__name__)

POLL_S = 5.0
"""The seconds after which a GPU that waits is looked at again: no signal tells that a process has closed it."""
LONGEST_REST_S = 300.0
MOST_ANSWERS: Final = 64


class RepairNode:
    """The repairs of one node, and the ``attempt_shell.RepairServices`` of its attempts.

    ``refused`` says why settings that a GpuLayout has do not hold. ``serve`` shows the kubelet the present node state,
    ``tell`` is the reporter, ``recorded`` hears of transitions of health that follow from repairs.

    Used on the event loop alone. ``_acting`` are the GPUs of the unit in action, from before NVML lets go of them until
    they are verified: they are withheld, whatever the core says. ``_told`` says of each GPU whether its NVML tells a
    recovery action. ``_grants`` are those that the GpuNode had last; None before it was read: nothing is asked for
    until then, since a grant for what is asked could be an old one.
    """

    def __init__(  # noqa: PLR0913
        self,
        node_state: NodeState,
        monitor: GpuMonitor,
        mig: MigNode,
        mps: MpsNode,
        settings: Settings,
        refused: str = "",
        *,
        boot_id: str,
        now: Callable[[], float],
        serve: Callable[[], None],
        tell: RepairReporter,
        listener: RepairListener,
        recorded: Callable[[tuple[Transition, ...]], None],
    ) -> None:
        self.monitor = monitor
        self.mig = mig
        self.mps = mps
        self.settings = settings
        self.wanted_changed = asyncio.Event()
        """The event is set when ``wanted`` may answer otherwise; who waits for it clears it."""
        self.tool = ResetTool(settings)
        self._node_state = node_state
        self._boot_id = boot_id
        self._now = now
        self._serve = serve
        self._teller = RepairTeller(node_state, tell, listener)
        self._recorded = recorded
        self._journal = RepairJournal(settings.state_dir)
        self._core = self._fresh_core()
        self._grants: tuple[Grant, ...] | None = None
        self._answers: tuple[Answered, ...] = ()
        self._writing = asyncio.Lock()
        self._told: dict[GpuUuid, bool] = {}
        self._looked_s: dict[GpuUuid, float] = {}
        """When each GPU last answered a probe, and so what its driver asks for."""
        self._acting: frozenset[GpuUuid] = frozenset()
        self._befores = Befores()
        self._losses = Losses()
        self._unmanaged = False
        self._rests_until_s: dict[GpuUuid, float] = {}
        self._refused: dict[GpuUuid, int] = {}
        self._unmet = refused
        """Why settings of a GpuLayout do not hold; empty for none."""
        self.turns = 0
        """How often the GPUs that wait have been looked at."""
        self._unsaved = False
        self._shown: object = ((), (), "")
        self._poked = asyncio.Event()
        self._found = asyncio.Event()
        self._news = asyncio.Event()
        self._alarm = Alarm(self._judge_all)
        found = self._journal.read()
        if found is not None:
            self._restore(found, same_boot=found.boot_id == boot_id)
            self._befores = Befores(found.before if found.boot_id == boot_id else {}, found.recorded)
        self._problems()
        self._show()

    def _fresh_core(self) -> RepairCore:
        return RepairCore(self.settings.remediation, by_grant=self.settings.use_api_server)

    def _restore(self, found: JournalEntry, *, same_boot: bool) -> None:
        """Take what an earlier agent knew; nothing of it where it cannot be: the file is anybody's who can write it."""
        try:
            interrupted = self._core.restore(found.snapshot, same_boot=same_boot, now_s=self._now())
            self._core.validate()
        except AssertionError as wrong:
            log.warning("journal of repairs ignored", extra={"error": str(wrong)})
            self._core = self._fresh_core()
        else:
            self._answers = found.answers
            self._on_probation(())
            self._changed(interrupted)
            if self.settings.remediation.reset is ResetMode.NEVER:
                self._changed(self._core.reconfigured(self.settings.remediation, self._now()))

    # -- events of the daemon

    def heard(self, event: Event) -> None:
        """Take a health event that the node state has taken already."""
        if isinstance(event, ProbeOk) and event.mig is None:
            self._looked_s[event.gpu] = self._now()
        if isinstance(event, RecoveryAction):
            self._told[event.gpu] = True
        elif isinstance(event, ProbeOk) and event.mig is None and event.gpu not in self._told:
            self._told[event.gpu] = False
            self._poked.set()
        elif isinstance(event, ResetObserved):
            self._core.reset_seen(event.gpu)
        elif isinstance(event, XidSeen) and (count := self._node_state.count_fault(event, self._now())) is not None:
            # Counts that are no news wait for the next change of the node: a storm of them must not become one of
            # writes.
            self._teller.culprit(count)
            self._serve()
        self._hear_loss(event)
        gpu = getattr(event, "gpu", None)
        if gpu is None:
            self._judge_all()
        else:
            self._judge((gpu,))
        self._news.set()

    def _hear_loss(self, event: Event) -> None:
        """Ask for another discovery where a GPU is lost: it may have been taken out."""
        if isinstance(event, ResetObserved | ProbeOk):
            self._losses.over(event.gpu)
        elif not (isinstance(event, ProbeFailed) and event.reason is ProbeReason.LOST and self.wanted):
            return
        elif self._losses.heard(event.gpu, self.monitor.discoveries):
            self.monitor.rescan()

    def discovered(self) -> None:
        """Take in that the node state is of a new discovery: boards that were swapped are forgotten."""
        self._losses.discovered(self._node_state.node.gpus, self.monitor.discoveries)
        here = self._node_state.health.gpus()
        self._core.keep(here)
        kept = {gpu: why for gpu, why in self._node_state.unrepaired.items() if gpu in here}
        self._node_state.unrepaired = kept
        self._problems()  # the program of verify may have come, or gone
        self._found.set()
        self._judge_all()
        self._poked.set()

    def reconfigured(self, settings: Settings, refused: str) -> None:
        """Take new settings, and why others do not hold; empty for none."""
        before, self.settings, self._unmet = self.settings, settings, refused
        self._problems()
        if settings.remediation == before.remediation:
            return
        self._rests_until_s.clear()
        self._poked.set()
        self._changed(self._core.reconfigured(settings.remediation, self._now()))
        self.wanted_changed.set()
        self._judge_all()
        if settings.remediation.reset is ResetMode.NEVER and self._node_state.unrepaired:
            self._node_state.unrepaired = {}
            self._serve()
        self._show()

    def labelled(self, labels: Mapping[str, str]) -> None:
        """Hear the Node's labels, by which a site says that nobody repairs it."""
        before, self._unmanaged = self._unmanaged, labels.get(NVSENTINEL_MANAGED) == "false"
        if before != self._unmanaged:
            self._poked.set()

    def poke(self) -> None:
        """Hear that holders may have changed."""
        self._poked.set()

    def give_back(self, index: int) -> str:
        """Give a retired GPU back into service, as a person says. Returns the sentence to tell. Raises ValueError where
        it is not retired.
        """
        gpu = next((gpu for gpu in self._node_state.node.gpus if gpu.index == index), None)
        change = None if gpu is None else self._core.returned(gpu.uuid, self._now())
        if change is None:
            raise ValueError(f"gpu: GPU {index} is not retired")
        self._changed((change,))
        self._judge_all()
        return f"GPU {index} is given back"

    # -- what the API server says: see ``cluster.gpunodewatch_shell``

    @property
    def wanted(self) -> bool:
        """Whether the node's own GpuNode is to be watched."""
        return self.settings.remediation.reset is not ResetMode.NEVER

    def granted(self, grants: tuple[Grant, ...]) -> None:
        """Take the grants that the GpuNode has now."""
        self._grants = grants
        self._take_grants()
        self._poked.set()

    async def obey(self, orders: Mapping[str, str], *, late: bool = False) -> None:
        """Obey the orders of people, by the UUID of the GPU, or refuse them. What they changed, and the answers, are in
        the journal when this returns, if it can be written. While no GPU is known yet, this waits. ``late``: they were
        written while nothing was repaired here, and are refused.
        """
        while not self._node_state.health.gpus():
            self._found.clear()
            await self._found.wait()
        known = set(self._node_state.health.gpus())
        for text, order in sorted(orders.items()):
            now_s = self._now()
            gpu = GpuUuid(text)
            changes: tuple[RepairChange, ...] = ()
            if late:
                answer = words.order_before()
            elif gpu in known:
                changes, answer = self._core.ordered(gpu, order, now_s)
            else:
                answer = words.order_no_gpu()
            answered = Answered(gpu=text, order=order, answer=answer, at_s=now_s, refused=not changes)
            self._answers = (*(each for each in self._answers if each.gpu != text), answered)[-MOST_ANSWERS:]
            log.warning("order", extra={"gpu": text, "order": order[:40], "answer": answer, LIMIT: None})
            self._changed(changes)
        self._unsaved = True
        self._judge_all()
        self._show()
        await self._save()

    def _take_grants(self) -> None:
        known = set(self._node_state.health.gpus())
        grants = [grant for grant in self._grants or () if grant.gpu in known]
        self._unsaved |= self._core.granted(grants, self._now())
        self._unsaved |= self._core.lapse(self._now())
        self._show()

    def repairs(self) -> tuple[Repair, ...]:
        return self._core.repairs()

    async def run(self) -> None:
        """Act on one GPU after another, until cancelled."""
        try:
            while True:
                self._poked.clear()
                await self._save()
                if await self._turn():
                    continue
                states = {repair.state for repair in self._core.repairs()}
                waits = not states.isdisjoint({RepairState.DRAINING, RepairState.VERIFYING})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S if waits else None):
                        await self._poked.wait()
        finally:
            self._alarm.set(None)

    async def _turn(self) -> bool:
        """Try the GPUs that may be acted on, in their order. True where one was acted on."""
        self._core.validate()
        self._losses.validate()
        self.turns += 1
        if not any(repair.interrupted or repair.state is RepairState.VERIFYING for repair in self._core.repairs()):
            await self.as_before()  # what an agent kept that died before its reset began
            await self._save()
        if self._core.by_grant:
            self._take_grants()
        now_s = self._now()
        may = self._core.candidates(now_s)
        for gpu in may:
            if self._rests_until_s.get(gpu, now_s) <= now_s and await self._act(gpu):
                return True
        waiting = [repair.gpu for repair in self._core.repairs() if repair.awaits_reset]
        if self._core.by_grant:
            return any([await self._ask(gpu) for gpu in waiting if gpu not in may])
        for gpu in (each for each in waiting if each not in may):
            await self._hold(gpu)
        return False

    async def _hold(self, uuid: GpuUuid) -> None:
        """Tell why a GPU waits that this node's breaker holds back, and who has it."""
        breaker, unit = words.breaker(BREAKER_GPUS, round(BREAKER_WINDOW_S / 60)), self._unit(uuid)
        if unit is None:
            self._waits(uuid, breaker, held_back=True)
            return
        attempt = Attempt(self, uuid, unit)
        who = await attempt.in_the_way()
        why = words.breaker_held(breaker, who) if who else breaker
        self.waits(uuid, why, by_pods=attempt.by_pods, held_back=True)

    def _unit(self, uuid: GpuUuid) -> ResetUnit | None:
        """The unit of a GPU that is known well enough to act on it."""
        gpu = self._node_state.node.gpu(uuid)
        if gpu is None or self._core.repair(uuid) is None or self._told.get(uuid) is None:
            return None
        return reset_unit(self._node_state.node.gpus, gpu)

    async def _act(self, uuid: GpuUuid) -> bool:
        unit, repair = self._unit(uuid), self._core.repair(uuid)
        if unit is None or repair is None:
            return False
        if repair.state is RepairState.VERIFYING:
            return await self._verify(uuid, unit)
        if unit.refused:
            return self.unable(uuid, unit.refused)
        return await Attempt(self, uuid, unit).run()

    async def _ask(self, uuid: GpuUuid) -> bool:
        """Look whether anybody has a GPU that nobody lets be reset, and ask the controller. True where it may be reset
        at once.
        """
        unit = self._unit(uuid)
        if unit is None:
            return False
        if unit.refused:
            return self.unable(uuid, unit.refused)
        attempt = Attempt(self, uuid, unit)
        if who := await attempt.in_the_way():
            return self.waits(uuid, who, by_pods=attempt.by_pods)
        if self._grants is None:
            return self.waits(uuid, words.not_heard())
        why = words.granted_by_nobody(NVSENTINEL_MANAGED) if self._unmanaged else ""
        if self._wants_reset(uuid) and self._core.free(uuid, self._now(), why):
            log.info("reset asked for", extra={"gpu": uuid})
            self._unsaved = True
            self._show()
        return uuid in self._core.candidates(self._now())

    # -- what an attempt uses: see attempt_shell.RepairServices

    def waits(self, gpu: GpuUuid, who: str, *, by_pods: bool = False, held_back: bool = False) -> bool:
        if by_pods and self.settings.remediation.reset is ResetMode.WHEN_FREE:
            who = words.held_for_good(who)
        self._waits(gpu, who, by_pods=by_pods and self._grants is not None, held_back=held_back)
        return False

    def unable(self, gpu: GpuUuid, why: str) -> bool:
        if self._core.repair(gpu) is not None:  # a person may have ended the repair meanwhile
            self._changed((self._core.unable(gpu, why, self._now()),))
        return True

    def unverified(self, gpu: GpuUuid, why: str) -> bool:
        self.rest(gpu)
        if self._core.unverified(gpu, why):
            self._teller.unverified(gpu, why)
            self._unsaved = True
            self._show()
        return False

    def rest(self, gpu: GpuUuid) -> None:
        refused = self._refused[gpu] = self._refused.get(gpu, 0) + 1
        self._rests_until_s[gpu] = self._now() + min(POLL_S * 2**refused, LONGEST_REST_S)

    def wants_reset(self, gpu: GpuUuid) -> bool:
        return gpu in self._core.candidates(self._now()) and self._wants_reset(gpu)

    def _wants_reset(self, gpu: GpuUuid) -> bool:
        repair = self._core.repair(gpu)
        if repair is None or not repair.awaits_reset:
            return False
        want = self.want(gpu)
        return want.action is Action.RESET or (want.action is Action.NONE and (repair.wrong or repair.ordered))

    def acting(self, unit: frozenset[GpuUuid]) -> None:
        self._acting = unit
        self._show()

    async def remember(self, before: dict[GpuUuid, Before]) -> None:
        self._befores.remember(before)
        await self._write()

    async def begin(self, gpu: GpuUuid) -> None:
        change = self._core.begun(gpu, self._now())
        try:
            await self._write()
        finally:
            self._changed((change,))

    async def unwritten(self, gpu: GpuUuid, why: str) -> None:
        repair = self._core.repair(gpu)
        if repair is not None and repair.state is RepairState.RESETTING:
            await self.end(lambda core, now_s: core.reset_ended(gpu, ResetResult.BUSY, why, now_s))

    async def end(self, change: Callable[[RepairCore, float], RepairChange], also: Iterable[GpuUuid] = ()) -> None:
        done = change(self._core, self._now())
        if done.new is RepairState.PROBATION:
            self._on_probation(also)
        self._changed((done,))
        await self._save()

    def _on_probation(self, also: Iterable[GpuUuid]) -> None:
        """Begin the verdict's probation with the repair's, also of boards that were reset together with it."""
        begun = {repair.gpu: repair.since_s for repair in self._core.repairs() if repair.state is RepairState.PROBATION}
        for gpu, since_s in (dict.fromkeys(also, self._now()) | begun).items():
            self._recorded(self._node_state.apply(Verified(gpu, since_s), self._now()))

    def before(self, gpu: GpuUuid) -> Before | None:
        return self._befores.before(gpu)

    async def as_before(self) -> None:
        if kept := self._befores.persistent():
            await self.tool.persistence(kept, on=True)
        self._unsaved |= self._befores.forget()

    async def verdict(self, gpu: GpuUuid, within_s: float) -> str:
        try:
            async with asyncio.timeout(within_s):
                while (want := self.want(gpu)).action is not Action.NONE or want.due_s or self._out(gpu):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return words.still_wrong(f"{within_s:g}", want.cause or self._node_state.ailment(gpu))
        return ""

    def _out(self, gpu: GpuUuid) -> bool:
        """Whether a fault that blocks is open that a reset takes away: it has not been seen yet."""
        faults = self._node_state.health.faults(gpu)
        return any(fault.blocks and fault.cleared_by_reset() for fault in faults)

    def want(self, gpu: GpuUuid) -> Want:
        """The repair that the GPU's open faults call for."""
        faults = self._node_state.health.faults(gpu)
        return wanted(faults, told=self._told.get(gpu), now_s=self._now(), there=self._losses.there(gpu))

    async def _verify(self, gpu: GpuUuid, unit: ResetUnit) -> bool:
        """Verify a reset that an agent before this one began, or that could not be verified before."""
        self.acting(unit.uuids)
        try:
            return await verified(self, gpu, unit)
        finally:
            self.acting(frozenset())

    # -- the core

    def _judge_all(self) -> None:
        self._judge(self._node_state.health.gpus())

    def _judge(self, gpus: Iterable[GpuUuid]) -> None:
        if self._core.idle:
            return
        due_s: float | None = None
        for gpu in gpus:
            want = self.want(gpu)
            if want.due_s is not None:
                due_s = want.due_s if due_s is None else min(due_s, want.due_s)
            # Until a probe has been answered, nobody knows what the driver asks for: a lost GPU alone is clear.
            if gpu in self._told or want.action is Action.REBOOT:
                state = self._node_state.state_of_whole(gpu)
                self._changed(self._core.judged(gpu, want, state, self._now()))
                self._explain(gpu, want)
        if due_s is not None:
            self._alarm.set(due_s - self._now())

    def _explain(self, gpu: GpuUuid, want: Want) -> None:
        """Say why a GPU that is taken out is not repaired; the kubelet is served where that is news."""
        known, why = self._node_state.unrepaired, ""
        if self.settings.remediation.reset is not ResetMode.NEVER and self._core.repair(gpu) is None:
            faults = self._node_state.health.faults(gpu)
            looked_s = self._looked_s.get(gpu, float("-inf"))
            why = unrepaired(faults, want, stopped=self._core.stopped(gpu), looked_s=looked_s)
        if why != known.get(gpu, ""):
            others = {each: text for each, text in known.items() if each != gpu}
            self._node_state.unrepaired = {**others, gpu: why} if why else others
            self._serve()

    def _waits(self, gpu: GpuUuid, who: str, *, by_pods: bool = False, held_back: bool = False) -> None:
        news = self._core.held_by(gpu, who, self._now(), by_pods=by_pods, held_back=held_back)
        self._show()
        if news:
            self._teller.waits(gpu, who)

    def _changed(self, changes: Iterable[RepairChange]) -> None:
        changed = False
        for change in changes:
            changed = True
            self._teller.changed(change)
            if change.new not in (RepairState.DRAINING, RepairState.RESETTING):
                self._refused.pop(change.gpu, None)
        if changed:
            self._befores.keep([repair.gpu for repair in self._core.repairs()], self._node_state.node.gpus)
            self._unsaved = True
            self._poked.set()
            self._show()

    def _show(self) -> None:
        """Withhold the GPUs in repair; the kubelet is served where that changes anything."""
        self._node_state.health.hold(repair.gpu for repair in self._core.repairs() if repair.holds_probation)
        reasons = {str(gpu): why for gpu, why in self._core.withheld().items()}
        for gpu in self._acting:
            reasons.setdefault(str(gpu), words.withheld(RepairState.RESETTING.value))
        shown_repairs = [
            ShownRepair(repair, self._core.ask(repair.gpu), takes_along(self._node_state.node.gpus, repair.gpu))
            for repair in self._core.repairs()
        ]
        self._node_state.repairs = tuple(shown_repairs)
        for drained, ask, others in shown_repairs:
            # Pods that come to the others while pods leave for the reset would hold it up for ever.
            if self.settings.remediation.reset is ResetMode.DRAIN and ask is not None and ask.drains:
                for gpu in others:
                    reasons.setdefault(str(gpu), words.withheld_with(self._teller.name(drained.gpu)))
        self._node_state.order_answers = self._answers
        self._node_state.reset_mode = self.settings.remediation.reset.value
        self._teller.counted([repair.state for repair in self._core.repairs()])
        shown = self._node_state.repairs, self._answers, self._node_state.reset_mode
        differs = shown != self._shown
        self._shown = shown
        if self._node_state.withhold(REPAIR, reasons) or differs:
            self._serve()

    def _problems(self) -> None:
        """Report settings that do not hold: that ``drain`` asks nobody where there is no API server, and that the
        program is not there without which nothing is reset.
        """
        remediation = self.settings.remediation
        problems = [self._unmet]
        if remediation.reset is ResetMode.DRAIN and not self.settings.use_api_server:
            problems.append(words.drain_alone())
        command = remediation.verify_command
        if remediation.reset is not ResetMode.NEVER and command and shutil.which(command[0]) is None:
            problems.append(words.no_verifier(command[0]))
        self._node_state.report(REPAIR, tuple(filter(None, problems)))

    async def _save(self) -> None:
        """Write the journal where it is out of date; a step that needs it on disk uses ``_write``."""
        while self._unsaved:
            try:
                await self._write()
            except OSError as failed:
                log.warning("journal of repairs not written", extra={"error": str(failed)})
                return

    async def _write(self) -> None:
        async with self._writing:  # one after the other: the last one has the newest
            self._unsaved = False
            entry = JournalEntry(
                boot_id=self._boot_id,
                snapshot=self._core.snapshot(),
                before=self._befores.attempt,
                recorded=self._befores.recorded,
                answers=self._answers,
            )
            try:
                await asyncio.to_thread(self._journal.write, entry)
            except OSError:
                self._unsaved = True
                raise
