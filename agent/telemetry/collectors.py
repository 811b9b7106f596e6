"""dcgm-exporter's collectors file: which fields are exported, as what type, with which help. Read as it is.

Lines are ``FIELD, type, help`` (RFC 4180 quoting, ``#`` starts a comment line, blank lines are passed over). A field of
DCGM's that NVML does not give is no mistake: the file is the peer's, and the field then has no series.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from msgspec import Struct

from agent.telemetry.fields import BY_NAME, FIELDS, Field, Kind
from yamlfile import ConfigError

MAX_BYTES = 1 << 20
_COLUMNS = 3
_KINDS = {kind.value: kind for kind in Kind}
_FOREIGN = ("DCGM_FI_", "DCGM_EXP_", "DCGM_FV_")
"""How names begin that only DCGM itself can fill."""


class Collectors(Struct, frozen=True):
    """The fields to export, in the order of their series; ``missing`` are those that only DCGM has, one line each."""

    fields: tuple[Field, ...]
    missing: tuple[str, ...] = ()

    @property
    def series(self) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if field.kind is not Kind.LABEL)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields if field.kind is Kind.LABEL)


USUAL = Collectors(tuple(field for field in FIELDS if field.usual))
"""Without a file."""


def read(path: Path) -> Collectors:
    """The file's choice. Raises ConfigError that names file and line."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as failed:
        raise ConfigError(str(path), "", failed.strerror or "an error", "a collectors file") from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(str(path), "", f"more than {MAX_BYTES >> 20} MiB", "a collectors file")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        line = raw.count(b"\n", 0, wrong.start) + 1
        raise ConfigError(f"{path}:{line}", "", "bytes that are no text", "UTF-8") from None
    return parse(text, str(path))


def parse(text: str, where: str) -> Collectors:
    """As ``read``, from the file's text; ``where`` names the file in messages."""
    fields: dict[str, Field] = {}
    missing: list[str] = []
    for line, row in _rows(text, where):
        place = f"{where}:{line}"
        if len(row) != _COLUMNS:
            raise ConfigError(place, "", f"{len(row)} columns", "FIELD, type, help (a comma in the help needs quotes)")
        name, kind, help_text = row
        if kind not in _KINDS:
            raise ConfigError(place, name, repr(kind[:40]), "gauge, counter or label")
        if name in fields:
            raise ConfigError(place, name, "the field a second time", "each field once")
        known = BY_NAME.get(name)
        if known is None and not name.startswith(_FOREIGN):
            raise ConfigError(place, name[:80], "no field of DCGM's", "a name such as DCGM_FI_DEV_GPU_UTIL")
        if known is None or (known.kind is Kind.LABEL) != (kind == Kind.LABEL):
            missing.append(f"{place}: {name} as a {kind}: NVML does not give it, it has no series")
            continue
        fields[name] = Field(name, _KINDS[kind], help_text)
    if not fields:
        raise ConfigError(where, "", "no field that NVML gives", "at least one line FIELD, type, help")
    return Collectors(tuple(fields.values()), tuple(missing))


def _rows(text: str, where: str) -> Iterator[tuple[int, list[str]]]:
    """Number of the first line and trimmed columns of each row."""
    source = _Lines(text)
    reader = csv.reader(source, skipinitialspace=True, strict=True)
    first = 1
    try:
        for row in reader:
            if any(column.strip() for column in row):
                yield first, [column.strip() for column in row]
            source.between, first = True, reader.line_num + 1
    except csv.Error as wrong:
        raise ConfigError(f"{where}:{first}", "", str(wrong), "FIELD, type, help, every quote closed") from None


class _Lines:
    """The lines for the CSV reader, comments as blank ones; inside of quotes nothing is a comment."""

    def __init__(self, text: str) -> None:
        self._lines = iter(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
        self.between = True
        """Whether the next line begins a row."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        if self.between and line.lstrip().startswith("#"):
            return "\n"
        self.between = False
        return f"{line}\n"
