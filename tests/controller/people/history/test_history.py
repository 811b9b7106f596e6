"""History and figures: asked of a Prometheus once for all who look, and told without other people's names."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from controller.cluster.config.pagesettings import PagePrometheus
from controller.people.history.figures import Figures
from controller.people.history.history_shell import KEPT_S, History
from controller.people.history.queries import NOW
from controller.people.page.detail import waste
from kube.testing import eventually
from tests.controller.people.visibility.test_redaction import SPACES, preempting
from tests.support.controller.gpunodes import observed
from tests.support.controller.pageworld import PageScene, page_served
from tests.support.prometheus import matrix, served, vector

BEARER = {"Authorization": "Bearer secret-token"}
HOUR_S = 3600
Json = dict[str, Any]


@dataclass
class Recorded:
    """Queues' amounts by hour, and GPUs' figures. ``failing``: in place of every answer."""

    headers: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    failing: tuple[int, bytes] | None = None

    def body(self, query: str) -> tuple[int, bytes]:
        self.queries.append(query)
        uuid = {"UUID": "A-n1", "pod": "secret-name", "namespace": "secret-space"}
        value = 20_480.0 if "FB_USED" in query else 0.004
        return self.failing or vector([(uuid, value), ({"UUID": "A-n2"}, float("nan")), ({}, 1.0)])

    def over(self, query: str, start_s: int, end_s: int, step_s: int) -> tuple[int, bytes]:
        self.queries.append(query)
        assert step_s == HOUR_S
        assert start_s % HOUR_S == end_s % HOUR_S == 0
        labels = {"resource": "nvidia.com/gpu", "pod": "secret-name", "namespace": "secret-space"}
        samples = [(at, 8.0) for at in range(start_s, end_s, 2 * HOUR_S)]
        return self.failing or matrix([(labels, [*samples, (end_s, float("nan"))])])


@dataclass
class Scene:
    page: PageScene
    recorded: Recorded
    history: History

    async def past(self, query: str) -> tuple[int, Json]:
        code, body, _ = await self.page.ask(f"/page/history?{query}", headers=BEARER)
        return code, json.loads(body)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    recorded = Recorded()
    with served(recorded) as url:
        async with page_served(preempting(), list(SPACES)) as page:
            history = History(PagePrometheus(url=url), page.clock)
            page.page.others = replace(page.page.others, history=history.of)
            yield Scene(page, recorded, history)
            await history.close()


async def test_a_queue_has_what_it_used_was_given_and_borrowed_by_hour() -> None:
    async with scene() as world:
        code, found = await world.past("what=queue&name=research&hours=4")
        assert code == 200
        assert (found["configured"], found["step"], found["what"], found["name"]) == (True, HOUR_S, "queue", "research")
        assert 0 <= world.page.clock.wall() - found["start"] <= 4 * HOUR_S
        assert [(each["name"], each["resource"]) for each in found["series"]] == [
            (name, "nvidia.com/gpu") for name in ("used", "nominal", "borrowed")
        ]
        assert found["series"][0]["points"] == [8.0, None, 8.0, None]
        assert all('cluster_queue="research"' in query for query in world.recorded.queries)
        assert "secret" not in json.dumps(found), "labels that say more are not passed on"


async def test_all_who_ask_within_half_a_minute_share_one_answer() -> None:
    async with scene() as world:
        await asyncio.gather(*(world.past("what=cohort&name=all") for _ in range(5)))
        await world.past("what=cohort&name=all&hours=24")
        assert len(world.recorded.queries) == 3
        world.page.clock.advance(KEPT_S)
        await world.past("what=cohort&name=all")
        assert len(world.recorded.queries) == 6


async def test_the_fleets_and_a_workloads_use_is_in_gpus() -> None:
    async with scene() as world:
        _, found = await world.past("what=fleet")
        assert [each["name"] for each in found["series"]] == ["busy", "held", "there"]
        world.recorded.queries.clear()
        assert (await world.past("what=workload&name=team-a/none"))[1]["series"] == []
        assert world.recorded.queries == [], "it has no pods"
        held = [{"namespace": "team-a", "pod": "train-0", "container": "c", "resource": "r", "device": "A-n1"}]
        device = {"index": 0, "uuid": "A-n1", "product": "H100", "mode": "whole", "offers": []}
        world.page.gpu_nodes["n1"] = observed("n1", devices=[device], holders=held)
        world.page.pods["team-a/train-0"] = "team-a/train"
        _, found = await world.past("what=workload&name=team-a/train")
        assert [each["name"] for each in found["series"]] == ["busy", "held"]
        assert all('{namespace="team-a", pod=~"train-0"}' in query for query in world.recorded.queries)


async def test_a_nodes_use_is_asked_for_by_either_label_of_its_name() -> None:
    async with scene() as world:
        _, found = await world.past("what=node&name=gpu-7.rack-1")
        assert [(each["name"], each["resource"]) for each in found["series"]] == [
            (name, "nvidia.com/gpu") for name in ("busy", "held", "there")
        ]
        both = ('{Hostname="gpu-7.rack-1"}', '{hostname="gpu-7.rack-1"}')
        assert all(label in query for query in world.recorded.queries for label in both)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("what=pods", "what: found 'pods'"),
        ("what=queue", "name: found ''"),
        ("what=queue&name=a%22}%20or%20up", "name: found"),
        ("what=queue&name=a/b", "expected a name"),
        ("what=node", "name: found ''"),
        ("what=workload&name=a", "expected NAMESPACE/NAME"),
        ("what=workload&name=a/b/c", "name: found 'b/c'"),
        ("what=fleet&hours=0", "hours: found '0', expected 1 to 744"),
        ("what=fleet&hours=9999", "hours: found"),
    ],
)
async def test_what_is_no_question_reaches_no_prometheus(query: str, said: str) -> None:
    async with scene() as world:
        code, found = await world.past(query)
        assert (code, said in found["message"]) == (400, True), found
        assert world.recorded.queries == []


async def test_rights_are_those_of_the_rows() -> None:
    async with scene() as world:
        world.page.may(fleet=False, queues=True)
        assert (await world.past("what=fleet"))[0] == 403
        assert (await world.past("what=queue&name=a"))[0] == 200
        world.page.clock.advance(60)
        world.page.api.allows = lambda spec: spec["resourceAttributes"].get("resource") == "fleetviews"
        assert [(await world.past(of))[0] for of in ("what=queue&name=a", "what=workload&name=a/b")] == [403, 403]
        assert [(await world.past(of))[0] for of in ("what=fleet", "what=node&name=n1")] == [200, 200]
        world.page.clock.advance(60)
        world.page.api.allows = lambda spec: spec["resourceAttributes"].get("name") == "n1"
        assert [(await world.past(f"what=node&name={node}"))[0] for node in ("n1", "n2")] == [200, 403]


@pytest.mark.parametrize("answer", [(500, b"no"), (200, b"[" * 100_000), (200, b'{"status": "success"}'), (401, b"")])
async def test_without_an_answer_that_is_said_and_it_is_not_asked_for_each_viewer(answer: tuple[int, bytes]) -> None:
    async with scene() as world:
        world.recorded.failing = answer
        for _ in range(3):
            code, found = await world.past("what=fleet")
            assert (code, found["message"]) == (503, "Prometheus does not answer. The controller's log says why.")
        assert len(world.recorded.queries) == 1
        assert world.history.figures() == {}
        world.recorded.failing = None
        world.page.clock.advance(KEPT_S)
        assert (await world.past("what=fleet"))[0] == 200


async def test_where_none_is_configured_the_key_is_named() -> None:
    async with page_served(preempting(), list(SPACES)) as page:
        _, body, _ = await page.ask("/page/history?what=queue&name=a", headers=BEARER)
        assert json.loads(body) == {
            "configured": False,
            "why": "no Prometheus is configured, and nothing is recorded: see tessera.page",
        }


async def figures_of(world: Scene, wanted: Callable[[], bool]) -> None:
    await eventually(lambda: (world.history.figures() != {}) is wanted(), what="figures")


async def test_figures_are_asked_for_while_somebody_looks_and_are_not_of_now_for_ever() -> None:
    async with scene() as world:
        assert world.recorded.queries == []
        await figures_of(world, lambda: True)
        found = world.history.figures()
        assert found == {"A-n1": Figures(busy=0.0, used_mib=20_480, peak=0.004, temperature_c=0)}
        assert len(world.recorded.queries) == len(NOW)
        world.page.clock.advance(KEPT_S)
        world.history.figures()
        await eventually(lambda: len(world.recorded.queries) == 2 * len(NOW), what="asked again")
        assert world.history.figures() is found, "rows are not made anew for the same figures"
        world.recorded.failing = (500, b"")
        world.page.clock.advance(300)
        assert world.history.figures() == {}


def row(uuid: str, pod: str) -> bytes:
    holder = {"pod": f"team-a/{pod}", "workload": "team-a/train", "hidden": False, "takes": 1}
    gpu = {
        "index": 0,
        "uuid": uuid,
        "product": "H100",
        "state": "idle",
        "health": "Healthy",
        "busy": 0.0,
        "parts": [{"holders": [holder]}],
    }
    return json.dumps({"name": "n1", "observed": 10_000.0, "gpus": [gpu]}).encode()


def test_a_gpu_that_rests_between_two_steps_is_not_idle() -> None:
    rows = [row("A", "p0"), row("B", "p1")]
    found = waste(rows, {"A": Figures(0.0, 0, 0.9), "B": Figures(0.0, 0, 0.001)})
    assert [(each["uuid"], each["since"]) for each in found["idle"]] == [("B", 10_000.0 - HOUR_S)]
    assert [each["sentence"] for each in found["advice"]] == [
        "It holds 1 GPU that does nothing: end it, or ask for fewer."
    ]
    assert "tessera.page.prometheus" in waste(rows, {})["why"]
