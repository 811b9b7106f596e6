"""The lasting effects of an XID on the board, as data.

Application XIDs leave no trace. The others leave the state that the driver would show after them until the GPU is
reset: a recovery action, ECC counts, a pending or failed row remapping, a lost GPU. Sources: NVIDIA's XID catalogue and
the GPU memory error management guide.
"""

from msgspec import Struct

RECOVERY_NONE = 0
RECOVERY_GPU_RESET = 1
RECOVERY_NODE_REBOOT = 2

EVENT_SINGLE_BIT_ECC = 0x1
EVENT_DOUBLE_BIT_ECC = 0x2
EVENT_XID = 0x8
EVENT_MIG_CONFIG = 0x100


class Consequence(Struct, frozen=True):
    """The lasting effects of an XID. ``recovery`` is NVML_GPU_RECOVERY_ACTION_*."""

    recovery: int = RECOVERY_NONE
    uncorrected: int = 0
    remap_pending: bool = False
    remap_failure: bool = False
    lost: bool = False
    nvlink_error: bool = False


_RESET = Consequence(recovery=RECOVERY_GPU_RESET)

CONSEQUENCES: dict[int, Consequence] = {
    46: _RESET,
    48: Consequence(recovery=RECOVERY_GPU_RESET, uncorrected=1),
    62: _RESET,
    63: Consequence(remap_pending=True),
    64: Consequence(remap_failure=True),
    74: Consequence(recovery=RECOVERY_GPU_RESET, nvlink_error=True),
    79: Consequence(recovery=RECOVERY_NODE_REBOOT, lost=True),
    94: Consequence(uncorrected=1),
    95: Consequence(recovery=RECOVERY_GPU_RESET, uncorrected=1),
    110: _RESET,
    119: _RESET,
    120: _RESET,
    136: _RESET,
    140: _RESET,
    143: _RESET,
}
"""The consequence of each XID; one that is not here leaves no trace."""
