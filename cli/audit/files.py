"""Files of records: JSON lines, plain or compressed with gzip."""

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, Final, cast

from cli.words import records as say
from history.judge import Judge, Verdict
from history.record import RecordError, read

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
    """The verdict on the record at ``path``. Raises UnreadableError."""
    judge, taken = Judge(), 0
    try:
        with path.open("rb") as file:
            is_packed = file.read(2) == _GZIP
            file.seek(0)
            for fact in read(cast("BinaryIO", gzip.GzipFile(fileobj=file)) if is_packed else file):
                taken += 1
                judge.take(fact)
        verdict = judge.verdict()
    except RecordError as wrong:
        raise UnreadableError(say.wrong_line(path, str(wrong))) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as broken:
        raise UnreadableError(say.broken_gzip(path, str(broken))) from None
    except OSError as failed:
        raise UnreadableError(say.no_record(path, os.strerror(failed.errno or 0).lower())) from None
    except Exception as failed:  # a fault of the judge's is no finding
        raise UnjudgedError(say.not_judged(path, taken, f"{type(failed).__name__}: {failed}")) from failed
    if not verdict.facts:
        raise UnreadableError(say.empty_record(path))
    return verdict
