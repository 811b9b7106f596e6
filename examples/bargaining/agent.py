"""An agent that bargains for a burst of GPUs: it asks what it could have, and submits a Job of that size.

Needs: Python 3.11 with nothing else; a pod whose ServiceAccount has the role ``edit`` in its namespace; a LocalQueue.
    python agent.py --queue agents --min 2 --max 8 --for 1h --wait 7200 -- python train.py
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
GPU = "nvidia.com/gpu"
Create = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Creates an object at a path below the namespace of an API group, and returns what the API server made of it."""


def in_cluster(group: str, body: dict[str, Any]) -> dict[str, Any]:
    """Creates an object as the pod's ServiceAccount."""
    api, plural = group.rsplit("/", 1)
    namespace, token = ((ACCOUNT / name).read_text().strip() for name in ("namespace", "token"))
    url = f"https://kubernetes.default.svc/apis/{api}/namespaces/{namespace}/{plural}"
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    sent = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(sent, context=tls, timeout=30) as answer:
        return dict(json.load(answer))


def could_have(create: Create, spec: dict[str, Any]) -> dict[str, Any]:
    """The status that a CapacityRequest would have at this moment. Nothing is kept."""
    manifest = {"apiVersion": "tessera.dev/v1alpha1", "kind": "CapacityRequest", "spec": spec}
    body = {"apiVersion": "view.tessera.dev/v1alpha1", "kind": "Forecast", "spec": {"manifest": manifest}}
    return dict(create("view.tessera.dev/v1alpha1/forecasts", body)["status"])


def submit(create: Create, queue: str, pods: int, runtime: str, command: list[str]) -> str:
    """Submits a Job of so many pods with a GPU each, and returns its name."""
    container = {"name": "main", "image": "python:3.12", "command": command, "resources": {"limits": {GPU: 1}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {
        "generateName": "burst-",
        "labels": {"kueue.x-k8s.io/queue-name": queue},
        "annotations": {"tessera.dev/runtime": runtime},
    }
    spec = {"parallelism": pods, "completions": pods, "template": template}
    made = create("batch/v1/jobs", {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    return str(made["metadata"]["name"])


def waits_s(offer: dict[str, Any]) -> float:
    return max(0.0, (datetime.fromisoformat(offer["from"]) - datetime.now(UTC)).total_seconds())


def bargain(create: Create, spec: dict[str, Any], patience_s: float, sleep: Callable[[float], None]) -> int:
    """How many units to take now; 0 for none. It waits for an offer that has all of the least and comes in time, and
    asks anew then; if there is none it takes the fewer units that are free now.
    """
    left_s = patience_s
    while True:
        status = could_have(create, spec)
        print(status["message"], flush=True)
        if status["state"] == "Granted":
            return int(status["units"])
        whole = [waits_s(offer) for offer in status["offers"] if offer["units"] >= spec["min"]]
        pause_s = max(5.0, min(whole, default=left_s))
        if pause_s >= left_s:
            return max((int(offer["units"]) for offer in status["offers"] if not waits_s(offer)), default=0)
        sleep(pause_s)
        left_s -= pause_s


def main() -> int:
    parser = argparse.ArgumentParser()
    for name, default in (("--queue", "default"), ("--min", 1), ("--max", 1), ("--for", "1h"), ("--wait", 3600.0)):
        parser.add_argument(name, default=default, type=type(default))
    parser.add_argument("command", nargs="+")
    asked = vars(parser.parse_args())
    spec = {"queueName": asked["queue"], "unit": {GPU: 1}, "duration": asked["for"]}
    spec |= {key: asked[key] for key in ("min", "max")}
    units = bargain(in_cluster, spec, asked["wait"], time.sleep)
    if units:
        print("submitted", submit(in_cluster, asked["queue"], units, asked["for"], asked["command"]))
    return 0 if units else 1


if __name__ == "__main__":
    sys.exit(main())
