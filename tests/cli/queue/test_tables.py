"""Tables of queues on terminals."""

import pytest

from cli.queue import tables
from tests.support.cli.shell import terminal


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_the_reason_code_of_what_waits_is_on_terminals_of_every_width(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in terminal(width).items():
        monkeypatch.setenv(name, value)
    said = "Needs 8 nvidia.com/gpu of flavor h100: 2 free, 6 more needed; full nodes are taken by research/llm on 2"
    waits = {
        "workload": "research/job-evaluation-665e1",
        "position": 0,
        "positionInLocalQueue": 0,
        "localQueue": "research/jobs",
        "priority": 0,
        "reason": "WaitingForQuota",
        "sentence": said,
        "parked": False,
    }
    queue = {"clusterQueue": "research", "pending": [waits], "problems": []}
    tables.show_pending({"clusterQueues": [queue]})
    assert "WaitingForQuota" in capsys.readouterr().out
