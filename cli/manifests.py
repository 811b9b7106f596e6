"""Manifests as the command line takes them: files, folders of them, or standard input."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click

from cli.words import given as say
from controller.simulation.documents import Document, InputError, documents, unknown

_SUFFIXES: Final = (".yaml", ".yml", ".json")


class WrongInputError(click.ClickException):
    """One line that says where, what was found and what was expected."""

    exit_code = 2


def read_documents(manifests: Iterable[Path], strangers: list[str] | None) -> Iterator[Document]:
    """What the files hold. Their unknown fields go to ``strangers``; None: the first one is an InputError."""
    for file in (file for path in manifests for file in _files(path)):
        text = _text(file)
        found = documents(text, str(file) if str(file) != "-" else "standard input")
        for line in unknown(text, found):
            if strangers is None:
                raise InputError(say.unknown_field(line))
            strangers.append(f"{line}; passed over")
        yield from found


def _files(path: Path) -> list[Path]:
    if str(path) == "-" or not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    if not found:
        raise InputError(say.no_manifest(path, ", ".join(_SUFFIXES)))
    return found


def _text(file: Path) -> str:
    try:
        raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise InputError(say.unreadable(file, error.strerror or str(error))) from None
    except UnicodeDecodeError:
        raise InputError(say.no_utf8(file)) from None
