"""Which NVML is loaded: the loader's own, else the one below the driver root."""

import ctypes
from pathlib import Path

import pytest

from agent.hardware.driver import LIBRARY, Driver
from agent.hardware.query import DriverUnavailable
from inventory.devices import NodeName
from tests.agent.hardware.conftest import Simulate

BELOW = Path("/driver-root/usr/lib64/libnvidia-ml.so.535.183.01")


class Loader:
    """It knows some libraries by these names, and says of any other what the real one would."""

    def __init__(self, *known: str) -> None:
        self.known = known
        self.loaded: list[str] = []

    def __call__(self, name: str) -> None:
        if name not in self.known:
            raise OSError(f"{name}: cannot open shared object file")
        self.loaded.append(name)


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch, simulate: Simulate) -> Loader:
    """Behind pynvml GPUs are simulated: only what is loaded before counts here."""
    simulate(1, "Tesla T4")
    loader = Loader()
    monkeypatch.setattr(ctypes, "CDLL", loader)
    return loader


async def opened(sys_root: Path, found: Path | None) -> None:
    driver = Driver(NodeName("node-1"), sys_root, lambda *_: None, lambda: found)
    try:
        await driver.open()
    finally:
        await driver.close()
        driver._main.close()


async def test_the_loaders_own_comes_first(loader: Loader, sys_root: Path) -> None:
    loader.known = (LIBRARY, str(BELOW))
    await opened(sys_root, BELOW)
    assert loader.loaded == [LIBRARY]


async def test_one_below_the_driver_root_is_loaded_where_the_loader_knows_none(loader: Loader, sys_root: Path) -> None:
    loader.known = (str(BELOW),)
    await opened(sys_root, BELOW)
    assert loader.loaded == [str(BELOW)]


async def test_a_file_that_is_no_library_is_no_driver_and_is_named(loader: Loader, sys_root: Path) -> None:
    with pytest.raises(DriverUnavailable, match=str(BELOW)):
        await opened(sys_root, BELOW)
    assert loader.loaded == []


async def test_without_any_it_is_left_to_pynvml_to_say_so(loader: Loader, sys_root: Path) -> None:
    await opened(sys_root, None)
    assert loader.loaded == []
