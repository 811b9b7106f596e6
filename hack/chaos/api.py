"""The runner's own way to the API server, past all proxies: a request, an answer, no retries. As administrator."""

import json
import ssl
import urllib.error
import urllib.request
from base64 import b64decode
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from hack.chaos.invariants import Json

TEAM: Final = "chaos"
OTHERS: Final = "/apis/batch/v1/namespaces/default/jobs"
JOBS: Final = f"/apis/batch/v1/namespaces/{TEAM}/jobs"
PODS: Final = f"/api/v1/namespaces/{TEAM}/pods"
QUEUES: Final = "/apis/kueue.x-k8s.io/v1beta2"
WORKLOADS: Final = f"{QUEUES}/namespaces/{TEAM}/workloads"
CLAIMS: Final = f"/apis/resource.k8s.io/v1/namespaces/{TEAM}/resourceclaims"
_TIMEOUT_S: Final = 20.0
_NOT_FOUND, CONFLICT = 404, 409
EVENTS: Final = f"/apis/events.k8s.io/v1/namespaces/{TEAM}/events"
GPUNODES: Final = "/apis/tessera.dev/v1alpha1/gpunodes"


class AwayError(Exception):
    """No answer, or one that says that the server cannot now."""


class RefusedError(Exception):
    """The server said no: ``code`` is HTTP's."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"{code}: {said}")
        self.code = code


class Api:
    """Paths are below the server's address."""

    def __init__(self, server: str, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        authority = b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        https = urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=authority))
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
        self._server = server
        self._token = config["users"][0]["user"]["token"]

    def call(self, method: str, path: str, body: Json | None = None, *, kind: str = "application/json") -> Json:
        """The answer's object. Raises AwayError, RefusedError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        request = urllib.request.Request(self._server + path, data=data, headers=headers, method=method)
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                found: Json = json.load(answer)
                return found
        except urllib.error.HTTPError as refused:
            with refused:
                said = refused.read(2000).decode(errors="replace")
            if refused.code >= 500 or refused.code == 429:  # noqa: PLR2004 - HTTP's own numbers
                raise AwayError(f"{refused.code}: {said}") from None
            raise RefusedError(refused.code, said) from None
        except (OSError, HTTPException, ValueError) as away:
            raise AwayError(str(away)) from None

    def items(self, path: str) -> list[Json]:
        found: list[Json] = self.call("GET", path)["items"]
        return found

    def patch(self, path: str, body: Json) -> Json:
        """A merge patch."""
        return self.call("PATCH", path, body, kind="application/merge-patch+json")

    def delete(self, path: str) -> None:
        """In the background; nothing happens where it is gone."""
        options: dict[str, Any] = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
        try:
            self.call("DELETE", path, options)
        except RefusedError as refused:
            if refused.code != _NOT_FOUND:
                raise
