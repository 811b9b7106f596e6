"""What a running server of the page says, for the page's tests under Node: ``python -m tests.support.page.record F``.

The rows are recorded anew by each run of these tests, so none of them is older than the encoder that makes them.
"""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.hang import HANG_S
from tests.support.page.standin import StandIn
from tests.support.page.state import made

Json = dict[str, Any]


def recorded() -> Json:
    """``topics``: rows of each topic by their keys; ``node``, ``workload`` and ``waste``: an answer of each kind."""
    with StandIn(made(nodes=10, workloads=60)).running() as server:
        topics = _snapshots(server.url)
        shown = [row["workload"] for row in topics["pending"].values() if not row["hidden"]]
        return {
            "topics": topics,
            "node": _answer(f"{server.url}page/nodes/{next(iter(topics['fleet']))}"),
            "workload": _answer(f"{server.url}page/workloads/{shown[0]}"),
            "waste": _answer(f"{server.url}page/waste"),
        }


def _answer(url: str) -> Json:
    with urllib.request.urlopen(url, timeout=HANG_S) as answer:
        found: Json = json.load(answer)
    return found


def _snapshots(url: str) -> dict[str, Json]:
    """Of every topic, as an EventSource gets them up to the first mark."""
    found: dict[str, Json] = {}
    event = ""
    with urllib.request.urlopen(f"{url}page/events", timeout=HANG_S) as answer:
        for raw in answer:
            key, _, value = raw.decode().rstrip("\n").partition(": ")
            if key == "event":
                event = value
            if event == "mark":
                return found
            if key == "data" and event == "snapshot":
                data = json.loads(value)
                found[data["topic"]] = data["set"]
    raise AssertionError("the stream ended before its first mark")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(recorded()))
