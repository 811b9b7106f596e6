"""What the log, the metrics and the Events of the node are told of repairs."""

import logging
from typing import Protocol

from agent.health.culprits import Culprit, FaultCount
from agent.health.repairstate import RepairChange, RepairState
from agent.nodestate import NodeState
from agent.words import health as health_words
from agent.words import repairs as words
from inventory.devices import GpuUuid
from kube.loglines import LIMIT

log = logging.getLogger(__name__)

_TOLD = {
    RepairState.REBOOT_WANTED: ("GpuRebootWanted", "Reboot", words.reboot_wanted),
    RepairState.RETIRED: ("GpuRetired", "Replace", words.retired),
}


class RepairListener(Protocol):
    """The receivers of what is done: metrics, and the node's Events."""

    def repaired(self, change: RepairChange) -> None: ...

    def retired(self, number: int) -> None: ...

    def reboots_wanted(self, number: int) -> None: ...


class RepairReporter(Protocol):
    """The receiver of what people are told, each with an Event's reason and action."""

    def warning(self, reason: str, action: str, text: str) -> None: ...

    def note(self, reason: str, action: str, text: str) -> None: ...


class RepairTeller:
    """Tells people of one node's repairs, each GPU by its index and UUID."""

    def __init__(self, node_state: NodeState, reporter: RepairReporter, listener: RepairListener) -> None:
        self._node_state = node_state
        self._reporter = reporter
        self._listener = listener

    def name(self, uuid: GpuUuid) -> str:
        gpu = self._node_state.node.gpu(uuid)
        return uuid if gpu is None else f"GPU {gpu.index} ({uuid})"

    def changed(self, change: RepairChange) -> None:
        new = "over" if change.new is None else change.new.value
        level = logging.INFO if change.new in (None, RepairState.PROBATION) else logging.WARNING
        # Each step is told, also the same one again: the log is the only record of attempts that a node has.
        extra = {"gpu": change.gpu, "state": new, "step": change.step, "result": change.result, LIMIT: None}
        log.log(level, "repair", extra={**extra, "why": change.note})
        self._listener.repaired(change)
        name = self.name(change.gpu)
        if change.new in _TOLD:
            reason, action, say = _TOLD[change.new]
            self._reporter.warning(reason, action, say(name, change.note))
        elif change.repair_s is not None:
            self._reporter.note("GpuReturned", "Return", words.over(name, f"{change.repair_s:.0f}"))
        elif change.new is None:
            self._reporter.warning("GpuRepairEnded", "Repair", words.ended(name, change.note))
        else:
            self._reporter.warning("GpuRepair", "Repair", words.moved(name, change.new.value, change.note))

    def waits(self, gpu: GpuUuid, who: str) -> None:
        log.warning("repair waits", extra={"gpu": gpu, "why": who})
        self._reporter.warning("GpuResetWaits", "Reset", words.not_begun(self.name(gpu), who))

    def unverified(self, gpu: GpuUuid, why: str) -> None:
        log.warning("repair waits", extra={"gpu": gpu, "why": why})
        self._reporter.warning("GpuResetWaits", "Verify", words.not_verified(self.name(gpu), why))

    def counted(self, states: list[RepairState]) -> None:
        self._listener.retired(states.count(RepairState.RETIRED))
        self._listener.reboots_wanted(states.count(RepairState.REBOOT_WANTED))

    def culprit(self, count: FaultCount) -> None:
        """Tell people whose fault an application's XIDs are: nothing is done about either."""
        if count.culprit is Culprit.GPU:
            programs = ", ".join(count.programs)
            text = health_words.gpu_suspect(self.name(count.gpu), count.xid, programs)
            self._reporter.warning("GpuSuspect", "Diagnose", text)
        else:
            gpus = self._node_state.culprits.elsewhere(count)
            text = health_words.program_at_fault(count.xid, gpus, next(reversed(count.programs)))
            self._reporter.warning("ProgramAtFault", "Debug", text)
        log.warning("application faults", extra={"gpu": count.gpu, "xid": count.xid, "culprit": count.culprit.value})
