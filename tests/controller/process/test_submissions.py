"""A dry run is answered by the replica that leads, and names nobody of another namespace."""

import asyncio
import json
import pickle
from typing import Any

from controller.process.process import Process
from controller.process.view import _deciding
from inventory.api.names import RUNTIME
from tests.support.controller.stage import config, stage


def job(cpus: int, queue: str = "lq-cq", namespace: str = "team") -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": str(cpus)}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "new", "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"parallelism": 1, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


async def told(process: Process, created: Any, **request: Any) -> list[str]:
    whole = {"uid": "u", "operation": "CREATE", "namespace": "team", "dryRun": True, "object": created, **request}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": whole})
    response = json.loads(await process._submissions().reviewed(body.encode()))["response"]
    assert response["allowed"]
    return list(response.get("warnings", []))


async def test_a_dry_run_is_told_what_would_become_of_the_object_and_of_no_other_namespace() -> None:
    async with stage() as scene:
        scene.queue(cpus=2, cohort="all")
        scene.queue("far", cpus=1, namespace="elsewhere", cohort="all")
        async with scene.controller(config(), core_only=False) as process:
            scene.workload("holds", 2, annotations={RUNTIME: "3600s"})
            await scene.until_admitted("holds")
            assert await told(process, job(1)) == ["would start at once, in ClusterQueue cq"]
            waits, starts, change = await told(process, job(2))
            assert waits == ("would wait in ClusterQueue cq: Needs 2 cpu of flavor default: 1 free, 1 more needed")
            assert starts.startswith("likely start: ")
            assert change == "would start now: when a workload of queue cq (2 cpu) ends", "a review may be invented"
            (nowhere,) = await told(process, job(2, queue="none"))
            assert nowhere.startswith("would wait in LocalQueue none: There is no LocalQueue none")
            assert await told(process, {"kind": 1}) == []
            assert await told(process, job(2), dryRun=False) == []
            far = await told(process, job(2, queue="lq-far", namespace="elsewhere"), namespace="elsewhere")
            assert far[-1] == "would start now: when a workload of queue cq (2 cpu) ends"
            assert "holds" not in "".join(far)


async def test_a_replica_that_does_not_lead_is_silent() -> None:
    async with stage() as scene, scene.controller(config(), core_only=False) as process:
        process._term = None
        assert await told(process, job(1)) == []


async def test_another_process_composes_what_this_one_does() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller(config(), core_only=False) as process:
            submissions, feeds = process._submissions(), process._feeds
            assert feeds is not None
            composer = pickle.loads(pickle.dumps(submissions.composer()))
            found = composer.composed(json.dumps(job(1)), "team", _deciding(feeds), 7.0)
            assert found == submissions._reader().workload(job(1), "team", 7.0)
            assert len(composer.kinds) == len(submissions._kinds())


async def test_reviews_are_few_since_anybody_may_send_them() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller(config(), core_only=False) as process:
            submissions = process._submissions()
            asked = json.dumps({"request": {"uid": "u", "operation": "CREATE", "namespace": "team", "dryRun": True}})
            whole = json.loads(asked)
            whole["request"]["object"] = job(1)
            body = json.dumps(whole).encode()
            assert process._running is not None
            async with process._running.forecasts._one:
                first = asyncio.create_task(submissions.reviewed(body))
                await asyncio.sleep(0)
                assert b"warnings" not in await submissions.reviewed(body), "one at a time"
            assert b"warnings" in await first
            after = [b"warnings" in await submissions.reviewed(body) for _ in range(12)]
            assert after[0]
            assert not after[-1], "few a second"
