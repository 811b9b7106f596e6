"""The agent's process under a thousand peers that say nothing: the kubelet and its probes notice nothing of them."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import aiohttp
import psutil
import pytest

from deviceplugin.testing import StandInKubelet
from hack.agents import AgentProcess
from kube.testing import eventually
from tests.support.agent.node import EAGER, GPU, fleet
from tests.support.hang import HANG_S

SILENT: Final = 1_200
FILES: Final = 1_024


@pytest.fixture
async def kubelet(short_folder: Path) -> AsyncIterator[StandInKubelet]:
    kubelet = StandInKubelet(short_folder / "kubelet")
    await kubelet.start()
    yield kubelet
    await kubelet.stop()


@pytest.fixture
def agent(short_folder: Path) -> Iterator[AgentProcess]:
    path = short_folder / "fleet.yaml"
    path.write_text(fleet(1))
    agent = AgentProcess(short_folder, path, short_folder / "kubelet", config=EAGER)
    agent.start()
    yield agent
    agent.kill()


@pytest.fixture
def files() -> Iterator[None]:
    """Enough of them for this test's own ends of the connections."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def silent(port: int, stack: contextlib.ExitStack, source: str) -> socket.socket:
    peer = stack.enter_context(socket.socket())
    peer.bind((source, 0))
    peer.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        peer.connect(("127.0.0.1", port))
    return peer


async def probe(port: int) -> int:
    async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{port}/healthz") as answer:
        return answer.status


@pytest.mark.usefixtures("files")
async def test_a_restarted_kubelet_is_registered_with_under_silent_peers(
    agent: AgentProcess, kubelet: StandInKubelet
) -> None:
    def listed() -> bool:
        return GPU in kubelet.endpoints and bool(kubelet.endpoints[GPU].healthy)

    await kubelet.wait_for(listed, HANG_S)
    assert agent.process is not None
    process = psutil.Process(agent.process.pid)
    await eventually(lambda: _answers(agent), within_s=HANG_S)
    resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
    before = process.num_fds()
    with contextlib.ExitStack() as stack:
        for count in range(SILENT):
            silent(agent.port, stack, f"127.0.0.{2 + count % 50}")
            if count % 50 == 0:
                await asyncio.sleep(0)
        assert await probe(agent.port) == 200
        assert process.num_fds() - before < 200
        registered = len(kubelet.registrations)
        await kubelet.restart()
        await kubelet.wait_for(lambda: len(kubelet.registrations) > registered, HANG_S)
        await kubelet.wait_for(listed, HANG_S)
        assert (await kubelet.allocate(GPU, 1)).devices
        assert await probe(agent.port) == 200


def _answers(agent: AgentProcess) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", agent.port), timeout=HANG_S) as peer:
        peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return peer.recv(100).startswith(b"HTTP/1.1 200")
    return False
