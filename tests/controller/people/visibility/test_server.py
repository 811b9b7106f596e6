"""The port itself: TLS, who is let in, and what bounds a user."""

import asyncio
import io
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import pytest

from controller.cluster.config.settings import Address
from controller.cluster.webhooks.certificates import DAY_S, SERVING_S, new_authority
from controller.cluster.webhooks.keeper import SECRETS, OwnCertificates, SecretName
from controller.cluster.webhooks.service import service_names
from controller.insight.forecast.submitted import NotQueuedError
from controller.people.visibility import reviews_shell, server_shell
from controller.people.visibility.answers import Answers
from controller.people.visibility.identity import MAX_GROUPS, REPLICA, User, as_headers
from controller.people.visibility.reviews_shell import LIFE_S, LISTED_S, Reviews
from controller.people.visibility.server_shell import (
    LIMITS,
    RECORDED,
    REVIEWED,
    TIMES,
    Leader,
    RefusedError,
    ViewServer,
)
from controller.people.visibility.service_shell import API_SERVICES, AUTHENTICATION, CONFIG_MAPS, ViewService, holder
from kube.client import Client
from kube.clock import Backoff
from kube.errors import UnavailableError
from kube.listening.connection import Times
from kube.listening.places import PlaceLimits
from kube.testing import FakeApiServer, VirtualClock, eventually
from tests.controller.people.visibility.test_redaction import KUEUE, SPACES, VIEW, preempting
from tests.support.controller.viewworld import PERSON, SERVED_AS, FrontProxyWorld, asked

SERVICE = ("tessera-system", "tessera-controller")
PATH = f"{VIEW}/queueviews"
HOUR = 480_000
TOKEN = [("Authorization", "Bearer secret-token")]


@dataclass
class Scene:
    """``leads``: whether this replica does. ``handed``: what a follower asked the other. ``record``: this one's."""

    api: FakeApiServer
    service: ViewService
    clock: VirtualClock
    proxy: FrontProxyWorld
    leads: bool = True
    handed: list[tuple[str, User]] = field(default_factory=list)
    sent: list[bytes | None] = field(default_factory=list)
    record: bytes | None = None

    @property
    def server(self) -> ViewServer:
        return self.service.server

    def tls(self) -> ssl.SSLContext:
        """Of a client without a certificate."""
        return ssl.create_default_context(cadata=self.server.trust.own.decode())

    def front(self, **options: Any) -> ssl.SSLContext:
        return self.proxy.shows(self.server.trust.own, **options)

    async def get(self, path: str = PATH, tls: ssl.SSLContext | None = None, **options: Any) -> tuple[int, bytes]:
        return await asked(self.server.port, path, tls or self.tls(), **options)

    def reviews(self, kind: str) -> int:
        return len(self.api.seen("POST", kind))


@asynccontextmanager
async def served(
    *, proxied: bool = True, past_s: float = 0.0, limits: PlaceLimits = LIMITS, times: Times = TIMES
) -> AsyncIterator[Scene]:
    """The clock begins ``past_s`` ago."""
    world, clock, proxy = preempting(), VirtualClock(wall_s=time.time() - past_s), FrontProxyWorld()
    answers = Answers(world.engine, world.workloads.get, world.now_s)
    async with FakeApiServer() as api, Client(api.config) as client:
        api.users["secret-token"] = {"username": "person", "groups": ["people"]}
        if proxied:
            proxy.install(api)

        async def ask(path: str, user: User, body: bytes | None) -> tuple[int, bytes]:
            scene.handed.append((path, user))
            scene.sent.append(body)
            return 200, b"{}"

        async def submitted(manifest: Any, namespace: str) -> dict[str, Any]:
            if "kind" not in manifest:
                raise NotQueuedError("kind: expected a text")
            return {"sentence": f"Waits for {SPACES[0]}/job-of-{SPACES[0]}-0", "in": namespace}

        async def reviewed(_: bytes) -> bytes | None:
            return b'["told"]' if scene.leads else None

        def leads() -> Answers | None:
            return answers if scene.leads else None

        async def recorded(before: int) -> bytes | None:
            return scene.record if before == HOUR else None

        leader = Leader(
            leads, lambda: frozenset(SPACES), ask, submitted=submitted, reviewed=reviewed, recorded=recorded
        )
        server = ViewServer(Address("127.0.0.1", 0), Reviews(client, clock), leader, clock, limits=limits, times=times)
        names = service_names(*SERVICE)
        certificates = OwnCertificates(client, SecretName(SERVICE[0], "web"), names=names, clock=clock)
        backoff = Backoff(random=lambda: 0.5)
        scene = Scene(
            api, ViewService(client, server, certificates, SERVICE, clock=clock, backoff=backoff), clock, proxy
        )
        await scene.service.round()
        try:
            yield scene
        finally:
            await server.stop()


def names_in(raw: bytes) -> set[str]:
    return {space for space in SPACES if space.encode() in raw}


async def test_nobody_is_answered_without_credentials_that_count() -> None:
    async with served() as scene:
        for path in (PATH, "/apis", "/openapi/v2", "/nowhere"):
            code, body = await scene.get(path)
            assert (code, json.loads(body)["reason"]) == (401, "Unauthorized")
        for sent in ("Bearer forged", "Basic c2VjcmV0LXRva2Vu", "Bearer"):
            assert (await scene.get(headers=[("Authorization", sent)]))[0] == 401
        assert (await scene.get(user=PERSON))[0] == 401, "headers of a proxy, without its certificate"
        masters = User("admin", groups=("system:masters",))
        assert (await scene.get(user=masters, headers=TOKEN))[0] == 200
        (asked_for,) = {spec["user"] for spec in scene.api.reviewed}
        assert asked_for == "person", "the token counts, not the headers"
        anonymous = User("system:anonymous", groups=("system:unauthenticated",))
        assert (await scene.get(tls=scene.front(), user=anonymous))[0] == 401


async def test_plain_http_and_a_strangers_certificate_are_cut_off() -> None:
    async with served() as scene:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://127.0.0.1:{scene.server.port}{PATH}")
        with pytest.raises(aiohttp.ClientError):
            await scene.get(tls=scene.front(authority=new_authority(time.time())), user=PERSON)


async def test_the_front_proxys_headers_count_by_its_certificates_name() -> None:
    async with served() as scene:
        assert (await scene.get(tls=scene.front(), user=PERSON))[0] == 200
        assert scene.reviews("tokenreviews") == 0
        assert {spec["user"] for spec in scene.api.reviewed} == {"person"}
        assert (await scene.get(tls=scene.front(name="kubelet"), user=PERSON))[0] == 401
        assert (await scene.get(tls=scene.front(name="kubelet"), user=PERSON, headers=TOKEN))[0] == 200


async def test_a_user_may_be_of_as_many_groups_as_are_read() -> None:
    async with served() as scene:
        for count, code in ((MAX_GROUPS, 200), (MAX_GROUPS + 1, 401)):
            groups = tuple(f"group-{number}" for number in range(count))
            assert (await scene.get(tls=scene.front(), user=User("person", groups=groups)))[0] == code


async def test_a_connection_older_than_the_authorities_ends_and_the_next_one_counts() -> None:
    async with served() as scene:
        connector = aiohttp.TCPConnector(ssl=scene.front())
        async with aiohttp.ClientSession(connector=connector, headers=as_headers(PERSON)) as session:

            async def ask() -> int:
                url = f"https://127.0.0.1:{scene.server.port}{PATH}"
                async with session.get(url, server_hostname=SERVED_AS) as answer:
                    return answer.status

            assert [await ask(), await ask()] == [200, 200]
            later = scene.proxy.authority.certificate + new_authority(time.time()).certificate
            data = {"requestheader-client-ca-file": later.decode()}
            scene.api.merge(CONFIG_MAPS, AUTHENTICATION[1], {"data": data}, namespace=AUTHENTICATION[0])
            await scene.service.round()
            assert [await ask(), await ask(), await ask()] == [401, 200, 200]


async def test_whoever_is_known_is_of_the_group_of_all_who_are() -> None:
    async with served() as scene:
        assert (await scene.get(tls=scene.front(), user=User("system:kube-aggregator")))[0] == 200
        assert (await scene.get(tls=scene.front(), user=PERSON))[0] == 200
        groups = [spec["groups"] for spec in scene.api.reviewed]
        assert groups[0] == ["system:authenticated"]
        assert groups[-1] == ["people", "system:authenticated"]


async def test_without_a_front_proxy_no_header_counts_and_tokens_do(caplog: pytest.LogCaptureFixture) -> None:
    async with served(proxied=False) as scene:
        assert not caplog.records, "nothing is wrong: not every cluster has one"
        assert (await scene.get(user=PERSON))[0] == 401
        assert (await scene.get(headers=TOKEN))[0] == 200


async def test_a_front_proxy_that_is_trusted_no_more_is_not_believed_on_open_connections_either() -> None:
    async with served() as scene:
        connector = aiohttp.TCPConnector(ssl=scene.front(), limit=1)
        url = f"https://127.0.0.1:{scene.server.port}{PATH}"
        async with aiohttp.ClientSession(connector=connector, headers={"X-Remote-User": "person"}) as session:

            async def code() -> int:
                async with session.get(url, server_hostname=SERVED_AS) as answer:
                    await answer.read()
                    return answer.status

            assert await code() == 200
            namespace, name = AUTHENTICATION
            other = new_authority(time.time()).certificate.decode()
            patch = {"data": {"requestheader-client-ca-file": other}}
            scene.api.merge(CONFIG_MAPS, name, patch, namespace=namespace)
            await scene.service.round()
            assert await code() == 401


async def test_a_server_that_does_not_answer_leaves_the_front_proxy_believed() -> None:
    async with served() as scene:
        scene.api.refuse = lambda _method, path: 503 if "configmaps" in path else None
        with pytest.raises(UnavailableError):
            await scene.service.round()
        assert (await scene.get(tls=scene.front(), user=PERSON))[0] == 200


async def test_a_user_sees_the_names_of_namespaces_whose_workloads_he_may_list() -> None:
    async with served() as scene:
        pending = f"{PATH}/one/pending"
        assert names_in((await scene.get(pending, headers=TOKEN))[1]) >= {SPACES[1], SPACES[2]}
        may = {"": False, SPACES[2]: True}

        def allows(spec: dict[str, Any]) -> bool:
            asked_for = spec["resourceAttributes"]
            return asked_for["resource"] != "workloads" or may.get(asked_for.get("namespace", ""), False)

        scene.api.allows = allows
        scene.clock.advance(LIFE_S)
        code, body = await scene.get(pending, headers=TOKEN)
        assert (code, names_in(body)) == (200, {SPACES[2]})
        asked_for = [spec["resourceAttributes"] for spec in scene.api.reviewed]
        assert {"group": "kueue.x-k8s.io", "version": "v1beta2", "resource": "workloads", "verb": "list"} in asked_for
        own = f"{VIEW}/namespaces/{SPACES[1]}/workloadviews/late-of-{SPACES[1]}-0"
        assert names_in((await scene.get(own, headers=TOKEN))[1]) == {SPACES[1]}, "what the path names is granted"
        queue = f"{KUEUE}/v1beta2/namespaces/{SPACES[1]}/localqueues/door-of-{SPACES[1]}-one/pendingworkloads"
        assert names_in((await scene.get(queue, headers=TOKEN))[1]) == {SPACES[1]}


async def test_what_a_user_may_not_get_is_refused_by_name_of_the_right() -> None:
    async with served() as scene:
        scene.api.allows = lambda _: False
        code, body = await scene.get(headers=TOKEN)
        assert (code, json.loads(body)["message"]) == (403, 'User "person" may not list queueviews.view.tessera.dev')
        assert (await scene.get("/apis", headers=TOKEN))[0] == 403
        assert names_in(body) == set()


@pytest.mark.parametrize(
    ("path", "method", "code", "said"),
    [
        ("/nowhere", "GET", 404, "could not find the requested resource"),
        (f"{PATH}/three", "GET", 404, 'queueviews.view.tessera.dev "three" not found'),
        (f"{PATH}/one/pending?limit=-1", "GET", 400, "expected a whole number from 0"),
        (PATH, "POST", 405, "method: found 'POST', expected GET"),
        (PATH, "DELETE", 405, "method: found 'DELETE', expected GET"),
    ],
)
async def test_a_request_that_cannot_be_answered_is_a_status(path: str, method: str, code: int, said: str) -> None:
    async with served() as scene:
        found, body = await scene.get(path, headers=TOKEN, method=method)
        status = json.loads(body)
        assert (found, status["code"], status["kind"]) == (code, code, "Status")
        assert said in status["message"]


async def test_a_body_is_not_read() -> None:
    async with served() as scene:
        code, body = await scene.get(headers=TOKEN, data=b"x" * 100_000)
        assert (code, json.loads(body)["message"]) == (413, "body: found one, expected none")


FORECASTS = f"{VIEW}/namespaces/{SPACES[2]}/forecasts"


async def forecast(scene: Scene, manifest: Any, **options: Any) -> tuple[int, Any]:
    sent = options.pop("data", json.dumps({"spec": {"manifest": manifest}}))
    code, body = await scene.get(FORECASTS, headers=TOKEN, method="POST", data=sent, **options)
    return code, json.loads(body)


async def test_what_would_become_of_a_manifest_is_told_to_whoever_may_create_forecasts() -> None:
    async with served() as scene:
        code, found = await forecast(scene, {"kind": "Job"})
        assert (code, found["kind"], found["metadata"]) == (201, "Forecast", {"namespace": SPACES[2]})
        assert found["spec"] == {"manifest": {"kind": "Job"}}
        assert SPACES[0] in found["status"]["sentence"]
        scene.api.allows = lambda spec: spec["resourceAttributes"]["resource"] == "forecasts"
        scene.clock.advance(LIFE_S)
        _, found = await forecast(scene, {"kind": "Job"})
        assert found["status"]["sentence"] == "Waits for a workload of queue two"
        scene.api.allows = lambda _: False
        scene.clock.advance(LIFE_S)
        code, found = await forecast(scene, {"kind": "Job"})
        assert (code, found["message"]) == (
            403,
            f'User "person" may not create forecasts.view.tessera.dev in namespace {SPACES[2]}',
        )


async def test_a_manifest_that_cannot_be_read_is_refused_in_a_line() -> None:
    async with served() as scene:
        for sent, code in (({}, 400), ([], 400)):
            found, body = await forecast(scene, sent)
            assert (found, body["message"].partition(":")[0]) == (code, "spec.manifest")
        code, found = await forecast(scene, None, data=io.BytesIO(b"x" * (256 * 1024 + 1)))
        assert (code, found["reason"]) == (413, "RequestEntityTooLarge")
        assert (await scene.get(FORECASTS, headers=TOKEN))[0] == 404


async def test_a_user_has_one_forecast_made_at_a_time_and_others_have_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as scene:
        answer, begun, let = scene.server._leader.submitted, asyncio.Event(), asyncio.Event()

        async def slow(manifest: Any, namespace: str) -> Any:
            begun.set()
            await let.wait()
            return await answer(manifest, namespace)

        monkeypatch.setattr(scene.server, "_leader", replace(scene.server._leader, submitted=slow))
        first = asyncio.create_task(forecast(scene, {"kind": "Job"}))
        await begun.wait()
        code, found = await forecast(scene, {"kind": "Job"})
        assert (code, found["message"]) == (429, "one forecast at a time for each user: try again")
        scene.api.users["another-token"] = {"username": "another", "groups": []}
        headers = [("Authorization", "Bearer another-token")]
        sent = json.dumps({"spec": {"manifest": {"kind": "Job"}}})
        other = asyncio.create_task(scene.get(FORECASTS, headers=headers, method="POST", data=sent))
        await asyncio.sleep(0)
        let.set()
        assert [(await first)[0], (await other)[0]] == [201, 201]
        assert (await forecast(scene, {"kind": "Job"}))[0] == 201


async def test_a_follower_hands_the_manifest_on() -> None:
    async with served() as scene:
        scene.leads = False
        assert (await scene.get(FORECASTS, headers=TOKEN, method="POST", data=b"{}"))[0] == 200
        assert (scene.handed[0][0], scene.sent) == (FORECASTS, [b"{}"])


async def test_answers_of_the_api_server_count_for_seconds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with served() as scene:
        for _ in range(3):
            assert (await scene.get(headers=TOKEN))[0] == 200
        assert scene.reviews("tokenreviews") == 1
        before = scene.reviews("subjectaccessreviews")
        scene.api.users.clear()
        assert (await scene.get(headers=TOKEN))[0] == 200
        assert scene.reviews("subjectaccessreviews") == before
        scene.clock.advance(LIFE_S)
        assert (await scene.get(headers=TOKEN))[0] == 401, "it was withdrawn"
        assert "secret-token" not in caplog.text
        assert "secret-token" not in repr(vars(scene.server._reviews._tokens))


async def test_while_the_api_server_does_not_answer_nobody_is_let_in() -> None:
    async with served() as scene:
        scene.api.down = True
        code, body = await scene.get(headers=TOKEN)
        assert (code, names_in(body)) == (503, set())
        scene.api.down = False
        assert (await scene.get(headers=TOKEN))[0] == 200, "a failure is not kept"


async def test_a_user_who_asks_too_often_waits_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_shell, "BURST", 3)
    async with served() as scene:
        front, other = scene.front(), User("other")
        codes = [(await scene.get("/apis", tls=front, user=PERSON))[0] for _ in range(4)]
        assert codes == [200] * 3 + [429]
        assert (await scene.get("/apis", tls=front, user=other))[0] == 200
        scene.clock.advance(1.0)
        assert (await scene.get("/apis", tls=front, user=PERSON))[0] == 200


async def test_anothers_one_request_stands_behind_one_of_a_users_many() -> None:
    async with served() as scene:
        front, order = scene.front(), list[str]()
        await scene.server._making.acquire()  # an answer is being made

        async def ask(name: str) -> None:
            assert (await scene.get(tls=front, user=User(name)))[0] == 200
            order.append(name)

        many = [asyncio.create_task(ask("many")) for _ in range(20)]
        turns = scene.server._turns
        await eventually(lambda: "many" in turns and len(turns["many"]._waiters or ()) == 19, what="all of many wait")
        one = asyncio.create_task(ask("one"))
        await eventually(lambda: "one" in turns and turns["one"].locked(), what="another waits, too")
        scene.server._making.release()
        await asyncio.gather(*many, one)
        assert order.index("one") <= 2


async def test_forged_tokens_are_bounded_before_they_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_shell, "BURST", 3)
    async with served() as scene:
        codes = [(await scene.get(headers=[("Authorization", f"Bearer {n}")]))[0] for n in range(5)]
        assert codes == [401] * 3 + [429] * 2
        assert scene.reviews("tokenreviews") == 3


async def test_a_new_certificate_is_taken_up_without_a_restart() -> None:
    async with served(past_s=SERVING_S - 29 * DAY_S) as scene:
        first = await presented(scene)
        await scene.service.round()
        assert await presented(scene) == first
        scene.clock.advance(SERVING_S - 29 * DAY_S)
        await scene.service.round()
        second = await presented(scene)
        assert second != first
        assert (await scene.get(headers=TOKEN))[0] == 200
        assert scene.api.get(SECRETS, "web", namespace=SERVICE[0])["data"]["tls.crt"]


async def presented(scene: Scene) -> bytes | None:
    """The certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection(
        "127.0.0.1", scene.server.port, ssl=scene.tls(), server_hostname=SERVED_AS
    )
    connection: ssl.SSLObject = writer.get_extra_info("ssl_object")
    found = connection.getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return found


async def test_our_api_services_are_told_whom_to_trust_and_no_other() -> None:
    async with served() as scene:
        ours = {"service": {"namespace": SERVICE[0], "name": SERVICE[1], "port": 8082}}
        theirs = {"service": {"namespace": "kueue-system", "name": "kueue-visibility-server"}}
        scene.api.create(API_SERVICES, "v1alpha1.view.tessera.dev", {"metadata": {}, "spec": ours})
        scene.api.create(API_SERVICES, "v1beta1.visibility.kueue.x-k8s.io", {"metadata": {}, "spec": theirs})
        scene.api.create(API_SERVICES, "v1beta2.visibility.kueue.x-k8s.io", {"metadata": {}})
        await scene.service.round()
        assert "caBundle" in scene.api.get(API_SERVICES, "v1alpha1.view.tessera.dev")["spec"]
        assert scene.api.get(API_SERVICES, "v1beta1.visibility.kueue.x-k8s.io")["spec"] == theirs
        written = len(scene.api.written("apiservices"))
        await scene.service.round()
        assert len(scene.api.written("apiservices")) == written == 1


async def test_a_follower_hands_questions_on_and_answers_discovery_itself() -> None:
    async with served() as scene:
        scene.leads = False
        assert (await scene.get("/apis", headers=TOKEN))[0] == 200
        assert scene.handed == []
        assert await scene.get(f"{PATH}/one/pending?limit=3", headers=TOKEN) == (200, b"{}")
        assert scene.handed == [
            (f"{PATH}/one/pending?limit=3", User("person", groups=("people", "system:authenticated")))
        ]
        scene.api.allows = lambda _: False
        scene.clock.advance(LIFE_S)
        assert (await scene.get(headers=TOKEN))[0] == 403
        assert len(scene.handed) == 1, "what is refused is not handed on"


async def test_a_dry_run_that_a_replica_was_asked_about_is_told_to_replicas_alone() -> None:
    async with served() as scene:
        replica = scene.front(authority=scene.service._certificates.authority, name=REPLICA)
        sent: dict[str, Any] = {"method": "POST", "data": b"{}"}
        assert await scene.get(REVIEWED, replica, **sent) == (200, b'["told"]')
        assert (await scene.get(REVIEWED, scene.front(), user=PERSON, **sent))[0] == 404
        assert (await scene.get(REVIEWED, headers=TOKEN, **sent))[0] == 404
        assert (await scene.get(REVIEWED, replica))[0] == 404
        scene.leads = False
        assert (await scene.get(REVIEWED, replica, **sent))[0] == 503
        assert scene.handed == [], "a question goes one step"


async def test_a_replicas_record_of_the_past_is_told_to_replicas_alone() -> None:
    async with served() as scene:
        replica = scene.front(authority=scene.service._certificates.authority, name=REPLICA)
        path = f"{RECORDED}?before={HOUR}"
        assert (await scene.get(path, replica))[0] == 503, "it has none"
        scene.record = b"[]"
        assert await scene.get(path, replica) == (200, b"[]")
        assert (await scene.get(path, scene.front(), user=PERSON))[0] == 404
        assert (await scene.get(path, headers=TOKEN))[0] == 404
        assert (await scene.get(path, replica, method="POST", data=b"{}"))[0] == 404
        for wrong in ("", "?before=x", "?before=-1", f"?before={10**12}"):
            assert (await scene.get(f"{RECORDED}{wrong}", replica))[0] == 400


async def test_a_question_that_a_replica_handed_on_is_answered_or_refused_here() -> None:
    async with served() as scene:
        authority = scene.service._certificates.authority
        replica = scene.front(authority=authority, name=REPLICA)
        assert (await scene.get(tls=replica, user=PERSON))[0] == 200
        scene.leads = False
        assert (await scene.get(tls=replica, user=PERSON))[0] == 503
        assert scene.handed == []
        assert (await scene.get(tls=scene.front(authority=authority), user=PERSON))[0] == 401, "a name of its own"


async def test_of_one_answer_so_many_namespaces_are_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews_shell, "MOST_NAMESPACES", 4)
    async with FakeApiServer() as api, Client(api.config) as client:
        api.allows = lambda spec: bool(spec["resourceAttributes"].get("namespace"))
        reviews = Reviews(client, VirtualClock())
        spaces = [f"n{number}" for number in range(6)]
        assert await reviews.hidden(PERSON, spaces) == {"n4", "n5"}
        assert len(api.reviewed) == 5
        assert await reviews.hidden(PERSON, ["n0", spaces[-1]], granted=spaces[-1]) == frozenset()
        assert await reviews.hidden(PERSON, []) == frozenset()


async def test_a_stranger_at_an_address_keeps_out_nobody_who_was_known_there() -> None:
    async with served() as scene:
        assert (await scene.get(headers=TOKEN))[0] == 200
        while not scene.server._addresses.take("127.0.0.1", scene.clock.monotonic()):
            pass
        forged = [("Authorization", "Bearer forged")]
        assert (await scene.get(headers=forged))[0] == 429
        assert (await scene.get(headers=TOKEN))[0] == 200
        scene.api.users.clear()
        scene.clock.advance(LIFE_S)
        assert (await scene.get(headers=TOKEN))[0] == 401
        while not scene.server._addresses.take("127.0.0.1", scene.clock.monotonic()):
            pass
        assert (await scene.get(headers=TOKEN))[0] == 429, "it is known no more"


async def test_which_namespaces_a_page_may_name_is_asked_seldom_and_beside_other_questions() -> None:
    async with FakeApiServer() as api, Client(api.config) as client:
        api.allows = lambda spec: spec["resourceAttributes"].get("namespace") == "n3"
        clock = VirtualClock()
        reviews = Reviews(client, clock, random=lambda: 0.0)
        spaces = [f"n{number}" for number in range(9)]
        found = await asyncio.gather(reviews.lists(PERSON, spaces), reviews.lists(PERSON, spaces))
        assert set(found) == {frozenset({"n3"})}
        assert len(api.reviewed) == 9
        assert reviews._lists._turns is not reviews._rights._turns
        clock.advance(LISTED_S[0] - 1)
        assert await reviews.lists(PERSON, [*spaces, "new"]) == {"n3"}
        assert len(api.reviewed) == 10
        api.allows = lambda _: True
        clock.advance(1)
        assert await reviews.lists(PERSON, spaces[:2]) == {"n0", "n1"}
        assert await reviews.lists(PERSON, spaces[4:5]) == {"n4"}
        assert len(api.reviewed) == 13


async def test_of_so_many_namespaces_a_page_names_those_that_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews_shell, "MOST_LISTED", 2)
    async with FakeApiServer() as api, Client(api.config) as client:
        reviews = Reviews(client, VirtualClock())
        assert await reviews.lists(PERSON, ["c", "b", "a"]) == {"c", "b"}


async def test_one_question_at_a_time_is_asked_for_all_who_wait_for_it() -> None:
    async with FakeApiServer() as api, Client(api.config) as client:
        api.users["t"] = {"username": "person"}
        reviews = Reviews(client, VirtualClock())
        found = await asyncio.gather(*(reviews.user("t") for _ in range(5)))
        assert found == [User("person")] * 5
        assert len(api.seen("POST", "tokenreviews")) == 1
        api.refuse = lambda _method, _path: 503
        with pytest.raises(UnavailableError):
            await reviews.user("u")


@pytest.mark.parametrize(
    ("leader", "said"),
    [(None, "no replica leads now"), ("held by pod-1_ab", "the replica that leads is not there")],
)
async def test_a_leader_that_cannot_be_asked_is_a_sentence(leader: str | None, said: str) -> None:
    async with served() as scene:
        with pytest.raises(RefusedError, match=said):
            await scene.service.ask_leader(PATH, PERSON, leader, 8082)


def test_a_leader_is_the_pod_in_its_identity() -> None:
    assert holder("lease tessera-system/tessera-controller is held by tessera-7f-x_1a2b until 3") == "tessera-7f-x"
