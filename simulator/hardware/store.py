"""The store of the hardware's state between runs: one JSON file, written whole and renamed, under a lock of its own.

The process that runs the hardware (a simulation, or a client while no simulation runs) holds the lock file; the kernel
drops the lock when that process ends in any way.
"""

import fcntl
import os
import time
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from simulator.hardware.hardware import STATE_VERSION, Hardware

STATE_FILE = "simulated-hardware.json"
LOCK_FILE = "simulated-hardware.lock"

LOCK_PAUSE_S = 0.02


class StoreError(RuntimeError):
    """The state is not available: another process runs this hardware, or the file is not readable."""


class Store:
    """The locked state file of one node. It is used as a context manager, or closed by ``close``."""

    def __init__(self, state_dir: Path, wait_s: float = 0.0) -> None:
        """Take the lock. Raises StoreError when another process still has it after ``wait_s`` seconds."""
        self.path = state_dir / STATE_FILE
        state_dir.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(state_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if time.monotonic() < deadline:
                    time.sleep(LOCK_PAUSE_S)
                    continue
                os.close(self._lock)
                raise StoreError(f"{state_dir}: another process runs this simulated hardware") from error
            return

    def load(self) -> Hardware | None:
        """The state, or None where there is none (or none of this version). Raises StoreError for a broken file."""
        return read(self.path)

    def save(self, hardware: Hardware) -> None:
        """Write the state: a reader finds the old file or the new one, never a part."""
        new = self.path.with_suffix(".new")
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(hardware))
        new.replace(self.path)

    def close(self) -> None:
        """Give the lock back."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# They are made here: msgspec 0.22 crashes when two threads decode a type for the first time.
_ANY: Final = msgspec.json.Decoder(dict[str, Any])
_STATE: Final = msgspec.json.Decoder(Hardware)


def read(path: Path) -> Hardware | None:
    """The state as ``Store.load`` gives it, of a file that another process may run: it takes no lock."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        if _ANY.decode(data).get("version") != STATE_VERSION:
            return None
        return _STATE.decode(data)
    except msgspec.DecodeError as error:
        raise StoreError(f"{path}: {error}; remove the file to start with new hardware") from error
