"""A change simulated beside the present: by the real engine, on copies, in a process with bounds."""

import io
import json
from typing import Any

import pytest

from controller.engine.model.config import EngineConfig
from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from controller.web.server_shell import Others
from controller.web.whatif import Asked, Question, QuotaChange, WrongChangeError, compared, read
from controller.web.whatif_shell import WhatIf, _parts, answer
from tests.support.controller.pageworld import page_served
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

BEARER = {"Authorization": "Bearer secret-token"}


def world() -> tuple[list[KubernetesObject], list[Workload], World]:
    """A queue of 4 of which one workload holds all, and two wait."""
    made, objects = World(), [flavor(), cluster_queue("one", 4), local_queue("door", "one")]
    made.put(*objects)
    for number in range(3):
        made.put(workload(f"w{number}", "door", 4, created_s=number))
        made.cycle()
    return objects, list(made.workloads.values()), made


def question(made: World, **more: Any) -> Question:
    return Question(config=EngineConfig(), now_s=made.now_s, **more)


def quota(nominal: str, **more: str) -> QuotaChange:
    spec = {"queue": "one", "flavor": "default", "resource": "cpu", "nominal": nominal} | more
    return QuotaChange(**spec)


def resource_of(objects: list[KubernetesObject]) -> str:
    queue: Any = objects[1]
    return str(queue.spec.resource_groups[0].flavors[0].resources[0].name)


def test_a_larger_quota_admits_those_in_front_and_nothing_changes_by_itself() -> None:
    objects, workloads, made = world()
    name = resource_of(objects)
    same = compared(question(made), objects, workloads)
    assert same["present"] == same["simulated"] == {"admitted": 1, "pending": 2}
    assert same["changes"] == []
    more = compared(question(made, quotas=(quota("8", resource=name),)), objects, workloads)
    assert more["simulated"] == {"admitted": 2, "pending": 1}
    ((key, before, after),) = [(each["workload"], each["before"], each["after"]) for each in more["changes"]]
    assert (key.partition("/")[2], before, after) == ("w1", "pending", "admitted")
    assert more["queues"][0]["simulated"] == {"admitted": 2, "pending": 1}
    assert made.running() == {"w0"}, "the live engine is as it was"


def test_what_arrives_is_told_with_why_it_waits() -> None:
    objects, workloads, made = world()
    found = compared(question(made, arrives=(workload("new", "door", 1, created_s=9),)), objects, workloads)
    (arrived,) = found["arrived"]
    assert (arrived["workload"].partition("/")[2], arrived["state"]) == ("new", "pending")
    assert arrived["why"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (quota("4", queue="two"), "expected a ClusterQueue that is there"),
        (quota("x"), "nominal of one"),
        (quota("-1"), "expected 0 or more"),
        (quota("4", flavor="gold"), "has no quota of cpu of flavor gold"),
    ],
)
def test_a_quota_that_is_not_there_is_a_sentence(change: QuotaChange, said: str) -> None:
    objects, workloads, made = world()
    with pytest.raises(WrongChangeError, match=said):
        compared(question(made, quotas=(change,)), objects, workloads)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"manifest": "a", "quotas": [{}]}',
        b'{"quotas": [1]}',
        b'{"manifest": "\xff"}',
        b'{"a": ' + b"[" * 17_000,
    ],
)
def test_a_body_that_asks_nothing_is_a_sentence(raw: bytes) -> None:
    with pytest.raises(WrongChangeError, match="body: "):
        read(raw)


def test_the_other_process_reads_what_it_is_sent() -> None:
    objects, workloads, made = world()
    sent = b"".join(_parts(question(made), objects, workloads * 1))
    assert answer(io.BytesIO(sent))["present"] == {"admitted": 1, "pending": 2}
    wrong = b"".join(_parts(question(made, quotas=(quota("x"),)), objects, workloads))
    assert "nominal of one" in answer(io.BytesIO(wrong))["wrong"]


async def test_a_user_asks_through_the_page_and_gets_no_names_of_others() -> None:
    objects, workloads, made = world()
    name = resource_of(objects)

    def asked(given: Asked, _manifest: Any) -> Question:
        return question(made, quotas=given.quotas)

    space = workloads[0].metadata.namespace
    what_if = WhatIf(asked, lambda: objects, lambda: workloads)
    async with page_served(made, [space], others=Others(what_if=what_if.handle)) as page:
        body = {"quotas": [{"queue": "one", "flavor": "default", "resource": name, "nominal": "8"}]}
        page.may()
        code, raw, _ = await page.ask("/page/whatif", "POST", json=body, headers=BEARER)
        found = json.loads(raw)
        assert (code, found["simulated"]) == (200, {"admitted": 2, "pending": 1})
        (change,) = found["changes"]
        assert (change["workload"], change["hidden"]) == ("a workload of queue one", True)
        assert f"{space}/".encode() not in raw
        for wrong in ({}, {"manifest": "a: ["}, {"manifest": "kind: Job"}):
            assert (await page.ask("/page/whatif", "POST", json=wrong, headers=BEARER))[0] == 422
        assert (await page.ask("/page/whatif", headers=BEARER))[0] == 405
        what_if._asking.add("person")
        assert (await page.ask("/page/whatif", "POST", json=body, headers=BEARER))[0] == 409
