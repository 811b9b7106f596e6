"""The state that the agent keeps on disk across its own restarts: written soon after each change, and at the end.

checkpoint.json   what it knew, so that it serves before NVML has answered: valid for one boot and one driver, since
minors, MIG instances and most faults are others after either changed. That a board is to be
replaced holds across boots.
layout.json       the modes that GPUs are in, and what a GpuLayout said last, across reboots: without it a restarted
agent could not tell a GPU that pods share from one that is to be shared.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from agent.health.checkpoint import HealthSnapshot
from agent.health.culprits import FaultCount
from agent.persistence.files import write_atomically
from failpoints.names import Failpoint
from inventory.devices import GpuUuid, NodeInventory
from inventory.layout.entries import GpuLayoutSpec, GpuMode

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Struct)

VERSION = 1
CHECKPOINT = "checkpoint.json"
LAYOUT = "layout.json"
MAX_BYTES = 4 << 20
SAVE_INTERVAL_S = 60.0
SAVE_PAUSE_S = 0.1
"""The pause in seconds between the end of a write and the next one. A kill loses the changes since the last write
began: those of this pause and of the time that the disk takes. Nothing that was answered or journaled depends on it
(docs/durability.md).
"""


class Checkpoint(Struct, frozen=True):
    """The state that the agent serves before NVML has answered. ``energy_mj`` are the GPUs' energy counters when it was
    saved: a smaller one later shows a reset. ``mig_changes`` are the ids of the MIG journal's entries that ``node`` was
    read after: a GPU whose entry has another id was changed since. ``application_faults`` hold across boots.
    """

    version: int
    boot_id: str
    node: NodeInventory
    health: HealthSnapshot = HealthSnapshot(())
    energy_mj: dict[GpuUuid, int] = {}
    mig_changes: dict[GpuUuid, str] = {}
    application_faults: tuple[FaultCount, ...] = ()

    def is_of_boot(self, boot_id: str) -> bool:
        """Whether its node can be served: it is of the boot ``boot_id``. Of another boot's only the faults that survive
        a reboot hold.
        """
        return bool(boot_id) and self.boot_id == boot_id


class LayoutState(Struct, frozen=True):
    """The layout as it is kept. ``modes`` are by GPU; GPUs that no layout ever named are not in it.

    ``object_layout`` is the layout of the last GpuLayout: it holds until the API server is heard again.
    """

    version: int = VERSION
    modes: dict[GpuUuid, GpuMode] = {}
    object_layout: GpuLayoutSpec | None = None


class Known(Struct, frozen=True):
    """All state that is worth keeping at one moment."""

    checkpoint: Checkpoint
    layout: LayoutState


def save_checkpoint(state_dir: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint in one step, mode 0600. Raises OSError."""
    write_atomically(state_dir / CHECKPOINT, msgspec.json.encode(checkpoint), Failpoint.CHECKPOINT)


def load_checkpoint(state_dir: Path, *, node_name: str) -> Checkpoint | None:
    """The checkpoint of this node, of whatever boot; None where there is none, or where it cannot be understood."""
    found = read_state(state_dir / CHECKPOINT, Checkpoint, lambda checkpoint: checkpoint.node.validate())
    return found if found is not None and found.version == VERSION and found.node.name == node_name else None


def save_layout(state_dir: Path, state: LayoutState) -> None:
    """Write the layout state in one step, mode 0600. Raises OSError."""
    write_atomically(state_dir / LAYOUT, msgspec.json.encode(state), Failpoint.LAYOUT)


def load_layout(state_dir: Path) -> LayoutState:
    """The layout state saved last; an empty one where there is none, or where it cannot be understood."""
    found = read_state(state_dir / LAYOUT, LayoutState, lambda _: None)
    return found if found is not None and found.version == VERSION else LayoutState()


def read_state(path: Path, kind: type[S], validate: Callable[[S], None]) -> S | None:
    """The state kept at ``path``; None where there is none that can be understood. ``validate`` asserts."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as failed:
        log.warning("state file not read", extra={"error": str(failed)})
        return None
    try:
        if len(content) > MAX_BYTES:
            raise msgspec.ValidationError(f"found more than {MAX_BYTES} bytes")
        state = msgspec.json.decode(content, type=kind)
        validate(state)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, AssertionError) as wrong:
        log.warning("state file ignored", extra={"file": str(path), "error": str(wrong)})
        return None
    return state


def read_boot_id(proc_root: Path) -> str:
    """The kernel's id of this boot; empty where it cannot be read (then no checkpoint ever fits)."""
    try:
        return (proc_root / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class StateFiles:
    """The state files in ``folder``. ``known`` is asked for what to write; None while nothing is known.

    One save runs at a time, on a thread: ``layout`` is written by it alone, and ``close`` waits for the last one.
    ``failed`` is why the last save failed, empty where it did not; ``told`` is called when it changes.
    """

    def __init__(
        self, folder: Path, known: Callable[[], Known | None], told: Callable[[], None] = lambda: None
    ) -> None:
        self._folder = folder
        self._known = known
        self._told = told
        self._changed = asyncio.Event()
        self._saving: asyncio.Task[str] | None = None
        self.failed = ""
        self.layout = load_layout(folder)
        """The layout state that is on disk."""

    def changed(self) -> None:
        """Let the state be written soon: it has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Write after each change, and each minute, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SAVE_INTERVAL_S):
                    await self._changed.wait()
            self._changed.clear()
            await self._save_now()
            await asyncio.sleep(SAVE_PAUSE_S)

    async def flush(self) -> None:
        """Return when the present modes are on disk, or could not be written."""
        known = self._known()
        while known is not None and known.layout != self.layout:
            if self._saving is not None and not self._saving.done():
                await asyncio.wait([self._saving])
                continue
            await self._save_now()
            return

    async def close(self) -> None:
        """Write the last state, when ``run`` has ended."""
        if self._saving is not None:
            await asyncio.wait([self._saving])  # or an older state would be written over the last one
        self._note(self._save(self._known()))

    async def _save_now(self) -> None:
        if self._saving is not None:
            await asyncio.wait([self._saving])
        # The save runs on a thread: a disk may take seconds, and pods wait for this loop.
        self._saving = asyncio.create_task(asyncio.to_thread(self._save, self._known()))
        self._note(await asyncio.shield(self._saving))

    def _note(self, failed: str) -> None:
        if failed == self.failed:
            return
        if failed:
            log.warning("state files not saved", extra={"error": failed})
        else:
            log.info("state files saved again")
        self.failed = failed
        self._told()

    def _save(self, known: Known | None) -> str:
        """Write the state; one line of what failed, empty where nothing did."""
        if known is None:
            return self.failed
        try:
            if known.layout != self.layout:
                save_layout(self._folder, known.layout)
                self.layout = known.layout
            save_checkpoint(self._folder, known.checkpoint)
        except OSError as failed:
            return f"{failed.strerror}: {failed.filename or self._folder}"
        return ""
