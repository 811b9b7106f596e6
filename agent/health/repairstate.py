"""The repair of one GPU as data: its state, its changes, what the journal has of it. Pure.

RepairCore -> Repair, RepairChange -> log, metrics, GpuNode; RepairSnapshot -> journal -> resumed, rebooted -> Repair
"""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from agent.health.grants import Ask
from agent.words import repairs as words
from inventory.devices import GpuUuid


class RepairState(StrEnum):
    """The state of one GPU's repair. In each the device stays in the kubelet's list, Unhealthy.

    Draining: no new container gets it, and it is reset once nobody has it. Probation: repaired, and the verdict's
    probation runs. RebootWanted: only a reboot helps. Retired: nothing is done until a person says so.
    """

    DRAINING = "Draining"
    RESETTING = "Resetting"
    VERIFYING = "Verifying"
    PROBATION = "Probation"
    REBOOT_WANTED = "RebootWanted"
    RETIRED = "Retired"


class Order(StrEnum):
    """What a person orders for one GPU: its reset, the end of its repair, that it stays out, that it comes back."""

    START = "start"
    STOP = "stop"
    RETIRE = "retire"
    RETURN = "return"


class ResetResult(StrEnum):
    """The end of a reset: done, refused because somebody has the GPU, failed, or not back in its time."""

    DONE = "done"
    BUSY = "busy"
    FAILED = "failed"
    HUNG = "hung"


ACTING = frozenset({RepairState.RESETTING, RepairState.VERIFYING})


class Repair(Struct, frozen=True, kw_only=True):
    """The repair of one GPU. ``fault_s`` is when its fault began, ``since_s`` when its state did; ``attempt`` counts
    the resets that were begun. ``note`` is one line: the last result, or what is waited for.

    ``interrupted``: the agent died in Resetting, or in Verifying where ``was_reset``. ``wrong``: it was reset and found
    wrong, so that a verdict without faults does not end the repair; a reset that is done ends that. ``doubted``: its
    resets had failed, or it was found wrong, and then somebody reset it or the node was rebooted: it is verified before
    it returns. ``ordered``: a person wants the reset, whatever the faults say, until one is done. ``held_back``: the
    breaker of this node does not let it be reset yet.
    """

    gpu: GpuUuid
    state: RepairState
    since_s: float
    fault_s: float
    reason: str
    cause: str = ""
    attempt: int = 0
    note: str = ""
    interrupted: bool = False
    was_reset: bool = False
    wrong: bool = False
    doubted: bool = False
    ordered: bool = False
    held_back: bool = False

    @property
    def awaits_reset(self) -> bool:
        """Whether it is to be reset once nobody has it."""
        return self.state is RepairState.DRAINING and not self.doubted

    @property
    def holds_probation(self) -> bool:
        """Whether the verdict's probation, which a reset has begun, does not pass: the reset is not verified yet."""
        return self.attempt > 0 and self.state not in (RepairState.PROBATION, RepairState.RETIRED)


class Answered(Struct, frozen=True, kw_only=True):
    """The answer to the last order of one GPU. ``gpu`` is its UUID as the person wrote it; ``at_s`` is in seconds since
    the epoch.
    """

    gpu: str
    order: str
    answer: str
    at_s: float
    refused: bool = False


class RepairChange(Struct, frozen=True, kw_only=True):
    """One step of a repair. ``step`` and ``result`` are labels of a metric; ``new`` None: the repair is over.

    ``repair_s``: the seconds from fault to return, where the GPU is back.
    """

    gpu: GpuUuid
    old: RepairState | None
    new: RepairState | None
    step: str
    result: str
    note: str
    at_s: float
    repair_s: float | None = None


class RepairSnapshot(Struct, frozen=True, kw_only=True):
    """The whole state, for the journal. ``faults`` has the times of each fault that began a repair, by GPU and reason;
    ``resets`` when each GPU was reset last; ``asks`` and ``generations`` are those of ``grants.Asks``; ``stopped`` are
    GPUs whose repair a person has ended; ``open`` has the reasons in ``faults`` whose fault has not gone since.
    """

    repairs: tuple[Repair, ...] = ()
    faults: dict[GpuUuid, dict[str, tuple[float, ...]]] = {}
    resets: dict[GpuUuid, float] = {}
    asks: dict[GpuUuid, Ask] = {}
    generations: dict[GpuUuid, int] = {}
    stopped: tuple[GpuUuid, ...] = ()
    open: dict[GpuUuid, frozenset[str]] = {}


def interrupted(gpu: GpuUuid, now_s: float) -> RepairChange:
    was, now, note = RepairState.RESETTING, RepairState.DRAINING, words.interrupted()
    return RepairChange(gpu=gpu, old=was, new=now, step="reset", result="interrupted", note=note, at_s=now_s)


def resumed(repair: Repair) -> Repair:
    if repair.state not in ACTING:
        return repair
    reset = repair.state is RepairState.VERIFYING or (repair.interrupted and repair.was_reset)
    note = words.interrupted_verifying() if reset else words.interrupted()
    return replace(repair, state=RepairState.DRAINING, interrupted=True, was_reset=reset, note=note)


def rebooted(repair: Repair, now_s: float) -> Repair | None:
    """The repair after a reboot; None where that has ended it."""
    if repair.state is RepairState.RETIRED:
        return repair
    if repair.attempt == 0 or repair.state is RepairState.PROBATION:
        return None
    return Repair(
        gpu=repair.gpu,
        state=RepairState.DRAINING,
        since_s=now_s,
        fault_s=repair.fault_s,
        reason=repair.reason,
        cause=repair.cause,
        attempt=repair.attempt,
        note=words.verified_first(),
        doubted=True,
    )
