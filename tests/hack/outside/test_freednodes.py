"""Nodes that are freed by the real controller, and the judge's verdict on the history."""

from functools import partial
from typing import Any

import pytest

from controller.cluster.watching.kinds import TOPOLOGIES
from hack.outside import warp
from hack.planted.nets import queueworld
from hack.planted.nets.queueworld import (
    CLUSTER_QUEUES,
    FLAVORS,
    GPU,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    WORKLOADS,
    QueueWorld,
    config,
    controller,
    first,
    machines,
    play,
    world_of,
)
from history.judge import Verdict
from history.settings import Settings
from kube.resources import PODS
from kube.testing import FakeApiServer

SPACE = "alpha"
RESTS_S, MOVES = 20.0, 2
CONFIG = f"""\
tessera:
  policy: tessera
  packing: {{freeNodes: true}}
  consolidation: {{enabled: true, minimumRuntime: {RESTS_S:g}s, movesPerHour: {MOVES}}}
"""


def queues(world: QueueWorld) -> None:
    world.create(NAMESPACES, {"metadata": {"name": SPACE}})
    world.create(
        TOPOLOGIES, {"metadata": {"name": "hosts"}, "spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}}
    )
    world.create(FLAVORS, {"metadata": {"name": "gpu"}, "spec": {"nodeLabels": {}, "topologyName": "hosts"}})
    quota = {"name": GPU, "nominalQuota": "16"}
    group = {"coveredResources": [GPU], "flavors": [{"name": "gpu", "resources": [quota]}]}
    world.create(
        CLUSTER_QUEUES, {"metadata": {"name": "q"}, "spec": {"namespaceSelector": {}, "resourceGroups": [group]}}
    )
    world.create(LOCAL_QUEUES, {"metadata": {"name": "q", "namespace": SPACE}, "spec": {"clusterQueue": "q"}})


def job(world: QueueWorld, name: str, gpus: int, runs_s: float) -> None:
    asked = {GPU: str(gpus)}
    container = {"name": "main", "image": "i", "resources": {"requests": asked, "limits": asked}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    spec = {"suspend": True, "parallelism": 1, "completions": 1, "template": {"spec": pod}}
    notes = {"tessera.dev/runtime": f"{runs_s:g}s", "tessera.dev/checkpoint-interval": "1s"}
    meta = {"name": name, "namespace": SPACE, "annotations": notes, "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    world.create(JOBS, {"metadata": meta, "spec": spec, "status": {}})


async def lived(server: FakeApiServer, lasts_s: float) -> Verdict:
    """Each of three nodes of four GPUs has a job of three that soon ends and one of one that runs for long."""
    world = world_of(server, machines(3, 4))
    acts: list[Any] = [(0.0, queues)]
    for at in range(3):
        acts.append((1.0 + 4 * at, partial(job, name=f"large-{at}", gpus=3, runs_s=20.0)))
        acts.append((3.0 + 4 * at, partial(job, name=f"small-{at}", gpus=1, runs_s=3600.0)))
    todo = first(world, acts)
    async with controller(server, config(more=CONFIG)):
        return await play(world, todo, lasts_s)


def test_nodes_are_freed_within_the_bounds_and_the_judge_has_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = partial(Settings, move_after_s=RESTS_S, moves_per_hour=MOVES)
    monkeypatch.setattr(queueworld, "Settings", bounds)
    found: dict[str, Any] = {}

    async def story() -> None:
        async with FakeApiServer() as server:
            found["verdict"] = await lived(server, 300.0)
            found["workloads"] = server.list_all(WORKLOADS)
            found["pods"] = server.list_all(PODS)

    warp.run(story())
    assert found["verdict"].findings == ()
    moved = [
        one["message"]
        for each in found["workloads"]
        for one in each["status"]["conditions"]
        if one["type"] == "tessera.dev/Moved"
    ]
    assert len(moved) == MOVES, "three nodes of a quarter each become one"
    assert all(message.startswith("Moved so that node node-") for message in moved)
    running = [each for each in found["pods"] if each["status"].get("phase") == "Running"]
    assert len(running) == 3
    assert len({each["spec"]["nodeName"] for each in running}) == 1
