"""The repairs of GPUs, the answers to people's orders, and the counts of application faults, as the GpuNode has them.
Pure.

ShownRepair -> repair_entries() -> RepairEntry; Answered -> order_answers() -> OrderAnswer; FaultCount ->
fault_entries() -> ApplicationFaults
"""

from collections.abc import Iterable
from typing import Final

from agent.cluster.gpunode import moment
from agent.health.culprits import FaultCount
from agent.health.grants import Ask
from agent.health.nextsteps import next_step
from agent.health.repairstate import Answered, Repair
from agent.nodestate import ShownRepair
from inventory.api.gpunode import MAX_TEXT, ApplicationFaults, OrderAnswer, RepairEntry
from inventory.devices import GpuUuid

_WORD: Final = 253
_ORDER: Final = 16
_ATTEMPTS: Final = 4096


def repair_entries(repairs: Iterable[ShownRepair]) -> tuple[RepairEntry, ...]:
    """One entry for each repair, ordered by the GPU."""
    return tuple(_entry(*shown) for shown in sorted(repairs, key=lambda each: each.repair.gpu))


def _entry(repair: Repair, ask: Ask | None, takes_along: tuple[GpuUuid, ...]) -> RepairEntry:
    asks = "" if ask is None else ask.action.value
    return RepairEntry(
        gpu=repair.gpu,
        state=repair.state.value,
        generation=0 if ask is None else ask.generation,
        asks=asks,
        since=moment(repair.since_s),
        fault_since=moment(repair.fault_s),
        reason=repair.reason[:_WORD],
        cause=repair.cause[:MAX_TEXT],
        attempt=min(repair.attempt, _ATTEMPTS),
        note=repair.note[:MAX_TEXT],
        next=next_step(repair.state, asks, held_back=repair.held_back),
        takes_along=takes_along,
    )


def order_answers(answers: Iterable[Answered]) -> tuple[OrderAnswer, ...]:
    """The answers, ordered by the GPU."""
    return tuple(
        OrderAnswer(
            gpu=answered.gpu[:_WORD],
            order=answered.order[:_ORDER],
            answer=answered.answer[:MAX_TEXT],
            at=moment(answered.at_s),
            refused=answered.refused,
        )
        for answered in sorted(answers, key=lambda each: each.gpu)
    )


def fault_entries(counts: Iterable[FaultCount]) -> tuple[ApplicationFaults, ...]:
    """The counts, ordered by GPU and XID."""
    return tuple(
        ApplicationFaults(
            gpu=fault.gpu,
            serial=fault.serial[:_WORD],
            xid=fault.xid,
            count=fault.count,
            first=moment(fault.first_s),
            last=moment(fault.last_s),
            culprit=fault.culprit.value,
            programs=tuple(program[:_WORD] for program in fault.programs),
        )
        for fault in sorted(counts, key=lambda each: (each.gpu, each.xid))
    )
