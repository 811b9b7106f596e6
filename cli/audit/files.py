"""Files of records: JSON lines, plain or compressed with gzip."""

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, cast

import msgspec

from cli.words import records as say
from history.judge import Judge, Verdict
from history.record import Fact, Note, RecordError, read

STANDARD_INPUT: Final = Path("-")
_OWN_ALONE: Final = 0o600
_GZIP: Final = b"\x1f\x8b"
_FAST: Final = 1


class UnreadableError(Exception):
    """A record cannot be read; one line with the file, and for a line of it the number, the field, what was found and
    expected.
    """


class UnjudgedError(UnreadableError):
    """The judge itself fails at a record; one line with the file, the line and the exception."""


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """A new file that no other user may read: a record has the environment of pods. It is compressed where its name
    ends in .gz. Raises OSError.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWN_ALONE), "wb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_FAST, mtime=0) as packed:
                yield cast("IO[bytes]", packed)
        else:
            yield file


def judged(path: Path) -> Verdict:
    """The verdict on the record at ``path``; ``-`` is the standard input. Times are since the record began. A record
    that is cut is judged up to there. Raises UnreadableError.
    """
    name = "standard input" if path == STANDARD_INPUT else path
    judge, last, promised, taken = Judge(), None, False, 0
    try:
        with _opened(path) as file:
            lines = _Lines(_unpacked(file))
            for last in _since_the_first(read(cast("BinaryIO", lines))):
                taken += 1
                promised = promised or (isinstance(last, Note) and last.type == "SETTINGS")
                judge.take(last)
        verdict = judge.verdict()
    except RecordError as wrong:
        raise UnreadableError(say.wrong_line(name, str(wrong))) from None
    except (zlib.error, gzip.BadGzipFile) as broken:
        raise UnreadableError(say.broken_gzip(name, str(broken))) from None
    except OSError as failed:
        raise UnreadableError(say.no_record(name, (failed.strerror or str(failed)).lower())) from None
    except Exception as failed:  # a fault of the judge's is no finding
        raise UnjudgedError(say.not_judged(name, taken, f"{type(failed).__name__}: {failed}")) from failed
    if last is None:
        raise UnreadableError(say.broken_gzip(name, "no line is whole") if lines.is_cut else say.empty_record(name))
    has_end = isinstance(last, Note) and last.type == "END"
    if lines.is_cut or (promised and not has_end):  # a recorder of ours writes both
        return msgspec.structs.replace(verdict, unseen=(*verdict.unseen, say.cut(last.t)))
    return verdict


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer
    else:
        with path.open("rb") as file:
            yield file


def _since_the_first(facts: Iterator[Fact]) -> Iterator[Fact]:
    """The facts, with times that begin with 0."""
    began_s: float | None = None
    for fact in facts:
        began_s = fact.t if began_s is None else began_s
        yield msgspec.structs.replace(fact, t=fact.t - began_s) if began_s else fact


def _unpacked(file: IO[bytes]) -> IO[bytes]:
    """A pipe cannot be read from its beginning again: its first bytes are put before the rest."""
    head = file.read(len(_GZIP))
    whole = io.BufferedReader(_Rejoined(head, file))
    return cast("IO[bytes]", gzip.GzipFile(fileobj=whole)) if head == _GZIP else whole


class _Rejoined(io.RawIOBase):
    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = len(buffer)
        found, self._head = self._head[:size] or self._rest.read(size), self._head[size:]
        buffer[: len(found)] = found
        return len(found)


class _Lines:
    """The lines of a record that are whole. ``is_cut``: the last of several was not, or the packed file has no end.
    Blank lines at the end are none.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._next: list[bytes] = []
        self._has_some = False
        self.is_cut = False

    def readline(self, size: int) -> bytes:
        line = self._next.pop(0) if self._next else self._read(size)
        if line.isspace() and not self._next:
            while (after := self._read(size)).isspace():
                self._next.append(after)
            if not after:
                return b""
            self._next.append(after)
        return line

    def _read(self, size: int) -> bytes:
        try:
            line = self._file.readline(size)
        except EOFError:
            self.is_cut = True
            return b""
        if self._has_some and len(line) < size and not line.endswith(b"\n") and line.strip() and not _is_json(line):
            self.is_cut = True
            return b""
        self._has_some = True
        return line


def _is_json(line: bytes) -> bool:
    """No part of a JSON object from its beginning is one."""
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True
