"""The lines of a record, from lists and watches."""

import json
from typing import Any

from cli.audit.recorder import Recorder
from controller.cluster.watching.kinds import JOBS, PODS
from history.settings import Settings


def pod(name: str, version: int = 1, uid: str = "u") -> dict[str, Any]:
    meta = {"namespace": "team", "name": name, "uid": uid, "resourceVersion": str(version), "managedFields": [{}]}
    return {"metadata": meta, "spec": {"nodeName": "n1"}}


class Lines:
    def __init__(self) -> None:
        self.raw: list[bytes] = []
        self.recorder = Recorder(self.raw.append, began_s=100.0)

    def told(self) -> list[tuple[Any, ...]]:
        found = [json.loads(line) for line in self.raw]
        self.raw.clear()
        return [
            (each["t"], each["type"], each.get("what") or each["object"]["metadata"]["name"])
            for each in found
            if each["type"] not in ("SETTINGS", "END")
        ]


def test_all_that_is_there_is_told_at_first_with_what_cannot_be_seen() -> None:
    lines = Lines()
    lines.recorder.begin({PODS: [pod("a"), pod("b")]}, Settings(), ["jobs: may not be listed"])
    first, *_, last = [json.loads(line) for line in lines.raw]
    assert (first["type"], first["settings"]["backfill"]) == ("SETTINGS", True)
    assert last["object"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "team", "name": "b", "uid": "u", "resourceVersion": "1"},
        "spec": {"nodeName": "n1"},
    }
    assert lines.told() == [(0.0, "UNSEEN", "jobs: may not be listed"), (0.0, "ADDED", "a"), (0.0, "ADDED", "b")]


def test_a_list_after_a_gap_is_told_by_what_differs() -> None:
    lines = Lines()
    lines.recorder.begin({PODS: [pod("kept"), pod("changed"), pod("gone")]}, Settings(), [])
    lines.told()
    lines.recorder.blinded(PODS, 103.0)
    lines.recorder.blinded(PODS, 104.0)
    lines.recorder.relisted(PODS, [pod("kept"), pod("changed", 2), pod("new")], 105.0)
    assert lines.told() == [
        (3.0, "BLIND", "pods"),
        (5.0, "DELETED", "gone"),
        (5.0, "MODIFIED", "changed"),
        (5.0, "ADDED", "new"),
        (5.0, "SIGHT", "pods"),
    ]


def test_events_are_told_as_the_record_knows_them_and_time_never_goes_back() -> None:
    lines = Lines()
    lines.recorder.begin({PODS: [], JOBS: []}, Settings(), [])
    lines.recorder.changed(PODS, "MODIFIED", pod("a"), 100.0)
    lines.recorder.changed(PODS, "ADDED", pod("a", 2), 102.0)
    lines.recorder.changed(PODS, "DELETED", pod("a", 3), 101.0)
    lines.recorder.changed(PODS, "ADDED", pod("a", 4), 102.5)
    assert lines.told() == [
        (0.001, "ADDED", "a"),
        (2.0, "MODIFIED", "a"),
        (2.0, "DELETED", "a"),
        (2.5, "ADDED", "a"),
    ]
