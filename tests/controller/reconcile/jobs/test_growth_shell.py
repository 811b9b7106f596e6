"""Gangs that grow in the whole process: as quota comes, beside others, with the controller killed at any moment."""

import asyncio
import random
from typing import Any

import pytest

from controller.cluster.watching.kinds import CLUSTER_QUEUES, JOBS, WORKLOADS
from controller.cluster.writing import decisionwriter
from controller.jobs.framework import names
from inventory.api.names import FULL_PARALLELISM, GROWTH
from kube.resources import EVENTS
from kube.testing import eventually
from tests.controller.cluster.process.test_jobs import QUEUE, job, seen
from tests.support.controller.stage import CONFIG, Stage, config, stage, stamp
from tests.support.seeds import histories

TESSERA = config(CONFIG.replace("policy: kueue", "policy: tessera"))


def gang(scene: Stage, name: str, pods: int, least: int | None, **meta: Any) -> None:
    """A Job whose ``spec.scheduling`` starts ``least`` of its pods at least; None: one without that field."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"creationTimestamp": stamp(), "labels": {QUEUE: "lq-cq"}, **meta},
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": 100,
            **({} if least is None else {"scheduling": {"schedulingPolicy": {"gang": {"minCount": least}}}}),
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }
    scene.server.create(JOBS, name, body, namespace="team")


def give(scene: Stage, cpus: int) -> None:
    quota = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": str(cpus)}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    scene.server.merge(CLUSTER_QUEUES, "cq", {"spec": {"resourceGroups": groups}})


def runs(scene: Stage, name: str) -> int:
    """The pods that the Job controller is told to run."""
    spec = seen(scene, name)["spec"]
    return 0 if spec["suspend"] else int(spec["parallelism"])


def is_true(one: dict[str, Any], type_: str) -> bool:
    said = one.get("status", {}).get("conditions", [])
    return any((each["type"], each["status"]) == (type_, "True") for each in said)


def live(scene: Stage, name: str) -> list[dict[str, Any]]:
    """The Workloads of the Job that are not over."""
    uid = seen(scene, name)["metadata"]["uid"]
    owned = (one for one in scene.server.list_all(WORKLOADS) if one["metadata"]["ownerReferences"][0]["uid"] == uid)
    return [one for one in owned if not is_true(one, "Finished") and "deletionTimestamp" not in one["metadata"]]


def notes(one: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = one["metadata"].get("annotations", {})
    return found


def held(scene: Stage) -> dict[str, int]:
    """The pods that have quota, by the Job: a Workload that is replaced by another with quota counts no more."""
    holding = [one for one in scene.server.list_all(WORKLOADS) if one.get("status", {}).get("admission")]
    holding = [one for one in holding if not is_true(one, "Finished")]
    over = {notes(one).get(names.REPLACEMENT_FOR) for one in holding}
    found: dict[str, int] = {}
    for one in holding:
        if f"team/{one['metadata']['name']}" not in over:
            name = one["metadata"]["ownerReferences"][0]["name"]
            found[name] = found.get(name, 0) + one["status"]["admission"]["podSetAssignments"][0]["count"]
    return found


async def test_a_gang_grows_as_quota_comes_and_never_stops_for_it() -> None:
    async with stage() as scene:
        scene.queue(cpus=3)
        async with scene.controller(TESSERA, core_only=False):
            gang(scene, "train", 6, 2)
            await eventually(lambda: runs(scene, "train") == 3)
            stops = len([one for one in scene.server.list_all(EVENTS) if one["reason"] == "Stopped"])
            for quota, pods in ((4, 4), (5, 5), (9, 6)):
                give(scene, quota)
                await eventually(lambda pods=pods: runs(scene, "train") == pods)  # type: ignore[misc]
            await eventually(lambda: len(live(scene, "train")) == 1 and GROWTH not in notes(live(scene, "train")[0]))
            assert held(scene) == {"train": 6}
            template = seen(scene, "train")["spec"]["template"]["metadata"]["annotations"]
            told = {one["reason"]: one["note"] for one in scene.server.list_all(EVENTS)}
            assert told["Grown"].startswith("The gang grows from ")
            assert len([one for one in scene.server.list_all(EVENTS) if one["reason"] == "Stopped"]) == stops
            first = notes(live(scene, "train")[0])[names.SLICE_NAME]
            assert template[names.WORKLOAD] == first, "the pods name the first Workload, whose place the last one has"


async def test_a_gang_that_has_grown_and_is_evicted_starts_anew_with_its_own_minimum() -> None:
    async with stage() as scene:
        scene.queue(cpus=3)
        async with scene.controller(TESSERA, core_only=False):
            gang(scene, "train", 6, 2)
            await eventually(lambda: runs(scene, "train") == 3)
            give(scene, 5)
            await eventually(lambda: runs(scene, "train") == 5)
            await eventually(lambda: len(live(scene, "train")) == 2)
            (base,) = (one for one in live(scene, "train") if one.get("status", {}).get("admission"))
            scene.server.merge(WORKLOADS, base["metadata"]["name"], {"spec": {"active": False}}, namespace="team")
            await eventually(lambda: runs(scene, "train") == 0 and held(scene) == {})
            await eventually(lambda: seen(scene, "train")["spec"]["parallelism"] == 6)
            give(scene, 2)
            scene.server.merge(WORKLOADS, base["metadata"]["name"], {"spec": {"active": True}}, namespace="team")
            await eventually(lambda: runs(scene, "train") == 2)
            assert held(scene) == {"train": 2}


@histories(0, 1, 2, 3)
async def test_whatever_comes_gangs_have_what_is_free_and_run_as_much_as_has_quota(seed: int) -> None:
    """Quota only comes; Jobs of one pod come and go, and a gang is deleted. The controller dies between any two."""
    rng = random.Random(seed)
    async with stage() as scene:
        quota = rng.randint(2, 4)
        scene.queue(cpus=quota)
        wanted: dict[str, int] = {}
        single: list[str] = []
        watch = asyncio.create_task(_never_above(scene, lambda: quota))
        for life in range(4):
            async with scene.controller(TESSERA, core_only=False):
                for step in range(rng.randint(1, 4)):
                    name = f"{life}-{step}"
                    match rng.choice(("gang", "gang", "single", "quota", "quota", "gone", "over")):
                        case "gang":
                            wanted[f"g{name}"] = rng.randint(2, 6)
                            gang(scene, f"g{name}", wanted[f"g{name}"], rng.randint(1, wanted[f"g{name}"]))
                        case "single":
                            single.append(f"s{name}")
                            job(scene, f"s{name}")
                        case "quota":
                            quota += rng.randint(1, 3)
                            give(scene, quota)
                        case "gone" if wanted:
                            gone = rng.choice(sorted(wanted))
                            del wanted[gone]
                            scene.server.delete(JOBS, gone, namespace="team")
                        case "over" if single:
                            scene.server.delete(JOBS, single.pop(), namespace="team")
                        case _:
                            pass
                    await asyncio.sleep(rng.random() * 0.03)
                scene.server.cut()
            scene.server.down = False
        async with scene.controller(TESSERA, core_only=False):
            await eventually(lambda: _rests(scene, quota, wanted, single), what=f"{quota} {wanted} {held(scene)}")
            scene.core.engine.validate()
        assert not watch.done(), f"quota exceeded: {watch}"
        watch.cancel()


def _rests(scene: Stage, quota: int, wanted: dict[str, int], single: list[str]) -> bool:
    """Whether no gang could have more: what is free is too little for each that waits or runs with a part."""
    has = held(scene)
    if set(has) - {*wanted, *single} or any(runs(scene, name) != has.get(name, 0) for name in wanted):
        return False
    if any(len([one for one in live(scene, name) if GROWTH not in notes(one)]) != 1 for name in wanted):
        return False
    free = quota - sum(has.values())
    part = [name for name, pods in wanted.items() if 0 < has.get(name, 0) < pods]
    least = {name: seen(scene, name)["spec"]["scheduling"]["schedulingPolicy"]["gang"]["minCount"] for name in wanted}
    could_start = [name for name in wanted if name not in has and least[name] <= free]
    waits = [name for name in single if name not in has]
    kept = [name for name in part if FULL_PARALLELISM in seen(scene, name)["metadata"]["annotations"]]
    return not could_start and kept == part and (free == 0 or not (part or waits))


async def _never_above(scene: Stage, quota: Any) -> None:
    while True:
        assert sum(held(scene).values()) <= quota()
        await asyncio.sleep(0.001)


async def test_a_slice_ends_only_after_the_one_that_replaces_it_is_written_as_admitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An elastic job is stopped while the API server shows no Workload of it that is admitted."""
    monkeypatch.setattr(decisionwriter, "REFUSED_PAUSE_S", 0.05)
    async with stage() as scene:
        scene.queue(cpus=9)
        async with scene.controller(TESSERA, core_only=False):
            elastic = {"generation": 1, "annotations": {names.ELASTIC_JOB: "true"}}
            gang(scene, "elastic", 3, None, **elastic)
            await eventually(lambda: runs(scene, "elastic") == 3)
            (first,) = (one["metadata"]["name"] for one in live(scene, "elastic"))
            refused: list[str] = []

            def refuse(method: str, path: str) -> int | None:
                if method in ("PATCH", "PUT") and "/workloads/" in path and first not in path and "status" in path:
                    refused.append(path)
                    return 403
                return None

            scene.server.refuse = refuse
            patch = {"metadata": {"generation": 2}, "spec": {"parallelism": 5}}
            scene.server.merge(JOBS, "elastic", patch, namespace="team")
            await eventually(lambda: len(refused) > 2)
            assert not is_true(scene.server.get(WORKLOADS, first, namespace="team"), "Finished")
            scene.server.refuse = lambda _method, _path: None
            await eventually(lambda: is_true(scene.server.get(WORKLOADS, first, namespace="team"), "Finished"))
            assert held(scene) == {"elastic": 5}
            assert runs(scene, "elastic") == 5
            assert "Stopped" not in {one["reason"] for one in scene.server.list_all(EVENTS)}
