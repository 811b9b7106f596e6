"""Each rule covers what its reason says, and not the neighbour: another task of the same table, another outcome of the
same task, or another table with the same outcome.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.conformance.kai.differences import RULES
from tests.conformance.kai.player import Place
from tests.conformance.replay import Difference, Rule

pytestmark = pytest.mark.conformance

Table = dict[str, Any]
WAITS: Place = ("Pending", "")
CYCLE = ["allocate", "consolidation", "reclaim"]


def task(name: str, node: str = "", **given: Any) -> Table:
    where = {"node_name": node, "state": "Running"} if node else {"state": "Pending"}
    return {"id": name, **where, **given}


def table(*tasks: Table, queues: Mapping[str, str] | None = None, gpus: int = 1, moved: str = "") -> Table:
    """A job for each task, named as it is, of one GPU. ``moved``: the table demands that task ``a`` runs there."""
    jobs = [{"name": one["id"], "queue_name": (queues or {}).get(one["id"], "q"), "tasks": [one]} for one in tasks]
    resolved = [
        {"status": one["state"], "node": one.get("node_name", ""), "request_type": "Regular", "request": {"gpus": 1}}
        for one in tasks
    ]
    nodes = {one["node_name"]: {"allocatable": {"gpus": gpus}} for one in tasks if "node_name" in one}
    return {
        "run": {"actions": CYCLE},
        "input": {"jobs": jobs},
        "resolved": {"jobs": [{"tasks": resolved}], "nodes": nodes},
        "expected": {"jobs": {"a": {"status": "Running", "node_name": moved}} if moved else {}},
    }


def differ(*triples: tuple[str, Place, Place], path: str = "rounds[1].tasks") -> Difference:
    expected, found = ({one[0]: one[side] for one in triples} for side in (1, 2))
    return Difference(path, expected, found)


def starts(name: str) -> tuple[str, Place, Place]:
    return name, WAITS, ("Binding", "n1")


CLAIMING = task("a", resource_claim_names=["c"])
CLOSE = task("a", pod_anti_affinity_topology_key="zone")
LEGACY = task("a", "n1", is_legacy_mig_task=True)
SLICED = task("b", required_mig_instances={"nvidia.com/mig-1g.10gb": 1})
TIGHT = table(task("a", "n1"), task("b", "n1"), task("c", "n2"))
TWO = {"b": "q", "c": "other"}
MOVED = table(task("a", "n1"), task("b"), task("c"), queues=TWO, moved="n2")
TAKEN_BACK = ("c", ("Running", "n1"), WAITS)
STAYS: tuple[Place, Place] = (("Releasing", ""), ("Running", "n1"))

COVERED: tuple[tuple[str, Table, Difference], ...] = (
    ("devices of claims", table(CLAIMING), differ(starts("a"))),
    ("devices of claims", table(CLAIMING), differ(("a", ("Running", "n2"), ("Running", "n1")))),
    ("affinity between pods", table(CLOSE), differ(starts("a"))),
    ("ask for MIG", table(LEGACY, SLICED), differ(starts("b"))),
    ("ask for MIG", table(task("a", is_legacy_mig_task=True)), differ(starts("a"))),
    ("hold more than they have", TIGHT, differ(("a", *STAYS))),
    ("a move has promised", MOVED, differ(TAKEN_BACK)),
)

NEIGHBOURS: tuple[tuple[str, Table, Difference], ...] = (
    # Another task than the one that claims, alone or beside it.
    ("devices of claims", table(CLAIMING, task("b")), differ(starts("b"))),
    ("devices of claims", table(CLAIMING, task("b")), differ(starts("a"), starts("b"))),
    # It claims, and what differs is that it got no place.
    ("devices of claims", table(CLAIMING), differ(("a", ("Running", "n1"), WAITS))),
    ("devices of claims", table(CLAIMING), differ(starts("a"), path="shares")),
    ("affinity between pods", table(CLOSE, task("b")), differ(starts("b"))),
    ("affinity between pods", table(CLOSE), differ(("a", ("Running", "n1"), WAITS))),
    # No slice is asked for; a slice of another node.
    ("ask for MIG", table(LEGACY, task("b")), differ(starts("b"))),
    ("ask for MIG", table(LEGACY, SLICED), differ(("b", WAITS, ("Binding", "n2")))),
    # A node that has what its tasks hold; a task that leaves and should stay.
    ("hold more than they have", TIGHT, differ(("c", ("Releasing", ""), ("Running", "n2")))),
    ("hold more than they have", TIGHT, differ(("a", ("Running", "n1"), ("Releasing", "n1")))),
    ("hold more than they have", table(task("a", "n1"), task("b", "n1"), gpus=2), differ(("a", *STAYS))),
    # A node that nothing was moved from; one queue; a table without a move; a task that ran and should still.
    ("a move has promised", MOVED, differ(("c", ("Running", "n3"), WAITS))),
    ("a move has promised", table(task("a", "n1"), task("b"), task("c"), moved="n2"), differ(TAKEN_BACK)),
    ("a move has promised", table(task("a", "n1"), task("b"), task("c"), queues=TWO), differ(TAKEN_BACK)),
    ("a move has promised", MOVED, differ(("a", ("Running", "n1"), WAITS))),
    ("a move has promised", MOVED, differ(starts("c"))),
)


def rule(words: str) -> Rule:
    (found,) = [one for one in RULES if words in one.reason]
    return found


@pytest.mark.parametrize(("words", "given", "difference"), COVERED)
def test_a_rule_covers_what_it_says_and_no_other_rule_does(words: str, given: Table, difference: Difference) -> None:
    assert [one.reason for one in RULES if one.covers(given, difference)] == [rule(words).reason]


@pytest.mark.parametrize(("words", "given", "difference"), NEIGHBOURS)
def test_a_rule_of_kai_covers_no_neighbour(words: str, given: Table, difference: Difference) -> None:
    assert not rule(words).covers(given, difference)


def test_each_rule_of_kai_is_shown_both() -> None:
    for listed in (COVERED, NEIGHBOURS):
        assert {rule(words).reason for words, _, _ in listed} == {one.reason for one in RULES}
