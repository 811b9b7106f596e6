"""What a running controller serves: metrics, probes, explanations."""

import asyncio
import gzip
import json
import socket
import ssl
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from controller.cluster.config.settings import Address
from controller.cluster.process.server import Listener, exposed
from controller.cluster.watching.kinds import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from controller.cluster.webhooks.injection import CRDS, PLACEHOLDER
from controller.cluster.webhooks.keeper import SECRETS
from controller.insight.forecast.service_shell import worked
from controller.scheduler.model.resources import ClusterQueueName
from inventory.api.names import VIEW_GROUP, VIEW_VERSION
from kube.testing import eventually
from tests.support.controller.stage import HERE, stage
from tests.support.controller.told import page
from tests.support.controller.viewworld import asked, trusted, until_served
from tests.support.controller.webhookprocess import InThisLoop, in_this_loop


async def get(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


async def test_a_packed_body_is_not_unpacked_at_the_controllers_ports() -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    listener = Listener(Address("127.0.0.1", 0))
    listener.routes["/healthz"] = echo
    await listener.start()
    packed, url = gzip.compress(b"large"), f"http://127.0.0.1:{listener.port}/healthz"
    async with (
        aiohttp.ClientSession(headers={"Content-Encoding": "gzip"}) as session,
        session.get(url, data=packed) as answer,
    ):
        assert await answer.read() == packed
    await listener.stop()


async def test_scrapes_at_one_time_share_one_page() -> None:
    """However many strangers scrape, one page is made at a time."""
    made, come, go_on = list[int](), list[int](), asyncio.Event()

    class Page:
        def text(self) -> bytes:
            return f"page {len(made)}".encode()

    def make() -> Any:
        yield
        return Page()

    async def slow(parts: Any) -> Any:
        made.append(len(made))
        await go_on.wait()
        return await worked(parts)

    listener = Listener(Address("127.0.0.1", 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("controller.cluster.process.server.worked", slow)
        answer = exposed(make)

        async def counted(request: web.Request) -> web.StreamResponse:
            come.append(len(come))
            return await answer(request)

        listener.routes["/metrics"] = counted
        await listener.start()
        asked = [asyncio.create_task(get(listener.port, "/metrics")) for _ in range(8)]
        await eventually(lambda: len(come) == 8)
        broken_off = asked.pop()
        broken_off.cancel()
        go_on.set()
        assert {await each for each in asked} == {(200, "page 1")}
        assert await get(listener.port, "/metrics") == (200, "page 2")
    await listener.stop()


async def test_metrics_probes_and_explanations_of_a_leader() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        scene.server.users["secret"] = {"username": "person"}
        async with scene.controller(core_only=False) as process:
            scene.workload("a", 2)
            await scene.until_admitted("a")
            scene.workload("b", 1)
            scene.workload("c", 2)
            await eventually(lambda: scene.condition("b", "QuotaReserved") != "")
            # The first is told while the second may still be on its way.
            queues = scene.core.engine.state.queues
            await eventually(lambda: len(list(queues.parked(ClusterQueueName("cq")))) == 2)
            port = process.listeners[HERE].port
            assert await get(port, "/healthz") == (200, "ok\n")
            assert await get(port, "/readyz") == (200, "ok\n")
            status, text = await get(port, "/metrics")
            assert status == 200
            for line in (
                'kueue_admitted_workloads_total{cluster_queue="cq",priority_class="",replica_role="standalone"} 1.0',
                'kueue_pending_workloads{cluster_queue="cq",replica_role="standalone",status="inadmissible"} 2.0',
                'kueue_cluster_queue_status{cluster_queue="cq",replica_role="standalone",status="active"} 1.0',
            ):
                assert line in text.splitlines()

            assert (await get(port, "/apis"))[0] == 404

            view, token = await until_served(process), [("Authorization", "Bearer secret")]
            tls = ssl.create_default_context(cadata=trusted(process).decode())

            async def ask(path: str, code: int = 200) -> Any:
                status, body = await asked(view, f"/apis/{VIEW_GROUP}/{VIEW_VERSION}/{path}", tls, headers=token)
                assert status == code
                return json.loads(body)

            why = (await ask("namespaces/team/workloadviews/b"))["status"]
            assert why["state"] == "Pending"
            assert why["position"] == 0
            assert why["decision"]["reason"] == "WaitingForQuota"
            (short,) = why["decision"]["wouldAdmit"]["resources"]
            assert (short["needed"], short["available"], short["used"]) == ("1", "0", "2")
            (held,) = short["heldBy"]
            assert (held["workload"], held["clusterQueue"], held["amount"]) == ("team/a", "cq", "2")
            running = (await ask("namespaces/team/workloadviews/a"))["status"]
            assert running["state"] == "Admitted"
            assert running["admission"]["clusterQueue"] == "cq"
            (queue,) = (await ask("queueviews"))["items"]
            assert queue["status"]["pending"] == {"active": 0, "parked": 2}
            assert (await ask("queueviews/cq"))["status"] == queue["status"]
            items = (await ask("queueviews/cq/pending"))["status"]["items"]
            assert [one["workload"] for one in items] == ["team/b", "team/c"]
            assert [one["parked"] for one in items] == [True, True]
            await ask("namespaces/team/workloadviews/nobody", 404)
            await ask("queueviews/cq/pending?limit=x", 400)


async def test_the_series_of_a_deleted_queue_go_with_it() -> None:
    async with stage() as scene:
        scene.queue()
        scene.queue("other")
        async with scene.controller(core_only=False) as process:
            scene.workload("a", 1)
            scene.workload("b", 1, queue="lq-other")
            await scene.until_admitted("a", "b")
            counted = "kueue_admitted_workloads_total{cluster_queue="
            await eventually(lambda: counted + '"cq"' in page(process))
            scene.server.delete(WORKLOADS, "a", namespace="team")
            scene.server.delete(LOCAL_QUEUES, "lq-cq", namespace="team")
            scene.server.delete(CLUSTER_QUEUES, "cq")
            await eventually(lambda: 'name="lq-cq"' not in page(process), what="the local queue's series")
            await eventually(lambda: counted + '"cq"' not in page(process), what="the queue's series")
            assert counted + '"other"' in page(process)


async def test_every_replica_serves_the_webhook_and_the_crds_are_told() -> None:
    async with stage() as scene:
        scene.queue()
        name = "workloads.kueue.x-k8s.io"
        webhook = {"clientConfig": PLACEHOLDER.client_config("/convert"), "conversionReviewVersions": ["v1"]}
        conversion = {"strategy": "Webhook", "webhook": webhook}
        scene.server.create(CRDS, name, {"metadata": {}, "spec": {"conversion": conversion}})

        def told() -> dict[str, Any]:
            found: dict[str, Any] = scene.server.get(CRDS, name)["spec"]["conversion"]["webhook"]["clientConfig"]
            return found

        async with scene.controller(core_only=False):
            await eventually(lambda: "caBundle" in told())
            assert told()["service"]["name"] == "tessera-controller-webhook"
            assert told()["service"]["namespace"] == "tessera-system"
        secret = scene.server.get(SECRETS, "tessera-controller-webhook", namespace="tessera-system")
        assert {"tls.crt", "tls.key", "ca.crt"} <= set(secret["data"])


async def test_a_replica_whose_webhooks_are_not_served_is_not_ready_until_they_are_again() -> None:
    started: list[InThisLoop] = []

    async def start(end: socket.socket) -> InThisLoop:
        if len(started) == 1 and not may_start.is_set():
            raise OSError(12, "no memory")
        started.append(await in_this_loop(end))
        return started[-1]

    may_start = asyncio.Event()
    async with stage() as scene:
        scene.queue()
        async with scene.controller(core_only=False, start_webhooks=start) as process:
            port = process.listeners[HERE].port
            await eventually(lambda: process._webhook is not None and process._webhook.serving)
            assert await get(port, "/readyz") == (200, "ok\n")
            started[0].kill()
            await eventually(lambda: process._webhook is not None and process._webhook.down)
            assert await get(port, "/readyz") == (503, "the process that serves webhooks is down\n")
            assert (await get(port, "/healthz"))[0] == 200, "what decides lives"
            scene.workload("a", 1)
            await scene.until_admitted("a")
            may_start.set()
            await eventually(lambda: process._webhook is not None and process._webhook.serving, within_s=60)
            assert await get(port, "/readyz") == (200, "ok\n")
