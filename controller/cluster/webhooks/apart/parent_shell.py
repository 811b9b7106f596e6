"""The deciding process's side: it starts the process that serves webhooks, tells it what it must know, answers its
questions, and restarts it after its death.

Only the newest state is sent: a process that reads slowly delays nothing here and has no queue behind it.
"""

import asyncio
import logging
import pickle
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.webhooks.apart import messages
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
    ToDecide,
)
from controller.cluster.webhooks.tls import Served, tried
from kube.clock import Backoff, Clock, sleep

log = logging.getLogger(__name__)

_CHILD: Final = "controller.cluster.webhooks.apart.child_shell"
LOOK_S: Final = 0.2
"""Seconds between two comparisons of the state with what was sent."""
PING_S: Final = 10.0
_PINGS: Final = 3
"""Unanswered pings after which a process is ended. Pings are counted, and not time: if this process stood still, the
other one is not to blame."""
STEADY_S: Final = 60.0
"""A process that has lived for this time is restarted after the shortest pause."""
ANSWER_S: Final = 0.5
_ASKS: Final = 16
_END_S: Final = 3.0

Answered = Callable[[bytes], Awaitable[bytes]]
"""Answers a question of one path."""


class Child(Protocol):
    """A started process, with the part of ``asyncio.subprocess.Process`` that is used here."""

    async def wait(self) -> int: ...
    def kill(self) -> None: ...


Start = Callable[[socket.socket], Awaitable[Child]]
"""Starts a process with this end of a socket as its standard input."""


async def spawned(end: socket.socket) -> Child:
    """Starts a process of its own. Nothing secret is in its arguments or its environment."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", _CHILD, stdin=end.fileno(), stdout=asyncio.subprocess.DEVNULL
    )


class ServingProcess:
    """A ``controller.cluster.webhooks.service.Server`` in another process.

    ``known``: what the process must know now; None while that is not known here. ``answers``: answers to its questions,
    by path.

    ``start`` and ``stop`` are called by one task. ``_link`` is set while a process exists; ``port`` is set by its
    message that it serves, and is 0 once it is gone.
    """

    def __init__(
        self,
        config: ControllerConfig,
        known: Callable[[], Known | None],
        answers: Mapping[str, Answered],
        *,
        clock: Clock,
        backoff: Backoff,
        start: Start = spawned,
    ) -> None:
        self._setup = Setup(pickle.dumps(config), logging.getLogger().level)
        self._known = known
        self._answers = answers
        self._clock = clock
        self._backoff = backoff
        self._start_child = start
        self._served: Served | None = None
        self._link: Link[ToDecide] | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._supervising: asyncio.Task[None] | None = None
        self._settled: asyncio.Future[None] | None = None
        """The result that ``start`` awaits: the first message of the process about its port, or its end."""
        self._unanswered = 0
        self.port = 0

    @property
    def serving(self) -> bool:
        return self.port != 0

    @property
    def down(self) -> bool:
        """Whether a process was started and does not serve."""
        return self._supervising is not None and not self.serving

    async def use(self, served: Served) -> None:
        """Sends the certificate. Raises CertificateError; the former certificate then stays in use."""
        tried(served)
        self._served = served
        if self._link is not None:
            self._link.send(self._certificate())

    async def start(self) -> None:
        """Starts a process, and returns when it serves or is being restarted. Raises OSError for a port that is
        taken.
        """
        if self._supervising is not None:
            if self._supervising.done():
                self._supervising.result()
            return
        assert self._served is not None, "use comes first"
        self._settled = asyncio.get_running_loop().create_future()
        self._supervising = asyncio.create_task(self._supervise(), name="webhook-process")
        await asyncio.wait([self._supervising, self._settled], return_when=asyncio.FIRST_COMPLETED)
        try:
            if self._supervising.done():
                self._supervising.result()
            self._settled.result()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        if self._supervising is not None:
            supervising, self._supervising = self._supervising, None
            supervising.cancel()
            await asyncio.gather(supervising, return_exceptions=True)

    async def _supervise(self) -> None:
        """Runs one process after the other."""
        while True:
            begun_s = self._clock.monotonic()
            await self._one_life()
            if self._clock.monotonic() - begun_s > STEADY_S:
                self._backoff.reset()
            pause_s = self._backoff.next()
            log.warning("the process that serves webhooks has ended: another one in %.1f s", pause_s)
            await sleep(self._clock, pause_s)

    async def _one_life(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            child = await self._start_child(theirs)
        except OSError as failed:
            ours.close()
            log.warning("the process that serves webhooks was not started: %s", failed)
            return
        finally:
            theirs.close()
        link: Link[ToDecide] = await Link.over(ours, messages.to_decide, messages.MOST_ASKED_BYTES)
        link.send(self._setup)
        self._link, self._unanswered = link, 0
        tasks = [
            asyncio.create_task(self._listen(link), name="webhook-asks"),
            asyncio.create_task(self._tell(link), name="webhook-tells"),
            asyncio.create_task(self._watch(link), name="webhook-watch"),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._link, self.port = None, 0
            await _ended([*tasks, *self._answering])
            link.close()
            await _reaped(child)
            self._settles(None)

    async def _listen(self, link: "Link[ToDecide]") -> None:
        """Handles messages until the process is gone."""
        try:
            while (message := await link.receive()) is not None:
                self._unanswered = 0
                self._heard(link, message)
                if isinstance(message, Failed):
                    return
        except FrameError as error:
            log.warning("the process that serves webhooks makes no sense: %s", error)

    def _heard(self, link: "Link[ToDecide]", message: ToDecide) -> None:
        match message:
            case Serving(port=port):
                if not self.serving:
                    log.info("webhooks are served, in a process of their own")
                self.port = port
                self._settles(None)
            case Failed(number=number, why=why):
                self._settles(OSError(number, why))
            case Asked():
                self._asked(link, message)
            case Pong():
                pass

    def _settles(self, failure: OSError | None) -> None:
        if self._settled is None or self._settled.done():
            if failure is not None:
                log.warning("webhooks are not served: %s", failure)
        elif failure is None:
            self._settled.set_result(None)
        else:
            self._settled.set_exception(failure)

    def _certificate(self) -> Certificate:
        assert self._served is not None
        return Certificate(self._served.certificate, self._served.key)

    # -- what it is told ---------------------------------------------------------------------------------------------

    async def _watch(self, link: "Link[ToDecide]") -> None:
        """Pings the process until it answers no more."""
        while self._unanswered < _PINGS:
            self._unanswered += 1
            link.send(Ping())
            await sleep(self._clock, PING_S)
        log.warning("the process that serves webhooks answers no more")

    async def _tell(self, link: "Link[ToDecide]") -> None:
        """Sends each change of the state, as fast as the process takes it."""
        link.send(self._certificate())
        sent: Known | None = None
        while True:
            known = self._known()
            if known is not None and known != sent:
                link.send(known)
                sent = known
            await link.drain()
            await sleep(self._clock, LOOK_S)

    # -- what it asks ------------------------------------------------------------------------------------------------

    def _asked(self, link: "Link[ToDecide]", asked: Asked) -> None:
        answer = self._answers.get(asked.path)
        if answer is None or len(self._answering) >= _ASKS:
            link.send(AnswerOf(asked.number, None))
            return
        task = asyncio.create_task(self._answer(link, asked, answer), name="webhook-answer")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, link: "Link[ToDecide]", asked: Asked, answer: Answered) -> None:
        reply: bytes | None = None
        try:
            async with asyncio.timeout(ANSWER_S):
                reply = await answer(asked.question)
        except TimeoutError:
            pass
        except Exception:
            log.exception("a question of the webhooks was not answered")
        link.send(AnswerOf(asked.number, reply))


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for found in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(found, Exception):
            log.error("webhooks: %s", found, exc_info=found)


async def _reaped(child: Child) -> None:
    """Waits until the process has ended: it ends by itself when its socket is closed, and is killed if it does not."""
    try:
        async with asyncio.timeout(_END_S):
            await child.wait()
            return
    except TimeoutError:
        pass
    with suppress(ProcessLookupError):
        child.kill()
    await child.wait()
