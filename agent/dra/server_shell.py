"""The driver's sockets: registration for the kubelet's plugin watcher, and the services that it then calls.

    <kubelet>/plugins_registry/<driver>-<n>-reg.sock   Registration: who the driver is and where its socket is
    <kubelet>/plugins/<driver>/dra-<n>.sock            DRAPlugin v1 and v1beta1, DRAResourceHealth v1 and v1alpha1

n is drawn, so that two agents can overlap while one replaces the other: the kubelet calls the one that registered last.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import grpc.aio
from msgspec import Struct

from agent.dra.answer import cdi_id
from agent.dra.claim import Ref
from agent.dra.ledger import GivenDevice
from deviceplugin.kubelet import SocketIdentity, identify, stands
from deviceplugin.server import MAX_REQUEST_BYTES, STOP_GRACE_S, bind_socket
from kubeletapi import dra_v1_pb2 as v1
from kubeletapi import dra_v1_pb2_grpc as v1_grpc
from kubeletapi import dra_v1beta1_pb2 as beta
from kubeletapi import dra_v1beta1_pb2_grpc as beta_grpc
from kubeletapi import drahealth_v1alpha1_pb2 as health
from kubeletapi import drahealth_v1alpha1_pb2_grpc as health_grpc
from kubeletapi import pluginregistration_v1_pb2 as registration
from kubeletapi import pluginregistration_v1_pb2_grpc as registration_grpc

log = logging.getLogger(__name__)

REGISTRATION_SOCKET: Final = "{}-{}-reg.sock"
"""The name of the registration socket, from the driver's name and a number."""
PLUGIN_SOCKET: Final = "dra-{}.sock"
PLUGIN_TYPE: Final = "DRAPlugin"
HEALTH_SERVICE: Final = "v1.DRAResourceHealth"
"""The health service of kubelets since 1.37. The messages are those of v1alpha1, which ends with 1.39."""
SERVICES: Final = ("v1.DRAPlugin", "v1beta1.DRAPlugin", HEALTH_SERVICE, "v1alpha1.DRAResourceHealth")
"""Names of services, not versions. The kubelet takes the first plugin and the newest health that it knows."""
HEALTH_INTERVAL_S: Final = 10.0
HEALTH_TIMEOUT_S: Final = 30
"""The seconds without news after which the kubelet calls a device's health unknown."""


class DeviceState(Struct, frozen=True):
    """The health of one device: ``message`` says what is wrong, empty where nothing is."""

    pool: str
    device: str
    healthy: bool
    message: str = ""


class ClaimAnswer(Struct, frozen=True):
    """The kubelet's answer for one claim: its devices, or one line of what is wrong."""

    devices: tuple[GivenDevice, ...] = ()
    error: str = ""


class Claims(Protocol):
    """Prepares claims and gives them back. Each method answers for every claim that it was asked about."""

    async def prepare(self, refs: Sequence[Ref]) -> Mapping[str, ClaimAnswer]: ...

    async def unprepare(self, refs: Sequence[Ref]) -> Mapping[str, str]:
        """Give the claims back; for each one line of what is wrong, empty where it is given back."""

    def health(self) -> tuple[DeviceState, ...]: ...


def _refs(claims: Sequence[Any]) -> list[Ref]:
    return [Ref(claim.namespace, claim.name, claim.uid) for claim in claims]


async def _prepared(driver: str, claims: Claims, request: Any, pb: Any, *, shares: bool) -> Any:
    """The answer to NodePrepareResources in the messages of ``pb``. ``shares``: that version's devices have a share."""
    answers = await claims.prepare(_refs(request.claims))
    return pb.NodePrepareResourcesResponse(
        claims={
            uid: pb.NodePrepareResourceResponse(
                devices=[
                    pb.Device(
                        request_names=[device.request],
                        pool_name=device.pool,
                        device_name=device.device,
                        cdi_device_ids=[cdi_id(driver, uid, device)],
                        **({"share_id": device.share_id} if shares and device.share_id else {}),
                    )
                    for device in answer.devices
                ],
                error=answer.error,
            )
            for uid, answer in answers.items()
        }
    )


async def _given_back(claims: Claims, request: Any, pb: Any) -> Any:
    """The answer to NodeUnprepareResources in the messages of ``pb``."""
    answers = await claims.unprepare(_refs(request.claims))
    return pb.NodeUnprepareResourcesResponse(
        claims={uid: pb.NodeUnprepareResourceResponse(error=error) for uid, error in answers.items()}
    )


class _PluginV1(v1_grpc.DRAPluginServicer):
    def __init__(self, driver: str, claims: Claims) -> None:
        self._driver = driver
        self._claims = claims

    async def NodePrepareResources(self, request: v1.NodePrepareResourcesRequest, context: object) -> Any:
        return await _prepared(self._driver, self._claims, request, v1, shares=True)

    async def NodeUnprepareResources(self, request: v1.NodeUnprepareResourcesRequest, context: object) -> Any:
        return await _given_back(self._claims, request, v1)


class _PluginBeta(beta_grpc.DRAPluginServicer):
    """The plugin's calls for a kubelet before 1.34; devices of that version have no share."""

    def __init__(self, driver: str, claims: Claims) -> None:
        self._driver = driver
        self._claims = claims

    async def NodePrepareResources(self, request: beta.NodePrepareResourcesRequest, context: object) -> Any:
        return await _prepared(self._driver, self._claims, request, beta, shares=False)

    async def NodeUnprepareResources(self, request: beta.NodeUnprepareResourcesRequest, context: object) -> Any:
        return await _given_back(self._claims, request, beta)


class _Health(health_grpc.DRAResourceHealthServicer):
    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._changed = asyncio.Event()
        self._closing = False

    def tell(self) -> None:
        """Send every stream the present list of devices."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def close(self) -> None:
        self._closing = True
        self.tell()

    async def NodeWatchResources(
        self, request: health.NodeWatchResourcesRequest, context: object
    ) -> AsyncIterator[health.NodeWatchResourcesResponse]:
        while not self._closing:
            changed = self._changed
            yield health.NodeWatchResourcesResponse(devices=[self._message(state) for state in self._claims.health()])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEALTH_INTERVAL_S):
                    await changed.wait()

    @staticmethod
    def _message(state: DeviceState) -> health.DeviceHealth:
        return health.DeviceHealth(
            device=health.DeviceIdentifier(pool_name=state.pool, device_name=state.device),
            health=health.HEALTHY if state.healthy else health.UNHEALTHY,
            last_updated_time=int(time.time()),
            health_check_timeout_seconds=HEALTH_TIMEOUT_S,
            message=state.message,
        )


def _health_v1(served: _Health) -> grpc.GenericRpcHandler:
    watch = grpc.unary_stream_rpc_method_handler(
        served.NodeWatchResources,
        request_deserializer=health.NodeWatchResourcesRequest.FromString,
        response_serializer=health.NodeWatchResourcesResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(HEALTH_SERVICE, {"NodeWatchResources": watch})


class _Registration(registration_grpc.RegistrationServicer):
    def __init__(self, driver: str, endpoint: Path, told: Callable[[str], None]) -> None:
        self._driver = driver
        self._endpoint = endpoint
        self._told = told

    async def GetInfo(self, request: registration.InfoRequest, context: object) -> registration.PluginInfo:
        return registration.PluginInfo(
            type=PLUGIN_TYPE, name=self._driver, endpoint=str(self._endpoint), supported_versions=SERVICES
        )

    async def NotifyRegistrationStatus(
        self, request: registration.RegistrationStatus, context: object
    ) -> registration.RegistrationStatusResponse:
        self._told("" if request.plugin_registered else request.error or "the kubelet gave no reason")
        return registration.RegistrationStatusResponse()


class DraServer:
    """Both sockets of one driver, from ``start`` to ``stop``. ``told`` gets the result of each registration: "" where
    it succeeded, else the kubelet's reason.
    """

    def __init__(self, driver: str, claims: Claims, told: Callable[[str], None]) -> None:
        self._driver = driver
        self._claims = claims
        self._told = told
        self._health = _Health(claims)
        self._servers: list[grpc.aio.Server] = []
        self._sockets: dict[Path, SocketIdentity | None] = {}

    async def start(self, plugins: Path, registry: Path) -> None:
        """Serve below ``plugins``, then show the kubelet a socket in ``registry``. Raises OSError."""
        folder = plugins / self._driver
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        plugin = _server()
        v1_grpc.add_DRAPluginServicer_to_server(_PluginV1(self._driver, self._claims), plugin)
        beta_grpc.add_DRAPluginServicer_to_server(_PluginBeta(self._driver, self._claims), plugin)
        health_grpc.add_DRAResourceHealthServicer_to_server(self._health, plugin)
        plugin.add_generic_rpc_handlers((_health_v1(self._health),))
        endpoint = await self._serve(plugin, folder, PLUGIN_SOCKET)
        registrar = _server()
        registration_grpc.add_RegistrationServicer_to_server(
            _Registration(self._driver, endpoint, self._told), registrar
        )
        await self._serve(registrar, registry, REGISTRATION_SOCKET.format(self._driver, "{}"))
        log.info("serving claims", extra={"driver": self._driver, "socket": endpoint.name})

    async def _serve(self, server: grpc.aio.Server, folder: Path, name: str) -> Path:
        socket = bind_socket(server, folder, name)
        self._servers.append(server)
        await server.start()
        self._sockets[socket] = identify(socket)
        return socket

    @property
    def intact(self) -> bool:
        """Whether both sockets are where they were: a folder may have been swept, even as they were made."""
        return all(stands(path, known) for path, known in self._sockets.items())

    def tell(self) -> None:
        """Send the changed health to the kubelet."""
        self._health.tell()

    async def stop(self) -> None:
        """Stop serving; the registration socket goes first, so that the kubelet calls no socket that is gone."""
        self._health.close()
        stopping: list[Awaitable[None]] = [server.stop(STOP_GRACE_S) for server in reversed(self._servers)]
        for path in reversed(self._sockets):
            path.unlink(missing_ok=True)
        await asyncio.gather(*stopping)
        self._servers, self._sockets = [], {}


def _server() -> grpc.aio.Server:
    return grpc.aio.server(options=[("grpc.max_receive_message_length", MAX_REQUEST_BYTES)])
