"""The log: ``configure`` puts one handler on the root logger, which writes logfmt or JSON to stderr.

The handler holds back repeated lines: a line of level WARNING or above that says the same as one less than a minute
ago, and any line whose ``extra`` has the same ``limit`` key. The next line that is written says how many were held back
(``suppressed=12``). ``kube.loglines`` defines the form of a line.
"""

import logging
import sys
import time
from collections.abc import Callable, Hashable
from typing import TextIO

from agent.config.settings import LogFormat, LogSettings
from kube import brokenpeers
from kube.loglines import LIMIT, JsonFormatter, LogfmtFormatter, fields

REPEAT_S = 60.0
MAX_KEYS = 1024
"""The most conditions that are remembered: memory stays bounded, and the oldest is forgotten first."""


def configure(
    settings: LogSettings, *, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
) -> None:
    """Write all log lines of this process as ``settings`` say. It may be called again with other settings.

    ``clock`` gives seconds and never goes back.
    """
    root = logging.getLogger()
    limiters = [part for handler in root.handlers for part in handler.filters if isinstance(part, Limiter)]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format is LogFormat.JSON else LogfmtFormatter())
    # After a reload known conditions are still held back.
    handler.addFilter(limiters[0] if limiters and stream is None else Limiter(clock))
    root.handlers = [handler]
    root.setLevel(settings.level.value.upper())
    brokenpeers.install()


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
        # The key is taken out first, so that the order of the dict is the order of the lines written.
        self._seen.pop(key, None)
        self._seen[key] = (now_s, 0)
        while len(self._seen) > MAX_KEYS:
            del self._seen[next(iter(self._seen))]
        return True


def _key(record: logging.LogRecord) -> Hashable:
    """The key of the condition that a line reports: lines with equal keys repeat it. None for a line that
    reports none.
    """
    if LIMIT in vars(record):
        limit = vars(record)[LIMIT]
        return None if limit is None else (record.name, str(limit))
    if record.levelno < logging.WARNING:
        return None
    return (record.name, record.levelno, record.getMessage(), str(fields(record)))
