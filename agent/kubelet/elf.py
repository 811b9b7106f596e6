"""The name by which programs ask for a shared library: DT_SONAME in its ELF file. Only 64-bit little-endian is read.

Layout: the System V ABI, "Object Files" and "Dynamic Linking". The file is the host's: none of its offsets is believed.
"""

import struct
from pathlib import Path
from typing import IO

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<QQ")
_IDENT = b"\x7fELF\x02\x01"
_LOAD, _DYNAMIC = 1, 2
_END, _STRINGS, _SONAME = 0, 5, 14
_MAX_SEGMENTS = 64
_MAX_DYNAMIC_BYTES = 1 << 16
_MAX_NAME_BYTES = 256


def soname(path: Path) -> str | None:
    """The library's own name; None where it has none, or the file is not such a library or cannot be read."""
    try:
        with path.open("rb") as file:
            return _soname(file)
    except (OSError, struct.error, ValueError, OverflowError):
        return None


def _soname(file: IO[bytes]) -> str | None:
    header = file.read(_HEADER.size)
    if not header.startswith(_IDENT):
        return None
    _, _, _, _, table, _, _, _, size, count, *_ = _HEADER.unpack(header)
    if size != _SEGMENT.size:
        return None
    file.seek(table)
    segments = list(_SEGMENT.iter_unpack(file.read(size * min(count, _MAX_SEGMENTS))))
    dynamic = next((segment for segment in segments if segment[0] == _DYNAMIC), None)
    if dynamic is None:
        return None
    file.seek(dynamic[2])
    content = file.read(min(dynamic[5], _MAX_DYNAMIC_BYTES))
    tags: dict[int, int] = {}
    for tag, value in _ENTRY.iter_unpack(content[: len(content) // _ENTRY.size * _ENTRY.size]):
        if tag == _END:
            break
        tags[tag] = value
    if _STRINGS not in tags or _SONAME not in tags:
        return None
    address = tags[_STRINGS] + tags[_SONAME]
    loaded = next(
        (segment for segment in segments if segment[0] == _LOAD and segment[3] <= address < segment[3] + segment[5]),
        None,
    )
    if loaded is None:
        return None
    file.seek(address - loaded[3] + loaded[2])
    name, end, _ = file.read(_MAX_NAME_BYTES).partition(b"\0")
    text = name.decode("ascii")
    return text if end and text and "/" not in text else None
