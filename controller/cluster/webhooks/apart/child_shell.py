"""The process that serves webhooks: ``python -m controller.cluster.webhooks.apart.child_shell``, with a socket as its
stdin.

The process has what its parent last told it, asks it for what only the parent knows, and ends when the parent does. It
opens no connection of its own.
"""

import asyncio
import errno
import gc
import logging
import os
import pickle
import resource
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.webhooks import claims, dryrun
from controller.cluster.webhooks.apart import messages
from controller.cluster.webhooks.apart.answers import webhook_server
from controller.cluster.webhooks.apart.link_shell import Link
from controller.cluster.webhooks.apart.messages import (
    AnswerOf,
    Asked,
    Certificate,
    Failed,
    FrameError,
    Known,
    Ping,
    Pong,
    Serving,
    Setup,
    ToServe,
)
from controller.cluster.webhooks.tls import CertificateError, Served
from kube import brokenpeers
from kube.allocator import give_back, hold_little, read_little
from kube.listening.sockets import raise_file_limit
from kube.loglines import LogfmtFormatter

log = logging.getLogger(__name__)

ASKS_S: Final = 0.5
"""The time for which an answer of the deciding process is awaited."""
_ASKS: Final = 16
"""Questions at a time; a request beyond them is answered without asking."""
_MOST_BYTES: Final = 1024 * 1024 * 1024
"""The most memory that this process may take: a review of 64 MiB takes 400 MiB."""
_TIDY_S: Final = 1.0
_BIND_S: Final = 5.0
"""The time for which the process before this one may still hold the port: it may not have noticed yet that its parent
is gone."""
_BIND_AGAIN_S: Final = 0.1
_READ_BYTES: Final = 16 << 10
"""The size of one TLS record: each connection is a stranger's, and holds so many bytes."""
_NICE: Final = 5
"""The niceness of this process: if processors are short, the deciding process goes first."""
_OOM_SCORE: Final = "500"
"""The OOM score of this process: if memory is short, the kernel ends it first."""


class Questions:
    """Asks the deciding process. ``ask`` returns None if no answer comes in time."""

    def __init__(self, link: Link[ToServe], *, limit_s: float) -> None:
        self._link = link
        self._limit_s = limit_s
        self._number = 0
        self._waiting: dict[int, asyncio.Future[bytes | None]] = {}

    async def ask(self, path: str, question: bytes) -> bytes | None:
        if len(self._waiting) >= _ASKS:
            return None
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._link.send(Asked(number, path, question))
        try:
            async with asyncio.timeout(self._limit_s):
                found: bytes | None = await answer
                return found
        except TimeoutError:
            return None
        finally:
            del self._waiting[number]

    def take_answer(self, given: AnswerOf) -> None:
        """Hands an answer to the request that waits for it; an answer that comes too late is dropped."""
        waiting = self._waiting.get(given.number)
        if waiting is not None and not waiting.done():
            waiting.set_result(given.answer)

    async def of_claim(self, body: bytes) -> bytes:
        """The review of a claim. If the plan is not known in time, the claim is created as it was requested."""
        owner = claims.owner(body)
        found = None if owner is None else await self.ask(claims.PATH, msgspec.msgpack.encode(owner))
        return claims.answer(body, (found or b"").decode(errors="replace"))

    async def of_dry_run(self, body: bytes) -> bytes:
        asked = dryrun.read(body)
        if asked.created is None:
            return dryrun.allowed(asked.uid)
        try:
            warnings = await self.ask(dryrun.PATH, msgspec.msgpack.encode(asked))
        except RecursionError:
            return dryrun.allowed(asked.uid)
        if warnings is None:
            return dryrun.allowed(asked.uid, [dryrun.not_known("what decides does not say in time")])
        return dryrun.allowed(asked.uid, msgspec.msgpack.decode(warnings, type=list[str]))


class Worker:
    """Serves as the link says, until it ends."""

    def __init__(self, link: Link[ToServe], config: ControllerConfig) -> None:
        self._link = link
        self._default_queues: frozenset[str] = frozenset()
        self._suspend_paths: dict[tuple[str, str], tuple[str, ...]] = {}
        self._knows = False
        self._questions = Questions(link, limit_s=ASKS_S)
        self._server = webhook_server(
            config,
            self._suspend_paths,
            has_default_queue=lambda namespace: namespace in self._default_queues,
            asking={claims.PATH: self._questions.of_claim, dryrun.PATH: self._questions.of_dry_run},
            ready=lambda: self._knows,
        )

    async def run(self) -> None:
        """Handles messages until the link ends. Raises FrameError for a message that its parent cannot have meant."""
        tidying = asyncio.create_task(self._tidy(), name="tidy")
        try:
            while (message := await self._link.receive()) is not None:
                await self._heard(message)
        finally:
            tidying.cancel()
            await self._server.stop()

    async def _tidy(self) -> None:
        """Collects garbage and trims memory: connections that broke off leave cycles, and bodies leave gaps between
        what stays.
        """
        tidied = 0
        while True:
            if tidied != self._server.answered:
                tidied = self._server.answered
                gc.collect()
                await asyncio.to_thread(give_back)
            await asyncio.sleep(_TIDY_S)

    async def _heard(self, message: ToServe) -> None:
        match message:
            case Known():
                self._default_queues = message.default_queues
                self._suspend_paths.clear()
                self._suspend_paths.update({(group, kind): path for group, kind, path in message.suspend_paths})
                self._knows = True
            case Certificate():
                await self._use(message)
            case AnswerOf():
                self._questions.take_answer(message)
            case Ping():
                self._link.send(Pong())
            case Setup():
                raise FrameError("a second setup")

    async def _use(self, given: Certificate) -> None:
        try:
            await self._server.use(Served(certificate=given.certificate, key=given.key, trusted=b""))
        except CertificateError as error:
            log.warning("%s", error)  # its parent has tried it
            return
        if not self._server.serving:
            try:
                await self._listen()
            except OSError as failed:
                self._link.send(Failed(failed.errno or 0, failed.strerror or str(failed)))
                return
        self._link.send(Serving(self._server.port))

    async def _listen(self) -> None:
        until_s = asyncio.get_running_loop().time() + _BIND_S
        while True:
            try:
                await self._server.start()
            except OSError as failed:
                if failed.errno != errno.EADDRINUSE or asyncio.get_running_loop().time() >= until_s:
                    raise
                await asyncio.sleep(_BIND_AGAIN_S)
            else:
                return


async def serve(end: socket.socket) -> None:
    """Serves until the other end is closed."""
    link = await Link.over(end, messages.to_serve, messages.MOST_BYTES)
    try:
        setup = await link.receive()
        if not isinstance(setup, Setup):
            return
        logging.getLogger().setLevel(setup.log_level)
        await Worker(link, pickle.loads(setup.config)).run()  # noqa: S301 - from our parent
    finally:
        link.close()


def main() -> None:
    hold_little()
    read_little(_READ_BYTES)
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends with its parent
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    with suppress(OSError):
        os.nice(_NICE)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogfmtFormatter())
    logging.getLogger().addHandler(handler)
    brokenpeers.install()
    raise_file_limit()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)  # what is decoded here has no cycles
    asyncio.run(serve(socket.socket(fileno=os.dup(0))))
    # Nobody waits for a conversion that still runs in a thread.
    os._exit(0)


if __name__ == "__main__":
    main()
