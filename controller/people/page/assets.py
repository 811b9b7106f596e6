"""The page's files and the headers that they go with. Files are read once: they change with the image alone."""

import gzip
import hashlib
import mimetypes
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
SAFE: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every answer at this port that a browser could show."""
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
_TEXT: Final = ("text/", "image/svg")


class Asset(NamedTuple):
    """One file of the page. ``packed`` is the body compressed by gzip; None where that is no shorter."""

    body: bytes
    type: str
    etag: str
    packed: bytes | None


class Assets:
    """The page's files, read once. ``folders``: by the path under which their files are served."""

    def __init__(self, folders: dict[str, Traversable] | None = None) -> None:
        root = files("controller.people.page")
        self._files: dict[str, Asset] = {}
        for prefix, folder in (folders or {"": root / "script", "vendor/": root / "vendor"}).items():
            self._read(folder, prefix)

    def _read(self, folder: Traversable, prefix: str) -> None:
        for entry in folder.iterdir() if folder.is_dir() else ():
            if entry.name.startswith((".", "_")):
                continue
            if entry.is_dir():
                self._read(entry, f"{prefix}{entry.name}/")
            else:
                self._files[prefix + entry.name] = asset(entry.name, entry.read_bytes())

    def get(self, path: str) -> Asset | None:
        return self._files.get(path)


def asset(name: str, body: bytes) -> Asset:
    suffix = name[name.rfind(".") :] if "." in name else ""
    kind = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    charset = "; charset=utf-8" if kind.startswith(_TEXT) else ""
    # Files are compressed once: readers of files are not authenticated, so a request must cost the event loop of the
    # scheduler as little as possible.
    packed = gzip.compress(body, mtime=0)
    etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    return Asset(body, kind + charset, etag, packed if len(packed) < len(body) else None)
