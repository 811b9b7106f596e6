"""An agent that serves claims on a node with an API server, with short turns."""

from collections.abc import AsyncIterator

import pytest

from agent.dra import node as dra_node
from kube.testing import FakeApiServer
from tests.support.agent.claims import ClaimLab
from tests.support.agent.node import Lab


@pytest.fixture
async def claims(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ClaimLab]:
    monkeypatch.setattr(dra_node, "POLL_S", 0.02)
    async with FakeApiServer() as server:
        yield ClaimLab(lab, server)
        await lab.stop()
