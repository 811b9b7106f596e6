"""What is wanted of a GPU's MIG, and what came of it."""

from enum import StrEnum

from msgspec import Struct

from inventory.devices import GpuUuid
from inventory.layout.entries import WhenBusy
from inventory.mig.plan import Slot


class Wish(Struct, frozen=True):
    """How a GPU is to be: MIG instances of ``profiles``, or, with None, MIG mode off.

    ``slots``, where there are any, say at which places the instances are to stand; ``profiles`` are then theirs. An
    empty ``slots`` wants no instance, and leaves the mode as it is.
    """

    profiles: tuple[str, ...] | None
    when_busy: WhenBusy = WhenBusy.REFUSE
    slots: tuple[Slot, ...] | None = None

    def __str__(self) -> str:
        if self.slots:
            return ", ".join(f"{slot.profile} at slice {slot.start}" for slot in self.slots)
        if self.slots is not None:
            return "no MIG instance"
        return "MIG off" if self.profiles is None else ", ".join(self.profiles) or "MIG on, no instance"


class MigState(StrEnum):
    """Where a wish stands. ``Waiting`` is for something outside: pods, a reset, the kubelet."""

    APPLIED = "Applied"
    REFUSED = "Refused"
    WAITING = "Waiting"
    FAILED = "Failed"


class Outcome(Struct, frozen=True):
    """One try's end. ``pods`` (``namespace/name``) are in the way; ``changed``: instances or mode are others now.

    ``going`` (UUIDs) are removed once they are free: no new container gets them meanwhile.
    """

    state: MigState
    sentence: str = ""
    pods: tuple[str, ...] = ()
    changed: bool = False
    going: frozenset[str] = frozenset()


class MigStatus(Struct, frozen=True):
    """One GPU's wish and how it stands, for people. ``since_s``: seconds since the epoch of the last change."""

    gpu: GpuUuid
    index: int
    wish: str
    state: MigState
    sentence: str
    since_s: float
    pods: tuple[str, ...] = ()
