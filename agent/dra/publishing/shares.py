"""Shares of a GPU that claims may ask for: one device of which each claim has as much as it asks for. Pure.

    Gpu, granularity -> amounts(gpu, step), policies(gpu, step);  consumed(capacity of a result) -> Share

A share is memory and percents of the GPU's threads, both enforced by the GPU's MPS daemon. The scheduler adds up what
claims consume (KEP-5075) and gives each of them a share id. A GPU with shares has no other device: to be whole, or cut
into MIG instances, beside its shares would take counters, and the daemon has the GPU for itself.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from agent.config.parsers import memory_mib
from agent.dra.claim import ClaimError
from agent.dra.publishing.partitions import device_name, memory
from agent.words import claims as words
from inventory.api.names import COMPUTE_PERCENT
from inventory.devices import Gpu
from yamlfile.parsers import Unfit

MEMORY: Final = "memory"
PERCENTS: Final = 100


class Share(Struct, frozen=True):
    """The part of a GPU that a claim has: its limits as a client of MPS."""

    memory_mib: int
    percent: int

    def __add__(self, other: "Share") -> "Share":
        return Share(self.memory_mib + other.memory_mib, self.percent + other.percent)

    def within(self, whole: "Share") -> bool:
        return self.memory_mib <= whole.memory_mib and self.percent <= whole.percent


NONE: Final = Share(0, 0)


def share_name(gpu: Gpu) -> str:
    """The name of the device that shares are parts of."""
    return f"{device_name(gpu)}-shares"


def whole(gpu: Gpu) -> Share:
    return Share(gpu.memory_mib, PERCENTS)


def amounts(gpu: Gpu) -> dict[str, str]:
    """The device's capacity."""
    return {MEMORY: memory(gpu.memory_mib), COMPUTE_PERCENT: str(PERCENTS)}


def policies(gpu: Gpu, step: int) -> dict[str, Mapping[str, object]]:
    """The request policy of each capacity: a request's granularity, and the default of a claim that does not name the
    capacity, which is one step of percents, and as much of the memory.
    """
    part = max(1, gpu.memory_mib * step // PERCENTS)
    return {
        MEMORY: {"default": memory(part), "validRange": {"min": memory(1), "step": memory(1)}},
        COMPUTE_PERCENT: {"default": str(step), "validRange": {"min": str(step), "step": str(step)}},
    }


def consumed(capacity: Mapping[str, str], driver: str, where: str) -> Share:
    """The share that the scheduler gave a claim. Raises ClaimError for a capacity that is not a share."""
    plain = {name.removeprefix(f"{driver}/"): value for name, value in capacity.items()}
    try:
        mib = memory_mib(plain.get(MEMORY, ""))
    except Unfit:
        raise ClaimError(words.bad_memory_share(where, plain.get(MEMORY))) from None
    text = plain.get(COMPUTE_PERCENT, "")
    fine = text.isascii() and text.isdigit() and len(text) <= len(str(PERCENTS)) and 0 < int(text) <= PERCENTS
    if not fine:
        raise ClaimError(words.bad_percent_share(where, COMPUTE_PERCENT, text, PERCENTS))
    return Share(mib, int(text))
