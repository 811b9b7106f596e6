"""A change simulated beside the present: by the real engine, on copies, in a process with bounds."""

import asyncio
import io
import json
import pickle
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from controller.jobs.framework.settings import JobSettings
from controller.jobs.kinds.table import JOB_KINDS
from controller.objects.decode import KUEUE, decode_object
from controller.objects.meta import Condition, KubernetesObject, to_json
from controller.objects.workload import Workload
from controller.people.page.server_shell import Others
from controller.people.visibility.identity import User
from controller.people.visibility.routes import Attributes
from controller.people.whatif.child_shell import Given, answers
from controller.people.whatif.manifest import Composer
from controller.people.whatif.parent_shell import LEAST_BYTES, WhatIf, _all_of, _parts, free_memory_bytes
from controller.people.whatif.question import Arrival, Asked, Question, compared, read
from controller.people.whatif.quotas import QuotaChange, WrongChangeError
from controller.scheduler.model.config import EngineConfig
from kube.testing import eventually
from tests.support.controller.declarations import job_kind, kind_of
from tests.support.controller.pageworld import PageScene, page_served
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload
from tests.support.hang import HANG_S

BEARER = {"Authorization": "Bearer secret-token"}
COMPOSER = Composer(kinds=(*JOB_KINDS, kind_of(job_kind())), settings=JobSettings(), facts={})


def manifest_of(queue: str) -> str:
    """A Job of one pod."""
    return f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: new, labels: {{kueue.x-k8s.io/queue-name: "{queue}"}}}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: main, resources: {{requests: {{cpu: 1}}}}}}]
"""


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
    found = compared(
        question(made, arrival=Arrival(workloads=(workload("new", "door", 1, created_s=9),))), objects, workloads
    )
    (arrived,) = found["arrived"]
    assert (arrived["workload"].partition("/")[2], arrived["state"]) == ("new", "pending")
    assert arrived["why"]


def test_of_what_arrives_and_waits_it_is_told_what_would_let_it_start_and_who_comes_first() -> None:
    objects, workloads, made = world()
    arrives = (workload("new", "door", 4, created_s=9), workload("huge", "door", 9, created_s=10))
    new, huge = compared(question(made, arrival=Arrival(workloads=arrives)), objects, workloads)["arrived"]
    assert new["changes"] == ["After ns/w1, which is next, and ns/w2, once they have ended"]
    assert huge["changes"][0].startswith("Never, unless it asks for at most 4 gpu of flavor default")


def test_workloads_that_have_finished_are_neither_running_nor_waiting() -> None:
    objects, workloads, made = world()
    sums = compared(question(made), objects, workloads)["present"]
    (done, *others) = workloads
    ended = Condition(type="Finished", status="True", reason="Succeeded", last_transition_time=None)
    status = msgspec.structs.replace(done.status, conditions=(*done.status.conditions, ended))
    after = compared(question(made), objects, [msgspec.structs.replace(done, status=status), *others])["present"]
    assert after["admitted"] + after["pending"] == sums["admitted"] + sums["pending"] - 1


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
        b'{"manifest": "a", "quotas": [{}]}',
        b'{"quotas": [1]}',
        b'{"manifest": "\xff"}',
        b'{"a": ' + b"[" * 17_000,
    ],
)
def test_a_body_that_asks_nothing_is_a_sentence(raw: bytes) -> None:
    with pytest.raises(WrongChangeError, match="body: "):
        read(raw)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"{}", "an empty manifest and no quotas"),
        (b'{"manifest": ""}', "an empty manifest and no quotas"),
        (
            b'{"manifest": "a", "quotas": [{"queue": "q", "flavor": "f", "resource": "r", "nominal": "1"}]}',
            "both a manifest and",
        ),
    ],
)
def test_a_question_has_a_manifest_or_quotas(raw: bytes, found: str) -> None:
    with pytest.raises(WrongChangeError, match=f"^manifest: found {found}"):
        read(raw)


def test_the_other_process_reads_what_it_is_sent() -> None:
    objects, workloads, made = world()
    assert any(kind.rules for kind in COMPOSER.kinds), "and cached: they hold functions"
    space = workloads[0].metadata.namespace

    def told(text: str = "", **more: Any) -> Any:
        given = Given(question(made, **more), Asked(manifest=text, namespace=space), COMPOSER if text else None)
        return [*answers(io.BytesIO(b"".join((pickle.dumps(given), *_parts(objects, workloads)))))][-1]

    assert told()["present"] == {"admitted": 1, "pending": 2}
    assert "nominal of one" in told(quotas=(quota("x"),))["wrong"]
    (arrived,) = told(manifest_of("door"))["arrived"]
    assert (arrived["workload"], arrived["state"]) == (f"{space}/new", "pending")
    assert told(manifest_of(""))["wrong"].startswith(
        'manifest:4: Job new: metadata.labels[kueue.x-k8s.io/queue-name]: found "", expected the label'
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x: &x {}\ny: *x", "manifest:2: found an alias, expected none"),
        ("a: " + "[" * 30_000, "manifest:1: nested too deeply, expected at most 64 levels"),
        ("\n".join(f"{' ' * level}a:" for level in range(100)), "manifest:65: nested too deeply"),
        ("a: [", "manifest:1: column 5: not valid YAML: found the end of the text"),
        ("a: *", "manifest:1: column 5: not valid YAML"),
        ("", "manifest: found 0 documents, expected one"),
        ("kind: Job", "manifest:1: Job: apiVersion: found nothing"),
    ],
)
def test_a_text_that_would_hold_a_parser_is_refused_by_its_events(text: str, said: str) -> None:
    with pytest.raises(WrongChangeError, match=re.escape(said)):
        COMPOSER.composed(text, "ns", [], 0.0)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            "suspend: true",
            'suspend: "true"',
            'manifest:6: Job new: spec.suspend: found "true" (a string), expected true',
        ),
        (
            "cpu: 1",
            "nvidia.com/gpu: 0.5",
            "expected a whole number. A part of a GPU is asked for with tessera.dev/gpu-pe",
        ),
        (
            "suspend: true",
            "suspended: true",
            "manifest:6: Job new: spec.suspended: found an unknown field, expected suspend",
        ),
        ("kind: Job", "kind: Jobb", 'manifest:3: Jobb new: kind: found "Jobb", expected Job. Correct it'),
        ("batch/v1", "batch/v2", "manifest:2: Job new: apiVersion: found batch/v2, expected batch/v1. Correct it"),
        ("\napiVersion", "\na: 1\n---\napiVersion", "manifest:2: apiVersion: found nothing, expected an API version"),
        ("suspend: true", "suspended: true\n  parallelism: -1", "parallelism: found -1"),
        ("queue-name", "queue", "Did you mean kueue.x-k8s.io/queue-name: door?"),
    ],
)
def test_a_manifest_is_checked_as_a_simulation_checks_it(before: str, after: str, said: str) -> None:
    queue = local_queue("door")
    with pytest.raises(WrongChangeError, match=re.escape(said)):
        COMPOSER.composed(manifest_of("door").replace(before, after, 1), "ns", [queue], 0.0)


WARNED = [
    (
        'queue-name: "door"',
        "queue-name: dor",
        'queue-name]: found "dor", expected a LocalQueue of ns: door. Create it, or',
    ),
    ("spec:", "spec:\n  # nothing odd", ""),
    (
        "name: new",
        "name: new, annotations: {tessera.dev/runtimes: 1h}",
        "found an unknown annotation, expected tessera.dev/r",
    ),
    ("cpu: 1", "cpus.example.com/cpu: 1", "expected a resource that ClusterQueue one covers: cpu"),
]


@pytest.mark.parametrize(("before", "after", "said"), WARNED)
def test_what_is_likely_not_meant_is_a_warning_beside_the_answer(before: str, after: str, said: str) -> None:
    objects, _, made = world()
    queue = {"apiVersion": KUEUE, "kind": "ClusterQueue", **to_json(objects[1])}
    objects[1] = decode_object(json.loads(json.dumps(queue).replace('"gpu"', '"cpu"')))
    text = manifest_of("door").replace(before, after, 1).replace("requests", "limits")
    asked = Given(question(made), Asked(manifest=text, namespace="ns"), COMPOSER)
    sent = io.BytesIO(pickle.dumps(asked) + b"".join(_parts(objects, [])))
    *_, told = answers(sent)
    warnings = [line for line in told["warnings"] if line.startswith("manifest:")]
    assert len(warnings) == (1 if said else 0)
    assert all(said in line and ": warning: Job new: " in line for line in warnings)


def test_no_queue_of_another_namespace_is_named() -> None:
    objects, workloads, made = world()
    theirs = local_queue("secret", "one")
    theirs = msgspec.structs.replace(theirs, metadata=msgspec.structs.replace(theirs.metadata, namespace="theirs"))
    asked = Given(question(made), Asked(manifest=manifest_of("secret"), namespace="ns"), COMPOSER)
    *_, told = answers(io.BytesIO(pickle.dumps(asked) + b"".join(_parts([*objects, theirs], workloads))))
    assert 'found "secret"' in str(told["warnings"])
    assert "theirs" not in str(told)


def test_a_priority_class_that_is_not_there_is_refused_with_those_that_are() -> None:
    text = manifest_of("door").replace(
        "kueue.x-k8s.io/queue-name:", "kueue.x-k8s.io/priority-class: urgnt, kueue.x-k8s.io/queue-name:"
    )
    with pytest.raises(WrongChangeError, match='found "urgnt", expected a WorkloadPriorityClass'):
        COMPOSER.composed(text, "ns", [local_queue("door")], 0.0)


def test_a_simulation_takes_no_more_memory_than_the_container_has_left(tmp_path: Path) -> None:
    def left(most: str) -> int:
        mib = 1024**2
        (tmp_path / "memory.max").write_text(f"{most}\n")
        (tmp_path / "memory.current").write_text(f"{400 * mib}\n")
        (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {100 * mib}\n")
        return free_memory_bytes(tmp_path) // mib

    assert left(str(1024**3)) == 1024 - 300 - 128
    assert left(str(256 * 1024**2)) < 0
    assert left(str(64 * 1024**3)) == left("max") == free_memory_bytes(tmp_path / "none") // 1024**2 == 3072


async def test_an_answer_is_read_to_its_end() -> None:
    stream = asyncio.StreamReader()
    read_ = asyncio.create_task(_all_of(stream))
    for _ in range(3):
        stream.feed_data(b"x" * 100_000)
        await asyncio.sleep(0)
    stream.feed_eof()
    assert len(await read_) == 300_000


@asynccontextmanager
async def asked_through_the_page(
    *, limit_s: float = HANG_S, **options: Any
) -> AsyncIterator[tuple[PageScene, Callable[..., Any]]]:
    """``ask``: status and body. The other process is nice, so a busy machine makes it slow."""
    objects, workloads, made = world()

    def given(asked: Asked) -> Given:
        return Given(question(made, quotas=asked.quotas), asked, COMPOSER if asked.manifest else None)

    async def may(user: User, right: Attributes) -> bool:
        return await page.page._reviews.may(user, right)

    what_if = WhatIf(given, may, lambda: objects, lambda: workloads, limit_s=limit_s, **options)
    async with page_served(made, [workloads[0].metadata.namespace], others=Others(what_if=what_if.handle)) as page:

        async def ask(body: Any, token: str = "secret-token") -> tuple[int, Any]:
            headers = {"Authorization": f"Bearer {token}"}
            code, raw, _ = await page.ask("/page/whatif", "POST", data=body, headers=headers)
            return code, json.loads(raw)

        page.may()
        yield page, ask


def moved() -> bytes:
    objects, _, _ = world()
    return json.dumps(
        {"quotas": [{"queue": "one", "flavor": "default", "resource": resource_of(objects), "nominal": "8"}]}
    ).encode()


async def test_a_user_asks_through_the_page_and_gets_no_names_of_others() -> None:
    async with asked_through_the_page() as (page, ask):
        code, found = await ask(moved())
        assert (code, found["simulated"]) == (200, {"admitted": 2, "pending": 1})
        (change,) = found["changes"]
        assert (change["workload"], change["hidden"]) == ("a workload of queue one", True)
        assert f"{world()[1][0].metadata.namespace}/" not in json.dumps(found)
        assert (await page.ask("/page/whatif", headers=BEARER))[0] == 405


def test_a_manifest_may_leave_its_name_to_the_api_server_and_is_asked_the_rules_of_its_kind() -> None:
    (made,) = COMPOSER.composed(manifest_of("door").replace("name: new", "generateName: new-"), "ns", [], 0.0).workloads
    assert made.metadata.name.startswith("new-")
    parted = manifest_of("door").replace("name: new", "name: new, annotations: {kueue.x-k8s.io/job-min-parallelism: x}")
    with pytest.raises(WrongChangeError, match=r"job-min-parallelism\]: expected an integer, found 'x'"):
        COMPOSER.composed(parted, "ns", [], 0.0)


async def test_no_text_of_a_manifest_is_parsed_by_who_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed(*_: Any, **__: Any) -> Any:
        pytest.fail("parsed here")

    for name in ("parse", "compose_all", "load_all"):
        monkeypatch.setattr(yaml, name, parsed)
    bomb = "x0: &x0 {a: 1}\n" + "".join(f"x{n}: &x{n} [{f'*x{n - 1},' * 9}]\n" for n in range(1, 12))
    async with asked_through_the_page() as (_, ask):
        code, found = await ask(json.dumps({"manifest": bomb + manifest_of("door"), "namespace": "ns"}))
        assert (code, found["message"]) == (422, "manifest:2: found an alias, expected none")


async def test_a_manifest_needs_the_right_to_forecasts_in_its_namespace() -> None:
    async with asked_through_the_page() as (page, ask):
        page.api.allows = lambda spec: spec.get("resourceAttributes", {}).get("resource") == "queueviews"
        code, found = await ask(json.dumps({"manifest": manifest_of("door"), "namespace": "other"}))
        assert (code, found["message"]) == (
            403,
            'User "person" may not create forecasts.view.tessera.dev in namespace other',
        )
        assert (await ask(json.dumps({"manifest": "a: 1", "namespace": "x/y"})))[0] == 422


async def test_a_manifest_is_asked_about_in_its_own_namespace_and_needs_the_right_there() -> None:
    text = manifest_of("door").replace("name: new", "name: new, namespace: other")
    async with asked_through_the_page() as (page, ask):
        denied: set[str] = set()
        page.api.allows = lambda spec: spec.get("resourceAttributes", {}).get("namespace") not in denied
        code, found = await ask(json.dumps({"manifest": text, "namespace": "ns"}))
        assert (code, len(found["arrived"])) == (200, 1)
        denied.add("other")
        page.clock.advance(60)
        code, found = await ask(json.dumps({"manifest": text, "namespace": "ns"}))
        assert (code, "in namespace other" in found["message"]) == (403, True)


def test_a_field_that_the_kind_does_not_have_is_told_with_its_line() -> None:
    text = json.dumps(json.loads(json.dumps(yaml.safe_load(manifest_of("door"))))).replace('"spec"', '"spce"', 1)
    with pytest.raises(WrongChangeError, match=r"manifest:1: .*spce: found an unknown field, expected spec"):
        COMPOSER.composed(text, "ns", [], 0.0)


def test_each_mistake_of_a_manifest_has_a_line() -> None:
    text = manifest_of("door").replace("spec:", "spce: 1\nspec:\n  paralelism: 1", 1)
    with pytest.raises(WrongChangeError) as told:
        COMPOSER.composed(text, "ns", [], 0.0)
    lines = str(told.value).splitlines()
    assert [line.split(": ")[2] for line in lines] == ["spce", "spec.paralelism"]
    assert all(line.startswith("manifest:") for line in lines)


async def test_a_simulation_that_takes_too_long_is_ended() -> None:
    async with asked_through_the_page(limit_s=0.0) as (page, ask):
        code, found = await ask(moved())
        assert (code, found["message"]) == (503, "the simulation took longer than 0 s")
        assert asking(page) == set(), "and the next question may be asked"


async def test_nothing_is_begun_where_memory_is_short() -> None:
    async with asked_through_the_page(free_bytes=lambda: LEAST_BYTES - 1) as (_, ask):
        code, found = await ask(moved())
        assert (code, "too little memory" in found["message"]) == (503, True)


async def test_a_body_that_comes_slowly_holds_up_its_sender_alone() -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        begun.set()
        await end.wait()
        yield b"}"

    async with asked_through_the_page(free_bytes=lambda: 0) as (page, ask):
        page.api.users["other-token"] = {"username": "other"}
        task = asyncio.create_task(ask(slow()))
        await begun.wait()
        await eventually(lambda: "person" in asking(page))
        assert (await ask(moved()))[0] == 409
        assert (await ask(moved(), "other-token"))[0] == 503, "it is its turn"
        end.set()
        assert (await task)[0] == 422


def asking(page: PageScene) -> set[str]:
    what_if: Any = page.page.others.what_if
    found: set[str] = what_if.__self__._asking
    return found


def test_the_process_of_a_question_loads_no_server_and_no_client() -> None:
    """Its start is most of what a small question takes."""
    code = f"import sys, {Given.__module__}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"aiohttp", "asyncio", "cryptography", "ssl", "controller.people.visibility.server_shell"} & set(loaded)
