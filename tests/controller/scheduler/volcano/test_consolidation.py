"""Running jobs of KAI's Queues move, so that one that waits finds a node that is free."""

import random

import msgspec
import pytest

from controller.objects.workload import Workload
from controller.scheduler.cluster.keptpods import KEPT_IN_PLACE
from controller.scheduler.decisions.decisions import Evicted, Pending
from controller.scheduler.decisions.sentences import details, sentence
from controller.scheduler.model.config import Consolidation, EngineConfig, Extensions
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import ABOVE_MINIMUM_OF, MARKED, MOVED
from tests.support.engine.foreignqueues import asks, evicted, kai_queue, node, rest
from tests.support.engine.world import World
from tests.support.seeds import histories

SETTLED_S = 600.0
MOVES = EngineConfig(extensions=Extensions(consolidation=Consolidation(minimum_runtime_s=SETTLED_S)))


def annotated(made: Workload, key: str, value: str) -> Workload:
    """The same, its pods with the annotation."""
    (pod_set,) = made.spec.pod_sets
    metadata = msgspec.structs.replace(pod_set.template.metadata, annotations={key: value})
    template = msgspec.structs.replace(pod_set.template, metadata=metadata)
    spec = msgspec.structs.replace(made.spec, pod_sets=(msgspec.structs.replace(pod_set, template=template),))
    return msgspec.structs.replace(made, spec=spec)


def fragmented(*marks: tuple[str, str], config: EngineConfig = MOVES) -> World:
    """Two nodes of four GPUs, each with a job on it, which have run for long enough to be moved."""
    lab = World(config)
    lab.put(node("n1", 4), node("n2", 4), kai_queue("q", quota=8))
    for at, (name, gpus) in enumerate((("a", 2), ("b", 3), ("c", 2), ("d", 1))):
        made = asks(name, "q", gpus, created_s=at)
        for mark in marks:
            made = annotated(made, *mark)
        lab.put(made)
        rest(lab)
    lab.finish("a")
    lab.finish("b")
    lab.now_s += SETTLED_S
    return lab


def test_a_job_moves_so_that_another_gets_a_whole_node() -> None:
    lab = fragmented()
    lab.put(asks("wide", "q", 4, created_s=50))
    assert rest(lab) == {"q": 7}
    assert lab.running() == {"c", "d", "wide"}
    assert len(evicted(lab)) == 1


def test_the_one_that_moves_is_told_for_whom() -> None:
    lab = fragmented()
    lab.put(asks("wide", "q", 4, created_s=50))
    told: list[str] = []
    for _ in range(5):
        told += [each.message for each in lab.cycle().made if isinstance(each, Evicted)]
    (message,) = told
    assert message.startswith("Preempted to accommodate workload ns/wide")
    assert message.endswith("which fits once this one has moved from n2 to n1; 600 GPU-seconds of its work are lost")
    assert lab.condition("d", MOVED) == "True/Consolidation"


def test_the_one_that_waits_says_what_moves_for_it() -> None:
    lab = fragmented()
    lab.put(asks("wide", "q", 4, created_s=50))
    waits = [each for each in lab.cycle().made if isinstance(each, Pending)]
    (record,) = [each.record for each in waits if each.key == "ns/wide"]
    assert sentence(record) == "Waits for 1 workload to move to other nodes: ns/d"
    assert details(record)[-1] == "moves ns/d from n2 to n1; 600 GPU-seconds of its work are lost"


def test_both_hear_of_the_move_in_events() -> None:
    lab = fragmented()
    lab.put(asks("wide", "q", 4, created_s=50))
    (moved,) = [each for each in lab.cycle().made if isinstance(each, Evicted)]
    said = {f"{event.workload} {event.reason}": event.message for event in moved.events()}
    assert said["ns/wide PreemptedWorkload"] == (
        "Moved workload ns/d of ClusterQueue q from n2 to n1; 600 GPU-seconds of its work are lost"
    )
    assert "from n2 to n1" in said["ns/d Preempted"]


def test_two_moves_of_one_turn_are_not_given_the_same_room() -> None:
    lab = World(MOVES)
    lab.put(*(node(f"n{at}", 4) for at in (1, 2, 3, 4)), kai_queue("q", quota=16))
    for at, (name, gpus, filler) in enumerate((("a", 3, 1), ("b", 1, 3), ("c", 1, 3), ("d", 1, 3))):
        lab.put(asks(name, "q", gpus, created_s=2 * at))
        rest(lab)
        lab.put(asks(f"filler-{name}", "q", filler, created_s=2 * at + 1))
        rest(lab)
    for name in "abcd":
        lab.finish(f"filler-{name}")
    lab.now_s += SETTLED_S
    lab.put(asks("w1", "q", 4, created_s=50), asks("w2", "q", 4, created_s=51))
    made = [each.message for each in lab.cycle().made if isinstance(each, Evicted)]
    assert sorted(message[message.index("moved from") :].split(";")[0] for message in made) == [
        "moved from n3 to n2",
        "moved from n4 to n1",
    ]


def test_what_has_moved_for_a_pod_above_a_minimum_does_not_move_for_it_again() -> None:
    lab = fragmented()
    lab.put(node("n3", 1), asks("g", "q", 1, created_s=40))
    rest(lab)
    lab.engine.state.moves.moved(WorkloadKey("ns/d"), WorkloadKey("ns/g-1"), lab.now_s)
    lab.put(asks("g-1", "q", 4, created_s=50, marks={ABOVE_MINIMUM_OF: "g"}))
    rest(lab)
    assert evicted(lab) == ["c"]


@pytest.mark.parametrize(("moved", "then"), [("d", []), ("d-1", []), ("other", ["d", "d-1"])])
def test_a_gang_does_not_move_again_for_the_one_that_a_part_of_it_moved_for(moved: str, then: list[str]) -> None:
    lab = fragmented()
    lab.put(asks("d-1", "q", 1, created_s=5, marks={ABOVE_MINIMUM_OF: "d"}))
    rest(lab)
    lab.now_s += SETTLED_S
    lab.engine.state.moves.moved(WorkloadKey("ns/c"), WorkloadKey("ns/wide"), lab.now_s)
    lab.engine.state.moves.moved(WorkloadKey(f"ns/{moved}"), WorkloadKey("ns/wide"), lab.now_s)
    lab.put(asks("wide", "q", 4, created_s=50))
    rest(lab)
    assert sorted(evicted(lab)) == then


def limited(moves_per_hour: int) -> EngineConfig:
    limits = Consolidation(minimum_runtime_s=SETTLED_S, moves_per_hour=moves_per_hour)
    return EngineConfig(extensions=Extensions(consolidation=limits))


def test_nothing_moves_once_the_hours_moves_are_spent() -> None:
    lab = fragmented(config=limited(1))
    lab.put(asks("wide", "q", 4, created_s=50))
    assert rest(lab) == {"q": 7}
    moved_s = lab.now_s
    lab.finish("wide")
    lab.now_s += SETTLED_S
    # n1 holds c and d: three GPUs. A job of two on n2, then one of four needs that one to move.
    lab.put(asks("e", "q", 2, created_s=51))
    rest(lab)
    lab.finish("c")
    lab.now_s += SETTLED_S
    lab.put(asks("wider", "q", 4, created_s=52))
    assert rest(lab) == {"q": 3}
    assert lab.engine.next_wakeup_s() == moved_s + 3600.0
    lab.now_s = moved_s + 3599.0
    assert rest(lab) == {"q": 3}
    lab.now_s = moved_s + 3600.0
    assert rest(lab) == {"q": 7}


def test_a_new_leader_counts_the_moves_of_the_last_hour() -> None:
    lab = fragmented(config=limited(1))
    lab.put(asks("wide", "q", 4, created_s=50))
    rest(lab)
    after = World(limited(1))
    after.now_s = lab.now_s
    after.put(*lab.others.values(), *lab.workloads.values())
    assert after.engine.state.moves.left(after.now_s) == 0
    lab.rebuild()
    assert lab.engine.state.moves.left(lab.now_s) == 0


@pytest.mark.parametrize("mark", KEPT_IN_PLACE)
def test_a_job_that_says_so_is_not_moved(mark: tuple[str, str]) -> None:
    lab = fragmented(mark)
    lab.put(asks("wide", "q", 4, created_s=50))
    assert rest(lab) == {"q": 3}
    assert evicted(lab) == []


@pytest.mark.parametrize("mark", KEPT_IN_PLACE)
def test_a_mark_of_our_own_keeps_nobody_from_a_move(mark: tuple[str, str]) -> None:
    lab = fragmented(mark, (MARKED, "autoscalers"))
    lab.put(asks("wide", "q", 4, created_s=50))
    assert rest(lab) == {"q": 7}


def test_nothing_moves_where_there_is_not_enough_in_all() -> None:
    lab = fragmented()
    lab.put(asks("wider", "q", 6, created_s=50))
    assert rest(lab) == {"q": 3}
    assert evicted(lab) == []


def test_a_job_that_has_just_started_is_moved_later() -> None:
    lab = fragmented()
    lab.now_s -= SETTLED_S
    lab.put(asks("wide", "q", 4, created_s=50))
    assert rest(lab) == {"q": 3}
    due_s = lab.engine.next_wakeup_s()
    assert due_s is not None
    lab.now_s = due_s
    assert rest(lab) == {"q": 7}


def test_nothing_moves_where_it_is_off() -> None:
    lab = fragmented(config=EngineConfig())
    lab.put(asks("wide", "q", 4, created_s=50))
    assert rest(lab) == {"q": 3}
    assert lab.engine.next_wakeup_s() is None


def test_nothing_moves_for_a_job_that_is_not_preemptible() -> None:
    lab = fragmented()
    lab.put(asks("urgent", "q", 4, created_s=50, marks={"kai.scheduler/preemptibility": "non-preemptible"}))
    assert rest(lab) == {"q": 3}
    assert evicted(lab) == []


def moves_to_rest(lab: World) -> list[tuple[WorkloadKey, WorkloadKey]]:
    """What was evicted and for whom, until nothing changes any more."""
    found: list[tuple[WorkloadKey, WorkloadKey]] = []
    for _ in range(20):
        while not lab.engine.settled(lab.now_s):
            made = lab.cycle().made
            found += [(each.key, each.by.key) for each in made if isinstance(each, Evicted) and each.by is not None]
        if not lab.stop_evicted():
            return found
    raise AssertionError(f"still changing: {lab.log[-20:]}")


@histories(1, 5, 6)  # moves happen with 5 and 6
def test_whatever_moves_runs_again_and_no_cause_moves_anything_twice(seed: int) -> None:
    rng = random.Random(seed)
    moved_for: list[tuple[WorkloadKey, WorkloadKey]] = []
    lab = World(MOVES)
    lab.put(*(node(f"n{at}", 4) for at in range(3)), kai_queue("q", quota=12))
    for turn in range(8):
        for at in range(rng.randint(1, 3)):
            lab.put(asks(f"j{turn}-{at}", "q", rng.choice((1, 1, 2, 4)), created_s=turn * 3 + at))
        before = lab.running()
        moves = moves_to_rest(lab)
        moved_for += moves
        after = lab.running()
        assert len(after) >= len(before), "a consolidation ended with fewer running than before"
        assert {key.rpartition("/")[2] for pair in moves for key in pair} <= after, (
            "one that moved, or its cause, waits"
        )
        for name in sorted(lab.running()):
            if rng.random() < 0.3:
                lab.finish(name)
        lab.now_s += rng.choice((60.0, SETTLED_S, 2 * SETTLED_S))
        lab.engine.validate()
    assert len(set(moved_for)) == len(moved_for), "moved twice for one cause"


def test_one_that_waits_is_told_that_the_moves_are_spent_where_moves_would_help() -> None:
    lab = fragmented(config=EngineConfig(extensions=Extensions(consolidation=Consolidation(moves_per_hour=0))))
    lab.put(asks("wide", "q", 4, created_s=50), asks("wider", "q", 7, created_s=51))
    lab.put(asks("fixed", "q", 5, created_s=52, marks={"kai.scheduler/preemptibility": "non-preemptible"}))
    told = {each.key: sentence(each.record) for each in lab.cycle().made if isinstance(each, Pending)}
    said = "no running workload may move for it: tessera.consolidation.movesPerHour is 0"
    assert {str(key): text.endswith(said) for key, text in told.items()} == {
        "ns/wide": True,
        "ns/wider": False,
        "ns/fixed": False,
    }
