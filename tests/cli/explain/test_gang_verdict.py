"""``tessera explain`` of an admitted gang says what kube-scheduler says of it, while it starts none of its pods."""

from typing import Any

import pytest

from cli.explain.tables import show
from inventory.api.names import GANG_SCHEDULED

SAID = "The scheduler starts none of its pods: 0/4 nodes are available"


def told(capsys: pytest.CaptureFixture[str], status: str, at: str, state: str = "Admitted") -> bool:
    """Whether the sentence is shown of a workload that was admitted at 10:00."""
    conditions = [
        {"type": "Admitted", "status": "True", "message": "", "lastTransitionTime": "2026-01-01T10:00:00Z"},
        {"type": GANG_SCHEDULED, "status": status, "message": SAID, "lastTransitionTime": f"2026-01-01T{at}:00Z"},
    ]
    nothing = dict.fromkeys(("job", "reason", "position", "sentence", "decision", "wouldAdmit", "pods", "forecast"))
    body: dict[str, Any] = {
        **nothing,
        "workload": "team/train",
        "state": state,
        "clusterQueue": "cq",
        "localQueue": "lq",
        "priority": 0,
        "conditions": conditions,
        "story": [],
    }
    show(body)
    return SAID in " ".join(capsys.readouterr().out.split())


def test_a_bad_verdict_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "False", "10:05")


@pytest.mark.parametrize(
    ("status", "at", "state"),
    [("True", "10:05", "Admitted"), ("False", "09:55", "Admitted"), ("False", "10:05", "Evicted")],
    ids=["a good one", "one of an earlier start", "one of a gang that was evicted"],
)
def test_no_other_verdict_is(capsys: pytest.CaptureFixture[str], status: str, at: str, state: str) -> None:
    assert not told(capsys, status, at, state)
