"""A kubelet stand-in and its folder, short enough for a socket whatever the test is called."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from deviceplugin.choice import Preferrer
from deviceplugin.manager import PluginManager
from tests.support.deviceplugin.fakes import FakeKubelet, RecordingObserver
from tests.support.deviceplugin.managing import ManualClock


@pytest.fixture
def kubelet_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        yield Path(folder)


@pytest.fixture
def folder(kubelet_dir: Path) -> Path:
    """Where plugins put their sockets."""
    folder = kubelet_dir / "device-plugins"
    folder.mkdir()
    return folder


@pytest.fixture(params=[False, True], ids=["1.36", "1.37"])
async def kubelet(kubelet_dir: Path, request: pytest.FixtureRequest) -> AsyncIterator[FakeKubelet]:
    """One that knows a single plugin of a name, and one that keeps several apart."""
    kubelet = FakeKubelet(kubelet_dir, several=request.param)
    await kubelet.start()
    yield kubelet
    await kubelet.stop()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def manager(kubelet: FakeKubelet, clock: ManualClock) -> AsyncIterator[PluginManager]:
    """Moved by ``mend`` and the clock; nothing runs by itself."""
    manager = PluginManager(kubelet.folder, kubelet.socket, Preferrer(), RecordingObserver(), clock)
    yield manager
    await manager.close()
