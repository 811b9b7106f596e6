"""Turns log records about peers that break off into one line at debug, without a traceback, whatever asyncio and
aiohttp log.

A reset in the middle of a body, bytes that are not HTTP, a connection that is gone when the answer is written: anybody
who reaches a port can cause these at any rate, and no operator can do anything about them. aiohttp's server logs each
at error with a traceback. An error of a handler's own keeps its level and its traceback.
"""

import logging
from collections.abc import Iterator
from types import TracebackType
from typing import Final

LOGGERS: Final = ("aiohttp.server", "asyncio")
_WRITTEN_AFTER_THE_END: Final = frozenset(("socket.send() raised exception.", "SSL connection is closed"))
"""asyncio's warnings about writes to a connection that is lost already."""
_NO_MORE_FILES: Final = "socket.accept() out of system resource"
_OF_CLIENTS: Final = ("aiohttp.client", "aiohttp.connector")
_LONGEST: Final = 160
"""The most characters of the peer's own bytes that go to the log."""


def install() -> None:
    """Add the filter to the loggers of asyncio and of aiohttp's server; a second call changes nothing."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(each, BrokenPeers) for each in logger.filters):
            logger.addFilter(BrokenPeers())


class BrokenPeers(logging.Filter):
    """Rewrites records about a peer that broke off, and drops them where debug lines are not written."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == "asyncio" and record.getMessage().startswith(_NO_MORE_FILES):
            _rewrite(record, logging.WARNING, "new connections wait", _one_line(_exception(record)))
            return True
        error = _broken(record)
        if error is None:
            return True
        peer = record.args[0] if isinstance(record.args, tuple) and record.args else None
        _rewrite(record, logging.DEBUG, "a peer broke off", error)
        if peer is not None:
            record.peer = str(peer)
        # Loggers compare levels before their filters, and this level is new.
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


def _broken(record: logging.LogRecord) -> str | None:
    """The peer's action in words; None for a record about something else."""
    if record.name == "asyncio":
        message = record.getMessage()
        return message if message in _WRITTEN_AFTER_THE_END else None
    error = _exception(record)
    if error is None:
        return None
    rooms = [name for name in _rooms(error.__traceback__) if not name.startswith("asyncio")]
    if any(name.startswith(_OF_CLIENTS) for name in rooms):
        # the error comes from a server that the handler called
        return None
    by_aiohttp = bool(rooms) and rooms[-1].startswith("aiohttp.")
    if type(error).__module__ == "aiohttp.http_exceptions" or (by_aiohttp and _is_of_a_connection(error)):
        return _one_line(error)
    return None


def _is_of_a_connection(error: BaseException) -> bool:
    # aiohttp is not imported for this class: the agent loads it late.
    return isinstance(error, ConnectionError) or type(error).__name__ == "RequestPayloadError"


def _exception(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if isinstance(record.exc_info, tuple) else None


def _rooms(traceback: TracebackType | None) -> Iterator[str]:
    """The modules that the exception has passed through; the one where it was raised comes last."""
    while traceback is not None:
        yield str(traceback.tb_frame.f_globals.get("__name__", ""))
        traceback = traceback.tb_next


def _rewrite(record: logging.LogRecord, level: int, message: str, error: str) -> None:
    record.levelno, record.levelname = level, logging.getLevelName(level)
    record.msg, record.args = message, ()
    record.exc_info = record.exc_text = record.stack_info = None
    record.error = error


def _one_line(error: BaseException | None) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:_LONGEST]
