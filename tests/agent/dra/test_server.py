"""Two agents of one driver on one node, as while one replaces the other: sockets that stand side by side."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc.aio
import pytest

from agent.dra import server_shell
from agent.dra.claim import Ref
from agent.dra.ledger import GivenDevice
from agent.dra.server_shell import ClaimAnswer, DeviceState, DraServer
from agent.dra.testing import DRIVER, PluginWatcher
from deviceplugin.kubelet import SocketIdentity, identify
from inventory.devices import GpuUuid


class One:
    """An agent that gives every claim the same device."""

    def __init__(self, device: str) -> None:
        self._device = device

    async def prepare(self, refs: Sequence[Ref]) -> Mapping[str, ClaimAnswer]:
        given = GivenDevice(request="gpu", pool="node-1", device=self._device, gpu=GpuUuid(self._device))
        return {ref.uid: ClaimAnswer(devices=(given,)) for ref in refs}

    async def unprepare(self, refs: Sequence[Ref]) -> Mapping[str, str]:
        return {ref.uid: "" for ref in refs}

    def health(self) -> tuple[DeviceState, ...]:
        return ()


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path: a socket's has at most 107 bytes."""
    with TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def given(watcher: PluginWatcher) -> str:
    (device,) = (await watcher.prepare("claim"))["claim"].devices
    return str(device.device_name)


async def test_the_sockets_of_both_serve_and_the_end_of_the_first_leaves_those_of_the_second(
    folder: Path, stack: AsyncExitStack
) -> None:
    watcher, told = PluginWatcher(folder), list[str]()
    first, second = (DraServer(DRIVER, One(device), told.append) for device in ("gpu-0", "gpu-1"))
    await first.start(folder / "plugins", watcher.registry)
    stack.push_async_callback(second.stop)
    stack.push_async_callback(first.stop)
    await watcher.register()
    old, before = watcher.sockets, watcher.info
    await second.start(folder / "plugins", watcher.registry)
    (new,) = set(watcher.sockets) - set(old)
    await watcher.register(at=new)
    assert watcher.info.endpoint != before.endpoint
    assert await given(watcher) == "gpu-1"
    watcher.info, latest = before, watcher.info
    assert await given(watcher) == "gpu-0", "a call that was under way is answered by the agent that it went to"
    await first.stop()
    assert (watcher.sockets, first.intact, second.intact) == ([new], True, True)
    with pytest.raises(grpc.aio.AioRpcError):
        await given(watcher)
    watcher.info = latest
    assert await given(watcher) == "gpu-1"
    assert told == ["", ""]


async def test_sockets_that_are_swept_as_they_are_made_are_missed(
    folder: Path, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet empties folders as it starts."""
    watcher, server = PluginWatcher(folder), DraServer(DRIVER, One("gpu-0"), print)
    stack.push_async_callback(server.stop)

    def looked_for_too_late(path: Path) -> SocketIdentity | None:
        path.unlink()
        return identify(path)

    with monkeypatch.context() as patch:
        patch.setattr(server_shell, "identify", looked_for_too_late)
        await server.start(folder / "plugins", watcher.registry)
    assert not server.intact
