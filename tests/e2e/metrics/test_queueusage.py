"""A real Prometheus answers what KAI's Queues had before, from the series that the controller serves."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from controller.cluster.config.load import parse
from controller.cluster.config.settings import UsageSource
from controller.foreign.usage.queueusage import UsageAnswerError, queries, usage
from controller.scheduler.model.config import QueueUsage
from controller.scheduler.model.cron import cron
from hack import prometheus
from kube.prometheus import Prometheus
from tests.support.e2e.lab import until

pytestmark = pytest.mark.e2e

CONFIG = """apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
tessera: {kai: {usage: {clientType: prometheus, connectionString: "http://127.0.0.1", queryResolution: 1s}}}
"""
PAGE = b"""tessera_queue_capacity{resource="nvidia.com/gpu",replica_role="leader"} 8
tessera_queue_capacity{resource="cpu",replica_role="leader"} 64
tessera_queue_allocated{queue_name="a",resource="nvidia.com/gpu",replica_role="leader"} 6
tessera_queue_allocated{queue_name="a",resource="cpu",replica_role="leader"} 16
tessera_queue_allocated{queue_name="b",resource="nvidia.com/gpu",replica_role="leader"} 0
"""
WANTED = {"a": {"nvidia.com/gpu": 0.75, "cpu": 0.25}, "b": {"nvidia.com/gpu": 0.0}}


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def url(page: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    prometheus.ensure()
    folder = tmp_path_factory.mktemp("prometheus")
    with prometheus.Prometheus(folder, [page]).running(os.environ) as one:
        yield f"http://127.0.0.1:{one.port}"


@pytest.mark.parametrize(
    "rules",
    [
        QueueUsage(window_s=3600.0),
        QueueUsage(window_s=3600.0, half_life_s=60.0),
        QueueUsage(window_s=3600.0, cron=cron("0 * * * *")),
    ],
    ids=["sliding", "halved", "cron"],
)
def test_it_measures_what_each_queue_had(url: str, rules: QueueUsage) -> None:
    source = parse(CONFIG).usage_source
    assert source is not None

    def measured() -> bool:
        try:
            found = usage(asked(source, rules, url))
        except UsageAnswerError:
            return False
        rounded = {
            name: {resource: round(part, 6) for resource, part in parts.items()} for name, parts in found.items()
        }
        return rounded == WANTED

    until(measured, f"{WANTED}, and no memory, of which there is none")


def asked(source: UsageSource, rules: QueueUsage, url: str) -> Any:
    client = Prometheus(url, timeout_s=source.timeout_s)
    return asyncio.run(client.ask(queries(source, rules, time.time())))
