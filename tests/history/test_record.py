"""A record is anybody's file: whatever is in it, one line says what is wrong where; the judge raises nothing."""

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from history.judge import Judge
from history.record import MAX_LINE_BYTES, RecordError, read
from tests.support.history.told import Told, admitted, cluster_queue, job, local_queue, pod, workload

GOOD: dict[str, Any] = {"t": 1, "source": "hardware", "node": "n", "gpus": [{"uuid": "GPU-1"}]}


def refused(*lines: object) -> str:
    raw = b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines)
    with pytest.raises(RecordError) as wrong:
        list(read(io.BytesIO(raw)))
    return str(wrong.value)


def of(**changed: Any) -> dict[str, Any]:
    return {**GOOD, **changed}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([], "line 2: found [], expected a JSON object"),
        (of(t="1"), "line 2: t: found '1', expected a number of seconds"),
        (of(t=True), "line 2: t: found true, expected a number of seconds"),
        (of(t=0.5), "line 2: t: found 0.5, expected a number not below 1, the time of the line before"),
        (of(source="oracle"), "line 2: source: found 'oracle', expected one of api, kubelet, hardware, recorder"),
        (of(node=""), "line 2: node: found '', expected a text"),
        (of(gpus={}), "line 2: gpus: found {}, expected a list"),
        (of(gpus=[7]), "line 2: gpus[0]: found 7, expected a JSON object"),
        (of(gpus=[{"uuid": "u", "replicas": 0}]), "line 2: gpus[0].replicas: found 0, expected a whole number from 1"),
        (of(gpus=[{"uuid": "u", "resets": -1}]), "line 2: gpus[0].resets: found -1, expected a whole number from 0"),
        (of(gpus=[{"uuid": "u", "mig": [{}]}]), "line 2: gpus[0].mig[0].uuid: found nothing, expected a text"),
        (of(source="api"), "line 2: object: found nothing, expected a JSON object"),
        (
            of(source="api", type="ADDED", object={"kind": "Pod", "metadata": {}}),
            "line 2: object.metadata.name: found nothing, expected a text",
        ),
        (
            of(source="api", type="BOOKMARK", object={"kind": "Pod", "metadata": {"name": "p"}}),
            "line 2: type: found 'BOOKMARK', expected one of ADDED, MODIFIED, DELETED",
        ),
        (
            of(source="kubelet", call="Allocate", resource="r", devices=[1]),
            "line 2: devices: found [1], expected a list of texts",
        ),
        (of(source="kubelet", call="PodResources"), "line 2: pods: found nothing, expected a list"),
        (of(source="recorder", type="BLIND"), "line 2: what: found nothing, expected a text"),
    ],
)
def test_a_wrong_line_is_told_with_its_number_field_found_and_expected(line: object, message: str) -> None:
    assert refused(GOOD, line) == message


def test_bytes_that_are_no_json_are_told() -> None:
    assert refused(GOOD, b'{"t": 1').startswith("line 2: found '{\"t\": 1', expected a JSON object (")
    assert refused(b"\xff\xfe").startswith("line 1: found ")
    assert "expected a JSON object" in refused(b"[" * 200_000)
    assert len(refused(of(node=["x" * 5000])).encode()) < 200
    wrong = refused(of(source="recorder", type="SETTINGS", settings={"queuesPods": 7}))
    assert wrong.startswith('line 1: settings: found {"queuesPods":7}, expected the judge\'s settings (')


def test_a_line_has_a_bound() -> None:
    assert refused(b'{"t": "' + b"x" * MAX_LINE_BYTES).startswith("line 1: found more than 8388608 bytes")


def test_fields_that_nobody_knows_are_passed_over() -> None:
    raw = json.dumps(of(seen_by="somebody")).encode()
    assert len(list(read(io.BytesIO(raw)))) == 1


def test_a_line_that_is_too_deep_or_of_no_kind_is_refused() -> None:
    deep = b'{"a":' * 201 + b"1" + b"}" * 201
    assert refused(deep).endswith("expected a JSON object of at most 200 levels")
    wide = json.dumps(of(seen=[[] for _ in range(500)])).encode()
    assert len(list(read(io.BytesIO(wide)))) == 1
    body = {"kind": "a tree of queues", "metadata": {"name": "x"}}
    wrong = refused(of(source="api", type="ADDED", object=body))
    assert wrong == "line 1: object.kind: found 'a tree of queues', expected the kind of an object"


def test_kinds_of_the_judges_own_names_and_numbers_of_any_size_do_no_harm() -> None:
    told = Told()
    for kind in ("NodeDevices", "TreesChanged", "Tree"):
        told.put({"kind": kind, "metadata": {"name": "n1"}})
    queue = cluster_queue()
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = 10**400
    told.put(queue, local_queue())
    told.later(10)
    for name, boost in (("j", "+-5"), ("k", "--5")):
        waiting = workload(job(name))
        waiting["metadata"]["annotations"] = {"kueue.x-k8s.io/priority-boost": boost}
        told.put(job(name), waiting)
    told.later(10)
    told.put(admitted(workload(job("k"), priority=10**400)))
    assert [each.rule for each in told.found()] == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4) | st.just("True"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
TOLD = Told()
TOLD.put(cluster_queue(cohortName="c"), local_queue(), {"kind": "Cohort", "metadata": {"name": "c"}, "spec": {}})
TOLD.later(1)
TOLD.put(job("j"), admitted(workload(job("j"))), pod("p", job("j")), workload(job("k")))
BODIES = [line["object"] for line in TOLD.lines]


def places(body: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    return [path, *(found for name, each in inner for found in places(each, (*path, name)))]


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(BODIES), st.integers(0, 10**6), JSON), min_size=1, max_size=4))
def test_whatever_stands_in_an_object_the_judge_raises_nothing(changes: list[tuple[Any, int, Any]]) -> None:
    lines = list(TOLD.lines)
    for body, number, value in changes:
        changed = json.loads(json.dumps(body))
        path = (every := places(changed))[number % len(every)]
        place = changed
        for name in path[:-1]:
            place = place[name]
        if path:
            place[path[-1]] = value
        lines.append({"t": 10, "source": "api", "type": "MODIFIED", "object": changed})
    lines.append({"t": 500, "source": "api", "type": "DELETED", "object": BODIES[0]})
    judge, raw = Judge(), b"\n".join(json.dumps(each).encode() for each in lines)
    try:
        for fact in read(io.BytesIO(raw)):
            judge.take(fact)
    except RecordError as wrong:
        assert str(wrong).startswith("line ")  # noqa: PT017 - the other outcome is as good
    judge.verdict()
