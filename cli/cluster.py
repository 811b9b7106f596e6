"""The cluster as the command line reaches it: the API server by kubeconfig, and the controller through it.

--server URL                                  asked as it is, without credentials
else the API server's proxy to the Service, and from a replica that does not lead on to the Pod that does
"""

import asyncio
import functools
import os
import re
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec
from urllib.parse import quote, urlencode

import aiohttp
import click
import msgspec

from cli.console import Json, patience
from kube.client import Client, describe
from kube.config import ClusterConfig, TokenSource
from kube.errors import ConfigError, KubeError, NotFoundError, UnavailableError
from kube.kubeconfig import from_kubeconfig
from kube.resources import PODS

P = ParamSpec("P")

SERVICE = "tessera-system/tessera-controller"
PORT_NAME = "web"
PORT = 8082
TIMEOUT_S = 10.0
_UNAVAILABLE = 503
_OK = 200
_MISSING = 404
_UNAUTHORIZED = 401


class UnreachableError(Exception):
    """No controller answered, nor the API server for it. One line."""


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """The options that locate the controller and the API server; ``context`` None is the kubeconfig's current one."""

    kubeconfig: Path
    context: str | None
    server: str | None
    controller: str
    config: Path | None
    offline: bool

    def cluster(self) -> ClusterConfig:
        """Raises click.ClickException."""
        if not self.kubeconfig.exists():
            hint = "expected a kubeconfig file (--kubeconfig, or $KUBECONFIG)"
            raise click.ClickException(f"{self.kubeconfig}: found no such file, {hint}")
        try:
            return _logged_in(self.kubeconfig, self.context)
        except ConfigError as wrong:
            raise click.ClickException(str(wrong)) from None


@functools.cache
def _logged_in(kubeconfig: Path, context: str | None) -> ClusterConfig:
    """Read once a command: a login plugin asks the person once."""
    return from_kubeconfig(kubeconfig, context=context, logins=True)


def _service(_: click.Context, __: click.Parameter, value: str) -> str:
    namespace, slash, name = value.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.BadParameter(f"found {value!r}, expected NAMESPACE/SERVICE")
    return value


def _url(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.match(r"https?://[^/]", value):
        raise click.BadParameter(f"found {value!r}, expected http://HOST:PORT or https://HOST")
    return value


def _default_kubeconfig() -> str:
    """The first file of $KUBECONFIG, as kubectl writes to it, else ~/.kube/config."""
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    return named[0] if named else str(Path.home() / ".kube" / "config")


_KUBECONFIG = click.option(
    "--kubeconfig", type=click.Path(path_type=Path), default=_default_kubeconfig, help="The API server."
)
_CONTEXT = click.option("--context", help="A context of the kubeconfig file; without it the current one.")
_SERVER = click.option(
    "--server", envvar="TESSERA_SERVER", callback=_url, help="URL of the controller's web address; else its Service."
)
_CONTROLLER = click.option(
    "--controller",
    envvar="TESSERA_CONTROLLER",
    default=SERVICE,
    callback=_service,
    show_default=True,
    help="Its NAMESPACE/SERVICE.",
)
_CONFIG = click.option(
    "--config", type=click.Path(path_type=Path), help="--offline: the configuration; else the cluster's."
)
_OFFLINE = click.option(
    "--offline", is_flag=True, help="Do not ask the controller: compute from the API server's objects."
)


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """``where``: a ``Where`` of the options that say how the cluster is reached."""

    @_KUBECONFIG
    @_CONTEXT
    @_SERVER
    @_CONTROLLER
    @_CONFIG
    @_OFFLINE
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        kubeconfig: Path,
        context: str | None,
        server: str | None,
        controller: str,
        config: Path | None,
        offline: bool,
        **others: Any,
    ) -> None:
        where = Where(
            kubeconfig=kubeconfig,
            context=context,
            server=server,
            controller=controller,
            config=config,
            offline=offline,
        )
        command(*args, where=where, **others)

    return wrapped


def api_options(command: Callable[..., None]) -> Callable[..., None]:
    """As ``cluster_options``, for a command that asks no controller."""

    @_KUBECONFIG
    @_CONTEXT
    @_CONTROLLER
    @click.option("--config", type=click.Path(path_type=Path), help="The configuration; else the cluster's.")
    @functools.wraps(command)
    def wrapped(
        *args: Any, kubeconfig: Path, context: str | None, controller: str, config: Path | None, **others: Any
    ) -> None:
        where = Where(
            kubeconfig=kubeconfig, context=context, server=None, controller=controller, config=config, offline=True
        )
        command(*args, where=where, **others)

    return wrapped


def run(work: Coroutine[Any, Any, None]) -> None:
    """The command's work, its failures as one line."""

    async def patiently() -> None:
        async with patience(lambda: "waiting for the API server"):
            await work

    try:
        asyncio.run(patiently())
    except KubeError as failed:
        raise click.ClickException(_told(failed)) from None


def _told(failed: KubeError) -> str:
    if isinstance(failed, UnavailableError) and failed.status is None:
        return f"the API server cannot be reached: {failed}"
    if is_kind_missing(failed):
        what = str(failed).partition(": ")[0]
        return f"{what}: this cluster does not have the kind: are Tessera's CRDs installed (docs/install.md)?"
    if failed.status == _UNAUTHORIZED:
        return f"{failed}: expected credentials in the kubeconfig that the API server takes"
    return str(failed)


def is_kind_missing(failed: KubeError) -> bool:
    """A kind that is not installed is answered without a Status object, unlike an object that is not there."""
    return isinstance(failed, NotFoundError) and not failed.reason


class Controller:
    """The controller's read-only answers (see ``controller.explain``).

    ``_base`` is None until a replica has named the leader; then it is the proxy of the leader's Pod, and every later
    call of this command goes there.
    """

    def __init__(self, where: Where, cluster: ClusterConfig | None, client: Client | None) -> None:
        self._where = where
        self._cluster = cluster
        self._client = client
        self._base: str | None = None

    async def ask(self, resource: str, **query: str | int) -> Json | None:
        """The answer to ``/api/v1/<resource>``; None for what it does not know. Raises UnreachableError."""
        path = f"/api/v1/{resource}" + (f"?{urlencode(query)}" if query else "")
        status, body = await self._get(self._base or self._first(), path)
        leader = body.get("leader")
        if status == _UNAVAILABLE and self._base is None and isinstance(leader, str) and self._cluster is not None:
            self._base = await self._pod(_holder(leader))
            status, body = await self._get(self._base, path)
        if status == _MISSING and "error" in body:
            return None
        if status != _OK:
            raise UnreachableError(f"it answered {status}: {str(body.get('error') or body.get('message'))[:240]}")
        return body

    def _first(self) -> str:
        if self._where.server is not None:
            return self._where.server.rstrip("/")
        namespace, _, name = self._where.controller.partition("/")
        return self._proxy(namespace, "services", f"{name}:{PORT_NAME}")

    def _proxy(self, namespace: str, kind: str, name: str) -> str:
        if self._cluster is None:
            raise UnreachableError("there is no API server to reach it through")
        return f"{self._cluster.server.rstrip('/')}/api/v1/namespaces/{quote(namespace)}/{kind}/{quote(name)}/proxy"

    async def _pod(self, name: str) -> str:
        """The proxy of the replica that leads: its identity begins with its Pod's name."""
        namespace = self._where.controller.partition("/")[0]
        if self._client is None or self._where.server is not None:
            raise UnreachableError(f"{name} leads, not the replica that was asked")
        try:
            pod = await self._client.get(PODS, name, Json, namespace=namespace)
        except KubeError as failed:
            raise UnreachableError(f"{name} leads: {failed}") from None
        containers = pod.get("spec", {}).get("containers", [])
        ports = [port for container in containers for port in container.get("ports", [])]
        port = next((each["containerPort"] for each in ports if each.get("name") == PORT_NAME), PORT)
        return self._proxy(namespace, "pods", f"{name}:{port}")

    async def _get(self, base: str, path: str) -> tuple[int, Json]:
        cluster = self._cluster if self._cluster is not None and base.startswith(self._cluster.server) else None
        token = TokenSource(cluster, monotonic=time.monotonic).token() if cluster is not None else None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        tls = cluster.ssl_context() if cluster is not None else None
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            connector = aiohttp.TCPConnector(ssl=tls or True)
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.get(base + path, headers=headers) as answer,
            ):
                return answer.status, _object(await answer.read())
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as failed:
            raise UnreachableError(f"{base}: {describe(failed)}") from None


def _holder(said: str) -> str:
    """The Pod in ``held by <pod>_<random>``."""
    identity = said.rpartition("held by ")[2].split(" ", 1)[0]
    return identity.rsplit("_", 1)[0]


def _object(raw: bytes) -> Json:
    """A JSON object; any other body becomes its message."""
    try:
        return msgspec.json.decode(raw, type=Json)
    except (msgspec.DecodeError, UnicodeError):
        return {"message": raw[:120].decode(errors="replace")}


async def named_config(client: Client, where: Where) -> str | None:
    """The text of the controller's configuration as the cluster has it; None where it cannot be read."""
    from kube.resources import Resource

    namespace, _, name = where.controller.partition("/")
    maps = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
    try:
        found = await client.get(maps, name, Json, namespace=namespace)
    except (NotFoundError, KubeError):
        return None
    text = (found.get("data") or {}).get("controller.yaml")
    return text if isinstance(text, str) else None
