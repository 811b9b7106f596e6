"""Whether a GPU was reset since the last look: only from what NVML itself shows. Pure.

After a reset old handles are dead and new ones work, no recovery action is left, and the energy counter starts anew (as
it does at a driver reload, which resets as well). Nothing else proves a reset: a GPU that answers again does not.
"""

from agent.hardware.probe import Probe
from inventory.ids import GpuUuid


class ResetDetector:
    """Remembers each GPU's energy counter. ``energy_mj`` is checkpointed: a reset is seen across restarts."""

    def __init__(self, energy_mj: dict[GpuUuid, int] | None = None) -> None:
        self.energy_mj: dict[GpuUuid, int] = dict(energy_mj or {})
        self._unfinished: set[GpuUuid] = set()
        """Renewed while the driver still asked for a recovery action: a reset once it asks no more."""

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
