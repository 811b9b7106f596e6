"""``tessera explain`` of a workload that waits says which GPUs of its queue's flavors are in repair."""

import time
from typing import Any

from controller.cluster.watching.kinds import GPU_NODES, NODES
from kube.testing import eventually
from tests.cli.queue.test_command import served
from tests.controller.cluster.process.test_gpunodes import gpu_node, gpu_workload, node, on_hosts
from tests.support.cli.shell import Shell


def repair(gpu: str, state: str) -> dict[str, Any]:
    return {"gpu": gpu, "state": state, "next": "reset"}


async def test_gpus_in_repair_are_told_to_a_workload_that_waits(shell: Shell) -> None:
    scene = shell.scene
    scene.queue()
    on_hosts(scene)
    for name, states in (("n1", ("Unhealthy", "Probation")), ("n2", ("Unhealthy", "Unhealthy"))):
        scene.server.create(NODES, name, node(name, 2))
        body = gpu_node(name, *states)
        body["status"]["repairs"] = [repair(f"GPU-{name}-0", "Resetting"), repair(f"GPU-{name}-1", "Probation")]
        scene.server.create(GPU_NODES, name, body)
    scene.server.merge(NODES, "n2", {"metadata": {"labels": {"pool": "others"}}})
    async with scene.controller(served(), core_only=False) as process:
        shell.door.behind = process
        gpu_workload(scene, "waits", 1)
        await eventually(lambda: scene.condition("waits", "QuotaReserved").startswith("False"))
        found = (await shell.json("explain", "team/waits"))["inRepair"]
        (one,) = found["gpus"]
        back_in_s = one.pop("backAt") - time.time()
        assert 240 < back_in_s <= 300, "no repair was seen yet"
        assert one == {"node": "n1", "gpu": "GPU-n1-0", "state": "Resetting", "next": "reset"}
        said = "1 GPU of its queue's flavors in repair: GPU-n1-0 of node n1 (Resetting, likely back in 5m)"
        assert found["sentence"] == said
        assert said in " ".join((await shell.run("explain", "waits")).stdout.split())


async def test_a_workload_that_runs_is_told_of_none(shell: Shell) -> None:
    scene = shell.scene
    scene.queue()
    on_hosts(scene)
    scene.server.create(NODES, "n1", node("n1", 2))
    body = gpu_node("n1", "Unhealthy", "Healthy")
    body["status"]["repairs"] = [repair("GPU-n1-0", "Draining")]
    scene.server.create(GPU_NODES, "n1", body)
    async with scene.controller(served(), core_only=False) as process:
        shell.door.behind = process
        gpu_workload(scene, "runs", 1)
        await scene.until_admitted("runs")
        assert (await shell.json("explain", "team/runs"))["inRepair"] is None
