"""The wish for a GPU's MIG, and the outcome of a try at it."""

from enum import StrEnum

from msgspec import Struct

from inventory.devices import GpuUuid
from inventory.layout.entries import WhenBusy
from inventory.mig.plan import Slot


class Wish(Struct, frozen=True):
    """The wanted state of a GPU: MIG instances of ``profiles``, or, with None, MIG mode off.

    ``slots``, where it is set, says at which places the instances are to stand; ``profiles`` are then theirs. An empty
    ``slots`` wants no instance, and leaves the mode as it is.
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
    """The state of a wish. ``Waiting`` is for something outside: pods, a reset, the kubelet."""

    APPLIED = "Applied"
    REFUSED = "Refused"
    WAITING = "Waiting"
    FAILED = "Failed"


class Outcome(Struct, frozen=True):
    """The outcome of one try. ``pods`` (``namespace/name``) are in the way; ``changed``: instances or mode are others
    now.

    ``going`` (UUIDs) are removed once they are free: no new container gets them meanwhile.
    """

    state: MigState
    sentence: str = ""
    pods: tuple[str, ...] = ()
    changed: bool = False
    going: frozenset[str] = frozenset()


class MigStatus(Struct, frozen=True):
    """The wish for one GPU and its state, for people. ``since_s``: seconds since the epoch of the last change."""

    gpu: GpuUuid
    index: int
    wish: str
    state: MigState
    sentence: str
    since_s: float
    pods: tuple[str, ...] = ()
