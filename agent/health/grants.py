"""The asks of repairs and the controller's grants of them. Pure.

    Ask: the agent's, in GpuNode.status.repairs; Grant: the controller's, in GpuNode.status.remediationGrants
    Asks.ask, withdraw, granted, lapse -> Ask; Asks.lets says whether a GPU may be reset

An ask has a generation that its GPU has not had before, and a grant holds for that generation alone. A new generation
is taken when another action is asked for, when the grant was used, and when it has lapsed.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from inventory.api.gpunode import GRANT_LASTS_S
from inventory.devices import GpuUuid

MOST_AHEAD: Final = 1 << 20
"""A generation so far ahead of what was asked for is nobody's: it is ignored, so that numbers cannot run out."""


class AskFor(StrEnum):
    """What the controller is asked for: that the GPU's pods leave, a reset, or a reboot of the node."""

    DRAIN = "drain"
    RESET = "reset"
    REBOOT = "reboot"


class Grant(Struct, frozen=True, kw_only=True):
    """The controller's permission. ``granted_s`` is when it was given, in seconds since the epoch by its clock."""

    gpu: GpuUuid
    generation: int
    action: str
    granted_s: float


class Ask(Struct, frozen=True, kw_only=True):
    """The step that is asked for one GPU. One that does not stand is withdrawn for now. ``until_s`` is when its grant
    lapses, None while there is none.
    """

    action: AskFor
    generation: int
    stands: bool = True
    until_s: float | None = None

    @property
    def drains(self) -> bool:
        """Whether the GPU is being freed for its reset: its drain was granted, or nobody holds it any more."""
        return self.action is AskFor.RESET or (self.action is AskFor.DRAIN and self.until_s is not None)

    def lapsed(self, now_s: float) -> bool:
        return self.until_s is not None and now_s >= self.until_s

    def lets(self, action: AskFor, now_s: float) -> bool:
        """Whether the action may be done now."""
        return self.stands and self.action is action and self.until_s is not None and now_s < self.until_s


class Asks:
    """The asks of one node. ``_last`` has the highest generation that each GPU has had, in asks and in grants; every
    ask's is at most that.
    """

    def __init__(self) -> None:
        self._asks: dict[GpuUuid, Ask] = {}
        self._last: dict[GpuUuid, int] = {}

    def get(self, gpu: GpuUuid) -> Ask | None:
        return self._asks.get(gpu)

    def ask(self, gpu: GpuUuid, action: AskFor, now_s: float) -> bool:
        """Ask for ``action``. True where that is news. One that was withdrawn stands again, with its grant."""
        old = self._asks.get(gpu)
        if old is None or old.action is not action or old.lapsed(now_s):
            generation = self._last[gpu] = self._last.get(gpu, 0) + 1
            self._asks[gpu] = Ask(action=action, generation=generation)
            return True
        self._asks[gpu] = replace(old, stands=True)
        return not old.stands

    def withdraw(self, gpu: GpuUuid) -> bool:
        """Ask for nothing, for now. True where that is news."""
        old = self._asks.get(gpu)
        if old is None or not old.stands:
            return False
        self._asks[gpu] = replace(old, stands=False)
        return True

    def used(self, gpu: GpuUuid) -> None:
        """The step is done or not needed any more: whatever is asked next is a new ask."""
        self._asks.pop(gpu, None)

    def granted(self, grants: Iterable[Grant], now_s: float) -> bool:
        """Take the grants as they are now. True where one lets a step happen that nothing let happen before.

        A grant lapses GRANT_LASTS_S seconds after it was given, and after it was seen first: the clocks of two machines
        need not agree. One that has lapsed before it was seen lets nothing, and ``lapse`` asks anew; one from the far
        future is no grant.
        """
        news = False
        for grant in grants:
            last = self._last.get(grant.gpu, 0)
            if not 0 <= grant.generation <= last + MOST_AHEAD:
                continue
            self._last[grant.gpu] = max(last, grant.generation)
            ask, age_s = self._asks.get(grant.gpu), now_s - grant.granted_s
            if ask is None or (ask.generation, ask.action.value) != (grant.generation, grant.action):
                continue
            if ask.until_s is not None or not age_s > -GRANT_LASTS_S:
                continue
            if age_s >= GRANT_LASTS_S:
                # The controller takes this ask for answered: only a new one is granted again.
                self._asks[grant.gpu] = replace(ask, until_s=now_s)
                continue
            self._asks[grant.gpu] = replace(ask, until_s=now_s + GRANT_LASTS_S - max(0.0, age_s))
            news = True
        return news

    def lapse(self, now_s: float) -> bool:
        """Ask anew where a grant has lapsed. True where one has."""
        lapsed = [gpu for gpu, ask in self._asks.items() if ask.stands and ask.lapsed(now_s)]
        for gpu in lapsed:
            self.ask(gpu, self._asks[gpu].action, now_s)
        return bool(lapsed)

    def keep(self, gpus: set[GpuUuid]) -> None:
        """Drop what is known of other GPUs."""
        for known in (self._asks, self._last):
            for gpu in [gpu for gpu in known if gpu not in gpus]:
                del known[gpu]

    def snapshot(self) -> tuple[dict[GpuUuid, Ask], dict[GpuUuid, int]]:
        """The asks, and the last generations."""
        return dict(self._asks), dict(self._last)

    def restore(self, asks: dict[GpuUuid, Ask], last: dict[GpuUuid, int]) -> None:
        self._asks, self._last = dict(asks), dict(last)

    def validate(self) -> None:
        """Recompute the invariants."""
        for gpu, ask in self._asks.items():
            assert 0 < ask.generation <= self._last.get(gpu, 0), f"{gpu} asks with a generation that nobody keeps"
