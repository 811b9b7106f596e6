"""Hands the one-time address to a browser in a file that its owner alone may read.

A program's arguments can be read by every user of the machine, so the browser is started with the file's address.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cli.page.proxy import forward


@contextlib.contextmanager
def handed_over(address: str, home: Path | None = None) -> Iterator[str]:
    """A context with the ``file:`` address of a page that leads on to ``address``; the file is gone afterwards.

    The file lies in the home directory, or in ``home``: a browser that is packed as a snap sees neither /tmp nor hidden
    files. Where that cannot be written, it lies among the temporary files. Raises OSError where neither can be written.
    ``mkstemp`` makes files 0600.
    """
    path = _written(forward(address), Path.home() if home is None else home)
    try:
        yield path.as_uri()
    finally:
        path.unlink(missing_ok=True)


def _written(text: str, home: Path) -> Path:
    try:
        handle, name = tempfile.mkstemp(prefix="tessera-page-", suffix=".html", dir=home)
    except OSError:
        handle, name = tempfile.mkstemp(prefix="tessera-page-", suffix=".html")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return Path(name)
