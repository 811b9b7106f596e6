"""The journal of repairs: written before and after each step, so that the next agent goes on where this one ends.

One file below the state folder, replaced in one step. ``before`` has what GPUs in action were before their reset,
``recorded`` what GPUs in repair were before their first one: that holds beyond a reboot, too.
"""

import logging
from pathlib import Path

import msgspec
from msgspec import Struct

from agent.health.repairstate import Answered, RepairSnapshot
from agent.health.verification import GpuFacts
from agent.persistence.files import write_synced
from agent.repair.befores import Before
from failpoints.names import Failpoint
from inventory.devices import GpuUuid

log = logging.getLogger(__name__)

FILE = "repairs.json"
VERSION = 1
MAX_BYTES = 1 << 20


class JournalEntry(Struct, frozen=True, kw_only=True):
    """Everything that a restarted agent must know of repairs."""

    version: int = VERSION
    boot_id: str
    snapshot: RepairSnapshot
    before: dict[GpuUuid, Before] = {}
    recorded: dict[GpuUuid, GpuFacts] = {}
    answers: tuple[Answered, ...] = ()


class RepairJournal:
    """The file, written by the repairs alone."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE

    def read(self) -> JournalEntry | None:
        """What was written last; None where there is nothing, or nothing that can be understood."""
        try:
            with self._path.open("rb") as file:
                entry = msgspec.json.decode(file.read(MAX_BYTES), type=JournalEntry)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as wrong:
            log.warning("journal of repairs ignored", extra={"file": str(self._path), "error": str(wrong)})
            return None
        return entry if entry.version == VERSION else None

    def write(self, entry: JournalEntry) -> None:
        """Write the entry: it is on disk when this returns. Raises OSError."""
        write_synced(self._path, msgspec.json.encode(entry), Failpoint.REPAIRS)
