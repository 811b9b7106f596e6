"""Prometheus' HTTP API on a port of its own: a real server, whose answers a test writes down."""

import json
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Protocol
from urllib.parse import parse_qs


class Answers(Protocol):
    """``headers``: the Authorization of each question, to be filled."""

    headers: list[str]

    def body(self, query: str) -> tuple[int, bytes]:
        """Status and body for one instant query."""


def vector(series: Iterable[tuple[Mapping[str, str], float]]) -> tuple[int, bytes]:
    """An instant vector as Prometheus writes it."""
    found = [{"metric": labels, "value": [1767571200.123, str(value)]} for labels, value in series]
    return 200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": found}}).encode()


@contextmanager
def served(answers: Answers, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The URL, below which the API is."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
            answers.headers.append(self.headers.get("Authorization", ""))
            known = self.path == "/prom/api/v1/query"
            status, body = answers.body(parse_qs(asked)["query"][0]) if known else (404, b"not here")
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}/prom"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
