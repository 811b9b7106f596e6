"""Log lines of the controller: one line a record, ``ts=... level=... logger=... msg="..."``, on stderr."""

import logging
import sys
from datetime import UTC, datetime

import msgspec


class LogfmtFormatter(logging.Formatter):
    """Values that are not plain words are quoted; line breaks are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = f"ts={at} level={record.levelname.lower()} logger={record.name} msg={quoted(record.getMessage())}"
        if record.exc_info:
            line += f" exception={quoted(self.formatException(record.exc_info))}"
        return line


def quoted(text: str) -> str:
    if text and text.isascii() and text.isprintable() and not set(text) & set(' "=\\'):
        return text
    return msgspec.json.encode(text).decode()


def configure(level: str) -> None:
    """One handler on the root logger. ``level`` is debug, info, warning or error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogfmtFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
