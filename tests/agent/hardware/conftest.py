"""A simulated node behind pynvml, and the agent's driver on it."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import simulator
from agent.hardware import driver as session
from agent.hardware import worker
from agent.hardware.driver import Driver
from agent.hardware.worker import GpuWorker, XidEvent
from inventory.devices import GpuUuid, NodeName
from simulator.simulation import Simulation

Simulate = Callable[..., Simulation]
TIMEOUT_S = 1.0
"""How long a call may take where a test makes it hang."""


@pytest.fixture(autouse=True)
def _quick_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that listens takes calls between two waits: let those be short."""
    monkeypatch.setattr(worker, "EVENT_WAIT_MS", 20)


@pytest.fixture
def sys_root(tmp_path: Path) -> Path:
    return tmp_path / "sys"


@pytest.fixture
def simulate(tmp_path: Path, sys_root: Path) -> Iterator[Simulate]:
    """``simulate(gpus, product, more)`` installs a node of a fleet written that way, until the test's end."""
    running: list[Simulation] = []

    def start(gpus: int = 4, product: str = "NVIDIA A100-SXM4-40GB", more: str = "") -> Simulation:
        path = tmp_path / "fleet.yaml"
        path.write_text(f"nodes:\n- name: node-1\n  gpus: {gpus}\n  product: {product}\n{more}")
        simulation = simulator.install(path, None, tmp_path / "state", sys_root=sys_root)
        running.append(simulation)
        return simulation

    yield start
    for simulation in running:
        simulation.close()


class Heard:
    """XIDs in the order they were told."""

    def __init__(self) -> None:
        self.events: list[tuple[GpuUuid, XidEvent]] = []

    def __call__(self, uuid: GpuUuid, event: XidEvent) -> None:
        self.events.append((uuid, event))

    @property
    def xids(self) -> list[tuple[str, int]]:
        return [(uuid, event.xid) for uuid, event in self.events]


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
async def driver(sys_root: Path, heard: Heard) -> AsyncIterator[Driver]:
    """Not opened yet; its threads end with the test."""
    driver = Driver(NodeName("node-1"), sys_root, heard)
    yield driver
    await driver.close()
    for slot in driver._pool:
        slot.worker.close()
    driver._main.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> float:
    """Calls without a limit of their own give up soon."""
    function: Any = GpuWorker.call
    monkeypatch.setattr(function, "__defaults__", (TIMEOUT_S,))
    monkeypatch.setattr(session, "CLOSE_TIMEOUT_S", TIMEOUT_S)
    return TIMEOUT_S
