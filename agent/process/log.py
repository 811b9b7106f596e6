"""Structured log lines: ``logging.getLogger(__name__).info("served", extra={"resource": name})`` becomes one line.

Modules log through the standard library and know nothing of this one. ``configure`` puts one handler on the root
logger, which writes logfmt or JSON to stderr and holds back what repeats: a line of level WARNING or above that says
the same as one less than a minute ago, and any line whose ``extra`` has the same ``limit`` key. How many were held
back is told by the next one that is written (``suppressed=12``).
"""

import json
import logging
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from agent.config.settings import LogFormat, LogSettings

REPEAT_S = 60.0
MAX_KEYS = 1024
"""Conditions remembered at a time: memory stays bounded, and the oldest is forgotten first."""

LIMIT = "limit"
"""The name in ``extra`` of a condition's key. Any value makes lines with it a repeating condition, None exempts one."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", LIMIT, "suppressed"}


def configure(
    settings: LogSettings, *, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
) -> None:
    """Write all log lines of this process as ``settings`` say. May be called again with other settings.

    ``clock`` gives seconds and never goes back.
    """
    root = logging.getLogger()
    limiters = [part for handler in root.handlers for part in handler.filters if isinstance(part, Limiter)]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format is LogFormat.JSON else LogfmtFormatter())
    # A reload must not let every known condition speak up again.
    handler.addFilter(limiters[0] if limiters and stream is None else Limiter(clock))
    root.handlers = [handler]
    root.setLevel(settings.level.value.upper())


class Limiter(logging.Filter):
    """Lets a repeating condition through once in ``REPEAT_S`` and counts the rest."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[Hashable, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key = _key(record)
        if key is None:
            return True
        now_s = self._clock()
        last = self._seen.get(key)
        if last is not None and now_s - last[0] < REPEAT_S:
            self._seen[key] = (last[0], last[1] + 1)
            return False
        if last is not None and last[1]:
            record.suppressed = last[1]
        # Taken out first, so that the order of the dict is the order of the lines written.
        self._seen.pop(key, None)
        self._seen[key] = (now_s, 0)
        while len(self._seen) > MAX_KEYS:
            del self._seen[next(iter(self._seen))]
        return True


def _key(record: logging.LogRecord) -> Hashable:
    """What makes two lines the same condition; None for a line that is none."""
    if LIMIT in vars(record):
        limit = vars(record)[LIMIT]
        return None if limit is None else (record.name, str(limit))
    if record.levelno < logging.WARNING:
        return None
    return (record.name, record.levelno, record.getMessage(), str(fields(record)))


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """What ``extra`` gave, and how many lines were held back."""
    own = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if suppressed := vars(record).get("suppressed"):
        own["suppressed"] = suppressed
    return own


class _Formatter(logging.Formatter):
    """One line for each record: time, level, logger, message, then the fields in the order given."""

    def pairs(self, record: logging.LogRecord) -> dict[str, Any]:
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "ts": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        # A field may not stand in for one of the line's own.
        line |= {f"{name}_" if name in line else name: value for name, value in fields(record).items()}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return line


class LogfmtFormatter(_Formatter):
    """``ts=... level=info msg="GPU is out" gpu=GPU-... xid=79``. Line breaks are escaped: a record is one line."""

    def format(self, record: logging.LogRecord) -> str:
        return logfmt(self.pairs(record))


class JsonFormatter(_Formatter):
    """The same fields as one JSON object."""

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
    # Some characters that are no line feed end a line all the same, for some readers: those are escaped too.
    return msgspec.json.encode(text).decode() if text.isprintable() else json.dumps(text)
