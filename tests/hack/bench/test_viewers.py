"""The benchmark of viewers: real connections to the real port, and a fleet that changes."""

from hack.bench.web.viewers import NODES, TEAMS, Fleet, measured
from hack.bench.web.watching import allows


async def test_all_who_look_are_sent_what_changes() -> None:
    rows = {row.what: row.measured for row in await measured(Fleet(20, 60), viewers=3, teams=2, seconds=2.0)}
    sent = rows["  sent"]
    assert "; 0 streams ended" in sent
    assert not sent.startswith("0 kB")
    assert not rows["  of which rounds"].startswith("0.0%")


def test_a_second_of_life_ends_and_brings_workloads_and_changes_nodes() -> None:
    fleet = Fleet(20, 60)
    before, nodes = set(fleet.engine.state.cluster.holders), dict(fleet.gpu_nodes)
    assert before
    fleet.change()
    assert before - set(fleet.engine.state.cluster.holders)
    assert sum(node is not nodes[name] for name, node in fleet.gpu_nodes.items()) == NODES
    assert {key.partition("/")[0] for key in before} <= {f"team-{team}" for team in range(TEAMS)}


def test_a_viewer_sees_one_namespace_or_all() -> None:
    asked = {"resource": "workloads", "namespace": "team-1"}
    assert allows({"user": "7-team-1", "resourceAttributes": asked})
    assert not allows({"user": "7-team-2", "resourceAttributes": asked})
    assert allows({"user": "7-", "resourceAttributes": asked})
    assert allows({"user": "7-team-2", "resourceAttributes": {"resource": "queueviews"}})
