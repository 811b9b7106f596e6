"""Competing gangs against the real kube-scheduler: none holds what another waits for while it waits itself.

A gang's pods end only when all of them have run at once: so two half-placed gangs would stay so for ever, which the
first test shows of gangs that nobody queues. And pods of a queue that only the scheduler places keep off spot nodes.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.objects.core import SPOT_LABELS
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from inventory.api.names import SPOT
from tests.support.e2e.podlab import GPU, PLACED, Gang, PodLab, node, pod_body, pod_lab, pods_installed
from tests.support.e2e.queuelab import ALONE

pytestmark = pytest.mark.e2e

NODES, GPUS = 4, 4
GANGS = 10


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    spec = Spec(nodes=(), kwok_nodes=NODES, kwok_capacity={GPU: str(GPUS)})
    with Cluster.up(f"gangs-{os.getpid()}", spec) as cluster, pods_installed(cluster):
        yield cluster


async def test_without_a_queue_two_gangs_hold_what_the_other_waits_for(cluster: Cluster) -> None:
    async with pod_lab(cluster) as scene:
        left, right = (Gang(name, 10, 1, "").bodies() for name in ("left", "right"))
        await scene.create(*(body for pair in zip(left, right, strict=True) for body in pair))
        await scene.until(lambda: bool(scene.watcher.broken), "the deadlock")
        assert scene.watcher.broken == ["deadlock: ['left', 'right']"]
        cluster.kubectl("delete", "pods", "-n", "team", "--all", "--wait=false")
        await scene.until(lambda: not scene.watcher.pods, "no pod is left")
        scene.watcher.broken.clear()


class Owners:
    """The owner of the gangs: makes lost pods anew, and lets a gang end once all of it runs."""

    def __init__(self, scene: PodLab, gangs: list[Gang]) -> None:
        self.scene = scene
        self.open = {gang.name: gang for gang in gangs}
        self.made = 0
        self._ending: set[str] = set()
        self._sent: dict[str, str] = {}
        """The newest pod by gang and rank: none is made in its place before it has been seen to come and go."""

    async def see_to(self) -> None:
        for gang in list(self.open.values()):
            # A pod that succeeded counts, also where an eviction came a moment too late and deletes it.
            members = self.scene.members(gang.name)
            over = [one for one in members if one["status"].get("phase") == "Succeeded"]
            live = [one for one in members if one in over or "deletionTimestamp" not in one["metadata"]]
            running = [one["metadata"]["name"] for one in live if one["status"].get("phase") == "Running"]
            if self.scene.condition(gang.name, "Finished") == "True/Succeeded":
                del self.open[gang.name]
                continue
            if len(over) + len(running) == gang.pods:
                await self.scene.finish(name for name in running if name not in self._ending)
                self._ending.update(running)
            await self._replace(gang, live)

    async def _replace(self, gang: Gang, live: list[dict[str, object]]) -> None:
        index = "kueue.x-k8s.io/pod-group-pod-index"
        there = {one["metadata"]["labels"][index] for one in live}  # type: ignore[index]
        for rank in range(gang.pods):
            place = f"{gang.name}-{rank}"
            if str(rank) not in there and self._sent.get(place, place) in self.scene.watcher.seen:
                self.made += 1
                self._sent[place] = f"{place}-{self.made}"
                await self.scene.create(gang.member(rank, f"-{self.made}"))


async def test_competing_gangs_are_let_go_whole_and_all_finish_whoever_is_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    rng, queues = random.Random(7), ("red", "green", "blue")
    gangs = []
    for number in range(GANGS):
        gpus = rng.randint(1, GPUS)
        most = (GPUS // gpus) * NODES
        gangs.append(Gang(f"g{number}", rng.randint(1, most), gpus, rng.choice(queues), PLACED))
    async with pod_lab(cluster) as scene:
        scene.config(tmp_path)
        for name, quota in zip(queues, (8, 4, 4), strict=True):
            preemption = {"reclaimWithinCohort": "Any"}
            await scene.queue(name, quota, placed=True, cohortName="all", preemption=preemption)
        with scene.queues.controllers(tmp_path, "one", flags=ALONE) as (controller,):
            owners = Owners(scene, gangs)
            bodies = [body for gang in gangs for body in gang.bodies()]
            rng.shuffle(bodies)
            await scene.create(*bodies)
            for left in (GANGS - 2, GANGS - 5, 0):
                await scene.until(lambda left=left: len(owners.open) <= left, f"{left} gangs left", 300, owners.see_to)  # type: ignore[misc]
                controller.kill()
                controller.start()
            await scene.clean()
        cluster.kubectl("delete", "resourceflavors.kueue.x-k8s.io", "placed", "--wait=false")


async def test_a_gang_whose_pods_do_not_become_ready_makes_room_and_comes_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with pod_lab(cluster) as scene:
        scene.config(tmp_path, ready="20s")
        await scene.queue("late", 4)
        late, next_ = Gang("late", 2, 2, "late"), Gang("next", 1, 4, "late")
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            # Quota says that both fit; the scheduler has no such node.
            await scene.create(late.member(0), late.member(1, nodeSelector={"no": "such-node"}))
            await scene.until(lambda: scene.runs("late-0"), "half of it runs")
            await scene.create(*next_.bodies())
            await scene.until(lambda: scene.condition("late", "Evicted") == "True/PodsReadyTimeout", "it is evicted")
            await scene.until(lambda: scene.runs("next-0"), "another has its room")
            # The last failed pod keeps the group together until somebody comes.
            gone = [name for name in ("late-0", "late-1") if not scene.pod(name)]
            assert len(gone) <= 1
            await scene.create(*late.bodies("-again"))
            # The new pods are alike, the old ones were not. Admitted as it was, the group would have no place for one.
            await scene.until(lambda: counts(scene.workload("late")) == [2], "it asks for the new pods")
            await scene.finish(["next-0"])
            await scene.until(lambda: scene.runs("late-0-again", "late-1-again"), "it runs as a whole")
            requeues = scene.workload("late")["status"]["requeueState"]
            assert requeues["count"] == 1
            await scene.clean()


def counts(workload: dict[str, Any]) -> list[int]:
    """Of its pod sets."""
    return [one["count"] for one in workload.get("spec", {}).get("podSets", [])]


async def test_pods_that_are_for_no_spot_node_are_let_go_with_the_affinity_that_says_so(
    cluster: Cluster, tmp_path: Path
) -> None:
    """No topology: kube-scheduler chooses. The API server lets expressions be added to the terms of gated pods."""
    here = {"key": "kubernetes.io/hostname", "operator": "Exists"}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    own = {"nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}}
    cluster.kubectl("label", "node", "kwok-0", "eks.amazonaws.com/capacityType=SPOT")
    others = {f"kwok-{number}" for number in range(1, NODES)}
    async with pod_lab(cluster) as scene:
        scene.config(tmp_path)
        await scene.queue("kinds", 16)
        with scene.queues.controllers(tmp_path, "one", flags=ALONE):
            bodies = [pod_body(f"safe-{at}", queue="kinds", notes={SPOT: "never"}) for at in range(3)]
            bodies += [pod_body("choosy", queue="kinds", notes={SPOT: "never"}, affinity=own)]
            await scene.create(*bodies)
            names = [each["metadata"]["name"] for each in bodies]
            await scene.until(lambda: scene.runs(*names), "all run")
            assert {node(scene.pod(name)) for name in names} <= others
            (term,) = scene.pod("choosy")["spec"]["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
            assert term["matchExpressions"][0] == here
            assert {each["key"] for each in term["matchExpressions"][1:]} == SPOT_LABELS.keys()
            await scene.clean()
    cluster.kubectl("label", "node", "kwok-0", "eks.amazonaws.com/capacityType-")
