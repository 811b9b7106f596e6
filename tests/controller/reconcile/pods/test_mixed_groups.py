"""Gangs of Kubernetes' own beside those of Volcano, of KAI and of labels, of the same names in one queue, in the whole
process: whatever comes in whatever order, with the controller killed in between.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from controller.cluster.watching.kinds import CLUSTER_QUEUES, POD_GROUPS_OF, PODS
from controller.reconcile.jobshell import followed_shell
from controller.reconcile.jobshell.followed_shell import GROUP_KINDS
from controller.scheduler.mirror.specs import System
from kube.testing import eventually
from tests.controller.cluster.process.test_foreignqueues import BOTH
from tests.controller.foreign.podgroups.test_native import group as native
from tests.controller.reconcile.pods.test_reconcile_shell import pod, runs
from tests.support.controller.stage import Stage, config, stage
from tests.support.seeds import histories

CONFIG = config(BOTH.replace("policy: kueue", "policy: tessera") + "integrations: {frameworks: [batch/job, pod]}\n")
OTHERS = ("volcano", "kai", "labels")


class Gang(NamedTuple):
    """``least`` of ``pods`` pods, one cpu each, start together."""

    system: str
    name: str
    least: int
    pods: int

    def members(self) -> list[str]:
        return [f"{self.system}-{self.name}-{number}" for number in range(self.pods)]

    def marks(self) -> dict[str, Any]:
        match self.system:
            case "native":
                return {"schedulingGroup": {"podGroupName": self.name}}
            case "volcano":
                return {"notes": {"scheduling.k8s.io/group-name": self.name}}
            case "kai":
                return {"notes": {"pod-group-name": self.name, "tessera.dev/scheduler-name": "kai-scheduler"}}
        labels = {"kueue.x-k8s.io/pod-group-name": self.name}
        return {"labels": labels, "notes": {"kueue.x-k8s.io/pod-group-total-count": str(self.pods)}}

    def steps(self, scene: Stage) -> list[Callable[[], object]]:
        """What makes it, to be done in any order."""
        made: list[Callable[[], object]] = [
            lambda member=member: pod(scene, member, **self.marks())  # type: ignore[misc]
            for member in self.members()
        ]
        if self.system == "native":
            body = native(self.name, self.least)
            made.append(lambda: scene.server.create(GROUP_KINDS[0], self.name, body, namespace="team"))
        elif self.system != "labels":
            body = {"metadata": {}, "spec": {"minMember": self.least}}
            resource = POD_GROUPS_OF[System.VOLCANO if self.system == "volcano" else System.KAI]
            made.append(lambda: scene.server.create(resource, self.name, body, namespace="team"))
        return made


def drawn(rng: random.Random) -> list[Gang]:
    """Under each name a gang of Kubernetes' own and one of another system."""
    found = []
    for number in range(3):
        for system in ("native", rng.choice(OTHERS)):
            pods = rng.randint(1, 4)
            least = pods if system == "labels" else rng.randint(1, pods)
            found.append(Gang(system, f"g{number}", least, pods))
    return found


def there(scene: Stage) -> dict[str, dict[str, Any]]:
    found = {each["metadata"]["name"]: each for each in scene.server.list_all(PODS)}
    return {name: each for name, each in found.items() if "deletionTimestamp" not in each["metadata"]}


def is_free(one: dict[str, Any]) -> bool:
    return not one["spec"].get("schedulingGates")


def goes(one: dict[str, Any]) -> bool:
    return one.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def taken(scene: Stage) -> int:
    return sum(is_free(each) and goes(each) for each in there(scene).values())


def rests(scene: Stage, gangs: list[Gang], quota: int) -> str:
    """Say what is wrong once nothing happens any more; empty if nothing is. A pod above the minimum waits where
    it came when the others had their quota.
    """
    pods, free = there(scene), quota - taken(scene)
    if free < 0:
        return f"{-free} pods beyond the quota"
    for gang in gangs:
        mine = {name: pods[name] for name in gang.members() if name in pods}
        started = [name for name, each in mine.items() if is_free(each)]
        waits = [name for name in mine if name not in started]
        if 0 < len(started) < gang.least:
            return f"{gang}: a part of it started, {started}"
        if not started and len(mine) < gang.pods:
            return f"{gang}: lost pods while it waited, {sorted(mine)}"
        if not started and gang.least <= free:
            return f"{gang}: waits for {gang.least} while {free} are free"
        if started and waits and free > 0:
            return f"{gang}: {waits} wait while {free} are free"
        if started and len(mine) < gang.pods and gang.system != "native":
            return f"{gang}: lost pods, {sorted(mine)}"
    return ""


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_shell, "CHECK_S", 0.05)


@histories(0, 1, 2)
async def test_gangs_of_all_systems_start_whole_and_nobody_takes_more_than_the_quota(seed: int) -> None:
    rng = random.Random(seed)
    gangs, quota = drawn(rng), rng.randint(2, 5)
    async with stage() as scene:
        for kind in (GROUP_KINDS[0], *POD_GROUPS_OF.values()):
            scene.server.install(kind)
        scene.queue(cpus=quota)
        todo = [step for gang in gangs for step in gang.steps(scene)]
        rng.shuffle(todo)
        watch = asyncio.create_task(_never_above(scene, lambda: quota))
        while todo:
            async with scene.controller(CONFIG, core_only=False):
                for step in todo[:7]:
                    step()
                    await asyncio.sleep(rng.random() * 0.02)
                del todo[:7]
                scene.server.cut()
            scene.server.down = False
        over: set[str] = set()
        async with scene.controller(CONFIG, core_only=False):
            while len(over) < len(gangs):
                left = [gang for gang in gangs if f"{gang.system}/{gang.name}" not in over]
                started = await _rested(scene, left, quota)
                if not started or rng.random() < 0.2:
                    quota += 1
                    _give(scene, quota)
                    continue
                gone = rng.choice(started)
                runs(scene, *(each for each in gone.members() if each in there(scene)), phase="Succeeded")
                over.add(f"{gone.system}/{gone.name}")
            scene.core.engine.validate()
        assert not watch.done(), f"quota exceeded: {watch}"
        watch.cancel()


async def _rested(scene: Stage, gangs: list[Gang], quota: int) -> list[Gang]:
    """Waits for rest. The gangs that have started."""
    try:
        await eventually(lambda: not rests(scene, gangs, quota))
    except AssertionError:
        pytest.fail(rests(scene, gangs, quota))
    free = {name for name, each in there(scene).items() if is_free(each)}
    return [gang for gang in gangs if not free.isdisjoint(gang.members())]


def _give(scene: Stage, cpus: int) -> None:
    flavors = [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": str(cpus)}]}]
    scene.server.merge(
        CLUSTER_QUEUES, "cq", {"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}}
    )


async def _never_above(scene: Stage, quota: Callable[[], int]) -> None:
    while True:
        assert taken(scene) <= quota()
        await asyncio.sleep(0.001)
