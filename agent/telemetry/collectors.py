"""dcgm-exporter's collectors file: the fields to export, with type and help. Read unchanged.

Lines are ``FIELD, type, help`` (RFC 4180 quoting, ``#`` starts a comment line, blank lines are passed over). A line
that cannot be used is refused alone: the others are used. A field of DCGM's that NVML does not give is not a mistake:
the file is dcgm-exporter's, and the field then has no series. A name of dcgm-exporter 1.x has its series beside those
of the field's own name.
"""

import csv
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Self

from msgspec import Struct

from agent.telemetry.fields import BY_NAME, FIELDS, Field, FieldKind
from agent.telemetry.legacy import LEGACY
from inventory.words.catalog import plural
from yamlfile import ConfigError, UnreadableError

MAX_BYTES = 1 << 20
MOST_BROKEN = 32
"""The number of lines that are not CSV after which the file is read no further: each costs a look at all that
follow.
"""
MOST_TOLD = 16
"""The most refused lines that are reported one by one."""
_COLUMNS = 3
_KINDS = {kind.value: kind for kind in FieldKind}
_FOREIGN = ("DCGM_FI_", "DCGM_EXP_", "DCGM_FV_")
"""The prefixes of names that only DCGM itself can fill."""


class Collectors(Struct, frozen=True):
    """The fields to export, in the order of their series.

    ``missing`` are those that only DCGM has, ``refused`` the lines that could not be used; one text each.
    """

    fields: tuple[Field, ...]
    missing: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def series(self) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if field.kind is not FieldKind.LABEL)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields if field.kind is FieldKind.LABEL)

    @property
    def beside(self) -> Mapping[str, str]:
        """The old name of each field whose values are exported under both names."""
        return {field.of: field.name for field in self.fields if field.of}


USUAL = Collectors(tuple(field for field in FIELDS if field.usual))
"""The fields that are exported without a file."""


class _RefusedLine(Exception):  # noqa: N818 - told, never raised to a caller
    """The reason why one line is refused."""


def read(path: Path) -> Collectors:
    """The fields that the file names. Raises ConfigError where there is no such file, or no line that can be used, and
    UnreadableError where the file exists and cannot be read now.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as failed:
        kind = ConfigError if isinstance(failed, FileNotFoundError | NotADirectoryError) else UnreadableError
        raise kind(str(path), "", failed.strerror or "an error", "a collectors file") from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(str(path), "", f"more than {MAX_BYTES >> 20} MiB", "a collectors file")
    return parse(raw.removeprefix(b"\xef\xbb\xbf").decode(errors="surrogateescape"), str(path))


def parse(text: str, where: str) -> Collectors:
    """The fields that a file with this text names, as ``read``; ``where`` names the file in messages."""
    fields: dict[str, Field] = {}
    implied: dict[str, Field] = {}
    missing: list[str] = []
    refused: list[str] = []
    for line, row in _rows(text):
        try:
            name, kind, help_text = _columns(row, fields)
        except _RefusedLine as why:
            refused.append(f"{where}:{line}: {why}")
            continue
        if name in LEGACY:
            own = BY_NAME[LEGACY[name]]
            implied[own.name] = Field(own.name, kind, own.help)
            fields[name] = Field(name, kind, help_text, of=own.name)
            continue
        known = BY_NAME.get(name)
        if known is None or (known.kind is FieldKind.LABEL) != (kind is FieldKind.LABEL):
            missing.append(f"{where}:{line}: {name} as a {kind.value}: NVML does not give it, it has no series")
            continue
        fields[name] = Field(name, kind, help_text)
    if not fields:
        first = f" ({refused[0]})" if refused else ""
        raise ConfigError(where, "", f"no field that NVML gives{first}", "at least one line FIELD, type, help")
    return Collectors(tuple({**implied, **fields}.values()), tuple(missing), _bounded(refused, where))


def _columns(row: list[str] | str, taken: Collection[str]) -> tuple[str, FieldKind, str]:
    """Name, type and help of a line that can be used. Raises _RefusedLine."""
    if isinstance(row, str):
        raise _RefusedLine(f"found {row}, expected FIELD, type, help, every quote closed")
    if not all(column.isprintable() for column in row[:2]) or any(
        "\udc80" <= character <= "\udcff" for character in "".join(row)
    ):
        raise _RefusedLine("found bytes that are no text, expected UTF-8")
    if len(row) != _COLUMNS:
        raise _RefusedLine(f"found {len(row)} columns, expected FIELD, type, help (a comma in the help needs quotes)")
    name, kind, help_text = row
    if kind not in _KINDS:
        raise _RefusedLine(f"{name[:80]}: found {kind[:40]!r}, expected gauge, counter or label")
    if name in taken:
        raise _RefusedLine(f"{name}: found the field a second time, expected each field once")
    if name in LEGACY and kind == FieldKind.LABEL:
        raise _RefusedLine(f"{name}: found 'label', expected gauge or counter")
    if not name.startswith(_FOREIGN) and name not in LEGACY:
        raise _RefusedLine(f"{name[:80]}: found no field of DCGM's, expected a name such as DCGM_FI_DEV_GPU_UTIL")
    return name, _KINDS[kind], help_text


def _bounded(refused: list[str], where: str) -> tuple[str, ...]:
    rest = len(refused) - MOST_TOLD
    return (*refused[:MOST_TOLD], *([f"{where}: {plural(rest, 'more line')}"] if rest > 0 else []))


def _rows(text: str) -> Iterator[tuple[int, list[str] | str]]:
    """The number of the first line and the trimmed columns of each row, or what is wrong with it; then the next row is
    read.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    first = 1
    for _ in range(MOST_BROKEN):
        try:
            for last, row in _good_rows(lines[first - 1 :]):
                if any(column.strip() for column in row):
                    yield first, [column.strip() for column in row]
                first += last
        except csv.Error as wrong:
            yield first, str(wrong)
            first += 1
        else:
            return
    yield first, f"{MOST_BROKEN} broken lines before it: the rest is not read"


def _good_rows(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Each row, with the number of lines it takes. Raises csv.Error."""
    source = _Lines(lines)
    reader = csv.reader(source, skipinitialspace=True, strict=True)
    before = 0
    for row in reader:
        yield reader.line_num - before, row
        source.between, before = True, reader.line_num


class _Lines:
    """The lines for the CSV reader, comments as blank lines; inside of quotes no line is a comment."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = iter(lines)
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
