"""A front proxy before the controller's port, as the API server's aggregation layer is one."""

import ssl
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from controller.cluster.process.process import Process
from controller.cluster.webhooks.certificates import Pair, new_authority, new_client
from controller.people.visibility.identity import User, as_headers
from controller.people.visibility.service_shell import AUTHENTICATION, CONFIG_MAPS
from controller.people.visibility.tls import calling
from kube.testing import FakeApiServer, eventually

PERSON = User("person", groups=("people", "system:authenticated"))
NAME = "front-proxy-client"
SERVED_AS = "tessera-controller.tessera-system.svc"


@dataclass
class FrontProxyWorld:
    """``authority`` signs the certificate that it shows; the cluster's ConfigMap says so once ``installed``."""

    authority: Pair = field(default_factory=lambda: new_authority(time.time()))

    def install(self, server: FakeApiServer, *, names: str = f'["{NAME}"]') -> None:
        namespace, name = AUTHENTICATION
        data = {
            "requestheader-client-ca-file": self.authority.certificate.decode(),
            "requestheader-allowed-names": names,
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        }
        server.create(CONFIG_MAPS, name, {"metadata": {}, "data": data}, namespace=namespace)

    def shows(self, trusted: bytes, *, name: str = NAME, authority: Pair | None = None) -> ssl.SSLContext:
        """The TLS context of a client with a certificate of this ``name``."""
        return calling(new_client(authority or self.authority, name, time.time()), trusted)


def trusted(process: Process) -> bytes:
    assert process.view is not None
    return process.view.server.trust.own


async def until_served(process: Process) -> int:
    """The port of the view."""
    await eventually(lambda: process.view is not None and process.view.server.serving, what="the view served")
    assert process.view is not None
    return process.view.server.port


async def asked(
    port: int, path: str, tls: ssl.SSLContext, *, method: str = "GET", user: User | None = None, **options: Any
) -> tuple[int, bytes]:
    """Status and body. ``user``: in the headers of a front proxy."""
    headers = [*options.pop("headers", ()), *(as_headers(user) if user is not None else ())]
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session,
        session.request(
            method, f"https://127.0.0.1:{port}{path}", headers=headers, server_hostname=SERVED_AS, **options
        ) as answer,
    ):
        return answer.status, await answer.read()
