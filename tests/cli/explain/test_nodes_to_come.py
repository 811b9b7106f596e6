"""``tessera explain`` of a workload that waits for nodes says how many are there, and when it gives up."""

import json

import msgspec

from controller.cluster.watching.kinds import FLAVORS, TOPOLOGIES
from inventory.api.names import NODE_TEMPLATE
from kube.testing import eventually
from tests.cli.queue.test_command import served
from tests.controller.reconcile.provisioning.test_placeholders_shell import TEMPLATE, gang, node, placeholders
from tests.support.cli.shell import Shell
from tests.support.controller.stage import CONFIG, config

TESSERA = CONFIG.replace("policy: kueue", "policy: tessera")


async def test_it_says_how_many_of_its_nodes_are_there(shell: Shell) -> None:
    scene = shell.scene
    tessera = msgspec.structs.replace(config(TESSERA), webhook=served().webhook)
    scene.make(TOPOLOGIES, "hosts", {}, spec={"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})
    notes = {NODE_TEMPLATE: json.dumps(TEMPLATE)}
    scene.make(
        FLAVORS, "default", {"annotations": notes}, spec={"nodeLabels": {"pool": "cpu"}, "topologyName": "hosts"}
    )
    scene.queue(cpus=100)
    async with scene.controller(tessera, core_only=False) as process:
        shell.door.behind = process
        gang(scene, "w", 3)
        node(scene, "n1")
        await eventually(lambda: len(placeholders(scene)) > 0)
        found = await shell.json("explain", "team/w")
        told = found["nodesToCome"]
        assert (told["nodes"], told["missing"], told["usuallyAfterSeconds"]) == (3, 2, 240)
        assert told["flavors"] == ["default"]
        shown = " ".join((await shell.run("explain", "w")).stdout.split())
        assert "Nodes to come: 1 of 3 nodes is there, the rest usually after 4m. It gives up in" in shown
