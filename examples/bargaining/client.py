"""A client that bargains for GPUs: it asks, answers what is offered, runs inside of what it was granted, and renews.

Needs: Python 3.11 with nothing else; a pod whose ServiceAccount has the role ``edit`` in its namespace; the chart's
controller.bargaining.enabled; a LocalQueue.
    python client.py --name night-run --queue agents --min 2 --max 4 --for 30m
"""

import argparse
import json
import ssl
import sys
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
API = "/apis/tessera.dev/v1alpha1/namespaces/{namespace}/capacityrequests"
Json = dict[str, Any]
Call = Callable[[str, str, Json | None], Json]
"""Sends a method to a path of the API server with a body, and returns the object of the answer."""


def in_cluster(method: str, path: str, body: Json | None) -> Json:
    """Asks the API server as the pod's ServiceAccount."""
    token = (ACCOUNT / "token").read_text().strip()
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Content-Type": kind, "Authorization": f"Bearer {token}"}
    data = None if body is None else json.dumps(body).encode()
    sent = urllib.request.Request(f"https://kubernetes.default.svc{path}", data, headers, method=method)
    with urllib.request.urlopen(sent, context=ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))) as answer:
        return dict(json.load(answer))


class Bargain:
    """One CapacityRequest. ``label`` is what the pods of the program are labelled with."""

    def __init__(self, call: Call, namespace: str, name: str, spec: Json, sleep: Callable[[float], None]) -> None:
        self.label = {"tessera.dev/capacity-request": name}
        self._call, self._sleep = call, sleep
        self._path = f"{API.format(namespace=namespace)}/{name}"
        body = {"apiVersion": "tessera.dev/v1alpha1", "kind": "CapacityRequest", "metadata": {"name": name}}
        call("POST", API.format(namespace=namespace), {**body, "spec": spec})

    def status(self) -> Json:
        return dict(self._call("GET", self._path, None).get("status", {}))

    def settle(self, choose: Callable[[list[Json]], str]) -> Json:
        """The final answer: Granted, Refused, Expired or Released. ``choose``: the id of the offer to accept, or
        nothing to let all of them pass.
        """
        answered: set[str] = set()
        while True:
            status = self.status()
            state, offers = status.get("state", ""), status.get("offers", [])
            if state not in ("", "Offered"):
                return status
            chosen = choose(offers) if offers and not status.get("accepted") else ""
            if chosen and chosen not in answered:
                answered.add(chosen)
                self._call("PATCH", self._path, {"spec": {"accept": chosen}})
            self._sleep(0.5)

    def renew(self) -> None:
        """The duration begins anew now."""
        self._call("PATCH", self._path, {"spec": {"renew": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}})

    def give_back(self) -> None:
        self._call("DELETE", self._path, None)


def held_or_first(offers: list[Json]) -> str:
    """The offer that is held for us, else the one that begins first."""
    best = min(offers, key=lambda offer: (not offer.get("held", False), offer["from"]))
    return str(best["id"])


def main() -> int:
    parser = argparse.ArgumentParser()
    for name, default in (("--name", "burst"), ("--queue", "default"), ("--min", 1), ("--max", 1), ("--for", "30m")):
        parser.add_argument(name, default=default, type=type(default))
    asked = vars(parser.parse_args())
    namespace = (ACCOUNT / "namespace").read_text().strip()
    spec = {"queueName": asked["queue"], "unit": {"nvidia.com/gpu": 1}, "duration": asked["for"]}
    spec |= {key: asked[key] for key in ("min", "max")}
    status = Bargain(in_cluster, namespace, asked["name"], spec, time.sleep).settle(held_or_first)
    print(status["state"], status["message"], flush=True)
    return 0 if status["state"] == "Granted" else 1


if __name__ == "__main__":
    sys.exit(main())
