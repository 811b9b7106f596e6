"""How the agent runs MPS: the section ``mps`` of the config file."""

from pathlib import Path

from msgspec import Struct


class MpsSettings(Struct, frozen=True, kw_only=True):
    """``canary``: each daemon is tried by a client. ``shm_size_mib`` None: half of the memory, as tmpfs has."""

    control_program: Path = Path("nvidia-cuda-mps-control")
    multi_user: bool = False
    canary: bool = True
    private_shm: bool = True
    """A tmpfs for each device; without it daemons and clients meet in the agent's own /dev/shm, which is the host's."""
    shm_size_mib: int | None = None
    probe_interval_s: float = 10.0
