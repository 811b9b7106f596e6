"""Short turns for repairs."""

import pytest

from agent.repair import node_shell


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_shell, "POLL_S", 0.05)
