"""GPUResets, live: they become orders in GpuNodes, and their status follows what the agent makes of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.cluster.watching.kinds import GPU_NODES, NODES
from controller.reconcile.repairs import gpuresets_shell
from controller.reconcile.repairs.gpuresets_shell import RESETS
from kube.testing import eventually
from tests.controller.reconcile.repairs.test_repairs_shell import asks, furnish, repair, rules
from tests.support.controller.stage import Stage, stage

ORDER = "tessera.dev/remediation-GPU-n1-0"
MANAGED = "k8saas.nvidia.com/ManagedByNVSentinel"


@asynccontextmanager
async def running(monkeypatch: pytest.MonkeyPatch, **labels: str) -> AsyncIterator[Stage]:
    monkeypatch.setattr(gpuresets_shell, "LOOK_S", 0.02)
    async with stage() as scene:
        scene.server.install(RESETS)
        furnish(scene, "n1")
        scene.server.merge(NODES, "n1", {"metadata": {"labels": {MANAGED: "true", **labels}}})
        async with scene.controller(rules(), core_only=False):
            yield scene


def make(scene: Stage, name: str = "r", node: str = "n1", **selector: Any) -> None:
    scene.server.create(RESETS, name, {"metadata": {}, "spec": {"nodeName": node, "selector": selector}})


def phase(scene: Stage, name: str = "r") -> str:
    return str(scene.server.get(RESETS, name).get("status", {}).get("phase", ""))


def orders(scene: Stage) -> dict[str, str]:
    return dict(scene.server.get(GPU_NODES, "n1")["metadata"].get("annotations", {}))


async def test_a_reset_is_ordered_followed_and_done(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as scene:
        make(scene, uuids=["GPU-n1-0"])
        await eventually(lambda: phase(scene) == "InProgress")
        assert orders(scene) == {ORDER: "start"}
        scene.server.merge(GPU_NODES, "n1", {"metadata": {"annotations": {ORDER: None}}})
        asks(scene, "n1", repair("GPU-n1-0", ""))
        await eventually(lambda: "GPU-n1-0" in str(scene.server.get(RESETS, "r")["status"]["conditions"]))
        asks(scene, "n1")
        await eventually(lambda: phase(scene) == "Succeeded")
        status = scene.server.get(RESETS, "r")["status"]
        assert status["startTime"] <= status["completionTime"]
        assert orders(scene) == {}, "it is ordered once"


async def test_a_gpu_that_is_not_there_fails_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as scene:
        make(scene, uuids=["GPU-x"])
        await eventually(lambda: phase(scene) == "Failed")
        assert orders(scene) == {}


async def test_a_node_that_nobody_repairs_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch, **{MANAGED: "false"}) as scene:
        make(scene, "left", uuids=["GPU-n1-0"])
        make(scene, "other", "n9")
        await eventually(lambda: phase(scene, "other") == "Failed")
        assert phase(scene, "left") == ""
        assert orders(scene) == {}


async def test_an_order_that_nobody_answered_goes_with_its_gpureset(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as scene:
        make(scene, uuids=["GPU-n1-0"])
        await eventually(lambda: orders(scene) == {ORDER: "start"} and phase(scene) == "InProgress")
        scene.server.delete(RESETS, "r")
        await eventually(lambda: orders(scene) == {})


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {ORDER: "stop"}),
        ({"reason": "Xid119"}, {}),
        ({"attempt": 1}, {}),
        ({"state": "Resetting", "attempt": 1}, {}),
    ],
    ids=["not begun", "a fault's", "a reset was begun", "being reset"],
)
async def test_a_repair_that_has_not_begun_ends_with_its_gpureset(
    more: dict[str, Any], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(monkeypatch) as scene:
        make(scene, uuids=["GPU-n1-0"])
        await eventually(lambda: orders(scene) == {ORDER: "start"} and phase(scene) == "InProgress")
        scene.server.merge(GPU_NODES, "n1", {"metadata": {"annotations": {ORDER: None}}})
        answer = {"gpu": "GPU-n1-0", "order": "start", "answer": "It is reset", "at": "2999-01-01T00:00:00Z"}
        obeyed = {"repairs": [repair("GPU-n1-0", **{"reason": "Ordered", **more})], "orderAnswers": [answer]}
        scene.server.merge(GPU_NODES, "n1", {"status": obeyed})
        await eventually(lambda: "GPU-n1-0" in str(scene.server.get(RESETS, "r")["status"]["conditions"]))
        scene.server.delete(RESETS, "r")
        make(scene, "gone", "n9")
        await eventually(lambda: phase(scene, "gone") == "Failed" and orders(scene) == expected)


async def test_a_persons_own_start_is_not_taken_off_with_a_gpureset(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as scene:
        scene.server.merge(GPU_NODES, "n1", {"metadata": {"annotations": {ORDER: "start"}}}, manager="kubectl")
        make(scene, uuids=["GPU-n1-0"])
        await eventually(lambda: phase(scene) == "InProgress")
        scene.server.delete(RESETS, "r")
        make(scene, "gone", "n9")
        await eventually(lambda: phase(scene, "gone") == "Failed")
        assert orders(scene) == {ORDER: "start"}


async def test_on_a_node_whose_agent_repairs_nothing_a_gpureset_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as scene:
        scene.server.merge(GPU_NODES, "n1", {"status": {"resetMode": "never"}})
        make(scene, uuids=["GPU-n1-0"])
        await eventually(lambda: phase(scene) == "Failed")
        assert "another remediation.reset than never" in str(scene.server.get(RESETS, "r")["status"]["conditions"])
        assert orders(scene) == {}


async def test_a_persons_other_order_stays_when_a_gpureset_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(monkeypatch) as scene:
        make(scene, uuids=["GPU-n1-0"])
        await eventually(lambda: orders(scene) == {ORDER: "start"} and phase(scene) == "InProgress")
        scene.server.merge(GPU_NODES, "n1", {"metadata": {"annotations": {ORDER: "retire"}}})
        scene.server.delete(RESETS, "r")
        make(scene, "gone", "n9")
        await eventually(lambda: phase(scene, "gone") == "Failed")
        assert orders(scene) == {ORDER: "retire"}
