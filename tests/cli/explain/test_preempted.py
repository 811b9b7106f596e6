"""``tessera explain`` of a workload that was preempted and waits again."""

import time
from typing import Any

import pytest

from cli.explain import tables


def body(**more: Any) -> dict[str, Any]:
    return {
        "workload": "ns/low", "job": "low", "state": "Pending", "reason": "WaitingForQuota", "clusterQueue": "q",
        "localQueue": "ns/q", "priority": 0, "position": 0, "sentence": "Needs 4 nvidia.com/gpu", "conditions": [],
        "decision": None, "wouldAdmit": None, "story": [], "devices": [], "claims": [], "couldBeMade": [],
        "deviceDrift": [], "preempted": None, **more,
    }  # fmt: skip


def test_it_says_when_and_for_whom_it_was_preempted_and_what_it_lost(capsys: pytest.CaptureFixture[str]) -> None:
    said = "Preempted to accommodate workload ns/high. It loses 400 GPU-seconds of work"
    tables.show(body(preempted={"at": time.time() - 200, "reason": "InClusterQueue", "sentence": said}))
    shown = " ".join(capsys.readouterr().out.split())
    assert f"It ran until it was preempted 3m20s ago: {said}" in shown


def test_others_say_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show(body())
    assert "preempted" not in capsys.readouterr().out
