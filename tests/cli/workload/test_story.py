"""A workload's time line, from objects of which every value may be anything."""

from collections.abc import Iterator
from typing import Any

import pytest

from cli.workload.story import concerns, story, time_of

WORKLOAD = {
    "metadata": {"name": "w", "creationTimestamp": "2026-11-21T10:00:00Z"},
    "spec": {"queueName": "q"},
    "status": {
        "conditions": [
            {
                "type": "QuotaReserved",
                "status": "True",
                "reason": "QuotaReserved",
                "message": "Quota reserved in ClusterQueue cq",
                "lastTransitionTime": "2026-11-21T10:00:05Z",
            },
            {
                "type": "PodsReady",
                "status": "False",
                "reason": "WaitForStart",
                "lastTransitionTime": "2026-11-21T10:00:06Z",
            },
        ],
        "admissionChecks": [
            {"name": "prov", "state": "Ready", "message": "got it", "lastTransitionTime": "2026-11-21T10:00:07Z"}
        ],
    },
}
JOB = {
    "kind": "Job",
    "metadata": {"name": "j", "creationTimestamp": "2026-11-21T09:59:59Z"},
    "status": {"startTime": "2026-11-21T10:00:08Z", "completionTime": "2026-11-21T11:00:00Z"},
}
POD = {
    "metadata": {"name": "p", "creationTimestamp": "2026-11-21T10:00:09Z"},
    "spec": {"nodeName": "n-1"},
    "status": {
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T10:00:10Z"},
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-21T10:59:59Z"},
            {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-11-21T10:00:10Z"},
        ],
        "containerStatuses": [
            {
                "name": "main",
                "state": {
                    "terminated": {
                        "startedAt": "2026-11-21T10:00:12Z",
                        "finishedAt": "2026-11-21T10:59:58Z",
                        "exitCode": 3,
                        "reason": "Error",
                    }
                },
            }
        ],
    },
}


def event(reason: str, note: str, **times: Any) -> dict[str, Any]:
    return {"reason": reason, "note": note, "regarding": {"kind": "Workload", "name": "w"}, **times}


def test_the_time_line_has_what_all_objects_say_in_order() -> None:
    events = [
        event("QuotaReserved", "Quota reserved in ClusterQueue cq", eventTime="2026-11-21T10:00:05.3Z"),
        event("Pending", "no room", eventTime="2026-11-21T10:00:01Z", deprecatedCount=3),
        event("Late", "n", series={"count": 2, "lastObservedTime": "2026-11-21T12:00:00Z"}),
        event("Never", "it has no time"),
    ]
    told = [(moment.about, moment.what, moment.text) for moment in story(WORKLOAD, JOB, [POD], events)]
    assert told == [
        ("Job j", "created", ""),
        ("Workload w", "created", "in LocalQueue q"),
        ("Workload w", "Pending (3 times)", "no room"),
        ("Workload w", "QuotaReserved", "Quota reserved in ClusterQueue cq"),
        ("Workload w", "not PodsReady (WaitForStart)", ""),
        ("Workload w", "check prov: Ready", "got it"),
        ("Job j", "started", ""),
        ("Pod p", "created", ""),
        ("Pod p", "scheduled to n-1", ""),
        ("Pod p", "container main started", ""),
        ("Pod p", "container main ended with exit code 3", "Error"),
        ("Pod p", "not ready", ""),
        ("Job j", "completed", ""),
        ("Workload w", "Late (2 times)", "n"),
    ]


def test_a_pod_that_is_not_scheduled_says_so() -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "gated",
        "lastTransitionTime": "2026-11-21T10:00:10Z",
    }
    (moment,) = story({}, None, [{"metadata": {"name": "p"}, "status": {"conditions": [condition]}}], [])
    assert (moment.what, moment.text) == ("not scheduled (SchedulingGated)", "gated")


JUNK: tuple[Any, ...] = (None, 7, "x", [], {}, [None], [[]], {"a": 1}, "2026-11-21T10:00:00")


def spoilt(whole: Any) -> Iterator[Any]:
    """Copies in which one value, at whatever depth, is another."""
    yield from JUNK
    if isinstance(whole, dict):
        yield from ({**whole, key: other} for key, value in whole.items() for other in spoilt(value))
    elif isinstance(whole, list):
        yield from ([*whole[:at], other, *whole[at + 1 :]] for at, value in enumerate(whole) for other in spoilt(value))


def test_no_object_is_too_strange_for_a_story() -> None:
    said = event("R", "n", series={"count": 2, "lastObservedTime": "2026-11-21T12:00:00Z"})
    for whole in (WORKLOAD, JOB, POD, said):
        for strange in filter(lambda each: isinstance(each, dict), spoilt(whole)):
            found = story(strange, strange, [strange], [strange])
            assert [moment.at for moment in found] == sorted(moment.at for moment in found)
            assert not concerns(strange, frozenset({"u"}), frozenset())


@pytest.mark.parametrize("value", [None, 7, "yesterday", {}, ""])
def test_what_is_no_time_is_none(value: Any) -> None:
    assert time_of(value) is None


def test_an_event_is_about_an_object_by_uid_and_without_one_by_name() -> None:
    uids, names = frozenset({"u"}), frozenset({("Pod", "p")})
    assert concerns({"regarding": {"kind": "Pod", "name": "x", "uid": "u"}}, uids, names)
    assert not concerns({"regarding": {"kind": "Pod", "name": "p", "uid": "v"}}, uids, names)
    assert concerns({"regarding": {"kind": "Pod", "name": "p"}}, uids, names)
    assert not concerns({"regarding": {"kind": "Job", "name": "p"}}, uids, names)
