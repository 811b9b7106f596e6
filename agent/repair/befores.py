"""What GPUs were before they were reset: of the attempt under way, and since the first attempt of a repair. Pure.

    remember -> journal -> before -> verification;    forget at the end of an attempt, keep at the end of a repair

The facts of the first attempt count at each verification of the repair, also after a reboot: a later attempt would take
what the first one has spoilt for what it was.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from agent.health.verification import GpuFacts
from agent.repair.units import takes_along
from inventory.devices import Gpu, GpuUuid
from inventory.mig.plan import Slot


class Before(Struct, frozen=True, kw_only=True):
    """A GPU before its reset: what NVML said, and its MIG instances; None where these are not to be made again."""

    facts: GpuFacts
    slots: tuple[Slot, ...] | None = ()


class Befores:
    """``attempt`` has the GPUs of the attempt under way, ``recorded`` the facts of all whose repair goes on."""

    def __init__(self, attempt: Mapping[GpuUuid, Before] = {}, recorded: Mapping[GpuUuid, GpuFacts] = {}) -> None:
        self.attempt = dict(attempt)
        self.recorded = dict(recorded)

    def remember(self, before: Mapping[GpuUuid, Before]) -> None:
        """Take what GPUs are now; what is known of an attempt that was interrupted, or of an earlier one, stays."""
        self.attempt = {**before, **self.attempt}
        self.recorded = {**{gpu: each.facts for gpu, each in self.attempt.items()}, **self.recorded}

    def before(self, gpu: GpuUuid) -> Before | None:
        """The GPU as it was before the first reset of its repair, with the instances that it had before the last one;
        None where nobody has written that down.
        """
        attempt, facts = self.attempt.get(gpu), self.recorded.get(gpu)
        if facts is None:
            return attempt
        return Before(facts=facts, slots=None if attempt is None else attempt.slots)

    def persistent(self) -> list[GpuUuid]:
        """The GPUs of the attempt that had persistence mode on."""
        return sorted(gpu for gpu, each in self.attempt.items() if each.facts.persistence)

    def forget(self) -> bool:
        """End the attempt. False where there was none."""
        found, self.attempt = bool(self.attempt), {}
        return found

    def keep(self, repaired: Iterable[GpuUuid], here: Sequence[Gpu]) -> None:
        """Drop the facts of all GPUs but those in repair, those that are reset with them, and those of the attempt
        under way. ``here``: the GPUs of the node; while none is known, nothing is dropped.
        """
        if here:
            kept = {each for gpu in repaired for each in (gpu, *takes_along(here, gpu))} | self.attempt.keys()
            self.recorded = {gpu: facts for gpu, facts in self.recorded.items() if gpu in kept}
