"""Files that are replaced in one step: a reader finds the old content or the new, never half of each.

This is a module of its own because the configuration and the MIG journal write such files too and stand below the kept
state.
"""

import os
import tempfile
from pathlib import Path

from failpoints import points
from failpoints.names import Failpoint


def write_atomically(path: Path, content: bytes, failpoint: Failpoint, *, mode: int = 0o600) -> None:
    """Replace ``path`` by ``content`` in one step; what was there stays when anything fails. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        points.before(failpoint)
        temporary.replace(path)
        points.after(failpoint)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def identity(path: Path | None) -> tuple[int, int, int] | None:
    """Device, inode and time of change (ns) of the file: they differ once it was replaced or written. None: no file."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns)
