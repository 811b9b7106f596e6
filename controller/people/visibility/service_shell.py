"""The port of one replica: its certificate, the front proxy that it trusts, and its APIServices.

All of them are checked every minute. A follower hands questions on to the leading replica.
"""

import asyncio
import logging
import ssl
from base64 import b64encode
from typing import Any, Final

import aiohttp
from aiohttp import web

from controller.cluster.webhooks.certificates import new_client
from controller.cluster.webhooks.keeper import OwnCertificates
from controller.cluster.webhooks.rounds import Rounds
from controller.cluster.webhooks.tls import Served
from controller.people.visibility.identity import REPLICA, FrontProxy, FrontProxyError, User, as_headers, front_proxy
from controller.people.visibility.routes import EXTERNAL_GROUP, EXTERNAL_VERSION, KUEUE_GROUP, KUEUE_VERSIONS
from controller.people.visibility.server_shell import RefusedError, Trust, ViewServer
from controller.people.visibility.tls import calling
from failpoints import points
from failpoints.names import Failpoint
from inventory.api.names import VIEW_GROUP, VIEW_VERSION
from kube.client import Client, Selection, describe
from kube.clock import Backoff, Clock
from kube.errors import ForbiddenError, NotFoundError
from kube.resources import PODS, Resource

log = logging.getLogger(__name__)

PERIOD_S: Final = 60.0
API_SERVICES: Final = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
AUTHENTICATION: Final = ("kube-system", "extension-apiserver-authentication")
NAMES: Final = (
    f"{VIEW_VERSION}.{VIEW_GROUP}",
    *(f"{version}.{KUEUE_GROUP}" for version in KUEUE_VERSIONS),
    f"{EXTERNAL_VERSION}.{EXTERNAL_GROUP}",
)
"""Names of the APIServices that may lead here."""
PORT_NAME: Final = "web"
_SHARED: Final = tuple(f"app.kubernetes.io/{name}" for name in ("name", "instance", "component"))
"""The labels by which the chart selects the replicas' pods."""
_ANSWER_S: Final = 15.0
_STREAM_S: Final = 60.0
"""The longest pause between two pieces of a stream."""
_HANDED_ON: Final = ("Accept-Encoding", "Last-Event-ID", "Content-Type")
_HANDED_BACK: Final = frozenset(
    {
        "Content-Type",
        "Content-Encoding",
        "Cache-Control",
        "Content-Security-Policy",
        "X-Content-Type-Options",
        "Referrer-Policy",
        "Retry-After",
    }
)


class ViewService:
    """Keeps the port serving. ``run`` until cancelled: only a port that is taken (OSError) ends it. ``service``: the
    Service of the port, as the APIServices name it; one that leads elsewhere is left alone.
    """

    def __init__(
        self,
        client: Client,
        server: ViewServer,
        certificates: OwnCertificates,
        service: tuple[str, str],
        *,
        clock: Clock,
        backoff: Backoff,
    ) -> None:
        self._client = client
        self.server = server
        self._certificates = certificates
        self._service = service
        self._clock = clock
        self._rounds = Rounds("the view's port", log, clock=clock, backoff=backoff)
        self._served: Served | None = None
        self._calls: ssl.SSLContext | None = None
        self._proxy: FrontProxy | None = None
        self._said = ""

    async def run(self) -> None:
        try:
            await self._rounds.run(self.round)
        finally:
            await self.server.stop()

    async def round(self) -> float:
        """Brings everything up to date once, and returns the seconds until the next time. Raises KubeError and
        CertificateError.
        """
        served = await self._certificates.current()
        trust = Trust(served.trusted, await self._front_proxy())
        if served != self._served or trust != self.server.trust:
            self.server.door.use(served, trust.bundle)
            self.server.trust = trust
            pair = new_client(self._certificates.authority, REPLICA, self._clock.wall())
            self._calls = calling(pair, served.trusted)
            self._served = served
        if not self.server.serving:
            await self.server.start()
        for name in NAMES:
            await self._inject(name, served.trusted)
        return PERIOD_S

    async def _front_proxy(self) -> FrontProxy | None:
        """The cluster's front proxy; None if there is none, or it may not be read: headers of a proxy do not count
        then.
        """
        namespace, name = AUTHENTICATION
        try:
            found = await self._client.get(CONFIG_MAPS, name, dict, namespace=namespace)
            return front_proxy(found.get("data") or {})
        except NotFoundError:
            return None
        except (ForbiddenError, FrontProxyError) as error:
            if str(error) != self._said:
                log.warning("no front proxy is believed: ConfigMap %s/%s: %s", namespace, name, error)
                self._said = str(error)
            return None

    async def _inject(self, name: str, trusted: bytes) -> None:
        try:
            found = await self._client.get(API_SERVICES, name, dict)
        except NotFoundError:
            return
        patch = bundle_patch(found, self._service, trusted)
        if patch is not None:
            points.before(Failpoint.API_SERVICE_BUNDLE)
            await self._client.merge_patch(API_SERVICES, name, patch, dict)
            points.after(Failpoint.API_SERVICE_BUNDLE)
            log.info("wrote the caBundle of APIService %s", name)

    # -- the replica that leads --------------------------------------------------------------------------------------

    async def ask_leader(
        self,
        path: str,
        user: User | None,
        leader: str | None,
        own_port: int,
        body: bytes | None = None,
        *,
        limit_s: float = _ANSWER_S,
    ) -> tuple[int, bytes]:
        """The leader's answer for the user, or for this replica itself. ``leader``: its holder, in words; ``body``:
        what was sent. Raises RefusedError.
        """
        if leader is None:
            raise RefusedError(503, "no replica leads now: try again", after_s=2.0)
        return await self.ask(holder(leader), path, user, own_port, body, limit_s=limit_s)

    async def ask(
        self,
        pod: str,
        path: str,
        user: User | None,
        own_port: int,
        body: bytes | None = None,
        *,
        limit_s: float = _ANSWER_S,
    ) -> tuple[int, bytes]:
        """The answer of the replica in this pod, for the user or for this replica itself. Raises RefusedError."""
        if self._calls is None:
            raise RefusedError(503, "no replica leads now: try again", after_s=2.0)
        url, name = await self._url(pod, own_port, path)
        connector, timeout = aiohttp.TCPConnector(ssl=self._calls), aiohttp.ClientTimeout(total=limit_s)
        try:
            jar = aiohttp.DummyCookieJar()
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=jar) as session,
                session.request(
                    "GET" if body is None else "POST",
                    url,
                    headers=as_headers(user) if user is not None else (),
                    data=body,
                    server_hostname=name,
                    allow_redirects=False,
                ) as answer,
            ):
                return answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as failed:
            log.warning("the replica that leads cannot be asked: %s", describe(failed))
            raise RefusedError(503, "the replica that leads cannot be asked: try again", after_s=2.0) from None

    async def beside(self, identity: str) -> tuple[str, ...]:
        """The pods of the other replicas, by the labels that they share with the pod of this ``identity``; none where
        it is no pod, or has not these labels. Raises KubeError.
        """
        own = holder(identity)
        try:
            found = await self._client.get(PODS, own, dict, namespace=self._service[0])
        except NotFoundError:
            return ()
        labels = found["metadata"].get("labels", {})
        if not all(name in labels for name in _SHARED):
            return ()
        selector = ",".join(f"{name}={labels[name]}" for name in _SHARED)
        listed = await self._client.list_all(PODS, dict[str, Any], Selection(self._service[0], selector))
        return tuple(sorted({pod["metadata"]["name"] for pod in listed.items} - {own}))

    async def relay(
        self, request: web.Request, path: str, user: User, leader: str | None, own_port: int
    ) -> web.StreamResponse:
        """The leader's answer to the same request, streams too, as it comes. ``path`` consists of names alone.

        Raises RefusedError.
        """
        if leader is None or self._calls is None:
            raise RefusedError(503, "no replica leads now: try again", after_s=2.0)
        url, name = await self._url(holder(leader), own_port, path)
        handed_on = [(key, value) for key in _HANDED_ON if (value := request.headers.get(key)) is not None]
        connector, timeout = aiohttp.TCPConnector(ssl=self._calls), aiohttp.ClientTimeout(sock_read=_STREAM_S)
        jar, response = aiohttp.DummyCookieJar(), None
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector, timeout=timeout, cookie_jar=jar, auto_decompress=False
                ) as session,
                session.request(
                    request.method,
                    url,
                    params=request.query,
                    headers=[*as_headers(user), *handed_on],
                    data=request.content if request.body_exists else None,
                    server_hostname=name,
                    allow_redirects=False,
                ) as answer,
            ):
                headers = {key: value for key, value in answer.headers.items() if key in _HANDED_BACK}
                response = web.StreamResponse(status=answer.status, headers=headers)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    async with asyncio.timeout(_ANSWER_S):
                        await response.write(chunk)
                return response
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as failed:
            log.info("the replica that leads answers no more: %s", describe(failed))
            if response is None:
                raise RefusedError(503, "the replica that leads cannot be asked: try again", after_s=2.0) from None
            if request.transport is not None:
                request.transport.abort()
            return response

    async def _url(self, pod: str, own_port: int, path: str) -> tuple[str, str]:
        """The URL of the path at the replica in this pod, and the name in its certificate."""
        host, port = await self._where(pod, own_port)
        url = f"https://[{host}]:{port}{path}" if ":" in host else f"https://{host}:{port}{path}"
        return url, f"{self._service[1]}.{self._service[0]}.svc"

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """Keys that the replicas share, the present one first; empty before they were read."""
        return tuple(pair.key for pair in self._certificates.authorities) if self._served is not None else ()

    async def _where(self, pod: str, own_port: int) -> tuple[str, int]:
        try:
            pod_json = await self._client.get(PODS, pod, dict, namespace=self._service[0])
        except NotFoundError:
            raise RefusedError(503, "the replica that leads is not there: try again", after_s=2.0) from None
        ports = [port for each in pod_json["spec"].get("containers", ()) for port in each.get("ports", ())]
        port = next((each["containerPort"] for each in ports if each.get("name") == PORT_NAME), own_port)
        host = pod_json.get("status", {}).get("podIP")
        if not host:
            raise RefusedError(503, "the replica that leads has no address yet: try again", after_s=2.0)
        return str(host), int(port)


def bundle_patch(found: dict[str, Any], service: tuple[str, str], trusted: bytes) -> dict[str, Any] | None:
    """The merge patch for an APIService of this controller; None if it is up to date, or leads elsewhere."""
    spec = found.get("spec") or {}
    there, bundle = spec.get("service") or {}, b64encode(trusted).decode()
    if (there.get("namespace"), there.get("name")) != service or spec.get("caBundle") == bundle:
        return None
    version = found["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version}, "spec": {"caBundle": bundle}}


def holder(said: str) -> str:
    """The name of the Pod in ``held by <pod>_<random>``, or in the identity alone."""
    identity = said.rpartition("held by ")[2].split(" ", 1)[0]
    return identity.rsplit("_", 1)[0]
