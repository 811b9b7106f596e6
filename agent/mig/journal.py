"""The change of each GPU's MIG, written to disk before it is made: after a crash it can be finished or undone.

There is one file for each GPU, replaced in one step and synced with its folder. The last change that was carried out
stays: after a reboot the same instances are made at the same places. Where there is nothing to restore an entry stays
that says so: a checkpoint that was written before it is out of date.
"""

import logging
import secrets
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from agent.persistence.files import write_synced
from failpoints.names import Failpoint
from inventory.devices import GpuUuid
from inventory.mig.plan import Slot

log = logging.getLogger(__name__)

FOLDER = "mig"
VERSION = 1
MAX_BYTES = 1 << 20


class JournalEntry(Struct, frozen=True, kw_only=True):
    """One change of one GPU. ``profiles`` None: MIG off. ``before`` and ``target`` are the instances before and after
    the change.

    ``done``: the target was read back. Otherwise the GPU may be anywhere between the two. ``id`` is another one each
    time an entry is written: a checkpoint that names it was made after the entry.
    """

    version: int = VERSION
    gpu: GpuUuid
    boot_id: str
    profiles: tuple[str, ...] | None
    mode_before: bool
    before: tuple[Slot, ...]
    target: tuple[Slot, ...]
    done: bool = False
    id: str = ""

    @property
    def forgotten(self) -> bool:
        """Whether the entry only says that something was changed."""
        return self.done and self.profiles is None

    def half_cut(self, boot_id: str) -> bool:
        """Whether the instances may be anywhere between ``before`` and ``target``. A switch of the mode alone leaves
        them as they are: the GPU can be used while it waits for a reset.
        """
        return not self.done and self.boot_id == boot_id and self.before != self.target


class Journal:
    """The entries below ``state_dir``, one for each GPU, written by that GPU's change alone.

    No step is taken before an entry that is not ``done`` is on disk. A ``done`` entry stays, for the next reboot.
    """

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / FOLDER
        self._ids: dict[GpuUuid, str] = {}

    def id(self, gpu: GpuUuid) -> str:
        """The id of the GPU's entry, from memory once it was read; empty where there is none."""
        if gpu not in self._ids:
            entry = self._read(gpu)
            self._ids[gpu] = entry.id if entry is not None else ""
        return self._ids[gpu]

    def read(self, gpu: GpuUuid) -> JournalEntry | None:
        """The GPU's entry; None where there is none, where it cannot be understood, or where it is ``forgotten``."""
        found = self._read(gpu)
        return None if found is not None and found.forgotten else found

    def _read(self, gpu: GpuUuid) -> JournalEntry | None:
        path = self._path(gpu)
        try:
            with path.open("rb") as file:
                entry = msgspec.json.decode(file.read(MAX_BYTES), type=JournalEntry)
        except OSError:
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as wrong:
            log.warning("MIG journal ignored", extra={"file": str(path), "error": str(wrong)})
            return None
        return entry if entry.version == VERSION and entry.gpu == gpu else None

    def write(self, entry: JournalEntry) -> None:
        """Write the entry, with a new id: it is on disk when this returns. Raises OSError."""
        kept = structs.replace(entry, id=secrets.token_hex(8))
        self._ids[entry.gpu] = kept.id
        write_synced(self._path(entry.gpu), msgspec.json.encode(kept), Failpoint.MIG_JOURNAL)

    def forget(self, gpu: GpuUuid, boot_id: str) -> None:
        """Write that no change is under way, and that nothing is to be restored. Raises OSError."""
        self.write(
            JournalEntry(gpu=gpu, boot_id=boot_id, profiles=None, mode_before=False, before=(), target=(), done=True)
        )

    def _path(self, gpu: GpuUuid) -> Path:
        return self._folder / f"{gpu.replace('/', '_')}.json"
