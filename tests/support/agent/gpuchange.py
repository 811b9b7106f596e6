"""One simulated GPU on a bench: ``GpuChange`` with NVML called at once, and a node made of dictionaries."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml

import simulator
from agent.hardware.migchange import GpuMig, ModeChange, read_mig, set_mode, take
from agent.mig.change import GpuChange
from agent.mig.journal import Journal
from agent.mig.outcomes import Outcome, Wish
from inventory.devices import GpuUuid
from inventory.layout.entries import WhenBusy
from inventory.mig.plan import Step
from simulator.simulation import Simulation

A100 = "NVIDIA A100-SXM4-40GB"
H100 = "NVIDIA H100 80GB HBM3"
A30 = "NVIDIA A30"


class Bench:
    """Node services and hardware at once. ``pods`` by UUID; ``at`` is called with a word wherever a crash may come."""

    def __init__(self, folder: Path, simulation: Simulation) -> None:
        self.simulation = simulation
        self.boot_id = simulation.boot_id
        self.journal = Journal(folder)
        self.pods: dict[str, list[str]] = {}
        self.kubelet = True
        self.kept: list[frozenset[str]] = []
        self.no_daemon = True
        self.told: list[str] = []
        self.steps: list[Step] = []
        self.at: Callable[[str], None] = lambda _: None
        self.on_withhold: Callable[[], None] = lambda: None
        write = self.journal.write

        def marked(entry: Any) -> None:
            self.at("before journal")
            write(entry)
            self.at("after journal")

        self.journal.write = marked  # type: ignore[method-assign] # the places where a crash may come

    @property
    def handle(self) -> Any:
        return pynvml.nvmlDeviceGetHandleByIndex(0)

    @property
    def uuid(self) -> GpuUuid:
        return GpuUuid(self.simulation.node.gpus[0].uuid)

    def change(self) -> GpuChange:
        return GpuChange(self.uuid, "GPU 0", nvml=self, services=self, journal=self.journal)

    async def bring(self, *profiles: str, when_busy: WhenBusy = WhenBusy.REFUSE) -> Outcome:
        return await self.change().bring(Wish(profiles, when_busy))

    async def switch_off(self) -> Outcome:
        return await self.change().bring(Wish(None))

    def mig(self) -> GpuMig:
        return read_mig(self.handle)

    def layout(self) -> list[tuple[str, int]]:
        """(profile of the GPU instance, first slice), only of those that hold a compute instance."""
        return [(one.profile, one.start) for one in self.mig().instances if one.computes]

    def device(self, start: int) -> str:
        """UUID of the first MIG device of the GPU instance that starts there."""
        mig = self.mig()
        (one,) = [one for one in mig.instances if one.start == start]
        return mig.devices(one)[0]

    # MigHardware

    async def read(self) -> GpuMig:
        return self.mig()

    async def take(self, step: Step) -> None:
        take(self.handle, step)
        self.steps.append(step)
        self.at(f"after {step}")

    async def set_mode(self, *, enabled: bool) -> ModeChange:
        change = set_mode(self.handle, enabled=enabled)
        self.at("after mode")
        return change

    def clients(self) -> Sequence[str]:
        return ["dcgm (7)"]

    # NodeServices

    async def holders(self) -> Mapping[str, Sequence[str]] | None:
        return self.pods if self.kubelet else None

    async def withhold(self, gpu: GpuUuid, keep: frozenset[str]) -> None:
        assert gpu == self.uuid
        self.kept.append(keep)
        self.on_withhold()

    async def quiet(self, gpu: GpuUuid, keep: frozenset[str]) -> bool:
        assert gpu == self.uuid
        assert keep == self.kept[-1], "withheld first"
        return self.no_daemon

    def tell(self, note: str) -> None:
        self.told.append(note)


@contextmanager
def bench(folder: Path, product: str = A100, more: str = "  migEnabled: [0]\n") -> Iterator[Bench]:
    """The bench over ``folder``; opened again it is the same hardware, as after a crash."""
    path = folder / "fleet.yaml"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(f"nodes:\n- name: node-1\n  gpus: 1\n  product: {product}\n{more}")
    simulation = simulator.install(path, "node-1", folder / "state")
    pynvml.nvmlInit()
    try:
        yield Bench(folder / "agent", simulation)
    finally:
        simulation.close()
