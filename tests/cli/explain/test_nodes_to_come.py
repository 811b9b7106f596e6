"""``tessera explain`` of a workload that waits for nodes says how many are there, when it gives up, and what keeps more
from coming.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from controller.cluster.watching.kinds import FLAVORS, TOPOLOGIES
from controller.reconcile.lifecycle import lifecycle
from inventory.api.names import NODE_TEMPLATE, PROVISION_TIMEOUT
from kube.testing import eventually
from tests.cli.queue.test_command import served
from tests.controller.reconcile.provisioning.test_placeholders_shell import TEMPLATE, gang, node, placeholders
from tests.support.cli.shell import Shell
from tests.support.controller.stage import CONFIG, Stage, config

TESSERA = CONFIG.replace("policy: kueue", "policy: tessera")


@asynccontextmanager
async def scene_of(shell: Shell, **template: Any) -> AsyncIterator[Stage]:
    """A queue whose flavor has no node yet; the controller runs and answers."""
    scene = shell.scene
    tessera = msgspec.structs.replace(config(TESSERA), webhook=served().webhook)
    scene.make(TOPOLOGIES, "hosts", {}, spec={"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})
    notes = {NODE_TEMPLATE: json.dumps(TEMPLATE | template)}
    scene.make(
        FLAVORS, "default", {"annotations": notes}, spec={"nodeLabels": {"pool": "cpu"}, "topologyName": "hosts"}
    )
    scene.queue(cpus=100)
    async with scene.controller(tessera, core_only=False) as process:
        shell.door.behind = process
        yield scene


async def words(shell: Shell, *command: str) -> str:
    return " ".join((await shell.run(*command)).stdout.split())


async def test_it_says_how_many_of_its_nodes_are_there(shell: Shell) -> None:
    async with scene_of(shell) as scene:
        gang(scene, "w", 3)
        node(scene, "n1")
        await eventually(lambda: len(placeholders(scene)) > 0)
        found = await shell.json("explain", "team/w")
        told = found["nodesToCome"]
        assert (told["nodes"], told["missing"], told["usuallyAfterSeconds"]) == (3, 2, 240)
        assert told["flavors"] == ["default"]
        shown = await words(shell, "explain", "w")
        assert "Nodes to come: 1 of 3 nodes is there, the rest usually after 4m. It gives up in" in shown


async def test_it_says_that_nodes_did_not_come_and_when_it_is_tried_again(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "FOUND_WITHIN_S", 0.0)
    async with scene_of(shell) as scene:
        gang(scene, "w", 2, annotations={PROVISION_TIMEOUT: "1s"})
        await eventually(lambda: scene.condition("w", "Evicted") == "True/NodesDidNotCome")
        scene.release("w")
        await eventually(lambda: scene.condition("w", "QuotaReserved") == "False/TopologyPlacementFailed")
        found = await shell.json("explain", "team/w")
        rests = "nodes of flavor default did not come in time, and none is counted on until "
        assert rests in found["sentence"]
        assert 60.0 <= found["forecast"]["fromSeconds"] <= 300.0
        assert found["forecast"]["never"] is None
        shown = await words(shell, "explain", "w")
        assert rests in shown
        assert "never" not in shown
        assert "Nodes of flavor default did not come in time: it is tried again in" in shown
        assert rests in await words(shell, "queue", "pending", "-o", "wide")


async def test_it_says_how_many_more_nodes_can_come_where_they_are_too_few(shell: Shell) -> None:
    async with scene_of(shell, max=2) as scene:
        gang(scene, "w", 3)
        await eventually(lambda: scene.condition("w", "QuotaReserved") == "False/TopologyPlacementFailed")
        shown = await words(shell, "explain", "w")
        assert "at most 2 more nodes of flavor default can come, and at most 2 of 3 pods fit then" in shown
        assert "start now" not in shown


async def test_of_one_node_it_says_is_also_where_it_is_not_there(shell: Shell) -> None:
    async with scene_of(shell) as scene:
        gang(scene, "w", 1)
        await eventually(lambda: len(placeholders(scene)) > 0)
        assert "Nodes to come: 0 of 1 node is there, the rest usually after 4m." in await words(shell, "explain", "w")
