"""How long repairs of GPUs take, by those that were seen, and when those under way are likely over."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.insight.forecast.repairtimes import DEFAULT_S, MOST_SEEN, NodeFacts, RepairTimes
from inventory.api.gpunode import GpuNodeStatus, WithheldEntry
from tests.support.controller.gpunodes import full_status
from tests.support.engine.topologylab import GPU

NOW_S = 1767225600.0
LABELS = {"pool": "gpu"}
FACTS = NodeFacts(LABELS, {GPU: 7})


def moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat()


def status(state: str | None, begun_s: float = NOW_S, *, health: str = "Unhealthy", **device: Any) -> GpuNodeStatus:
    """One GPU, in that state of its repair; None: in none, and healthy."""
    found = {
        "uuid": "GPU-0",
        "index": 0,
        "offers": [{"resource": "gpu"}],
        "health": {"state": health if state is not None else "Healthy"},
        **device,
    }
    repairs = [] if state is None else [{"gpu": "GPU-0", "state": state, "faultSince": moment(begun_s)}]
    return msgspec.convert(full_status({"devices": [found], "repairs": repairs}), GpuNodeStatus)


def repaired(times: RepairTimes, node: str, took_s: float, last: str = "Probation") -> None:
    times.set_gpu_node(node, status(last), NOW_S)
    times.set_gpu_node(node, status(None), NOW_S + took_s)


def known(*took_s: float) -> RepairTimes:
    times = RepairTimes()
    times.set_node("n1", FACTS)
    for number, each in enumerate(took_s):
        repaired(times, f"other-{number}", each)
    return times


def back_at(times: RepairTimes, now_s: float) -> list[float]:
    times.validate()
    return [each.at_s for each in times.comebacks(now_s).gpus]


def test_where_none_was_seen_a_default_counts_and_then_the_median() -> None:
    times = known()
    times.set_gpu_node("n1", status("Draining"), NOW_S)
    assert back_at(times, NOW_S + 10) == [NOW_S + DEFAULT_S]
    assert times.comebacks(NOW_S).seen == 0
    for took_s in (60.0, 100.0, 1000.0):
        repaired(times, "other", took_s)
    assert back_at(times, NOW_S + 10) == [NOW_S + 100.0]
    assert times.comebacks(NOW_S)[1:] == (3, 100.0)


def test_one_that_takes_longer_than_half_of_them_is_as_those_that_took_longer_still() -> None:
    times = known(60.0, 100.0, 1000.0)
    times.set_gpu_node("n1", status("Resetting"), NOW_S)
    assert back_at(times, NOW_S + 500) == [NOW_S + 1000.0]
    assert back_at(times, NOW_S + 5000) == [NOW_S + 5000 + 100.0], "longer than all: a whole one more"


@pytest.mark.parametrize("last", ["Draining", "RebootWanted", "Retired", "Resetting"])
def test_a_repair_that_ended_otherwise_than_well_teaches_nothing(last: str) -> None:
    times = known()
    repaired(times, "n1", 60.0, last)
    times.set_gpu_node("n2", status("Probation"), NOW_S)
    times.set_gpu_node("n2", None, NOW_S + 60)
    assert times.comebacks(NOW_S).seen == 0


def test_a_gpu_whose_repair_is_over_and_that_is_out_all_the_same_teaches_nothing() -> None:
    times = known()
    times.set_gpu_node("n1", status("Probation"), NOW_S)
    gone = msgspec.structs.replace(status("Probation"), repairs=())
    times.set_gpu_node("n1", gone, NOW_S + 60)
    assert times.comebacks(NOW_S).seen == 0


@pytest.mark.parametrize("state", ["RebootWanted", "Retired"])
def test_a_gpu_that_waits_for_people_is_not_expected(state: str) -> None:
    times = known()
    times.set_gpu_node("n1", status(state), NOW_S)
    assert back_at(times, NOW_S) == []


def test_a_gpu_of_a_node_that_takes_no_pods_adds_nothing() -> None:
    times = known()
    times.set_gpu_node("n1", status("Draining"), NOW_S)
    times.set_node("n1", None)
    assert back_at(times, NOW_S) == []


def test_what_a_gpu_adds_is_what_it_offers_with_its_instances_and_nothing_while_it_is_in_service() -> None:
    times = known()
    instance = {
        "uuid": "MIG-0",
        "profile": "1g.10gb",
        "gi": 1,
        "ci": 0,
        "memoryMiB": 1,
        "offers": [{"resource": "mig"}],
    }
    mig = {"enabled": True, "instances": [instance, {**instance, "uuid": "MIG-1"}]}
    offers = [{"resource": "shared", "replicas": 4}]
    times.set_gpu_node("n1", status("Draining", offers=offers, mig=mig), NOW_S)
    (found,) = times.comebacks(NOW_S).gpus
    assert (dict(found.adds), found.labels, dict(found.beside)) == ({"shared": 4, "mig": 2}, LABELS, {"gpu": 7})
    times.set_gpu_node("n1", status("Draining", health="Healthy"), NOW_S)
    assert back_at(times, NOW_S) == []


def test_a_gpu_without_a_fault_whose_reset_was_ordered_comes_back_from_when_it_is_withheld() -> None:
    times = known()
    ordered = status("Draining", health="Healthy")
    times.set_gpu_node("n1", ordered, NOW_S)
    assert back_at(times, NOW_S) == [], "it still serves"
    times.set_gpu_node("n1", replace(ordered, withheld=(WithheldEntry(device="GPU-0", why="in repair"),)), NOW_S)
    assert back_at(times, NOW_S) == [NOW_S + DEFAULT_S]


def test_only_the_latest_count() -> None:
    times = known(*[1000.0] * MOST_SEEN, *[10.0] * MOST_SEEN)
    assert times.comebacks(NOW_S)[1:] == (MOST_SEEN, 10.0)


STATES = st.sampled_from(["Draining", "Resetting", "Verifying", "Probation", "RebootWanted", None])
STEPS = st.lists(st.tuples(st.sampled_from(["n1", "n2"]), STATES, st.floats(-50, 500)), max_size=40)


@given(STEPS)
def test_whatever_agents_say_nobody_is_expected_in_the_past(steps: list[tuple[str, str | None, float]]) -> None:
    times, now_s = known(), NOW_S
    times.set_node("n2", FACTS)
    for node, state, after_s in steps:
        now_s += max(0.0, after_s)
        times.set_gpu_node(node, status(state, now_s + after_s), now_s)
        found = times.comebacks(now_s)
        assert all(each.at_s >= now_s for each in found.gpus)
        assert [each.at_s for each in found.gpus] == sorted(each.at_s for each in found.gpus)
        times.validate()
