"""The agent's start as one state machine: news goes in; whether devices may be advertised and the agent is ready comes
out. Pure.

    Blind --found--> HeldBack ----------adopted--> Serving --measured--> Settled
    Blind --no driver--> Driverless --found--> HeldBack
    Restored --found--> Adopting -------adopted--> Serving

A node whose checkpoint is of this boot starts Restored: its devices are advertised before NVML has answered. Any other
node starts Blind, and advertises nothing until MIG layouts are in force: a reboot leaves none of the MIG instances that
pods had been promised.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """The phase of the start. No phase is entered twice."""

    BLIND = "blind"
    """No device is known, and NVML has not answered."""
    DRIVERLESS = "driverless"
    """No device is known, since there is no driver: the agent has nothing to become ready for."""
    HELD_BACK = "held back"
    """GPUs were found; nothing is advertised until their layouts are in force."""
    RESTORED = "restored"
    """The checkpoint's devices are advertised; NVML has not answered."""
    ADOPTING = "adopting"
    """The checkpoint's devices are advertised while the discovery's are taken in."""
    SERVING = "serving"
    """The devices of a discovery are advertised."""
    SETTLED = "settled"
    """GPUs have been measured once as well: memory that only the start needed can be given back."""


class Learned(StrEnum):
    """An event that may move the start on."""

    NO_DRIVER = "no driver"
    FOUND = "found"
    """A discovery is over; it is not taken in yet."""
    ADOPTED = "adopted"
    """A discovery was taken in, and no layout had to be restored that makes it out of date."""
    MEASURED = "measured"
    """Figures of a GPU were read, and can be scraped."""


STEPS: Final[Mapping[tuple[Phase, Learned], Phase]] = {
    (Phase.BLIND, Learned.NO_DRIVER): Phase.DRIVERLESS,
    (Phase.BLIND, Learned.FOUND): Phase.HELD_BACK,
    (Phase.DRIVERLESS, Learned.FOUND): Phase.HELD_BACK,
    (Phase.RESTORED, Learned.FOUND): Phase.ADOPTING,
    (Phase.HELD_BACK, Learned.ADOPTED): Phase.SERVING,
    (Phase.ADOPTING, Learned.ADOPTED): Phase.SERVING,
    (Phase.SERVING, Learned.MEASURED): Phase.SETTLED,
}
"""All steps; other events in a phase change nothing."""


class Start:
    """One agent's start. ``checkpoint_driver`` is the driver version of this boot's checkpoint, None without one."""

    def __init__(self, checkpoint_driver: str | None) -> None:
        self.phase = Phase.BLIND if checkpoint_driver is None else Phase.RESTORED
        self._checkpoint_driver = checkpoint_driver

    def learn(self, learned: Learned) -> bool:
        """Take an event. True where it moved the start a step further."""
        after = STEPS.get((self.phase, learned), self.phase)
        stepped, self.phase = after is not self.phase, after
        return stepped

    def found(self, driver_version: str) -> bool:
        """Take that a discovery is over. True where health starts over: another driver reset the GPUs when it was
        loaded.
        """
        before, self._checkpoint_driver = self._checkpoint_driver, None
        self.learn(Learned.FOUND)
        return before is not None and before != driver_version

    @property
    def advertises(self) -> bool:
        """Whether the kubelet may be shown devices."""
        return self.phase not in {Phase.BLIND, Phase.DRIVERLESS, Phase.HELD_BACK}

    @property
    def discovered(self) -> bool:
        """Whether a discovery was taken in: before that no device counts as missing on this node."""
        return self.phase in {Phase.SERVING, Phase.SETTLED}

    @property
    def unready(self) -> str | None:
        """Why the agent is not ready yet; None once anything is known."""
        return "NVML has not answered yet" if self.phase is Phase.BLIND else None

    def validate(self) -> None:
        """Check that the checkpoint's driver is known exactly while the checkpoint alone is served."""
        assert (self._checkpoint_driver is not None) == (self.phase is Phase.RESTORED), f"{self.phase}: which driver?"
        assert self.advertises or not self.discovered, f"{self.phase}: found and not advertised"
        assert not self.advertises or self.unready is None, f"{self.phase}: advertised and not ready"
