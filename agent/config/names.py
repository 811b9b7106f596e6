"""The named configuration in use: the one that the node's label ``nvidia.com/device-plugin.config`` chose.

The names are files in the folder of ``--config-dir``, the label is remembered across restarts. Without a label
``--config`` holds, without that ``--default-config``, and without that the fallback strategies in their order, as in
NVIDIA's config manager.
"""

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from agent.config.settings import ConfigFallback, FallbackStrategy
from agent.persistence.files import write_atomically
from failpoints import points
from failpoints.names import Failpoint
from yamlfile import ConfigError, UnreadableError

NAME = "config.name"
NAMED = "default"
"""The file that the strategy ``named`` looks for."""


class Undecided(LookupError):  # noqa: N818 - a state, not a mistake
    """The folder has configurations, and neither flags nor fallback strategies choose one of them."""


def fall_back(files: Collection[str], fallback: ConfigFallback) -> str | None:
    """The file to use where no label names one; None for none of them. Raises Undecided.

    Whether the default exists is not checked: the reader of the file refuses it.
    """
    if fallback.default:
        return fallback.default
    for strategy in fallback.strategies:
        if strategy is FallbackStrategy.NAMED and NAMED in files:
            return NAMED
        if strategy is FallbackStrategy.SINGLE and len(files) == 1:
            return next(iter(files))
        if strategy is FallbackStrategy.EMPTY:
            return None
    if not files:
        return None
    raise Undecided


class ConfigName:
    """The named configuration of a node. ``name`` is the label's value, None where there is no label. Names come from
    labels: they hold no ``/``.
    """

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / NAME
        self.name: str | None = None
        self.undecided: ConfigError | None = None
        """Why ``path`` chose no file of those there are; None where it did, or where there are none."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            self.name = self._file.read_text() or None

    def choose(self, name: str | None) -> None:
        """Take the name that the label has now, and keep it across restarts."""
        self.name = name or None
        with contextlib.suppress(OSError):
            if self.name is None:
                points.before(Failpoint.CONFIG_NAME_REMOVED)
                self._file.unlink(missing_ok=True)
                points.after(Failpoint.CONFIG_NAME_REMOVED)
            else:
                write_atomically(self._file, self.name.encode(), Failpoint.CONFIG_NAME)

    def path(self, config_dir: Path, given: Path | None, fallback: ConfigFallback) -> Path | None:
        """The file to read: the named one, else ``given`` (``--config``), else as ``fallback`` says; None for no file.

        Whether the named file exists is not checked: its reader refuses it.
        """
        self.undecided = None
        if self.name is not None and "/" not in self.name and self.name not in (".", ".."):
            return config_dir / self.name
        if given is not None:
            return given
        try:
            files = _files(config_dir)
        except OSError as failed:
            problem = os.strerror(failed.errno or 0).lower()
            self.undecided = UnreadableError(str(config_dir), "", problem, "a readable folder")
            return None
        try:
            name = fall_back(files, fallback)
        except Undecided:
            expected = "one of them chosen by the node's label or --default-config, or one that a strategy finds: "
            names = ", ".join(sorted(files))
            self.undecided = ConfigError(str(config_dir), "", names, expected + ", ".join(fallback.strategies))
            return None
        return None if name is None else config_dir / name


def _files(config_dir: Path) -> list[str]:
    """The configurations in the folder, none where there is no folder. A mounted ConfigMap has entries of its own,
    which begin with two dots and are passed over. Raises OSError where the folder cannot be read.
    """
    try:
        return [entry.name for entry in config_dir.iterdir() if entry.is_file() and not entry.name.startswith("..")]
    except (FileNotFoundError, NotADirectoryError):
        return []
