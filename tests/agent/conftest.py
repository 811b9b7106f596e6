"""A node to run the agent on, with short turns: what is waited for in minutes on a node comes within a moment here."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agent.hardware import monitor, worker
from agent.kubelet import podresources
from agent.persistence import statefiles
from deviceplugin import manager
from tests.support.agent.node import Lab, laboratory


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Sockets' paths are short, whatever the test is called."""
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        yield Path(folder)


@pytest.fixture
async def lab(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    monkeypatch.setattr(monitor, "RESCAN_S", 0.05)
    monkeypatch.setattr(monitor, "ANXIOUS_PROBE_S", 0.02)
    monkeypatch.setattr(worker, "EVENT_WAIT_MS", 5)
    monkeypatch.setattr(podresources, "SHORTEST_INTERVAL_S", 0.05)
    monkeypatch.setattr(podresources, "WAITING_INTERVAL_S", 0.05)
    monkeypatch.setattr(manager, "POLL_S", 0.02)
    monkeypatch.setattr(statefiles, "SAVE_PAUSE_S", 0.05)
    async with laboratory(short_folder) as lab:
        yield lab
