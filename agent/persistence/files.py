"""Files that are replaced in one step: a reader finds the old content or the new, never half of each.

This is a module of its own because the configuration and the MIG journal write such files too and stand below the kept
state.
"""

import contextlib
import os
import re
import tempfile
from pathlib import Path
from typing import Final

from failpoints import points
from failpoints.names import Failpoint

_HALF_WRITTEN: Final = re.compile(r"\.(?P<name>.+)\.[a-z0-9_]{8}")
"""The names that ``write_atomically`` gives its temporary files: the end is ``tempfile``'s."""


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


def write_synced(path: Path, content: bytes, failpoint: Failpoint) -> None:
    """Like ``write_atomically``, and the new name is on disk when this returns. Raises OSError."""
    write_atomically(path, content, failpoint)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove_half_written(folder: Path, *prefixes: str) -> None:
    """Remove the temporary files that a kill in ``write_atomically`` left in ``folder``: where others write there too,
    those whose file's name begins with one of ``prefixes``.

    Nobody may write these files meanwhile. One that cannot be removed stays, and so does the folder's every other file.
    """
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            found = _HALF_WRITTEN.fullmatch(path.name)
            if found is not None and found["name"].startswith(prefixes or "") and not path.is_dir():
                with contextlib.suppress(OSError):
                    path.unlink()


def identity(path: Path | None) -> tuple[int, int, int] | None:
    """Device, inode and time of change (ns) of the file: they differ once it was replaced or written. None: no file."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns)
