"""The view's port of this replica, from the configuration and the flags."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from controller.config.settings import Address, ControllerConfig
from controller.core import Core
from controller.engine.model.resources import WorkloadKey
from controller.forecast.shown import Foretold
from controller.objects.workload import Workload
from controller.process.submissions import Submissions
from controller.process.term import Running
from controller.process.webhook import release
from controller.visibility.answers import KEPT_S, Answers
from controller.visibility.identity import User
from controller.visibility.reviews_shell import Reviews
from controller.visibility.routes import Asked, What
from controller.visibility.server_shell import Leader, ViewServer
from controller.visibility.service_shell import ViewService
from controller.watching.feeds import Feeds
from controller.watching.kinds import NAMESPACES
from controller.webhooks.keeper import OwnCertificates, SecretName
from controller.webhooks.service import service_names
from kube.client import Client
from kube.clock import Backoff, Clock
from kube.config import ClusterConfig

_ANSWER_S = 5.0
_LOCAL = ("localhost", "127.0.0.1")
"""For a person who reaches the port through a forwarded one."""


class _Leading:
    """What this replica may answer. Answers are made anew each second, and with each term."""

    def __init__(self, running: Callable[[], Running | None], feeds: Feeds, clock: Clock) -> None:
        self._running = running
        self._feeds = feeds
        self._clock = clock
        self._of: Core | None = None
        self._made_s = 0.0
        self._answers: Answers | None = None
        self._known: frozenset[str] = frozenset()

    def answers(self) -> Answers | None:
        running, now_s = self._running(), self._clock.monotonic()
        core = running.core if running is not None else None
        if core is None or not core.loaded.is_set():
            self._of = self._answers = None
            return None
        if self._answers is None or core is not self._of or now_s - self._made_s >= KEPT_S:
            self._of, self._made_s = core, now_s
            self._answers = Answers(core.engine, lambda key: _workload(core, key), self._clock.wall())
            # Stories name namespaces that are gone: what was known once stays known.
            self._known |= {key.partition("/")[0] for key in core.ledger}
            self._known |= {key.partition("/")[0] for key in core.engine.state.cluster.local_queues}
        return self._answers

    async def foretold(self, asked: Asked) -> Foretold:
        running = self._running()
        if running is None:
            return Foretold()
        if asked.what is What.PENDING:
            return Foretold(await running.forecasts.all())
        if asked.what is What.WORKLOAD:
            key = WorkloadKey(f"{asked.namespace}/{asked.name}")
            return await running.forecasts.of(key, _workload(running.core, key))
        return Foretold()

    def known(self) -> frozenset[str]:
        """To be asked after what was gathered: Answers read the engine of that moment."""
        if not self._known.issuperset(there := {key.name for key in self._feeds[NAMESPACES]}):
            self._known |= there
        return self._known


def _workload(core: Core, key: WorkloadKey) -> Workload | None:
    kept = core.ledger.get(key)
    return kept.workload if kept is not None else None


@dataclass(frozen=True)
class Acting:
    """``running``: while this replica leads; ``leader``: who does, in words, while it does not."""

    running: Callable[[], Running | None]
    leader: Callable[[], str | None]
    submissions: Submissions


@asynccontextmanager
async def view_service(
    config: ControllerConfig,
    cluster: ClusterConfig,
    feeds: Feeds,
    address: Address,
    *,
    namespace: str,
    clock: Clock,
    acting: Acting,
) -> AsyncIterator[ViewService]:
    """To be ``run``."""
    # A client of its own: what users ask waits for no write, and no write for it.
    async with Client(cluster, timeout_s=_ANSWER_S) as client:
        name = release(config)
        leading = _Leading(acting.running, feeds, clock)

        async def ask(path: str, user: User, body: bytes | None) -> tuple[int, bytes]:
            return await service.ask_leader(path, user, acting.leader(), server.port, body)

        leads = Leader(leading.answers, leading.known, ask, leading.foretold, acting.submissions.foretold)
        server = ViewServer(address, Reviews(client, clock), leads, clock)
        names = (*service_names(namespace, name), *_LOCAL)
        service = ViewService(
            client,
            server,
            OwnCertificates(client, SecretName(namespace, f"{name}-web"), names=names, clock=clock),
            (namespace, name),
            clock=clock,
            backoff=Backoff(random=random.random),
        )
        yield service
