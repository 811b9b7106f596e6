"""Ten minutes of the real controller under load, as ``python -m hack.recordedhistory`` recorded them: an API server in
this process, the playground's Job controller, scheduler and kubelets, jobs every five seconds, quotas that change.
"""

import gzip
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.audit.files import judged as judged_file
from history.judge import judged
from history.record import read

FILE = Path(__file__).parent / "recorded" / "ten-minutes.jsonl.gz"
Line = dict[str, Any]


def lines() -> list[Line]:
    with gzip.open(FILE) as file:
        return [json.loads(line) for line in file]


def test_it_is_ten_minutes_under_load_and_nothing_is_wrong_in_it() -> None:
    verdict = judged_file(FILE)
    assert verdict.findings == ()
    assert verdict.unseen == ()
    told = lines()
    kinds = Counter(line["object"]["kind"] for line in told if line["source"] == "api")
    assert (verdict.facts, told[-1]["t"]) == (len(told), pytest.approx(600, abs=5))
    assert min(kinds["Workload"], kinds["Job"], kinds["Pod"]) > 500
    reasons = {
        condition.get("reason")
        for line in told
        if line["source"] == "api" and line["object"]["kind"] == "Workload"
        for condition in line["object"].get("status", {}).get("conditions", [])
    }
    assert {"Preempted", "WaitingForQuota", "Admitted", "Succeeded"} <= reasons
    assert FILE.stat().st_size < 300_000


def unadmitted(line: Line) -> None:
    if line.get("object", {}).get("kind") == "Workload":
        conditions = line["object"].get("status", {}).get("conditions", [])
        conditions[:] = [each for each in conditions if each["type"] != "Admitted"]


def smaller_quotas(line: Line) -> None:
    if line.get("object", {}).get("kind") == "ClusterQueue":
        for group in line["object"]["spec"]["resourceGroups"]:
            group["flavors"][0]["resources"][0]["nominalQuota"] = "3"


def sidecars(line: Line) -> None:
    if line.get("object", {}).get("kind") == "Pod":
        asked = {"name": "s", "restartPolicy": "Always", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
        line["object"]["spec"]["initContainers"] = [asked]


def one_device(line: Line) -> None:
    for pod in line.get("pods", ()):
        for container in pod["containers"]:
            container["devices"][0]["ids"] = ["GPU-1"]


def long_minimum(line: Line) -> None:
    if line.get("type") == "SETTINGS":
        line["settings"]["minimumRuntimeS"] = 3600


def unknown_workloads(line: Line) -> None:
    if line.get("object", {}).get("kind") == "Workload":
        line["object"]["kind"] = "Workshop"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (unadmitted, "ran-without-admission"),
        (smaller_quotas, "over-quota"),
        (sidecars, "over-quota"),
        (one_device, "one-device-two-hands"),
        (long_minimum, "released-early"),
        (unknown_workloads, "forgotten"),
    ],
)
def test_the_same_history_told_wrongly_is_found(change: Callable[[Line], None], rule: str) -> None:
    told = lines()
    for line in told:
        change(line)
    raw = b"".join(json.dumps(line).encode() + b"\n" for line in told)
    assert rule in {each.rule for each in judged(read(io.BytesIO(raw))).findings}
