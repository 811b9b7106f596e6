"""Manifests as the command line takes them: files, folders of them, or standard input."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, Final

import click
import msgspec

from cli.printing.console import aside
from cli.printing.output import one_line
from cli.words import given as say
from controller.insight.simulation.documents import Document, InputError, judged_values, read, unknown
from controller.insight.simulation.inputs.quotawords import refused_calendars, refused_quotas
from controller.insight.simulation.inputs.references import almost
from yamlfile.tree import no_utf8

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_PLACE: Final = re.compile(r"(?P<file>.*?):(?P<line>\d+): ")


class WrongInputError(click.ClickException):
    """Input with problems, one line each: the place, what was found and what was expected."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        for line in self.message.splitlines():
            click.echo(f"Error: {one_line(line)}", file=file, err=file is None)


class Manifests(msgspec.Struct):
    """The content of manifests. ``documents`` are all that can be examined; ``refused`` are those of them that an API
    server would refuse.

    ``errors``, ``warnings`` and ``notes`` are lines, fit to be shown. ``is_whole``: every file could be read.
    """

    documents: list[Document] = []
    refused: list[Document] = []
    errors: list[str] = []
    warnings: list[str] = []
    notes: list[str] = []
    is_whole: bool = True


def read_documents(manifests: Iterable[Path], *, allow_unknown: bool = True) -> list[Document]:
    """The documents in the files. Likely mistakes are told on standard error, and so are unknown fields where they are
    allowed.

    Raises InputError with all problems.
    """
    reading = read_manifests(manifests, allow_unknown=allow_unknown)
    note(reading.notes)
    warn(reading.warnings)
    if reading.errors:
        raise InputError.of(in_order(reading.errors))
    return reading.documents


def warn(lines: Iterable[str]) -> None:
    """Print warnings on standard error, by file and line; one for each field: the first one counts."""
    told: dict[str, str] = {}
    for line in lines:
        told.setdefault(line.partition(": found ")[0], line)
    for line in in_order(told.values()):
        click.echo(one_line(line), err=True)


def note(lines: Iterable[str]) -> None:
    """Print a note on standard error: ``FILE:LINE: note: ...``, and ``note: ...`` for what has no place in a file."""
    for line in lines:
        if place := _PLACE.match(line):
            click.echo(one_line(f"{place[0]}note: {line[place.end() :]}"), err=True)
        else:
            aside(line)


def read_manifests(manifests: Iterable[Path], *, allow_unknown: bool) -> Manifests:
    """The documents in the files, with all their problems. ``allow_unknown``: unknown fields are notes."""
    reading = Manifests()
    for path in manifests:
        try:
            for file in files_of(path):
                _read(file, reading, allow_unknown=allow_unknown, may_be_empty=file != path)
        except InputError as wrong:
            reading.errors += wrong.lines
            reading.is_whole = False
    return reading


def _read(file: Path, found: Manifests, *, allow_unknown: bool, may_be_empty: bool) -> None:
    """Read one file. ``may_be_empty``: it is one of a folder, and was not named. Raises InputError for a file that does
    not exist.
    """
    name = str(file) if str(file) != "-" else "standard input"
    reading = read(text_of(file), name)
    if not reading.documents and not reading.errors and not may_be_empty:
        found.errors.append(say.nothing_in_it(name))
    found.errors += reading.errors
    found.warnings += reading.warnings
    found.is_whole &= not reading.errors
    for document in reading.documents:
        strangers = list(unknown(document))
        wrong, odd = judged_values(document)
        if allow_unknown:
            found.notes += [f"{line}; passed over" for line in strangers]
        else:
            wrong += map(say.unknown_field, strangers)
        if not wrong and not strangers:
            wrong += [*refused_quotas(document), *refused_calendars(document)]
        found.errors += wrong
        found.warnings += [*odd, *almost(document)]
        found.documents.append(document)
        if wrong:
            found.refused.append(document)


def in_order(lines: Iterable[str]) -> list[str]:
    """Each line once, by file and line: the files in the order in which they are first named."""
    every = list(dict.fromkeys(lines))
    places = [_PLACE.match(line) for line in every]
    files: dict[str, int] = {}
    for place in places:
        files.setdefault(place["file"] if place else "", len(files))
    keys = [(files[place["file"]], int(place["line"])) if place else (files[""], 0) for place in places]
    return [line for _, line in sorted(zip(keys, every, strict=True), key=lambda pair: pair[0])]


def files_of(path: Path) -> list[Path]:
    """The file, or the manifests in a folder. Raises InputError for a folder without any."""
    if str(path) == "-" or not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    if not found:
        raise InputError(say.no_manifest(path, ", ".join(_SUFFIXES)))
    return found


def text_of(file: Path) -> str:
    """The text of a file, or of standard input for ``-``. Raises InputError."""
    try:
        raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise InputError(say.unreadable(file, (error.strerror or str(error)).lower())) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        raise InputError(str(no_utf8(file, raw, wrong.start))) from None
