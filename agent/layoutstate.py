"""The modes that this node's GPUs are in, kept across restarts and reboots: who was promised what is known again.

Without it a restarted agent could not tell a GPU that pods share from one that is to be shared. Not part of the
checkpoint, which is of one boot and one driver only.
"""

import logging
from pathlib import Path

import msgspec
from msgspec import Struct

from agent.files import write_atomically
from inventory.gpulayout import GpuMode
from inventory.ids import GpuUuid

log = logging.getLogger(__name__)

VERSION = 1
NAME = "layout.json"
MAX_BYTES = 1 << 20


class LayoutState(Struct, frozen=True):
    """``modes`` by GPU; GPUs that no layout ever named are not in it."""

    version: int = VERSION
    modes: dict[GpuUuid, GpuMode] = {}


def save(state_dir: Path, modes: dict[GpuUuid, GpuMode]) -> None:
    """Write them in one step, mode 0600. Raises OSError."""
    write_atomically(state_dir / NAME, msgspec.json.encode(LayoutState(modes=modes)))


def load(state_dir: Path) -> dict[GpuUuid, GpuMode] | None:
    """What was saved last, or None: nothing there, or not to be understood."""
    path = state_dir / NAME
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError:
        return None
    try:
        if len(content) > MAX_BYTES:
            raise msgspec.ValidationError(f"found more than {MAX_BYTES} bytes")
        found = msgspec.json.decode(content, type=LayoutState)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as wrong:
        log.warning("layout state ignored", extra={"file": str(path), "error": str(wrong)})
        return None
    return found.modes if found.version == VERSION else None
