"""Prometheus' HTTP API on a port of its own: a real server, whose answers a test writes down."""

import json
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Protocol, runtime_checkable
from urllib.parse import parse_qs


class Answers(Protocol):
    """``headers``: the Authorization of each question, to be filled."""

    headers: list[str]

    def body(self, query: str) -> tuple[int, bytes]:
        """Status and body for one instant query."""


@runtime_checkable
class Past(Protocol):
    def over(self, query: str, start_s: int, end_s: int, step_s: int) -> tuple[int, bytes]:
        """Status and body for one range query."""


def vector(series: Iterable[tuple[Mapping[str, str], float]]) -> tuple[int, bytes]:
    """An instant vector as Prometheus writes it."""
    found = [{"metric": labels, "value": [1767571200.123, str(value)]} for labels, value in series]
    return 200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": found}}).encode()


def matrix(series: Iterable[tuple[Mapping[str, str], Iterable[tuple[float, float]]]]) -> tuple[int, bytes]:
    """What a range query finds, as Prometheus writes it: steps without a sample are left out."""
    found = [{"metric": labels, "values": [[at, str(value)] for at, value in samples]} for labels, samples in series]
    return 200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": found}}).encode()


@contextmanager
def served(answers: Answers, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The URL, below which the API is."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
            answers.headers.append(self.headers.get("Authorization", ""))
            known = self.path == "/prom/api/v1/query"
            form = {name: values[0] for name, values in parse_qs(asked).items()}
            if known:
                status, body = answers.body(form["query"])
            elif self.path == "/prom/api/v1/query_range" and isinstance(answers, Past):
                status, body = answers.over(form["query"], *(int(form[name]) for name in ("start", "end", "step")))
            else:
                status, body = 404, b"not here"
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
