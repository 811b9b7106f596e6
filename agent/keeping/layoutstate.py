"""The modes that this node's GPUs are in, kept across restarts and reboots: who was promised what is known again.

Without it a restarted agent could not tell a GPU that pods share from one that is to be shared. Not part of the
checkpoint, which is of one boot and one driver only.
"""

import logging
from pathlib import Path

import msgspec
from msgspec import Struct

from agent.keeping.files import write_atomically
from inventory.ids import GpuUuid
from inventory.layout.entries import GpuLayoutSpec, GpuMode

log = logging.getLogger(__name__)

VERSION = 1
NAME = "layout.json"
MAX_BYTES = 1 << 20


class LayoutState(Struct, frozen=True):
    """``modes`` by GPU; GPUs that no layout ever named are not in it.

    ``object_layout`` is what a GpuLayout said last: it holds until the API server is heard again.
    """

    version: int = VERSION
    modes: dict[GpuUuid, GpuMode] = {}
    object_layout: GpuLayoutSpec | None = None


def save(state_dir: Path, state: LayoutState) -> None:
    """Write it in one step, mode 0600. Raises OSError."""
    write_atomically(state_dir / NAME, msgspec.json.encode(state))


def load(state_dir: Path) -> LayoutState:
    """What was saved last; nothing where none is there, or none that can be understood."""
    path = state_dir / NAME
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError:
        return LayoutState()
    try:
        if len(content) > MAX_BYTES:
            raise msgspec.ValidationError(f"found more than {MAX_BYTES} bytes")
        found = msgspec.json.decode(content, type=LayoutState)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as wrong:
        log.warning("layout state ignored", extra={"file": str(path), "error": str(wrong)})
        return LayoutState()
    return found if found.version == VERSION else LayoutState()
