"""What the controller's log says of peers that break off, at each of its ports and by its own configuration."""

import io
import ssl
import sys
import time

import pytest
from aiohttp import web

from controller.cluster.config.settings import Address
from controller.cluster.process.server import Listener
from controller.cluster.webhooks.apart.server_shell import WebhookServer
from controller.cluster.webhooks.certificates import new_authority, new_serving
from controller.cluster.webhooks.tls import Served
from controller.main import _configure_logging
from tests.controller.people.visibility.test_server import served
from tests.support.brokenpeers import Target, claim_one_line
from tests.support.controller.viewworld import SERVED_AS

LARGE = b"x" * 30_000_000


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """All that goes to stderr, debug lines too."""
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    _configure_logging("debug")
    return stderr


async def test_a_peer_of_metrics_and_probes_that_breaks_off_is_one_line_at_debug(log: io.StringIO) -> None:
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=LARGE)

    listener = Listener(Address("127.0.0.1", 0))
    listener.routes["/metrics"] = metrics
    await listener.start()
    try:
        await claim_one_line(Target(listener.port, "/metrics", "/metrics"), log.getvalue)
    finally:
        await listener.stop()


async def test_a_peer_of_webhooks_that_breaks_off_is_one_line_at_debug(log: io.StringIO) -> None:
    authority = new_authority(time.time())
    serving = new_serving(authority, ["localhost"], time.time())
    server = WebhookServer(host="127.0.0.1", port=0)
    await server.use(Served(serving.certificate, serving.key, authority.certificate))
    await server.start()
    tls = ssl.create_default_context(cadata=authority.certificate.decode())
    try:
        await claim_one_line(Target(server.port, "/healthz", "/mutate-job", tls), log.getvalue)
    finally:
        await server.stop()


async def test_a_peer_of_the_view_that_breaks_off_is_one_line_at_debug(log: io.StringIO) -> None:
    async with served() as scene:
        scene.server._documents["/apis"] = LARGE
        token = "Authorization: Bearer secret-token\r\n"
        target = Target(scene.server.port, "/apis", "/apis/x", scene.tls(), SERVED_AS, token)
        await claim_one_line(target, log.getvalue)
