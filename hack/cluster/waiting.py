"""Waiting for a condition with a deadline, and what to say when it does not come."""

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path

from hack.cluster.errors import ClusterError
from hack.cluster.processes import Identity, alive

_TAIL_LINES = 20
_TAIL_BYTES = 16384


def tail(log: Path, lines: int = _TAIL_LINES) -> str:
    """The last lines of a log, indented, with its path above; empty for a log that is empty or not there."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    last = text.splitlines()[-lines:]
    return "\n".join([f"{log}:", *(f"  {line[:400]}" for line in last)]) if last else ""


def until(
    ready: Callable[[], bool],
    what: str,
    *,
    timeout_s: float,
    watched: Mapping[Path, Identity] | None = None,
    every_s: float = 0.1,
) -> None:
    """Return once ``ready()``; ClusterError after ``timeout_s`` or when one of ``watched`` (log, process) has died."""
    deadline = time.monotonic() + timeout_s
    logs = list(watched or {})
    while not ready():
        for log, identity in (watched or {}).items():
            if not alive(identity):
                raise ClusterError(f"{log.stem} ended while waiting for {what}\n{tail(log)}".rstrip())
        if time.monotonic() > deadline:
            tails = "\n".join(filter(None, map(tail, logs)))
            raise ClusterError(f"{what}: not within {timeout_s:.0f} s\n{tails}".rstrip())
        time.sleep(every_s)


def answers(url: str, *, ca: str | None = None, token: str | None = None, timeout_s: float = 10.0) -> bool:
    """Whether a GET of ``url`` gives 200; proxies of the environment are not asked."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if ca is not None:
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca)))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout_s) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except (OSError, urllib.error.URLError):
        return False
