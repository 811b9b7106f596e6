"""Repairs of GPUs, live: what agents ask for is granted in their GpuNodes, within the budget, and people are told."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from controller.cluster.config.settings import ControllerConfig, RemediationRules
from controller.cluster.metrics.instruments import Instruments
from controller.cluster.metrics.observing import Counting
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import FLAVORS, GPU_NODES, NODES, reader
from controller.objects.core import Node
from controller.objects.decode import GpuNode
from controller.reconcile.repairs.repairs_shell import RepairController
from inventory.api.names import (
    REMEDIATION_BREAKER,
    REMEDIATION_GRANTS,
    REMEDIATION_RESUMED,
    REMEDIATION_TRIPPED,
    REPAIR_BREAKER,
    REPAIR_BREAKER_RESUMED,
    REPAIR_BREAKER_TRIPPED,
)
from kube.errors import KubeError
from kube.reading.entries import CachedObject, ObjectKey
from kube.reading.reflector import Added
from kube.resources import EVENTS
from kube.testing import eventually
from kube.testing.clocks import VirtualClock
from kube.writing.writes import Conflicted, Outcome, Refused, Write, Written
from tests.controller.cluster.process.test_gpunodes import gpu_node, node, on_hosts
from tests.support.controller.stage import CONFIG, Stage, config, stage
from tests.support.controller.told import page

SINCE = "2026-01-01T00:00:00Z"


def rules(text: str = "budget: 1") -> ControllerConfig:
    return config(CONFIG.replace("tessera:\n", f"tessera:\n  remediation: {{{text}}}\n"))


def repair(gpu: str, asks: str = "reset", generation: int = 1, **more: Any) -> dict[str, Any]:
    return {"gpu": gpu, "state": "Draining", "generation": generation, "asks": asks, "since": SINCE, **more}


def asks(scene: Stage, name: str, *repairs: dict[str, Any]) -> None:
    scene.server.merge(GPU_NODES, name, {"status": {"repairs": [*repairs]}})


def grants(scene: Stage, name: str) -> list[tuple[str, str, int]]:
    found = scene.server.get(GPU_NODES, name)["status"].get("remediationGrants", [])
    return [(one["gpu"], one["action"], one["generation"]) for one in found]


def notes(scene: Stage, reason: str) -> list[str]:
    return [one["note"] for one in scene.server.list_all(EVENTS) if one["reason"] == reason]


def furnish(scene: Stage, *names: str) -> None:
    scene.queue()
    on_hosts(scene)
    for name in names:
        scene.server.create(NODES, name, node(name, 2))
        scene.server.create(GPU_NODES, name, gpu_node(name, "Healthy", "Healthy"))


@asynccontextmanager
async def running(given: ControllerConfig | None = None, *names: str) -> AsyncIterator[Stage]:
    async with stage() as scene:
        furnish(scene, *(names or ("n1", "n2")))
        async with scene.controller(given or rules(), core_only=False):
            yield scene


async def test_a_repair_that_asks_is_granted_in_its_gpunode_and_the_agents_status_stays() -> None:
    async with running() as scene:
        asks(scene, "n1", repair("GPU-n1-0", "drain", generation=4))
        await eventually(lambda: grants(scene, "n1") == [("GPU-n1-0", "drain", 4)])
        status = scene.server.get(GPU_NODES, "n1")["status"]
        assert [each["gpu"] for each in status["repairs"]] == ["GPU-n1-0"]
        assert len(status["devices"]) == 2
        await eventually(lambda: notes(scene, "GpuRepairGranted") == ["GPU GPU-n1-0: drain may begin"])


async def test_the_grants_have_a_field_manager_of_their_own() -> None:
    async with running() as scene:
        asks(scene, "n1", repair("GPU-n1-0"))
        await eventually(lambda: grants(scene, "n1") != [])
        fields = scene.server.get(GPU_NODES, "n1")["metadata"]["managedFields"]
        (own,) = [each for each in fields if each["operation"] == "Apply"]
        assert own["manager"] == "tessera"
        assert own["fieldsV1"] == {"f:status": {"f:remediationGrants": {}}}


async def test_the_next_step_of_a_gpu_replaces_its_grant() -> None:
    async with running() as scene:
        asks(scene, "n1", repair("GPU-n1-0", "drain"))
        await eventually(lambda: grants(scene, "n1") == [("GPU-n1-0", "drain", 1)])
        asks(scene, "n1", repair("GPU-n1-0", "reset", generation=2))
        await eventually(lambda: grants(scene, "n1") == [("GPU-n1-0", "reset", 2)])


async def test_what_the_budget_holds_back_is_told_counted_and_lifted_by_a_person() -> None:
    async with running() as scene:
        asks(scene, "n1", repair("GPU-n1-0"))
        await eventually(lambda: grants(scene, "n1") != [])
        asks(scene, "n2", repair("GPU-n2-0"))
        (note,) = await told(scene, "GpuRepairWaits")
        assert note == "GPU GPU-n2-0: reset waits: 1 GPU of flavor default may be repaired in 10m"
        (note,) = await told(scene, "RepairBreakerTripped")
        assert note == (
            "1 repair waits: 1 GPU may be repaired in 10m; they go on by themselves, or at once with the annotation"
            " tessera.dev/remediation-breaker: resume"
        )
        assert grants(scene, "n2") == []
        await eventually(lambda: REMEDIATION_TRIPPED in flavor_notes(scene), what="the flavor says so")
        assert figure(scene, "tessera_gpu_repair_breaker_tripped") == [1.0]
        assert figure(scene, "tessera_gpu_repair_breaker_trips_total") == [1.0]
        assert figure(scene, "tessera_gpu_repair_grants_total") == [1.0]
        scene.server.merge(FLAVORS, "default", {"metadata": {"annotations": {REMEDIATION_BREAKER: "resume"}}})
        await eventually(lambda: grants(scene, "n2") == [("GPU-n2-0", "reset", 1)])
        annotations = scene.server.get(FLAVORS, "default")["metadata"]["annotations"]
        assert REMEDIATION_BREAKER not in annotations
        assert REMEDIATION_RESUMED in annotations
        await told(scene, "RepairBreakerHealed")
        await eventually(lambda: REMEDIATION_TRIPPED not in flavor_notes(scene), what="the flavor says nothing")
        assert figure(scene, "tessera_gpu_repair_breaker_tripped") == [0.0]


async def test_the_breaker_of_nodes_of_no_flavor_is_shown_and_lifted_on_a_gpunode() -> None:
    async with running() as scene:
        for name in ("n8", "n9"):
            scene.server.create(
                NODES, name, {**(bare := node(name, 2)), "metadata": {**bare["metadata"], "labels": {}}}
            )
            scene.server.create(GPU_NODES, name, gpu_node(name, "Healthy", "Healthy"))
        asks(scene, "n8", repair("GPU-n8-0"))
        await eventually(lambda: grants(scene, "n8") != [])
        asks(scene, "n9", repair("GPU-n9-0"))
        await eventually(lambda: REPAIR_BREAKER_TRIPPED in gpunode_notes(scene, "n9"), what="the GpuNode shows it")
        (note,) = await told(scene, "RepairBreakerTripped")
        assert note == (
            "1 repair waits: 1 GPU of the nodes of no flavor may be repaired in 10m; they go on by themselves, or by:"
            " tessera remediation resume no-flavor.tessera.dev"
        )
        assert scene.process is not None
        lines = [line for line in page(scene.process).splitlines() if 'flavor="no-flavor.tessera.dev"' in line]
        assert [line.split("{")[0] for line in lines if line.endswith(" 1.0")] == [
            "tessera_gpu_repair_breaker_trips_total",
            "tessera_gpu_repair_breaker_tripped",
        ]
        resume = {"metadata": {"annotations": {REPAIR_BREAKER: "resume"}}}
        scene.server.merge(GPU_NODES, "n1", resume)
        (note,) = await told(scene, "InvalidRemediationBreaker")
        assert note == (
            "tessera.dev/repair-breaker: found it on a node of flavor default, expected a node of no flavor."
            " Annotate the ResourceFlavor"
        )
        assert grants(scene, "n9") == []
        scene.server.merge(GPU_NODES, "n9", resume)
        await eventually(lambda: grants(scene, "n9") == [("GPU-n9-0", "reset", 1)])
        await eventually(lambda: gpunode_notes(scene, "n9").keys() == {REPAIR_BREAKER_RESUMED}, what="it is answered")
        await told(scene, "RepairBreakerHealed")


def gpunode_notes(scene: Stage, name: str) -> dict[str, str]:
    return dict(scene.server.get(GPU_NODES, name)["metadata"].get("annotations", {}))


def flavor_notes(scene: Stage) -> dict[str, str]:
    return dict(scene.server.get(FLAVORS, "default")["metadata"].get("annotations", {}))


async def test_a_new_leader_takes_off_what_a_flavor_says_of_a_breaker_that_has_healed() -> None:
    async with stage() as scene:
        furnish(scene, "n1")
        scene.server.merge(FLAVORS, "default", {"metadata": {"annotations": {REMEDIATION_TRIPPED: SINCE}}})
        async with scene.controller(rules(), core_only=False):
            await eventually(lambda: REMEDIATION_TRIPPED not in flavor_notes(scene))


async def test_the_grants_of_a_gpunode_that_goes_are_written_into_the_one_that_comes() -> None:
    async with running() as scene:
        asks(scene, "n1", repair("GPU-n1-0"))
        await eventually(lambda: grants(scene, "n1") != [])
        scene.server.delete(GPU_NODES, "n1")
        asks(scene, "n2", repair("GPU-n2-0"))
        await told(scene, "GpuRepairWaits")
        scene.server.create(GPU_NODES, "n1", gpu_node("n1", "Healthy", "Healthy"))
        await eventually(
            lambda: grants(scene, "n1") == [("GPU-n1-0", "reset", 0)], what="it counts, and permits nothing"
        )
        assert grants(scene, "n2") == []


async def test_another_value_of_the_annotation_is_refused_in_a_line() -> None:
    async with running() as scene:
        scene.server.merge(FLAVORS, "default", {"metadata": {"annotations": {REMEDIATION_BREAKER: "off"}}})
        (note,) = await told(scene, "InvalidRemediationBreaker")
        assert note == "tessera.dev/remediation-breaker: found 'off', expected resume"
        assert REMEDIATION_BREAKER in scene.server.get(FLAVORS, "default")["metadata"]["annotations"]


@pytest.mark.parametrize("lifted", [False, True])
async def test_a_new_leader_counts_what_the_one_before_granted(lifted: bool) -> None:
    async with stage() as scene:
        furnish(scene, "n1", "n2")
        asks(scene, "n1", repair("GPU-n1-0"))
        async with scene.controller(rules(), core_only=False):
            await eventually(lambda: grants(scene, "n1") != [])
        granted = {"gpu": "GPU-n1-0", "generation": 1, "action": "reset", "granted": ago(300)}
        scene.server.merge(GPU_NODES, "n1", {"status": {"remediationGrants": [granted]}})
        if lifted:
            resumed = {REMEDIATION_RESUMED: ago(100)}
            scene.server.merge(FLAVORS, "default", {"metadata": {"annotations": resumed}})
        asks(scene, "n2", repair("GPU-n2-0"))
        async with scene.controller(rules(), core_only=False, name="two"):
            if lifted:
                await eventually(lambda: grants(scene, "n2") != [])
            else:
                await told(scene, "GpuRepairWaits")
                assert grants(scene, "n2") == []


@pytest.mark.parametrize("node_goes", [False, True], ids=["its node stays", "its node goes, too"])
async def test_a_new_leader_counts_what_was_granted_to_a_gpunode_that_is_away(node_goes: bool) -> None:
    async with stage() as scene:
        furnish(scene, "n1", "n2")
        asks(scene, "n1", repair("GPU-n1-0"))
        async with scene.controller(rules(), core_only=False):
            await eventually(lambda: grants(scene, "n1") != [])
            await eventually(lambda: REMEDIATION_GRANTS in flavor_notes(scene), what="the flavor has the grant")
        (gpu,) = json.loads(flavor_notes(scene)[REMEDIATION_GRANTS])["n1"]
        assert gpu == "GPU-n1-0"
        scene.server.delete(GPU_NODES, "n1")
        if node_goes:
            scene.server.delete(NODES, "n1")
        asks(scene, "n2", repair("GPU-n2-0"))
        async with scene.controller(rules(), core_only=False):
            await told(scene, "GpuRepairWaits")
            assert grants(scene, "n2") == [], "the budget of one GPU is used"
            if not node_goes:
                scene.server.create(GPU_NODES, "n1", gpu_node("n1", "Healthy", "Healthy"))
                await eventually(
                    lambda: grants(scene, "n1") == [("GPU-n1-0", "reset", 0)], what="it stands there again"
                )


async def test_what_a_flavor_says_of_grants_goes_when_none_counts_any_more() -> None:
    async with stage() as scene:
        furnish(scene, "n1")
        old = json.dumps({"n1": {"GPU-n1-0": SINCE}, "gone": {"GPU-x": SINCE}})
        scene.server.merge(FLAVORS, "default", {"metadata": {"annotations": {REMEDIATION_GRANTS: old}}})
        async with scene.controller(rules(), core_only=False):
            await eventually(lambda: REMEDIATION_GRANTS not in flavor_notes(scene))
            asks(scene, "n1", repair("GPU-n1-1"))
            await eventually(lambda: grants(scene, "n1") == [("GPU-n1-1", "reset", 1)])


async def test_one_node_of_a_rack_is_repaired_at_a_time() -> None:
    async with stage() as scene:
        furnish(scene, "n1", "n2")
        for name in ("n1", "n2"):
            scene.server.merge(NODES, name, {"metadata": {"labels": {"rack": "r1"}}})
        asks(scene, "n1", repair("GPU-n1-0"))
        async with scene.controller(rules("budget: 9, levels: [rack]"), core_only=False):
            await eventually(lambda: grants(scene, "n1") != [])
            asks(scene, "n2", repair("GPU-n2-0"))
            (note,) = await told(scene, "GpuRepairWaits")
            assert note == ("GPU GPU-n2-0: reset waits: node n1, of the same rack, is repaired, or was in the last 10m")


async def test_nothing_is_granted_on_a_node_that_nobody_repairs() -> None:
    async with running() as scene:
        label = {"k8saas.nvidia.com/ManagedByNVSentinel": "false"}
        scene.server.merge(NODES, "n1", {"metadata": {"labels": label}})
        asks(scene, "n1", repair("GPU-n1-0"))
        (note,) = await told(scene, "GpuRepairWaits")
        assert "does not begin, by the node's label k8saas.nvidia.com/ManagedByNVSentinel=false. Remove it" in note
        assert grants(scene, "n1") == []
        scene.server.merge(NODES, "n1", {"metadata": {"labels": {"k8saas.nvidia.com/ManagedByNVSentinel": None}}})
        await eventually(lambda: grants(scene, "n1") != [])


async def test_a_list_that_somebody_takes_away_is_written_again() -> None:
    async with running() as scene:
        asks(scene, "n1", repair("GPU-n1-0"))
        await eventually(lambda: grants(scene, "n1") != [])
        scene.server.merge(GPU_NODES, "n1", {"status": {"remediationGrants": [], "repairs": []}})
        scene.server.merge(GPU_NODES, "n1", {"status": {"repairs": [repair("GPU-n1-0", generation=2)]}})
        await eventually(lambda: grants(scene, "n1") == [("GPU-n1-0", "reset", 2)])


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


async def told(scene: Stage, reason: str) -> list[str]:
    await eventually(lambda: notes(scene, reason) != [], what=reason)
    return notes(scene, reason)


def figure(scene: Stage, name: str) -> list[float]:
    assert scene.process is not None
    return [float(line.split()[-1]) for line in page(scene.process).splitlines() if line.startswith(f"{name}{{")]


class Alone:
    """The controller without a process: one GpuNode, and writes whose outcomes are given."""

    def __init__(self, outcome: Outcome[Any]) -> None:
        self.outcome = outcome
        self.written: list[Write[Any]] = []
        self.clock = VirtualClock()
        self.shell = RepairController(
            RemediationRules(),
            self.put,
            clock=self.clock,
            figures=Counting(Instruments(), local_queues=False),
            tell=lambda *_: None,
        )
        self.hear(NODES, node("n1", 2), Node)
        self.version = 0
        self.says([repair("GPU-n1-0")])

    def put(self, write: Write[Any]) -> "asyncio.Future[Outcome[Any]]":
        self.written.append(write)
        future: asyncio.Future[Outcome[Any]] = asyncio.get_running_loop().create_future()
        future.set_result(self.outcome)
        return future

    def hear(self, resource: Any, body: dict[str, Any], type_: Any, version: str = "1") -> None:
        entry = CachedObject(reader(type_)(json.dumps(body).encode()), "uid", version)
        self.shell.hear(ObjectChange(resource, Added(ObjectKey("", "n1"), entry)))

    def says(self, repairs: list[dict[str, Any]], given: list[Any] | None = None) -> None:
        body = gpu_node("n1", "Healthy")
        body["status"] |= {"repairs": repairs, "remediationGrants": given or []}
        self.version += 1
        self.hear(GPU_NODES, body, GpuNode, str(self.version))

    async def step(self) -> list[Any]:
        """The versions that the writes of this step are tied to."""
        before = len(self.written)
        self.shell.reconcile()
        await asyncio.sleep(0)
        return [each.body["metadata"]["resourceVersion"] for each in self.written[before:]]


async def test_a_list_that_was_written_is_not_written_again_before_it_could_be_seen() -> None:
    alone = Alone(Written(None))
    assert await alone.step() == ["1"]
    assert await alone.step() == []
    alone.says([repair("GPU-n1-0")])
    assert await alone.step() == [], "an older one may still be told"
    alone.clock.advance(5.0)
    assert await alone.step() == ["2"]
    (entry,) = alone.written[-1].body["status"]["remediationGrants"]
    alone.says([repair("GPU-n1-0")], [msgspec.to_builtins(entry)])
    assert await alone.step() == []


@pytest.mark.parametrize("outcome", [Conflicted(KubeError("changed")), Refused(KubeError("no"))])
async def test_a_grant_that_could_not_be_written_is_decided_anew(outcome: Outcome[Any]) -> None:
    alone = Alone(outcome)
    assert await alone.step() == ["1"]
    alone.says([repair("GPU-n1-0", generation=2)])
    alone.outcome = Written(None)
    assert await alone.step() == ["2"]
    assert [each.generation for each in alone.written[-1].body["status"]["remediationGrants"]] == [2]
