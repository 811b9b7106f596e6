"""An agent that is killed before or after anything that it makes durable, and before or after any step on the hardware:
what the next one offers, before it has heard of NVML, is what the hardware has and what no pod holds in another shape.
"""

import itertools
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import structs

from agent.config.load import load
from agent.daemon import Agent
from agent.mig import reconciler
from agent.mig.nvmlmig import NvmlMig
from agent.mig.outcomes import MigState as MigOutcome
from agent.process.tasks import SteadyClock
from deviceplugin.testing import Grant
from inventory.layout.layout import physical_id
from simulator.boards import migstate
from simulator.boards.migstate import MigState
from simulator.hardware.hardware import Hardware
from tests.support.agent.node import EAGER, Lab, Notebook, fleet

H100 = "NVIDIA H100 80GB HBM3"
KEPT = ("checkpoint.json", "layout.json", "mig")
"""What an agent reads at its start; the simulated hardware's own files stand beside it."""


def layout(*entries: str) -> str:
    return EAGER + "layout:\n" + "".join(f"- {entry}\n" for entry in entries)


def cut(*profiles: str) -> str:
    return layout(f"{{gpus: [0], mode: mig, profiles: [{', '.join(profiles)}], whenBusy: wait}}")


class Place(NamedTuple):
    """A moment before or after something is done: what is on disk, on the hardware, and in whose hand."""

    where: str
    folder: Path
    hardware: Hardware
    pods: dict[tuple[str, str], list[Grant]]

    @property
    def held(self) -> dict[str, str]:
        """The resource of each device in a pod's hand."""
        grants = (grant for grants in self.pods.values() for grant in grants)
        return {device: grant.resource for grant in grants for device in grant.devices}


class Kills:
    """All places where a kill may come, each with the files and the hardware of that moment."""

    def __init__(self, lab: Lab, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lab = lab
        self._folder = folder
        self._numbers = itertools.count()
        self.places: list[Place] = []
        for name in ("replace", "unlink"):
            self._around(monkeypatch, Path, name)
        for name in ("take", "set_mode"):
            self._around_async(monkeypatch, NvmlMig, name)

    def at(self, where: str) -> None:
        folder = self._folder / str(next(self._numbers))
        folder.mkdir(parents=True)
        for name in KEPT:
            path = self._lab.state_dir / name
            if path.is_dir():
                shutil.copytree(path, folder / name)
            elif path.exists():
                shutil.copyfile(path, folder / name)
        pods = {pod: list(grants) for pod, grants in self._lab.kubelet.pods.items()}
        self.places.append(Place(where, folder, self._lab.simulation.hardware, pods))

    def _ours(self, path: Path) -> bool:
        return path.name in KEPT or path.parent == self._lab.state_dir / "mig"

    def _around(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def wrapped(path: Path, *args: Any, **more: Any) -> Any:
            target = Path(args[0]) if name == "replace" else path
            if not self._ours(target):
                return real(path, *args, **more)
            self.at(f"before {name} {target.name}")
            found = real(path, *args, **more)
            self.at(f"after {name} {target.name}")
            return found

        monkeypatch.setattr(owner, name, wrapped)

    def _around_async(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        async def wrapped(*args: Any, **more: Any) -> Any:
            self.at(f"before {name}")
            found = await real(*args, **more)
            self.at(f"after {name}")
            return found

        monkeypatch.setattr(owner, name, wrapped)


async def check(lab: Lab, kills: Kills, configs: Iterable[str]) -> int:
    """Start an agent at every place, with each configuration; how many devices all of them offer."""
    offered = 0
    for config in configs:
        for place in kills.places:
            lab.kubelet.pods = place.pods
            agent = Agent(structs.replace(lab.settings(config), state_dir=place.folder), Notebook(), SteadyClock())
            await agent.ask_holders_first()
            if agent._start.advertises:
                offered += judge(agent, place)
            agent._alarm.set(None)
    return offered


def judge(agent: Agent, place: Place) -> int:
    """Every device that is offered exists, and no pod has it in another shape."""
    uuid = agent.node_state.node.gpus[0].uuid
    there = devices(uuid, place.hardware.gpus[0].mig)
    offered = 0
    for view in agent.node_state.views():
        for device in view.resource.devices:
            if device.id in view.unhealthy:
                continue
            offered += 1
            said = f"killed {place.where}: {device.id} of {view.resource.name} is offered"
            assert device.physical_id in there, f"{said}, the hardware has {there}"
            for hand, resource in place.held.items():
                same = resource == view.resource.name and ("::" in hand) == ("::" in device.id)
                apart = uuid not in (physical_id(hand), device.physical_id) and physical_id(hand) != device.physical_id
                assert same or apart, f"{said}, a pod has {hand} of {resource}"
    return offered


def devices(uuid: str, mig: MigState) -> set[str]:
    """What can be given out of the hardware: the GPU whole, or the instances that there are."""
    if not mig.enabled:
        return {uuid}
    return {migstate.uuid(uuid, gi.id, ci.id) for gi, ci in mig.devices()}


async def recorded(lab: Lab, kills: Kills) -> None:
    """A discovery that began after the last change is in the checkpoint."""
    await lab.look_again()
    places = len(kills.places)
    lab.agent._files.changed()
    await lab.until(lambda: len(kills.places) >= places + 2, "the checkpoint is written once more")


CHANGES = {
    "whole to MIG": (EAGER, cut("3g.40gb", "2g.20gb")),
    "MIG to other MIG": (cut("3g.40gb", "2g.20gb"), cut("1g.10gb", "4g.40gb")),
    "MIG to whole": (cut("3g.40gb"), layout("{gpus: [0], mode: whole, whenBusy: wait}")),
    "MIG to no layout": (cut("3g.40gb"), EAGER),
    "whole to shares": (EAGER, layout("{gpus: [0], mode: timeSlicing, replicas: 2, whenBusy: wait}")),
    "shares to whole": (layout("{gpus: [0], mode: timeSlicing, replicas: 2, whenBusy: wait}"), EAGER),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_wherever_an_agent_is_killed_the_next_one_offers_what_is_there_and_free(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(reconciler, "WAIT_POLL_S", 0.05)
    before, after = CHANGES[change]
    lab.power_on(fleet(1, H100))
    await lab.kubelet.start()
    await lab.start(before)
    await lab.until(lambda: settled(lab, before))
    kills = Kills(lab, tmp_path / "kills", monkeypatch)
    await recorded(lab, kills)
    there = hardware(lab)
    await lab.agent.reconfigure(lab.settings(after))
    cuts = "mode: mig" in before + after
    await lab.until(lambda: settled(lab, after) and (hardware(lab) != there) == cuts, f"{change} is over")
    resource = lab.agent.node_state.layout.resources[0].name
    await lab.kubelet.allocate(resource, 1)
    kills.at("with a pod that the kubelet has not listed")
    await recorded(lab, kills)
    await lab.stop()
    monkeypatch.undo()
    assert await check(lab, kills, (before, after)) > 0


def hardware(lab: Lab) -> set[str]:
    """What the GPU can be given out as now."""
    return devices(lab.uuid(0), lab.simulation.hardware.gpus[0].mig)


def settled(lab: Lab, config: str) -> bool:
    """The kubelet is told of what the hardware has under that configuration."""
    wanted = load(None, {}, lab.all_flags).settings.gpu_layout
    state, mig = lab.agent.node_state, lab.simulation.hardware.gpus[0].mig
    listed = {one for endpoint in lab.kubelet.endpoints.values() for one in endpoint.healthy}
    planned = {device.id for resource in state.layout.resources for device in resource.devices}
    return (
        state.choices.gpu_layout == wanted
        and not state.waits
        and mig.enabled == ("mode: mig" in config)
        and bool(listed)
        and listed == planned
        and {physical_id(one) for one in listed} == hardware(lab)
        and all(one.state is MigOutcome.APPLIED for one in lab.agent.mig.reconciler.statuses.values())
    )
