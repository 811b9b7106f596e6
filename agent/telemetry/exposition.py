"""Writes the text format (version 0.0.4) directly: one string a line, no objects per sample.

Expensive series are made once a pass and kept as bytes, which a scrape returns.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

EXACT = 2**53
DIGITS = 6


class Family(Struct, frozen=True):
    """The header of one metric."""

    name: str
    kind: str
    help: str


def escape(value: str) -> str:
    """The value of a label, escaped."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def labels(pairs: Iterable[tuple[str, str]]) -> str:
    """The text ``a="1",b="2"`` of the pairs, without empty values: to Prometheus an empty label is none."""
    return ",".join(f'{name}="{escape(value)}"' for name, value in pairs if value)


def number(value: float) -> str:
    """A value in the fewest characters: whole numbers without a point, others to six digits behind it."""
    whole = int(value)
    if whole == value and -EXACT < whole < EXACT:
        return str(whole)
    return repr(round(value, DIGITS))


class Writer:
    """Collects lines by family. ``text`` gives those of families that have any, in the order of ``families``."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = tuple(families)
        self._lines: dict[str, list[str]] = {family.name: [] for family in self._families}

    def add(self, name: str, labels_text: str, value: float) -> None:
        """Add one series of a family; a set of labels must not come twice."""
        self._lines[name].append(f"{name}{{{labels_text}}} {number(value)}")

    def repeat(self, name: str, under: str) -> None:
        """Write every series of family ``name`` once more, under the name ``under``."""
        self._lines[under] += [f"{under}{line[len(name) :]}" for line in self._lines[name]]

    def wants(self, name: str) -> bool:
        return name in self._lines

    @property
    def series(self) -> Mapping[str, int]:
        """The number of series of each family."""
        return {name: len(lines) for name, lines in self._lines.items()}

    def text(self) -> bytes:
        parts: list[str] = []
        for family in self._families:
            lines = self._lines[family.name]
            if not lines:
                continue
            help_text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
            parts.append(f"# HELP {family.name} {help_text}\n# TYPE {family.name} {family.kind}")
            parts += lines
        return ("\n".join(parts) + "\n").encode() if parts else b""
