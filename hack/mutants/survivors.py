"""Mutants that survive for a reason, because they behave as the original: ``survivors.toml``.

An entry names the module, the function, the source line and the mutation. When the line changes, the entry names
nothing any more; a test finds those.
"""

from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

LIST: Final = Path(__file__).with_name("survivors.toml")


class Survivor(Struct, frozen=True, forbid_unknown_fields=True):
    module: str
    function: str
    line: str
    mutation: str
    reason: str
    nth: int = 0

    @property
    def name(self) -> tuple[str, str, str, str, int]:
        """As a mutant's."""
        return self.module, self.function, self.line, self.mutation, self.nth


class _Listed(Struct, forbid_unknown_fields=True):
    survivor: list[Survivor] = []


def listed(text: bytes) -> list[Survivor]:
    """Raises msgspec.ValidationError or a TOML error, both ValueError, naming what is wrong."""
    return msgspec.toml.decode(text, type=_Listed).survivor
