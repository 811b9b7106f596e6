"""Simulated GPUs read by the package's own reader."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

import simulator
from agent.hardware.gpus import read_gpu
from agent.telemetry.fields import FIELDS
from agent.telemetry.reading.reader import GpuReader
from agent.telemetry.reading.readings import GpuReading
from inventory.devices import Gpu
from simulator.control import read_request
from simulator.simulation import Simulation

ALL = frozenset(field.name for field in FIELDS)


class Board:
    """One simulated GPU and its reader, with a clock that the test moves along with the hardware's."""

    def __init__(self, simulation: Simulation, index: int = 0) -> None:
        self.simulation = simulation
        self.index = index
        self.reader = GpuReader(ALL)
        self.now_s = 0.0
        self._simulated_s = simulation.now()
        simulation.now = lambda: self._simulated_s + self.now_s  # type: ignore[method-assign] # time stands still

    @property
    def handle(self) -> Any:
        return pynvml.nvmlDeviceGetHandleByIndex(self.index)

    @property
    def gpu(self) -> Gpu:
        return read_gpu(self.handle, self.index, Path("/nowhere"))

    def read(self, after_s: float = 15.0, session: int = 1) -> GpuReading:
        """A pass, so long after the last."""
        self.now_s += after_s
        return self.reader.read(self.handle, self.gpu, session, self.now_s)

    def sim(self, **order: Any) -> None:
        import json

        self.simulation.order(read_request(json.dumps({"gpu": self.index, **order}), len(self.simulation.node.gpus)))


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Callable[..., Board]]:
    """``board(product, more)`` switches on a node of two such GPUs; ``more`` is further YAML of the fleet."""
    running: list[Simulation] = []

    def start(product: str = "NVIDIA H100 80GB HBM3", more: str = "", node: str = "") -> Board:
        path = tmp_path / "fleet.yaml"
        path.write_text(f"nodes:\n- name: node-1\n  gpus: 2\n  product: {product}\n{node}{more}")
        running.append(simulator.install(path, "node-1", tmp_path / "state"))
        pynvml.nvmlInit()
        return Board(running[-1])

    yield start
    for simulation in running:
        simulation.close()
