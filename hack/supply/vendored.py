"""Files of other projects that are kept in this repository, each set with a JSON beside it that names its package.

The JSON: ``package`` and ``version`` in the ``registry`` (npm by default), ``licence``, and ``sha256`` of each file.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hack.supply.locks import Package, Use


class Vendored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    package: str
    version: str
    licence: str
    sha256: Mapping[str, str]
    registry: str = "npm"

    def as_package(self, use: Use) -> Package:
        """Its hashes are those of the files that are kept."""
        return Package(
            self.package, self.version, tuple(sorted(self.sha256.values())), ("tessera",), use, self.registry
        )


def read(path: Path) -> Vendored:
    """ValueError if a file differs from what the JSON says: it would be a change of ours under a foreign name."""
    try:
        vendored = msgspec.json.decode(path.read_bytes(), type=Vendored)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path}: {error}") from None
    folder = path.with_suffix("") if path.with_suffix("").is_dir() else path.parent
    for name, expected in vendored.sha256.items():
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if digest != expected:
            raise ValueError(f"{folder / name}: found sha256 {digest}, expected {expected}")
    return vendored
