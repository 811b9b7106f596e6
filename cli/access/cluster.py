"""The cluster as the command line reaches it: the API server by kubeconfig, and the controller through it.

The API server's aggregation layer leads to the controller, so that RBAC decides; ``--server URL`` names an address that
is asked directly, with the kubeconfig's token.
"""

import asyncio
import functools
import re
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, ParamSpec
from urllib.parse import urlsplit

import click
import msgspec

from cli.naming.suggestions import contexts
from cli.options import default_kubeconfigs
from cli.printing.console import Json, patience
from cli.words import given, servers
from inventory.api.names import VIEW_GROUP, VIEW_VERSION
from kube.client import Client
from kube.config import ClusterConfig
from kube.errors import ConfigError, InvalidError, KubeError, NotFoundError, UnavailableError
from kube.logins import logged_in
from kube.resources import Resource
from yamlfile.parsers import HTTP_URL, Unfit

P = ParamSpec("P")

SERVICE = "tessera-system/tessera-controller"
QUEUE_VIEWS = Resource(VIEW_GROUP, VIEW_VERSION, "queueviews", "QueueView")
FORECASTS = Resource(VIEW_GROUP, VIEW_VERSION, "forecasts", "Forecast", namespaced=True)
WORKLOAD_VIEWS = Resource(VIEW_GROUP, VIEW_VERSION, "workloadviews", "WorkloadView", namespaced=True)
TIMEOUT_S = 10.0
_UNAUTHORIZED = 401
_PASSWORD = re.compile(r"//[^/]*@")


class UnreachableError(Exception):
    """No controller answered, or none may answer this account; one line."""


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """The options that locate the controller and the API server; ``context`` None is the current one.

    ``kubeconfigs``: files that count as one, the first before the others.
    """

    kubeconfigs: tuple[Path, ...]
    context: str | None
    server: str | None
    controller: str
    config: Path | None
    offline: bool

    def cluster(self) -> ClusterConfig:
        """The configuration of the API server's client. Raises click.ClickException."""
        missing = next((path for path in self.kubeconfigs if not path.exists()), None)
        if missing is not None:
            raise click.ClickException(given.no_kubeconfig(missing))
        try:
            return _logged_in(self.kubeconfigs, self.context)
        except ConfigError as wrong:
            raise click.ClickException(str(wrong)) from None


@functools.cache
def _logged_in(kubeconfigs: tuple[Path, ...], context: str | None) -> ClusterConfig:
    """The configuration, read once in a command: a login plugin asks the person once."""
    return logged_in(*kubeconfigs, context=context)


def _service(_: click.Context, __: click.Parameter, value: str) -> str:
    namespace, slash, name = value.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.BadParameter(given.bad_service(value))
    return value


def _url(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        HTTP_URL.convert(value)
        parts = urlsplit(value)
        fits = parts.scheme == "https" and parts.username is None
    except Unfit:
        fits = False
    if not fits:
        # A password in the value would be shown in the terminal.
        raise click.BadParameter(given.bad_server(_PASSWORD.sub("//", value)))
    return value


def _files(_: click.Context, __: click.Parameter, value: Path | None) -> tuple[Path, ...]:
    return default_kubeconfigs() if value is None else (value,)


KUBECONFIG_OPTION = click.option(
    "--kubeconfig",
    "kubeconfigs",
    type=click.Path(path_type=Path),
    callback=_files,
    help="The kubeconfig file: the API server, and who asks.",
)
CONTEXT_OPTION = click.option(
    "--context", help="A context of the kubeconfig file; without it the current one.", shell_complete=contexts
)
_SERVER = click.option(
    "--server",
    envvar="TESSERA_SERVER",
    callback=_url,
    help="https URL of its web address; else by the API server.",
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
    """A decorator that gives the command ``where``: a ``Where`` from the options that say how the cluster is
    reached.
    """

    @KUBECONFIG_OPTION
    @CONTEXT_OPTION
    @_SERVER
    @_CONTROLLER
    @_CONFIG
    @_OFFLINE
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        kubeconfigs: tuple[Path, ...],
        context: str | None,
        server: str | None,
        controller: str,
        config: Path | None,
        offline: bool,
        **others: Any,
    ) -> None:
        where = Where(
            kubeconfigs=kubeconfigs,
            context=context,
            server=server,
            controller=controller,
            config=config,
            offline=offline,
        )
        command(*args, where=where, **others)

    return wrapped


def api_options(command: Callable[..., None]) -> Callable[..., None]:
    """Like ``cluster_options``, for a command that asks no controller."""

    @KUBECONFIG_OPTION
    @CONTEXT_OPTION
    @_CONTROLLER
    @click.option("--config", type=click.Path(path_type=Path), help="The configuration; else the cluster's.")
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        kubeconfigs: tuple[Path, ...],
        context: str | None,
        controller: str,
        config: Path | None,
        **others: Any,
    ) -> None:
        where = Where(
            kubeconfigs=kubeconfigs, context=context, server=None, controller=controller, config=config, offline=True
        )
        command(*args, where=where, **others)

    return wrapped


def awaited() -> str:
    """The default text for what a command waits for."""
    return "waiting for the API server"


def run(work: Coroutine[Any, Any, None], *, patiently: bool = True) -> None:
    """Run the command's work, with failures as one line. ``patiently``: after a while a note says what it waits for."""

    async def waited() -> None:
        async with patience(awaited):
            await work

    try:
        asyncio.run(waited() if patiently else work)
    except KubeError as failed:
        raise click.ClickException(told(failed)) from None
    except ConfigError as wrong:  # certificates that TLS cannot use
        raise click.ClickException(str(wrong)) from None


def told(failed: KubeError) -> str:
    """The sentence that tells a person of the failure."""
    if isinstance(failed, UnavailableError) and failed.status is None:
        return servers.no_api_server(str(failed))
    if is_kind_missing(failed):
        return servers.kind_missing(str(failed).partition(": ")[0])
    if failed.status == _UNAUTHORIZED:
        return servers.not_let_in(str(failed))
    return str(failed)


def is_kind_missing(failed: KubeError) -> bool:
    """Whether the kind is missing: a kind that is not installed is answered without a Status object, unlike an object
    that does not exist.
    """
    return isinstance(failed, NotFoundError) and not failed.reason


class Controller:
    """The controller's API (``controller.people.visibility``), with the rights and the credentials of the caller."""

    def __init__(self, where: Where, cluster: ClusterConfig, client: Client) -> None:
        self._where = where
        self._cluster = cluster
        self._client = client

    async def ask(self, resource: str, **query: str | int) -> Json | None:
        """Ask for ``queues``, ``pending`` of a ``clusterQueue``, ``explain`` of a ``workload`` by its key, or
        ``version``.

        Returns None for an object that the controller does not know. Raises UnreachableError.
        """
        try:
            if self._where.server is None:
                return await _asked(self._client, resource, query)
            async with Client(self._direct(self._where.server), timeout_s=TIMEOUT_S) as client:
                return await _asked(client, resource, query)
        except NotFoundError as failed:
            if is_kind_missing(failed):
                raise UnreachableError(servers.views_not_served(VIEW_GROUP)) from None
            return None
        except KubeError as failed:
            raise UnreachableError(str(failed)) from None

    async def forecast(self, manifest: Json, namespace: str) -> Json:
        """A forecast for the object. Raises UnreachableError, also where the object is not a job."""
        body = {"apiVersion": FORECASTS.api_version, "kind": FORECASTS.kind, "spec": {"manifest": manifest}}
        try:
            found = await self._client.create(FORECASTS, body, Json, namespace=namespace)
        except KubeError as failed:
            raise UnreachableError(_no_forecast(failed)) from None
        status: Json = found["status"]
        return status

    def _direct(self, url: str) -> ClusterConfig:
        """The configuration for ``url``. The token is sent; the certificate and the authority are for the API server
        alone.
        """
        return ClusterConfig(server=url.rstrip("/"), token=self._cluster.token, token_file=self._cluster.token_file)


def _no_forecast(failed: KubeError) -> str:
    """The sentence about a refused object, alone: its path begins at the manifest, which the caller gave."""
    if isinstance(failed, NotFoundError):
        return servers.views_not_served(VIEW_GROUP)
    if isinstance(failed, InvalidError):
        return str(failed).partition(f": {failed.status} ")[2].removeprefix("spec.manifest: ")
    return told(failed)


async def _asked(client: Client, resource: str, query: Mapping[str, str | int]) -> Json:
    if resource == "version":
        # The version stands in its API's description, which every account may read.
        described = await client.document(f"/openapi/v3/apis/{VIEW_GROUP}/{VIEW_VERSION}", Json)
        return {"version": described["info"]["version"]}
    if resource == "queues":
        listed = await client.list_all(QUEUE_VIEWS, Json)
        return {"clusterQueues": [each["status"] for each in listed.items]}
    if resource == "pending":
        params = {key: str(value) for key, value in query.items() if key != "clusterQueue"}
        name = str(query["clusterQueue"])
        answer = await client.get(QUEUE_VIEWS, name, Json, subresource="pending", params=params)
    else:
        namespace, _, name = str(query["workload"]).partition("/")
        answer = await client.get(WORKLOAD_VIEWS, name, Json, namespace=namespace)
    status: Json = answer["status"]
    return status


async def named_config(client: Client, where: Where) -> str | None:
    """The text of the controller's configuration as the cluster has it; None where it cannot be read."""
    namespace, _, name = where.controller.partition("/")
    maps = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
    try:
        found = await client.get(maps, name, Json, namespace=namespace)
    except (NotFoundError, KubeError):
        return None
    text = (found.get("data") or {}).get("controller.yaml")
    return text if isinstance(text, str) else None
