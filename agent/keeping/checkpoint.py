"""What the agent knew, kept across its own restarts, so that it serves before NVML has answered.

The node is valid for the same boot and driver only: after either changed, minors, MIG instances and most faults are
others. That a board is to be replaced holds across boots.
"""

import logging
from pathlib import Path

import msgspec
from msgspec import Struct

from agent.health.checkpoint import HealthSnapshot
from agent.keeping.files import write_atomically
from inventory.devices import Node
from inventory.ids import GpuUuid

log = logging.getLogger(__name__)

VERSION = 1
NAME = "checkpoint.json"
MAX_BYTES = 4 << 20


class Checkpoint(Struct, frozen=True):
    """``energy_mj`` are the GPUs' energy counters when it was saved: a smaller one later shows a reset."""

    version: int
    boot_id: str
    node: Node
    health: HealthSnapshot = HealthSnapshot(())
    energy_mj: dict[GpuUuid, int] = {}

    def is_of_boot(self, boot_id: str) -> bool:
        """Whether its node can be served. Of another boot's only the faults that survive a reboot hold."""
        return bool(boot_id) and self.boot_id == boot_id


def save(state_dir: Path, checkpoint: Checkpoint) -> None:
    """Write it in one step, mode 0600. Raises OSError."""
    write_atomically(state_dir / NAME, msgspec.json.encode(checkpoint))


def load(state_dir: Path, *, node_name: str) -> Checkpoint | None:
    """The checkpoint of this node, of whatever boot, or None: none there, or not to be understood."""
    path = state_dir / NAME
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError:
        return None
    try:
        if len(content) > MAX_BYTES:
            raise msgspec.ValidationError(f"found more than {MAX_BYTES} bytes")
        found = msgspec.json.decode(content, type=Checkpoint)
        found.node.validate()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, AssertionError) as wrong:
        log.warning("checkpoint ignored", extra={"file": str(path), "error": str(wrong)})
        return None
    return found if found.version == VERSION and found.node.name == node_name else None


def read_boot_id(proc_root: Path) -> str:
    """The kernel's id of this boot; empty where it cannot be read (then no checkpoint ever fits)."""
    try:
        return (proc_root / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
