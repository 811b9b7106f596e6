"""The webhook on one replica: it reads certificates, serves, writes caBundles, and checks all of it every minute."""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from controller.cluster.webhooks.injection import Named, Target, inject
from controller.cluster.webhooks.rounds import Rounds
from controller.cluster.webhooks.tls import Served
from kube.client import Client
from kube.clock import Backoff, Clock

log = logging.getLogger(__name__)

PERIOD_S: Final = 60.0
"""The pause between two rounds, far below the hour for which a new authority is only announced: by then every caBundle
holds it."""
AGAIN_S: Final = 5.0
"""The pause while another system converts, or while what the leading replica writes differs: this replica may lead
soon."""


class Certificates(Protocol):
    """The source of certificates: OwnCertificates or GivenCertificates."""

    async def current(self) -> Served: ...


class Server(Protocol):
    """The server of webhooks, in this process or in another."""

    @property
    def serving(self) -> bool: ...
    async def use(self, served: Served) -> None:
        """Presents this certificate. Raises CertificateError."""

    async def start(self) -> None:
        """Listens. Raises OSError."""

    async def stop(self) -> None: ...


class WebhookService:
    """Keeps the webhook serving. ``run`` until cancelled: only a port that is taken (OSError) ends it."""

    def __init__(  # noqa: PLR0913
        self,
        client: Client,
        server: Server,
        certificates: Certificates,
        target: Target,
        *,
        clock: Clock,
        backoff: Backoff,
        leading: Callable[[], bool] = lambda: True,
        configurations: tuple[Named, ...] = (),
        serve_old_workloads: bool = True,
    ) -> None:
        """``leading``: whether this replica decides where replicas differ, and may put this controller's Service into
        Kueue's CRDs; false while a live Kueue holds its lease.

        ``configurations``: the webhooks' configurations, if they are installed. ``serve_old_workloads``: whether
        v1beta1 of Workload is to be served.
        """
        self._client = client
        self._server = server
        self._certificates = certificates
        self._target = target
        self._rounds = Rounds("webhook certificates", log, clock=clock, backoff=backoff)
        self._leading = leading
        self._configurations = configurations
        self._serve_old_workloads = serve_old_workloads
        self._served: Served | None = None
        self._refused: list[str] = []
        self._told: set[str] = set()
        self._injected = False

    @property
    def ready(self) -> bool:
        """Whether the server serves, and the API server's configuration names and trusts it."""
        return self._server.serving and self._injected

    async def run(self) -> None:
        try:
            await self._rounds.run(self.round)
        finally:
            await self._server.stop()

    async def round(self) -> float:
        """Brings everything up to date once, and returns the seconds until the next time. Raises KubeError and
        CertificateError.
        """
        served = await self._certificates.current()
        if served != self._served:
            await self._server.use(served)
            self._served = served
        if not self._server.serving:
            await self._server.start()
        injected = await inject(
            self._client,
            self._target,
            served.trusted,
            leading=self._leading(),
            configurations=self._configurations,
            serve_old_workloads=self._serve_old_workloads,
        )
        refused = injected.refused
        for sentence in refused:
            # In the first round nothing is logged: whether the other system is live is known only once a replica leads.
            if sentence in self._refused and sentence not in self._told:
                log.warning("%s", sentence)
                self._told.add(sentence)
        self._told.intersection_update(refused)
        self._refused = refused
        self._injected = True
        return AGAIN_S if refused or injected.postponed else PERIOD_S


def service_names(namespace: str, service: str) -> tuple[str, ...]:
    """The names that the certificate of a Service must have."""
    return (f"{service}.{namespace}.svc", f"{service}.{namespace}", f"{service}.{namespace}.svc.cluster.local")
