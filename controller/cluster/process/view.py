"""The port of this replica for users, from the configuration and the flags."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from controller.cluster.config.pagesettings import OidcProvider
from controller.cluster.config.settings import Address, ControllerConfig
from controller.cluster.process.submissions import Submissions
from controller.cluster.process.term import Running
from controller.cluster.process.unitviews import units_view
from controller.cluster.process.webhook import release
from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.kinds import DECIDING, GPU_NODES, NODES, PODS, TOPOLOGIES, WORKLOADS, SeenNamespaces
from controller.cluster.webhooks.keeper import OwnCertificates, SecretName
from controller.cluster.webhooks.service import service_names
from controller.core import Core
from controller.insight.explain import RepairedNode
from controller.insight.forecast.forecast import Forecast
from controller.insight.forecast.shown import Foretold
from controller.insight.podtroubles import FailurePolicy
from controller.jobs.framework.podview import workload_of
from controller.objects.decode import GpuNode
from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from controller.people.history.figures import FiguresOf
from controller.people.history.history_shell import History
from controller.people.history.record import Sample, sampled
from controller.people.history.recorder_shell import Record, Recorder
from controller.people.page.events_shell import Hub
from controller.people.page.live import State
from controller.people.page.pods_shell import PodsOfWorkload, RunningPods
from controller.people.page.queuerows import forecast_row
from controller.people.page.server_shell import Others, PageServer, Source
from controller.people.page.session import Seal, Seals
from controller.people.page.visiblenamespaces import QueueOf
from controller.people.visibility.answers import KEPT_S, Answers
from controller.people.visibility.identity import User
from controller.people.visibility.reviews_shell import Reviews
from controller.people.visibility.routes import Asked, What
from controller.people.visibility.server_shell import RECORDED, Leader, RefusedError, ViewServer
from controller.people.visibility.service_shell import ViewService, holder
from controller.people.whatif.child_shell import Given
from controller.people.whatif.parent_shell import WhatIf
from controller.people.whatif.question import Asked as Change
from controller.people.whatif.question import Question
from controller.reconcile.jobshell.clusterobjects import default_priority
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import WorkloadKey
from kube.client import Client
from kube.clock import Backoff, Clock
from kube.config import ClusterConfig
from kube.errors import KubeError
from kube.reading.entries import ObjectKey

_ANSWER_S = 5.0
_RECORD_S = 20.0
_OK = 200
_LOCAL = ("localhost", "127.0.0.1")
"""Names of the port for a person who reaches it through a forwarded one."""


FiguresNow = Callable[[], FiguresOf]


class Forecasts:
    """The forecasts of one moment, as rows have them: rounded, so that a row changes only when its forecast does."""

    def __init__(self, latest: Mapping[WorkloadKey, Forecast], now_s: float) -> None:
        self._latest = latest
        self._now_s = now_s

    def of(self, key: WorkloadKey) -> dict[str, Any] | None:
        found = self._latest.get(key)
        return forecast_row(found, self._now_s) if found is not None else None


class _Leading:
    """What this replica may answer while it leads. Answers are made anew each second, and with each term."""

    def __init__(
        self,
        running: Callable[[], Running | None],
        feeds: Feeds,
        clock: Clock,
        spaces: SeenNamespaces,
        figures: FiguresNow,
    ) -> None:
        self._running = running
        self.spaces = spaces
        self.figures = figures
        self._feeds = feeds
        self._running_pods = RunningPods(feeds)
        self._clock = clock
        self._of: Core | None = None
        self._made_s = 0.0
        self._answers: Answers | None = None
        self._known: frozenset[str] = frozenset()
        self._named: list[str] = []
        self._named_s = 0.0

    def answers(self) -> Answers | None:
        running, now_s = self._running(), self._clock.monotonic()
        core = running.core if running is not None else None
        if core is None or not core.loaded.is_set():
            self._of = self._answers = None
            return None
        if self._answers is None or core is not self._of or now_s - self._made_s >= KEPT_S:
            self._of, self._made_s = core, now_s
            self._answers = Answers(
                core.engine,
                lambda key: _workload(core, key),
                self._clock.wall(),
                core.decisions.held.waits,
                self._repaired,
            )
            # Stories name namespaces that are gone: a namespace that was known once stays known.
            self._known |= {key.partition("/")[0] for key in core.ledger}
            self._known |= {key.partition("/")[0] for key in core.engine.state.cluster.local_queues}
        return self._answers

    def _repaired(self) -> Iterator[RepairedNode]:
        """GpuNodes with repairs, as ``RepairedNode`` has them."""
        running = self._running()
        expected = running.forecasts.comebacks().gpus if running is not None else ()
        back_at: dict[str, dict[str, float]] = {}
        for each in expected:
            back_at.setdefault(each.node, {})[each.gpu] = each.at_s
        for gpu_node in self._feeds[GPU_NODES].objects():
            if gpu_node.status.repairs:
                node = self._feeds[NODES].get(ObjectKey("", gpu_node.metadata.name))
                labels = node.object.metadata.labels if node is not None else {}
                yield RepairedNode(labels, gpu_node, back_at.get(gpu_node.metadata.name, {}))

    async def foretold(self, asked: Asked) -> Foretold:
        running = self._running()
        if running is None:
            return Foretold()
        if asked.what is What.PENDING:
            return Foretold(await running.forecasts.all())
        if asked.what is What.WORKLOAD:
            key = WorkloadKey(f"{asked.namespace}/{asked.name}")
            return await running.forecasts.of(key, _workload(running.core, key))
        if asked.what in (What.LOCAL_QUEUE, What.EXTERNAL):
            return Foretold(view=await units_view(running, asked, default_priority(self._feeds), self._clock.wall()))
        return Foretold()

    def known(self) -> frozenset[str]:
        """The namespaces that answers may name. To be called after an answer was gathered: Answers read the engine of
        that moment.
        """
        if not self._known.issuperset(self.spaces.seen):
            self._known |= self.spaces.seen
        return self._known

    def state(self) -> State | None:
        """The state that the page's rows are made of; None while this replica does not lead."""
        running = self._running()
        core = running.core if running is not None else None
        if running is None or core is None or not core.loaded.is_set():
            return None
        return State(
            engine=core.engine,
            nodes=lambda: {each.metadata.name: each for each in self._feeds[NODES].objects()},
            gpu_nodes=lambda: {each.metadata.name: each for each in self._feeds[GPU_NODES].objects()},
            workload_of=self._workload_of,
            figures=self.figures(),
            forecast_of=Forecasts(running.forecasts.latest(), self._clock.wall()).of,
            with_pods=self._running_pods.now,
            now_s=self._clock.wall(),
        )

    def _workload_of(self, pod: str) -> str | None:
        """The Workload of a pod; None before pods are watched."""
        namespace, _, name = pod.partition("/")
        found = self._feeds[PODS].get(ObjectKey(namespace, name))
        named = workload_of(found.object) if found is not None else None
        running = self._running()
        entry = running.core.ledger.current(named) if named is not None and running is not None else None
        return entry.workload.key if entry is not None else named

    def gpu_nodes(self) -> list[GpuNode]:
        return list(self._feeds[GPU_NODES].objects())

    def workloads(self) -> list[Workload]:
        running = self._running()
        return [entry.workload for entry in running.core.ledger.values()] if running is not None else []

    def queue_of(self) -> QueueOf:
        """The ``QueueOf`` of this moment, for threads, which must not call this object themselves."""
        answers = self.answers()
        return answers.queue_of if answers is not None else lambda _: None

    def namespaces(self) -> list[str]:
        """The namespaces that rows may name; gathered once a second at most."""
        running, now_s = self._running(), self._clock.monotonic()
        if running is not None and (not self._named or now_s - self._named_s >= KEPT_S):
            queues = running.core.engine.state.cluster.local_queues
            self._named = in_rows(running.core.ledger, queues, self._feeds[GPU_NODES].objects())
            self._named_s = now_s
        return self._named


def in_rows(workloads: Iterable[str], local_queues: Iterable[str], nodes: Iterable[GpuNode]) -> list[str]:
    """The namespaces that rows may name, by keys: those with workloads first, because the number of reviews is
    bounded.
    """
    groups = (
        {key.partition("/")[0] for key in workloads},
        {key.partition("/")[0] for key in local_queues},
        {holder.namespace for node in nodes for holder in node.status.holders},
    )
    return list(dict.fromkeys(name for group in groups for name in sorted(group)))


def _given(config: ControllerConfig, asked: Change, submissions: Submissions, now_s: float) -> Given:
    systems = submissions.others().adopted
    question = Question(config=config.engine, now_s=now_s, quotas=asked.quotas, systems=systems)
    return Given(question, asked, submissions.composer() if asked.manifest else None)


def _deciding(feeds: Feeds, *, mirrored: bool) -> list[KubernetesObject]:
    """All objects that the engine decides by, except for Workloads. Pods count only if workloads get places: pods that
    are watched for the page alone are left out. ``mirrored``: queues of other systems are decided for, which place
    pods.
    """
    placed = mirrored or next(iter(feeds[TOPOLOGIES].objects()), None) is not None
    left_out = {WORKLOADS} if placed else {WORKLOADS, PODS}
    kinds = [resource for resource in DECIDING if resource in feeds and resource not in left_out]
    return [each for resource in kinds for each in feeds[resource].objects()]


def _workload(core: Core, key: WorkloadKey) -> Workload | None:
    entry = core.ledger.get(key)
    return entry.workload if entry is not None else None


def _with_sign_in(page: PageServer, settings: OidcProvider, seal: Callable[[str], Seal | None], clock: Clock) -> Others:
    # The module is imported only if it is configured: PyJWT stays out of all other controllers.
    from controller.people.signin.oidc_shell import OidcSignIn
    from controller.people.signin.provider_shell import Provider

    sign_in = OidcSignIn(page, Provider(settings, clock), seal, clock)
    return replace(page.others, sign_in=sign_in.handle, button=settings.display_name)


@dataclass(frozen=True)
class Acting:
    """The leadership. ``running``: the term while this replica leads; ``leader``: the holder, in words, while it does
    not. ``engine``: what this replica knows of queues, whether it leads or follows; None before it has read all.
    ``identity``: of this replica, as the lease would name it.
    """

    running: Callable[[], Running | None]
    leader: Callable[[], str | None]
    submissions: Submissions
    spaces: SeenNamespaces
    engine: Callable[[], Engine | None] = lambda: None
    identity: str = ""


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
    figures: FiguresNow | None = None,
) -> AsyncIterator[ViewService]:
    """The service to ``run``. ``figures``: of GPUs if no Prometheus is configured."""
    # The port has a client of its own: users' requests wait for no write, and no write for them.
    async with Client(cluster, timeout_s=_ANSWER_S) as client:
        name = release(config)
        settings = config.page_prometheus
        history = History(settings, clock) if settings is not None else None
        no_figures: FiguresOf = {}
        measured = history.figures if history is not None else figures or (lambda: no_figures)
        leading = _Leading(acting.running, feeds, clock, acting.spaces, measured)

        async def ask(path: str, user: User, body: bytes | None) -> tuple[int, bytes]:
            return await service.ask_leader(path, user, acting.leader(), server.port, body)

        async def relay(request: web.Request, path: str, user: User) -> web.StreamResponse:
            return await service.relay(request, path, user, acting.leader(), server.port)

        async def peer(before: int) -> bytes | None:
            """Rows of the replica that leads, or of one beside this one where this one leads; no rows where it is
            alone, None where nobody tells.
            """
            leader, path = acting.leader(), f"{RECORDED}?before={before}"
            with suppress(KubeError):
                pods = (holder(leader),) if leader is not None else await service.beside(acting.identity)
                if not pods:
                    return b"[]"
                for pod in pods:
                    with suppress(RefusedError):
                        status, body = await service.ask(pod, path, None, server.port, limit_s=_RECORD_S)
                        if status == _OK:
                            return body
            return None

        def sample() -> Sample | None:
            engine = acting.engine()
            return sampled(engine, feeds[GPU_NODES].objects()) if engine is not None else None

        folder = config.page_history if settings is None else None
        recorder = Recorder(Record(folder), sample, clock, peer) if folder is not None else None

        async def recorded(before: int) -> bytes | None:
            return await recorder.before(before) if recorder is not None else None

        reviews = Reviews(client, clock)
        leads = Leader(
            leading.answers,
            leading.known,
            ask,
            leading.foretold,
            acting.submissions.foretold,
            acting.submissions.reviewed_for_replica,
            recorded,
        )
        server = ViewServer(address, reviews, leads, clock)
        names = (*service_names(namespace, name), *_LOCAL)
        service = ViewService(
            client,
            server,
            OwnCertificates(client, SecretName(namespace, f"{name}-web"), names=names, clock=clock),
            (namespace, name),
            clock=clock,
            backoff=Backoff(random=random.random),
        )
        hub = Hub(leading.state, leading.known, leading.queue_of, clock)
        source = Source(
            leading.answers,
            leading.state,
            leading.namespaces,
            relay,
            Seals(lambda: service.secrets).of,
            PodsOfWorkload(client, leading.gpu_nodes, FailurePolicy.of(config), clock).of,
        )
        what_if = WhatIf(
            lambda asked: _given(config, asked, acting.submissions, clock.wall()),
            reviews.may,
            lambda: _deciding(feeds, mirrored=bool(acting.submissions.others().adopted)),
            leading.workloads,
        )
        past = history.of if history is not None else recorder.of if recorder is not None else None
        others = Others(what_if=what_if.handle, history=past)
        page = PageServer(server, reviews, source, hub, clock, others=others)
        if config.oidc is not None:
            page.others = _with_sign_in(page, config.oidc, source.seal, clock)
        server.page = page
        recording = asyncio.create_task(recorder.run(), name="history") if recorder is not None else None
        try:
            yield service
        finally:
            if recording is not None and recorder is not None:
                recording.cancel()
                await asyncio.gather(recording, return_exceptions=True)
                await recorder.close()
            await hub.close()
            if history is not None:
                await history.close()
