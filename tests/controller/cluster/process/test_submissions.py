"""A dry run is told what the replica that leads knows, whichever is asked; nobody of another namespace is named."""

import asyncio
import io
import json
import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from controller.cluster.process.process import Process
from controller.cluster.process.view import _deciding, _given
from controller.cluster.watching.kinds import (
    KAI_QUEUES,
    NAMESPACES,
    NODES,
    TOPOLOGIES,
    VOLCANO_COMMANDS,
    VOLCANO_QUEUES,
)
from controller.cluster.webhooks import dryrun
from controller.foreign.jobs.reconcile_shell import JOBS as VOLCANO_JOBS
from controller.insight.forecast.submitted import NotQueuedError
from controller.objects.core import Pod
from controller.people.whatif.child_shell import answers
from controller.people.whatif.parent_shell import _parts
from controller.people.whatif.question import Asked
from controller.people.whatif.quotas import QuotaChange
from inventory.api.names import ALL_NODES, RUNTIME
from kube.resources import PODS
from kube.testing import eventually
from tests.support.controller.stage import CONFIG, config, stage
from tests.support.controller.viewworld import until_served

BOTH = f"{CONFIG}  volcano: {{enabled: true}}\n  kai: {{enabled: true}}\n"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told is looked at here, not how fast."""
    for limit in ("_REVIEW_S", "ELSEWHERE_S"):
        monkeypatch.setattr(f"controller.cluster.process.submissions.{limit}", 60.0)
    monkeypatch.setattr(
        "controller.cluster.process.submissions.ELSEWHERE_S", 60.0
    )  # the same limit, for the request itself


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
    asked = dryrun.read(body.encode())
    if asked.created is None:
        return []
    return msgspec.msgpack.decode(await process._submissions().warned(msgspec.msgpack.encode(asked)), type=list[str])


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


async def test_a_replica_that_does_not_lead_asks_the_one_that_does() -> None:
    """By the leader's pod, at the port and with the certificate that the page uses between replicas."""
    async with stage() as scene:
        scene.queue(cpus=1)
        async with (
            scene.controller(config(), core_only=False, elect=True, name="first") as first,
            scene.controller(config(), core_only=False, elect=True, name="second") as second,
        ):
            await eventually(lambda: first.core is not None or second.core is not None, what="one leads")
            leads, follows = (first, second) if first.core is not None else (second, first)
            name = "first" if leads is first else "second"
            status = {"podIP": "127.0.0.1"}
            web = {"name": "web", "containerPort": await until_served(leads)}
            pod = {"metadata": {}, "spec": {"containers": [{"name": "main", "ports": [web]}]}, "status": status}
            await until_served(follows)
            (unknown,) = await told(follows, job(1))
            assert unknown == "what would become of it is not known: the replica that leads is not there: try again"
            scene.server.create(PODS, name, pod, namespace="tessera-system")
            await scene.until_loaded(leads)
            assert await told(follows, job(1)) == ["would start at once, in ClusterQueue cq"]
            assert await told(follows, job(2)) == await told(leads, job(2)) != []
            assert await told(follows, {"kind": 1}) == [], "what would be queued nowhere is silent there, too"


async def test_a_replica_that_can_ask_nobody_says_that_it_does_not_know() -> None:
    async with stage() as scene, scene.controller(config(), core_only=False) as process:
        await until_served(process)
        process._term = None
        assert await told(process, job(1)) == ["what would become of it is not known: no replica leads now: try again"]
        process.view = None
        (said,) = await told(process, job(1))
        assert said.endswith("has no port by which replicas ask each other")


@asynccontextmanager
async def deciding_for_both() -> AsyncIterator[Process]:
    """One node of eight CPUs; Volcano's Queue ``research`` may have two of them."""
    async with stage() as scene:
        for resource in (VOLCANO_QUEUES, KAI_QUEUES, VOLCANO_JOBS, VOLCANO_COMMANDS):
            scene.server.install(resource)
        scene.server.create(NAMESPACES, "team", {"metadata": {"labels": {"kubernetes.io/metadata.name": "team"}}})
        amounts = {"cpu": "8", "memory": "8Gi", "pods": "110"}
        status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        scene.server.create(NODES, "n1", {"metadata": {"labels": {"kubernetes.io/hostname": "n1"}}, "status": status})
        scene.server.create(VOLCANO_QUEUES, "research", {"spec": {"weight": 1, "capability": {"cpu": "2"}}})
        async with scene.controller(config(BOTH), core_only=False) as process:
            await scene.until_loaded(process)
            await eventually(lambda: process.core is not None and process.core.engine.mirror.is_leaf("research"))
            yield process


def volcano(pods: int, queue: str) -> dict[str, Any]:
    tasks = [{"name": "main", "replicas": pods, "template": job(1)["spec"]["template"]}]
    spec = {"queue": queue, "minAvailable": pods, "tasks": tasks}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "new"}, "spec": spec}


async def test_a_volcano_job_and_what_is_for_kais_queues_are_told_of_their_queues() -> None:
    """As they are written, the queue where Volcano's and KAI's users name it."""
    kai = job(1)
    kai["metadata"]["labels"] = {"kai.scheduler/queue": "default-queue"}
    async with deciding_for_both() as process:
        assert await told(process, volcano(2, "research")) == ["would start at once, in ClusterQueue research"]
        waits, *_ = await told(process, volcano(3, "research"))
        assert waits.startswith("would wait in ClusterQueue research: ")
        assert await told(process, volcano(8, "default")) == ["would start at once, in ClusterQueue default"]
        (nowhere,) = await told(process, volcano(1, "none"))
        assert nowhere.startswith("would wait in LocalQueue none: There is no LocalQueue none")
        assert await told(process, kai) == ["would start at once, in ClusterQueue default-queue"]
        assert process.core is not None
        assert not [key for key in process.core.engine.state.cluster.local_queues if key.startswith("team/")]


async def test_what_if_is_handed_the_queues_of_both_systems_as_they_are_decided_for() -> None:
    async with deciding_for_both() as process:
        assert process._feeds is not None

        def state(**change: Any) -> Any:
            given = _given(config(BOTH), Asked(namespace="team", **change), process._submissions(), 1.7e9)
            return [
                *answers(io.BytesIO(b"".join((pickle.dumps(given), *_parts(_deciding(feeds, mirrored=True), [])))))
            ][-1]

        feeds = process._feeds
        for pods, wanted in ((2, "admitted"), (3, "pending")):
            (arrived,) = state(manifest=json.dumps(volcano(pods, "research")))["arrived"]
            assert (arrived["workload"], arrived["state"]) == ("team/new", wanted)
        capability = QuotaChange(queue="research", flavor=ALL_NODES, resource="cpu", nominal="3")
        names = {each["name"] for each in state(quotas=(capability,))["queues"]}
        assert names == {"default", "default-queue", "research"}, "those without objects too"


async def test_another_process_composes_what_this_one_does() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller(config(), core_only=False) as process:
            submissions, feeds = process._submissions(), process._feeds
            assert feeds is not None
            composer = pickle.loads(pickle.dumps(submissions.composer()))
            (found,) = composer.composed(json.dumps(job(1)), "team", _deciding(feeds, mirrored=False), 7.0).workloads
            assert found == submissions._reader().workload(job(1), "team", 7.0)
            assert len(composer.kinds) == len(submissions._kinds())


async def test_reviews_are_few_since_anybody_may_send_them() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller(config(), core_only=False) as process:
            await scene.until_loaded(process)
            submissions = process._submissions()
            question = msgspec.msgpack.encode(dryrun.DryRun("u", job(1), "team"))
            assert process._running is not None
            async with process._running.forecasts._one:
                first = asyncio.create_task(submissions.warned(question))
                await asyncio.sleep(0)
                assert b"would" not in await submissions.warned(question), "one at a time"
            assert b"would" in await first
            after = [b"would" in await submissions.warned(question) for _ in range(12)]
            assert after[0]
            assert not after[-1], "few a second"


async def test_what_if_is_handed_pods_only_where_they_take_places() -> None:
    """Else they may be followed for the page alone."""
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller(config(), core_only=False) as process:
            feeds = process._feeds
            assert feeds is not None
            feeds.want(PODS)
            scene.server.create(PODS, "p", {"status": {"phase": "Running"}}, namespace="team")
            await eventually(lambda: len(list(feeds[PODS].objects())) == 1)

            def pods(*, mirrored: bool) -> int:
                return sum(isinstance(each, Pod) for each in _deciding(feeds, mirrored=mirrored))

            assert (pods(mirrored=False), pods(mirrored=True)) == (0, 1)
            scene.server.create(TOPOLOGIES, "racks", {"spec": {"levels": [{"nodeLabel": "rack"}]}})
            await eventually(lambda: pods(mirrored=False) == 1, what="with a Topology they do")


def asked(least: int, most: int | None = None, **spec: Any) -> dict[str, Any]:
    wanted = {"queueName": "lq-cq", "unit": {"cpu": "1"}, "min": least, "max": most or least, **spec}
    return {
        "apiVersion": "tessera.dev/v1alpha1",
        "kind": "CapacityRequest",
        "metadata": {"name": "ask"},
        "spec": wanted,
    }


async def test_what_a_program_could_have_is_answered_and_nothing_is_kept() -> None:
    async with stage() as scene:
        scene.queue(cpus=4, cohort="all")
        scene.queue("far", cpus=0, namespace="elsewhere", cohort="all")
        async with scene.controller(config(), core_only=False) as process:
            scene.workload("secret", 2, annotations={RUNTIME: "3600s"}, namespace="elsewhere", queue="lq-far")
            await eventually(lambda: process._running is not None)
            running = process._running
            assert running is not None
            holders = running.core.engine.state.cluster.holders
            await eventually(lambda: "elsewhere/secret" in holders)
            answer = process._submissions().foretold
            granted = await answer(asked(1, 3, duration="1h"), "team")
            assert granted is not None
            assert (granted["state"], granted["units"], granted["flavor"], granted["offers"]) == (
                "Granted",
                2,
                "default",
                [],
            )
            offered = await answer(asked(3), "team")
            assert offered is not None
            assert [(each["units"], each["held"]) for each in offered["offers"]] == [(2, False), (3, False)]
            assert offered["offers"][1]["from"] > offered["offers"][0]["from"]
            assert "2 cpu of a workload of ClusterQueue far end by" in offered["offers"][1]["why"]
            assert "secret" not in json.dumps(offered)
            refused = await answer(asked(5), "team")
            assert refused is not None
            assert refused["state"] == "Refused"
            assert set(holders) == {"elsewhere/secret"}
            with pytest.raises(NotQueuedError, match="found 1, expected at least min, 2"):
                await answer(asked(2, 1), "team")
            with pytest.raises(NotQueuedError, match=r"spec\.bogus: found an unknown field, expected one of accept, "):
                await answer(asked(1, bogus=4), "team")
            with pytest.raises(NotQueuedError, match=r"metadata\.name: found 64 characters, expected at most 63"):
                await answer({**asked(1), "metadata": {"name": "n" * 64}}, "team")
            with pytest.raises(NotQueuedError, match="expected team"):
                await answer({**asked(1), "metadata": {"namespace": "elsewhere"}}, "team")
            assert await told(process, asked(1)) == [], "the webhook for dry runs tells nothing of requests"
