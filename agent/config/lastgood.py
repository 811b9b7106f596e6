"""The last configuration that was in use, kept in the state folder: a bad edit must not keep an agent from starting."""

import os
from pathlib import Path

from agent.keeping.files import write_atomically
from yamlfile.tree import MAX_BYTES

NAME = "config.last-good"


def remember(state_dir: Path, text: str) -> None:
    """Keep ``text`` as the last good configuration, in one step, mode 0600. Raises OSError."""
    write_atomically(state_dir / NAME, text.encode())


def last_good(state_dir: Path) -> str | None:
    """What ``remember`` kept, or None: nothing there, or not readable as a configuration."""
    try:
        # A link in its place is nothing of ours.
        with os.fdopen(os.open(state_dir / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            content = file.read(MAX_BYTES + 1)
        return content.decode() if len(content) <= MAX_BYTES else None
    except (OSError, UnicodeDecodeError):
        return None
