"""Log records as lines, one a record: logfmt or JSON, with the fields that ``extra`` gives them.

Modules log through the standard library and know nothing of this one: ``log.info("served", extra={"resource": name})``
becomes ``ts=... level=info logger=... msg=served resource=nvidia.com/gpu``.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

LIMIT = "limit"
"""The name in ``extra`` of a condition's key, for filters that hold back repeated lines; it is not a field of the line.
Any value makes lines with it a repeating condition, None exempts one.
"""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", LIMIT, "suppressed"}


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that ``extra`` gave, and ``suppressed`` where lines before this one were held back."""
    own = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if suppressed := vars(record).get("suppressed"):
        own["suppressed"] = suppressed
    return own


class LineFormatter(logging.Formatter):
    """The parts of a line: time, level, logger, message, then the fields in the order given."""

    def pairs(self, record: logging.LogRecord) -> dict[str, Any]:
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "ts": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        # A field may not take the name of one of the line's own.
        line |= {f"{name}_" if name in line else name: value for name, value in fields(record).items()}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return line


class LogfmtFormatter(LineFormatter):
    """``ts=... level=info msg="GPU is out" gpu=GPU-... xid=79``. Line breaks are escaped: a record is one line."""

    def format(self, record: logging.LogRecord) -> str:
        return logfmt(self.pairs(record))


class JsonFormatter(LineFormatter):
    """One JSON object with the fields of LogfmtFormatter."""

    def format(self, record: logging.LogRecord) -> str:
        return msgspec.json.encode(self.pairs(record), enc_hook=str).decode()


def logfmt(pairs: Mapping[str, Any]) -> str:
    """``name=value`` pairs; values with anything but plain characters are quoted as JSON strings."""
    return " ".join(f"{name}={_logfmt_value(value)}" for name, value in pairs.items())


def _logfmt_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    if text and text.isascii() and text.isprintable() and not set(text) & set(' "=\\'):
        return text
    # Some characters that are not line feeds end a line all the same, for some readers: those are escaped too.
    return msgspec.json.encode(text).decode() if text.isprintable() else json.dumps(text)
