"""Whether a GPU was reset: only from what NVML itself shows. Pure.

    handles -> Renewals -> renewed;  renewed, energy, recovery action -> ResetDetector -> reset

After a reset old handles are dead and new ones work, no recovery action is left, and the energy counter starts anew (as
it does at a driver reload, which resets as well). Nothing else proves a reset: a GPU that answers again, was merely
late, or has another handle for no such reason, was not thereby reset.
"""

from collections.abc import Iterable

from agent.hardware.probe import Probe
from inventory.devices import GpuUuid


class Renewals:
    """GPUs whose handles show a reset: one that worked is dead and another works, or NVML called the GPU lost and now
    hands out a handle that works.

    Filled by discovery and probes, over sessions; ``take`` empties it. A GPU that answers is never in ``_lost``.
    ``lost`` are those of the process before this one: a GPU that was reset between the two answers at the first look,
    and its energy counter need not tell so, since it may have grown past its old count.
    """

    def __init__(self, lost: Iterable[GpuUuid] = ()) -> None:
        self._lost: set[GpuUuid] = set(lost)
        self._renewed: set[GpuUuid] = set()

    def lost(self, gpu: GpuUuid) -> None:
        """Record that NVML says that the GPU is lost."""
        self._lost.add(gpu)

    def answered(self, gpu: GpuUuid, *, old_handle_works: bool | None) -> None:
        """Record that the GPU answers; the handle used before still works, or not, or (None) there was none."""
        if old_handle_works is False or (old_handle_works is None and gpu in self._lost):
            self._renewed.add(gpu)
        self._lost.discard(gpu)

    def keep(self, gpus: Iterable[GpuUuid]) -> None:
        """Drop all GPUs but ``gpus``: one that was removed and comes back has not thereby been reset."""
        here = set(gpus)
        self._lost &= here
        self._renewed &= here

    def take(self, gpu: GpuUuid) -> bool:
        """Whether the GPU was renewed since the last call for it."""
        renewed = gpu in self._renewed
        self._renewed.discard(gpu)
        return renewed


class ResetDetector:
    """Remembers each GPU's energy counter. ``energy_mj`` is checkpointed: a reset is seen across restarts."""

    def __init__(self, energy_mj: dict[GpuUuid, int] | None = None) -> None:
        self.energy_mj: dict[GpuUuid, int] = dict(energy_mj or {})
        self._unfinished: set[GpuUuid] = set()
        """GPUs renewed while the driver still asked for a recovery action: a reset is seen once it asks no more."""

    def done(self, gpu: GpuUuid) -> None:
        """Record that the agent itself has reset the GPU: seen once no recovery action is left."""
        self._unfinished.add(gpu)

    def observe(self, gpu: GpuUuid, probe: Probe, *, renewed: bool) -> bool:
        """Take in a probe (``renewed``: its old handle was dead); True when it shows that a reset took place."""
        before = self.energy_mj.get(gpu)
        if probe.energy_mj is not None:
            self.energy_mj[gpu] = probe.energy_mj
        restarted = before is not None and probe.energy_mj is not None and probe.energy_mj < before
        if renewed or restarted:
            self._unfinished.add(gpu)
        if gpu not in self._unfinished or probe.recovery_action:
            return False
        self._unfinished.remove(gpu)
        return True
