"""Repair windows, live: a reset that is due is ordered in its GpuNode while a window is open, within the budget."""

from typing import Any

import pytest

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.watching.kinds import GPU_NODES
from controller.reconcile.repairs import planned_shell
from inventory.api.names import REMEDIATION_ORDER
from kube.testing import eventually
from tests.controller.reconcile.repairs.test_repairs_shell import asks, furnish, grants, notes, repair, rules
from tests.support.controller.stage import Stage, stage

ALWAYS = 'repairWindows: [{from: "0 0 * * *", for: 24h}]'
NEVER_NOW = 'repairWindows: [{from: "0 0 29 2 *", for: 1m}]'


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_shell, "LOOK_S", 0.02)


def windows(text: str, budget: int = 1) -> ControllerConfig:
    return rules(f"budget: {budget}, {text}")


def is_due(scene: Stage, *names: str) -> None:
    for name in names:
        devices = scene.server.get(GPU_NODES, name)["status"]["devices"]
        devices[0]["health"] = {"state": "Suspect", "resetDue": True}
        scene.server.merge(GPU_NODES, name, {"status": {"resetMode": "drain", "devices": devices}})


def ordered(scene: Stage) -> list[str]:
    return [
        key.removeprefix(REMEDIATION_ORDER)
        for node in scene.server.list_all(GPU_NODES)
        for key, value in node["metadata"].get("annotations", {}).items()
        if key.startswith(REMEDIATION_ORDER) and value == "start"
    ]


async def test_a_reset_that_is_due_is_ordered_while_a_window_is_open_and_people_are_told() -> None:
    async with stage() as scene:
        furnish(scene, "n1", "n2")
        is_due(scene, "n1", "n2")
        async with scene.controller(windows(ALWAYS), core_only=False):
            await eventually(lambda: ordered(scene) == ["GPU-n1-0"])
            await eventually(lambda: len(notes(scene, "GpuResetPlanned")) == 1)
            (note,) = notes(scene, "GpuResetPlanned")
            assert note.startswith(
                "GPU GPU-n1-0 of node n1 works, and a reset is due: it is ordered in the repair window"
            )
            obeyed(scene, "n1")
            await eventually(lambda: grants(scene, "n1") == [("GPU-n1-0", "reset", 1)])
            assert ordered(scene) == [], "the budget of one is spent"


def obeyed(scene: Stage, name: str) -> None:
    """What an agent does with the order: it takes it off and asks for the reset."""
    gpu = f"GPU-{name}-0"
    answer: dict[str, Any] = {"gpu": gpu, "order": "start", "answer": "it drains", "at": "2999-01-01T00:00:00Z"}
    asks(scene, name, repair(gpu, "reset", reason="Ordered"))
    patch = {"metadata": {"annotations": {f"{REMEDIATION_ORDER}{gpu}": None}}, "status": {"orderAnswers": [answer]}}
    scene.server.merge(GPU_NODES, name, patch)


async def test_the_next_one_follows_within_the_budget() -> None:
    async with stage() as scene:
        furnish(scene, "n1", "n2")
        is_due(scene, "n1", "n2")
        async with scene.controller(windows(ALWAYS, budget=2), core_only=False):
            await eventually(lambda: ordered(scene) == ["GPU-n1-0"])
            obeyed(scene, "n1")
            await eventually(lambda: grants(scene, "n1") != [])
            asks(scene, "n1", {"gpu": "GPU-n1-0", "state": "Resetting", "reason": "Ordered", "generation": 1})
            await eventually(lambda: ordered(scene) == ["GPU-n2-0"])


@pytest.mark.parametrize("text", [NEVER_NOW, "wait: 60m"])
async def test_outside_of_windows_a_person_orders(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    real = planned_shell.PlannedRepairs.look

    async def look(self: planned_shell.PlannedRepairs) -> None:
        await real(self)
        looks.append(1)

    monkeypatch.setattr(planned_shell.PlannedRepairs, "look", look)
    async with stage() as scene:
        furnish(scene, "n1")
        is_due(scene, "n1")
        async with scene.controller(windows(text), core_only=False):
            asks(scene, "n1", repair("GPU-n1-1"))
            await eventually(lambda: grants(scene, "n1") != [])
            if text == NEVER_NOW:
                await eventually(lambda: len(looks) > 2)
            assert ordered(scene) == []
            assert bool(looks) is (text == NEVER_NOW), "without windows nobody looks"
