"""A manager under a kubelet that is played: moved by hand, or running by itself as in the agent."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from deviceplugin.choice import Preferrer
from deviceplugin.manager import PluginManager
from tests.support.deviceplugin.fakes import FakeKubelet, RecordingObserver
from tests.support.deviceplugin.views import GPU


class ManualClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@contextlib.asynccontextmanager
async def running(kubelet: FakeKubelet, folder: Path | None = None) -> AsyncIterator[PluginManager]:
    """A manager that mends by itself, as in the agent."""
    manager = PluginManager(folder or kubelet.folder, kubelet.socket, Preferrer(), RecordingObserver())
    task = asyncio.create_task(manager.run())
    try:
        yield manager
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await manager.close()


def endpoint_of(kubelet: FakeKubelet, resource: str = GPU) -> str:
    return kubelet.endpoints[resource].registration.endpoint


async def listed(kubelet: FakeKubelet, count: int, resource: str = GPU) -> None:
    """Wait until the kubelet has ``count`` healthy devices of ``resource``."""
    await kubelet.wait_for(lambda: resource in kubelet.endpoints and len(kubelet.endpoints[resource].healthy) == count)
