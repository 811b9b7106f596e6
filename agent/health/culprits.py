"""The culprit behind XIDs of applications: a program, or the GPU. Pure.

    seen(gpu, serial, xid, program, now_s) -> the count whose culprit is new, or None;  counts() -> all that are kept

An application fault (XID 13, 31, 43, ...) takes no GPU out: nearly always a program has a bug. A program that has the
same XID on several GPUs is at fault. A GPU on which several programs have it, none of which has it anywhere else, is
suspect. Neither is said of one program on one GPU. Source: the analyser of NVSentinel, which tells XIDs 13 and 31
apart in this way over a cluster; here it is one node's GPUs, for all application faults.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from inventory.devices import GpuUuid

MOST_COUNTS = 256
MOST_PROGRAMS = 8
"""The programs that are kept of each count, those with the latest faults."""
FORGOTTEN_S = 7 * 86400.0
"""The seconds after which a program's last fault says nothing about the next one's."""


class Culprit(StrEnum):
    """What the counts point at."""

    UNKNOWN = ""
    PROGRAM = "program"
    GPU = "gpu"


class FaultCount(Struct, frozen=True, kw_only=True):
    """How often one XID of applications came on one GPU, first and last in seconds since 1970. ``serial`` is the
    board's, which outlives its place in a node. ``programs``: when each had it last.
    """

    gpu: GpuUuid
    serial: str = ""
    xid: int
    count: int
    first_s: float
    last_s: float
    programs: dict[str, float] = {}
    culprit: Culprit = Culprit.UNKNOWN


class CulpritCore:
    """The counts of one node, by GPU and XID: at most MOST_COUNTS, of which the one that is longest ago goes first.

    Boards that are gone keep theirs: whoever sends a board back wants them. Its owner calls it from one place.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[GpuUuid, int], FaultCount] = {}

    def seen(self, gpu: GpuUuid, serial: str, xid: int, program: str, now_s: float) -> FaultCount | None:
        """Count an XID of an application on ``gpu``. ``program`` names what runs there (a job, else a pod); empty where
        nobody is known to hold the GPU, or several do. Returns the count where it points at somebody now, and did not
        before, or at somebody else.
        """
        key = (gpu, xid)
        before = self._counts.pop(key, None)
        programs = {} if before is None else dict(before.programs)
        if program:
            programs.pop(program, None)
            programs[program] = now_s
        recent = {name: at_s for name, at_s in programs.items() if now_s - FORGOTTEN_S < at_s}
        count = FaultCount(
            gpu=gpu,
            serial=serial or ("" if before is None else before.serial),
            xid=xid,
            count=1 if before is None else before.count + 1,
            first_s=now_s if before is None else before.first_s,
            last_s=now_s,
            programs=dict(list(recent.items())[-MOST_PROGRAMS:]),
        )
        self._counts[key] = count
        for other in list(self._counts)[: max(0, len(self._counts) - MOST_COUNTS)]:
            del self._counts[other]
        self._judge(xid)
        now = self._counts[key]
        told = Culprit.UNKNOWN if before is None else before.culprit
        return now if now.culprit not in (Culprit.UNKNOWN, told) else None

    def elsewhere(self, count: FaultCount) -> int:
        """The GPUs on which the programs of this count have the same XID, its own among them."""
        return sum(
            each.xid == count.xid and not count.programs.keys().isdisjoint(each.programs)
            for each in self._counts.values()
        )

    def counts(self) -> tuple[FaultCount, ...]:
        """All counts, the latest last."""
        return tuple(self._counts.values())

    def restore(self, counts: Iterable[FaultCount]) -> None:
        """Take what an earlier agent counted."""
        kept = sorted(counts, key=lambda each: each.last_s)[-MOST_COUNTS:]
        self._counts = {(each.gpu, each.xid): each for each in kept}

    def validate(self) -> None:
        """Recompute the invariants. Raises AssertionError."""
        assert len(self._counts) <= MOST_COUNTS, "more counts than are kept"
        for (gpu, xid), count in self._counts.items():
            assert (gpu, xid) == (count.gpu, count.xid), "a count is filed under another GPU or XID"
            assert count.count >= max(1, len(count.programs)), f"{gpu}: more programs than faults"
            assert count.first_s <= count.last_s, f"{gpu}: the last fault is before the first"
            assert len(count.programs) <= MOST_PROGRAMS, f"{gpu}: more programs than are kept"
            assert count.culprit is _culprit(count, self._gpus_of_programs(xid)), (
                f"{gpu}: the culprit of XID {xid} has drifted"
            )

    def _judge(self, xid: int) -> None:
        """Say anew of each GPU with this XID whose fault it is: one program may clear, or accuse, another GPU."""
        gpus = self._gpus_of_programs(xid)
        for key, each in self._counts.items():
            if each.xid == xid and (culprit := _culprit(each, gpus)) is not each.culprit:
                self._counts[key] = replace(each, culprit=culprit)

    def _gpus_of_programs(self, xid: int) -> Counter[str]:
        """The number of GPUs on which each program has the XID."""
        return Counter(program for each in self._counts.values() if each.xid == xid for program in each.programs)


def _culprit(count: FaultCount, gpus: Mapping[str, int]) -> Culprit:
    """``gpus``: the number of GPUs on which each program has this XID."""
    if any(gpus[program] > 1 for program in count.programs):
        return Culprit.PROGRAM
    return Culprit.GPU if len(count.programs) > 1 else Culprit.UNKNOWN
