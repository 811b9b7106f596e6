"""The whole process: watches, listeners, leadership, and one term at a time.

Servers for users and the API server are imported when they are started: the core alone needs neither, and is 11 MiB
smaller.
"""

import asyncio
import logging
import random
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from controller.cluster.config.settings import MANAGED_FRAMEWORKS, Address, ControllerConfig, ForeignSystem
from controller.cluster.metrics.exposition import Acting, Exposition, exposing
from controller.cluster.metrics.gpucounts import GpuCounts
from controller.cluster.metrics.instruments import Instruments
from controller.cluster.metrics.observing import Counting
from controller.cluster.process.controllers import LEASE
from controller.cluster.process.flags import VERSION, Flags
from controller.cluster.process.foreignsystems import ForeignSystems
from controller.cluster.process.managedkinds import ManagedKinds
from controller.cluster.process.server import Listeners, exposed, probe
from controller.cluster.process.term import WRITES_AT_ONCE, Replica, Running, Term
from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.kinds import (
    AGENT_PODS,
    CAPACITY_PODS,
    CAPACITY_REQUESTS,
    DECLARATIONS,
    DEPLOYMENTS,
    IF_SERVED,
    JOINING_PODS,
    NAMESPACES,
    PROVISIONING_KINDS,
    QUEUED_PODS,
    REPLICA_SETS,
    TYPES,
    WORKLOADS,
    RawWorkloads,
    SeenNamespaces,
    claim_readers,
    is_custom,
    reader,
)
from controller.core import Core
from controller.foreign.jobs.reconcile_shell import foreign_readers
from controller.insight.bargaining.kept import read_request
from controller.insight.forecast.parts import Parts
from controller.objects.core import AgentPod
from controller.reconcile.jobshell.clusterobjects import default_priority
from controller.reconcile.jobshell.watched import (
    external_kinds,
    job_kinds,
    keep_job,
    keep_owner,
    read_job,
    read_kinds,
    serving_kinds,
)
from controller.reconcile.pods.reconcile_shell import read_pod
from controller.reconcile.serving.deployments_shell import read_scaled
from controller.scheduler.engine import Engine
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.resources import ClusterQueueName
from kube.access import load
from kube.client import Client, Decode
from kube.clock import Backoff, Clock, SystemClock
from kube.config import SERVICE_ACCOUNT_DIR, ClusterConfig
from kube.election.apart_shell import LeadershipApart
from kube.election.lease import Identity, LeaseRef, LeaseTiming
from kube.resources import Resource

if TYPE_CHECKING:
    from controller.cluster.process.submissions import Submissions
    from controller.cluster.process.view import FiguresNow
    from controller.cluster.webhooks.apart.parent_shell import ServingProcess, Start
    from controller.people.visibility.service_shell import ViewService

log = logging.getLogger(__name__)

KUEUE_NAMESPACE: Final = "kueue-system"
_CONNECTIONS: Final = WRITES_AT_ONCE + 4
"""Connections of the client: the writer's, and some for Events and for readings after conflicts."""


class Process:
    """The process. ``run`` until ``stop`` is set. Raises what ends the process, such as OSError for an address that is
    taken.
    """

    def __init__(
        self,
        config: ControllerConfig,
        flags: Flags,
        *,
        clock: Clock | None = None,
        connect: Callable[[], ClusterConfig] | None = None,
        start_webhooks: "Start | None" = None,
        figures: "FiguresNow | None" = None,
    ) -> None:
        """``start_webhooks`` starts the process that serves webhooks; by default a process of its own. ``figures``:
        what GPUs measure now, for the page if no Prometheus is configured.
        """
        self._config = config
        self._flags = flags
        self._clock = clock or SystemClock()
        self._connect = connect or (lambda: load(flags.kubeconfig))
        self._start_webhooks = start_webhooks
        self._figures = figures
        self._webhook: ServingProcess | None = None
        self._me = Identity(flags.identity or f"{socket.gethostname()}_{secrets.token_hex(4)}")
        self._instruments = Instruments()
        self._gpu_counts = GpuCounts()
        gates = config.engine.gates
        self._counting = Counting(
            self._instruments,
            local_queues=config.local_queue_metrics,
            cohorts_above=self._cohorts_above if gates.on("MetricsForCohorts") else None,
            creations=gates.on("MetricForWorkloadCreationLatency"),
            declared=lambda: self._declared,
        )
        self._feeds: Feeds | None = None
        self._kinds: ManagedKinds | None = None
        self._systems: ForeignSystems | None = None
        self._term: Term | None = None
        self._leadership: LeadershipApart | None = None
        self._own = ""
        self._raws = RawWorkloads() if self._manages_any() else None
        self._spaces = SeenNamespaces()
        self.listeners = Listeners()
        self.view: ViewService | None = None
        """The port for users, while the process runs and has an address for it."""

    async def run(self, stop: asyncio.Event) -> int:
        cluster = self._connect()
        election = self._config.leader_election
        # A leader begins no request after the renew deadline; a request that it has begun by then is given up before
        # the lease ends and another replica may lead. With ``may_write`` this is the fence: two leaders never write at
        # once.
        answer_s = max(1.0, (election.lease_duration_s - election.renew_deadline_s) * 0.9)
        async with Client(cluster, timeout_s=min(10.0, answer_s), connections=_CONNECTIONS, compressed=False) as client:
            self._own = self._flags.namespace or self._config.namespace or own_namespace()
            readers = self._readers()
            lacking = IF_SERVED | {resource for resource in readers if resource not in TYPES and is_custom(resource)}
            self._feeds = Feeds(client, clock=self._clock, random=random.random, readers=readers, may_lack=lacking)
            self._kinds = ManagedKinds(self._config, self._feeds, self._clock, declared=self._raws is not None)
            self._systems = ForeignSystems(self._config, client, self._feeds, self._clock, self._readers_of_systems())
            self._listen()
            async with self.listeners, self._feeds.running() as following:
                work = asyncio.create_task(self._lead(client, cluster), name="lead")
                stopping = asyncio.create_task(stop.wait(), name="stop")
                tasks = [work, stopping, *following, *self._webhooks(client, cluster), *self._views(cluster)]
                try:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    ours = [task for task in tasks if task not in following]
                    failed = [task for task in tasks if task.done() and not task.cancelled()]
                    for task in ours:
                        task.cancel()
                    await asyncio.gather(*ours, return_exceptions=True)
                for task in failed:
                    task.result()
        return 0

    async def _lead(self, client: Client, cluster: ClusterConfig) -> None:
        """Runs terms until cancelled: a replica that loses the leases campaigns anew, and keeps nothing of the old
        term.
        """
        if not self._elects():
            await self._terms(client, None)
            return
        election = self._config.leader_election
        named = self._config.namespace if self._config.namespace != self._own else None
        kueues = election.resource_namespace or named or KUEUE_NAMESPACE
        timing = LeaseTiming(
            lease_s=election.lease_duration_s, renew_s=election.renew_deadline_s, retry_s=election.retry_period_s
        )
        leases = [LeaseRef(self._own, LEASE), LeaseRef(kueues, election.resource_name, absent_is_held=True)]
        # Leases have a client of their own: renewals must not wait behind writes.
        connect = partial(Client, cluster, timeout_s=timing.renew_s / 2, connections=2)
        leadership = LeadershipApart(
            connect, leases, me=self._me, clock=self._clock, random=random.random, timing=timing
        )
        async with leadership as self._leadership:
            while True:
                await self._campaign(self._leadership, client)

    async def _campaign(self, leadership: LeadershipApart, client: Client) -> None:
        """Runs terms that follow until this replica leads, and decide until it does not."""
        leads = asyncio.Event()
        terms = asyncio.create_task(self._terms(client, leads), name="terms")

        async def work() -> None:
            leads.set()
            await terms  # cancelled with this

        leading = asyncio.create_task(leadership.lead(work), name="leadership")
        try:
            await asyncio.wait([terms, leading], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (leading, terms):
                task.cancel()
            ended = await asyncio.gather(leading, terms, return_exceptions=True)
        for each in ended:
            if isinstance(each, Exception):
                raise each

    async def _terms(self, client: Client, leads: asyncio.Event | None) -> None:
        """Runs one term after another: a new one begins whenever kinds of jobs, or queues of other systems, have come
        or gone.
        """
        assert self._kinds is not None
        assert self._systems is not None
        changed = True
        while changed:
            await self._kinds.adopt()
            await self._systems.adopt()
            changed = await self._kinds.while_in_force(self._new_term(client).run(leads), self._systems.changes)

    def _webhooks(self, client: Client, cluster: ClusterConfig) -> list[asyncio.Task[None]]:
        """The task of the webhooks, which every replica serves. A controller outside of its cluster has no Service that
        could call it.
        """
        if self._flags.core_only or self._flags.kubeconfig is not None:
            return []
        return [asyncio.create_task(self._serve_webhooks(client, cluster), name="webhook")]

    async def _serve_webhooks(self, client: Client, cluster: ClusterConfig) -> None:
        from controller.cluster.process.webhook import KnownHere, claim_answer, webhook_service
        from controller.cluster.webhooks import claims, dryrun
        from controller.cluster.webhooks.apart.parent_shell import ServingProcess, spawned

        assert self._feeds is not None
        assert self._kinds is not None
        async with Client(cluster, connections=2) as asking:
            self._webhook = ServingProcess(
                self._config,
                KnownHere(self._feeds, self._kinds.suspend_paths),
                {claims.PATH: claim_answer(asking, self._feeds), dryrun.PATH: self._submissions().warned},
                clock=self._clock,
                backoff=Backoff(random=random.random),
                start=self._start_webhooks or spawned,
            )
            service = webhook_service(
                self._config,
                client,
                self._webhook,
                namespace=self._own,
                clock=self._clock,
                leading=lambda: self._leadership is None or self._leadership.leading,
            )
            await service.run()

    def _views(self, cluster: ClusterConfig) -> list[asyncio.Task[None]]:
        """The task of the port for users, which every replica serves: a follower asks the leader."""
        if self._flags.core_only or self._flags.web is None:
            return []
        return [asyncio.create_task(self._serve_view(cluster, self._flags.web), name="view")]

    async def _serve_view(self, cluster: ClusterConfig, address: Address) -> None:
        from controller.cluster.process.view import Acting, view_service

        assert self._feeds is not None
        serving = view_service(
            self._config,
            cluster,
            self._feeds,
            address,
            namespace=self._own,
            clock=self._clock,
            acting=Acting(
                lambda: self._running,
                lambda: self.leader,
                self._submissions(),
                self._spaces,
                lambda: self._engine,
                self._me,
            ),
            figures=self._figures,
        )
        async with serving as self.view:
            await self.view.run()

    def _submissions(self) -> "Submissions":
        from controller.cluster.process.submissions import Submissions

        assert self._feeds is not None
        assert self._kinds is not None
        kinds = self._kinds
        return Submissions(
            self._config,
            self._feeds,
            self._clock,
            own_namespace=self._own,
            kinds=lambda: kinds.kinds,
            running=lambda: self._running,
            elsewhere=self._reviewed_elsewhere,
        )

    async def _reviewed_elsewhere(self, body: bytes) -> bytes:
        """The leading replica's answer about a dry run. Raises RefusedError."""
        from controller.cluster.process.submissions import ELSEWHERE_S
        from controller.people.visibility.server_shell import REVIEWED, RefusedError

        if self.view is None:
            raise RefusedError(503, "this replica does not lead, and has no port by which replicas ask each other")
        port = self.view.server.port
        _, found = await self.view.ask_leader(REVIEWED, None, self.leader, port, body, limit_s=ELSEWHERE_S)
        return found

    def _manages_any(self) -> bool:
        return not self._flags.core_only and not MANAGED_FRAMEWORKS.isdisjoint(self._config.integrations.frameworks)

    def _readers(self) -> dict[Resource, Decode[Any]]:
        readers: dict[Resource, Decode[Any]] = {resource: reader(type_) for resource, type_ in TYPES.items()}
        readers[NAMESPACES] = self._spaces.read
        readers |= claim_readers(self._config.engine.claim_rules)
        if self._raws is not None:
            readers[WORKLOADS] = self._raws.read
            readers |= {resource: reader(type_) for resource, type_ in PROVISIONING_KINDS.items()}
            kinds = job_kinds(self._config.integrations.frameworks)
            externals = external_kinds(self._config.integrations.external_frameworks)
            readers |= dict.fromkeys(externals, keep_owner)
            readers |= dict.fromkeys((*read_kinds(kinds).values(), *kinds), keep_job)
            readers[DECLARATIONS] = read_job
            if self._foreign_jobs is not None and not self._with_the_system:
                readers |= foreign_readers()
            readers[AGENT_PODS] = reader(AgentPod)
            if self._config.bargaining.on:
                readers |= {CAPACITY_REQUESTS: read_request, CAPACITY_PODS: keep_job}
            if self._config.integrations.queue_pods:
                readers[QUEUED_PODS] = read_pod
            if grouped := serving_kinds(self._config.integrations.frameworks):
                readers |= dict.fromkeys(grouped, read_job)
                readers[JOINING_PODS] = read_pod
            if self._config.counts_replicas:
                readers |= dict.fromkeys((DEPLOYMENTS, REPLICA_SETS), read_scaled)
        return readers

    @property
    def _foreign_jobs(self) -> ForeignSystem | None:
        """The switch of the system whose Jobs this process runs; None where it runs none."""
        return None if self._raws is None else self._config.foreign_jobs

    @property
    def _with_the_system(self) -> bool:
        """Whether foreign Jobs are run only while their system's Queues are decided for, because its own controller may
        hold a lease.
        """
        return self._foreign_jobs is not None and self._foreign_jobs.enabled is None

    def _readers_of_systems(self) -> dict[System, dict[Resource, Decode[Any]]]:
        jobs = self._foreign_jobs
        return {jobs.system: foreign_readers()} if jobs is not None and self._with_the_system else {}

    def _new_term(self, client: Client) -> Term:
        assert self._feeds is not None
        assert self._kinds is not None
        systems = self._systems.in_force if self._systems is not None else frozenset[System]()
        self._term = Term(
            self._config,
            client,
            self._feeds,
            self._counting,
            clock=self._clock,
            replica=Replica(self._me, self._own, self._raws, self._kinds.kinds, self._kinds.owned, systems),
            may_write=lambda: self._leadership is None or self._leadership.leading,
        )
        return self._term

    def _elects(self) -> bool:
        if self._flags.leader_elect is not None:
            return self._flags.leader_elect
        return self._config.leader_election.enabled is not False

    # -- what is served ----------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        metrics = self._flags.metrics[0] if self._flags.metrics is not None else self._config.metrics.address
        health = self._config.health
        self.listeners.add(metrics, "/metrics", exposed(self.exposing))
        for address in (metrics, None if self._flags.core_only else health.address):
            self.listeners.add(address, f"/{health.liveness}", probe(lambda: None))
            self.listeners.add(address, f"/{health.readiness}", probe(self._unready))

    def _unready(self) -> str | None:
        """Why this replica is not ready; None if it is. Followers get ready too: each may have to lead at any
        moment.
        """
        unsynced = self._feeds.unsynced if self._feeds is not None else ("everything",)
        if unsynced:
            return f"not listed yet: {', '.join(unsynced)}"
        return "the process that serves webhooks is down" if self._webhook is not None and self._webhook.down else None

    @property
    def _running(self) -> Running | None:
        return self._term.running if self._term is not None else None

    @property
    def _engine(self) -> Engine | None:
        """The engine of the term, whether this replica leads or follows."""
        return self._term.engine if self._term is not None else None

    @property
    def core(self) -> Core | None:
        """The core of the term, while this replica leads; else None."""
        return self._running.core if self._running is not None else None

    def _cohorts_above(self, queue: ClusterQueueName) -> Iterator[str]:
        """The cohorts that the ClusterQueue is in, its own first; none while this replica does not lead."""
        state = self.core.engine.state.cluster.queues.get(queue) if self.core is not None else None
        return (node.name for node in (state.node.path() if state is not None else ()) if not node.is_queue)

    @property
    def _declared(self) -> frozenset[str]:
        return self._kinds.declared if self._kinds is not None else frozenset()

    @property
    def leader(self) -> str | None:
        """The holder of the lease, in words; None while this replica leads."""
        return self._leadership.waiting_for if self._leadership is not None else None

    @property
    def role(self) -> str:
        if not self._elects():
            return "standalone"
        return "leader" if self._leadership is not None and self._leadership.leading else "follower"

    def exposing(self) -> Parts[Exposition]:
        """The content of /metrics now."""
        running, acting = self._running, None
        if running is not None:
            workloads = tuple(entry.workload for entry in running.core.ledger.values())  # it changes in the pauses
            told = (running.writer.pending, running.events.dropped, self._declared, self._counting.tripped)
            priority = default_priority(self._feeds) if self._feeds is not None else 0
            acting = Acting(running.core.engine, workloads, *told, priority=priority, now_s=self._clock.wall())
        skips = self._counting.skips
        return exposing(
            self._instruments,
            self._config,
            self._feeds,
            acting,
            skips,
            role=self.role,
            version=VERSION,
            gpus=self._gpu_counts,
        )


def own_namespace() -> str:
    """The namespace of the pod's service account; ``default`` outside of a cluster."""
    mounted = Path(SERVICE_ACCOUNT_DIR) / "namespace"
    with suppress(OSError):
        if found := mounted.read_text().strip():
            return found
    return "default"
