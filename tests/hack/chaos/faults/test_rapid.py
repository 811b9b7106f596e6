"""Changes that come one upon the other leave an object as it was, whatever the API server takes of them."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from hack.chaos.api import JOBS, QUEUES, AwayError, RefusedError
from hack.chaos.faults.kinds import RAPID_EDITS
from hack.chaos.faults.rapid import EDITS, MARK, NODES, QUEUE, edited
from hack.chaos.load import GPU, QUOTA
from hack.chaos.members import resource_groups

Json = dict[str, Any]
CLUSTER_QUEUE = f"{QUEUES}/clusterqueues/{QUEUE}"
THERE: dict[str, Json] = {
    CLUSTER_QUEUE: {"spec": {"cohortName": "all", "resourceGroups": resource_groups(QUOTA[QUEUE])}},
    f"{JOBS}/waits": {"metadata": {"name": "waits", "labels": {}}, "spec": {"suspend": True}},
    f"{JOBS}/runs": {"metadata": {"name": "runs", "labels": {"a": "b"}}, "spec": {"suspend": False}},
    f"{NODES}/n1": {"metadata": {"name": "n1", "labels": {"a": "b"}}, "spec": {}},
}


def merged(there: Json, patch: Json) -> Json:
    """RFC 7386."""
    found = dict(there)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key, {}), value) if isinstance(value, dict) else value
    return found


class Server:
    """``takes``: so many writes, and none after them until ``away`` is over."""

    def __init__(self, takes: int = 1000) -> None:
        self.objects = copy.deepcopy(THERE)
        self.states: dict[str, list[Json]] = {}
        self.takes = takes

    def items(self, path: str) -> list[Json]:
        return [body for at, body in sorted(self.objects.items()) if at.rpartition("/")[0] == path]

    def patch(self, path: str, body: Json) -> Json:
        if not self.takes:
            raise AwayError("away")
        if path not in self.objects:
            raise RefusedError(404, "gone")
        self.takes -= 1
        self.objects[path] = merged(self.objects[path], body)
        self.states.setdefault(path, []).append(self.objects[path])
        return self.objects[path]


Choose = Callable[[Any], Any]


def test_each_kind_has_its_turn() -> None:
    assert len(EDITS) == RAPID_EDITS


@pytest.mark.parametrize("choose", EDITS)
@pytest.mark.parametrize("takes", [0, 1, 2, 3, 1000])
def test_an_object_changes_more_than_once_and_ends_as_it_was(choose: Choose, takes: int) -> None:
    server, owed = Server(takes), list[Callable[[], object]]()
    edited(server, choose, owed)()
    assert bool(owed) == (takes <= 3)
    server.takes = 1000
    for end in owed:
        end()
    assert server.objects == THERE
    (states,) = server.states.values()
    assert takes < 1000 or len(states) >= 4
    assert takes < 1000 or sum(state != states[-1] for state in states) >= 3


def test_a_quota_is_more_and_less_and_none() -> None:
    server = Server()
    edited(server, EDITS[0], [])()
    groups = [state["spec"]["resourceGroups"][0]["flavors"][0]["resources"] for state in server.states[CLUSTER_QUEUE]]
    amounts = [next(int(each["nominalQuota"]) for each in group if each["name"] == GPU) for group in groups]
    usual = QUOTA[QUEUE][GPU]
    assert amounts == [usual + 1, usual - 1, 0, usual]


def test_the_labels_are_those_of_a_job_that_has_started() -> None:
    server = Server()
    edited(server, EDITS[1], [])()
    assert [*server.states] == [f"{JOBS}/runs"]
    assert any(MARK in state["metadata"]["labels"] for state in server.states[f"{JOBS}/runs"])
    server.objects[f"{JOBS}/runs"]["spec"]["suspend"] = True
    server.states.clear()
    edited(server, EDITS[1], [])()
    assert not server.states


def test_a_job_that_is_gone_needs_no_end() -> None:
    server, owed = Server(), list[Callable[[], object]]()
    heal = edited(server, EDITS[1], owed)
    del server.objects[f"{JOBS}/runs"]
    heal()
    assert not owed
