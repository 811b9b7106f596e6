"""``tessera explain`` names a flavor that is tried after others because its nodes are taken away too often."""

from typing import Any

from msgspec import structs

from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS
from controller.scheduler.model.config import InterruptionRules
from inventory.api.names import INTERRUPTED_OFTEN, INTERRUPTION_RATE
from tests.cli.queue.test_command import served
from tests.support.cli.shell import Shell


async def test_who_got_another_flavor_is_told_why(shell: Shell) -> None:
    scene = shell.scene
    scene.queue(cpus=1)
    scene.make(FLAVORS, "calm", {})
    quotas: list[dict[str, Any]] = [
        {"name": name, "resources": [{"name": "cpu", "nominalQuota": "1"}]} for name in ("default", "calm")
    ]
    groups = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": quotas}]}
    scene.server.merge(CLUSTER_QUEUES, "cq", {"spec": groups})
    marks = {INTERRUPTED_OFTEN: "3.20", INTERRUPTION_RATE: "3.20"}
    scene.server.merge(FLAVORS, "default", {"metadata": {"annotations": marks}})
    given = served()
    beyond = structs.replace(given.engine.extensions, interruptions=InterruptionRules())
    given = structs.replace(given, engine=structs.replace(given.engine, extensions=beyond))
    async with scene.controller(given, core_only=False) as process:
        shell.door.behind = process
        for name in ("first", "second"):
            scene.workload(name)
            await scene.until_admitted(name)
        said = "Nodes of flavor default are taken away 3.2 times per node-day, so other flavors are tried first"
        assert (await shell.json("explain", "team/first"))["passedOver"] == {"flavors": ["default"], "sentence": said}
        assert said in " ".join((await shell.run("explain", "first")).stdout.split())
        assert (await shell.json("explain", "team/second"))["passedOver"] is None, "it runs there"
