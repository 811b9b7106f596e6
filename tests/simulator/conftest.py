"""Simulations for tests: a fleet as text, opened behind pynvml and closed again."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

import simulator
from simulator.simulation import Simulation
from tests.support.hang import HANG_S

Simulate = Callable[..., Simulation]


@pytest.fixture
def fleet(tmp_path: Path) -> Callable[[str], Path]:
    """Write a fleet file."""

    def write(text: str) -> Path:
        path = tmp_path / "fleet.yaml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def simulate(tmp_path: Path, fleet: Callable[[str], Path]) -> Iterator[Simulate]:
    """Install a node of a fleet and initialise NVML; everything is closed at the test's end.

    ``simulate()`` again opens the same state anew, as a restarted agent would.
    """
    running: list[Simulation] = []

    def stop() -> None:
        while running:
            running.pop().close()

    def start(text: str | None = None, node: str | None = None, **more: Any) -> Simulation:
        stop()
        path = fleet(text) if text is not None else tmp_path / "fleet.yaml"
        simulation = simulator.install(path, node, tmp_path / "state", **more)
        running.append(simulation)
        pynvml.nvmlInit()
        return simulation

    yield start
    stop()


def node(gpus: int = 2, product: str = "NVIDIA A100-SXM4-80GB", more: str = "") -> str:
    """A fleet of one node."""
    return f"nodes:\n- name: node-1\n  gpus: {gpus}\n  product: {product}\n{more}"


def gpu(index: int = 0) -> Any:
    """A handle by index."""
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def wait_for(condition: Callable[[], object], seconds: float = HANG_S) -> None:
    """Return once the condition holds; fail at the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.005)
