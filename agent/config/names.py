"""Which named configuration the node's label ``nvidia.com/device-plugin.config`` chose, remembered across restarts.

The names are files in the folder of ``--config-dir``. Without a label ``--config`` holds, and without that the file
called ``default`` where the folder has one, as NVIDIA's config manager falls back.
"""

import contextlib
from pathlib import Path

from agent.files import write_atomically

NAME = "config.name"


class ConfigName:
    """``name`` is the label's value, None where there is no label. Names come from labels: they hold no ``/``."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / NAME
        self.name: str | None = None
        with contextlib.suppress(OSError, UnicodeDecodeError):
            self.name = self._file.read_text() or None

    def choose(self, name: str | None) -> None:
        """The label says so now."""
        self.name = name or None
        with contextlib.suppress(OSError):
            if self.name is None:
                self._file.unlink(missing_ok=True)
            else:
                write_atomically(self._file, self.name.encode())

    def path(self, config_dir: Path, given: Path | None) -> Path | None:
        """The file to read: the named one, else ``given`` (``--config``), else ``default``; None for no file at all.

        A name without a file is the reader's to refuse.
        """
        if self.name is not None and "/" not in self.name and self.name not in (".", ".."):
            return config_dir / self.name
        default = config_dir / "default"
        return given or (default if default.is_file() else None)
