"""Running workloads move so that whole nodes are free: while none waits, and within the bounds of all moves."""

import random

import pytest

from controller.objects.core import Pod
from controller.scheduler.cluster.keptpods import KEPT_IN_PLACE, KeptPods
from controller.scheduler.consolidation.freeing import INTERVAL_S
from controller.scheduler.decisions.decisions import Evicted
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import MARKED, RUNTIME
from tests.controller.scheduler.consolidation.test_emptying import kept_in_place, places
from tests.controller.scheduler.consolidation.test_packing import RESTED_S, config, rest, world
from tests.support.engine.foreignqueues import evicted
from tests.support.engine.topologylab import node, pod
from tests.support.engine.world import World, workload
from tests.support.seeds import histories

SLICE = "kueue.x-k8s.io/workload-slice-name"
FREES = config(frees_nodes=True)


def saying(name: str, host: str, notes: dict[str, str], phase: str = "Running") -> Pod:
    """The pod of the workload of that name, which the engine has placed."""
    own = {"kueue.x-k8s.io/workload": name, "kueue.x-k8s.io/podset-unconstrained-topology": "true"}
    return pod(name, host, 1, phase, namespace="ns", annotations={**own, **notes})


def on(lab: World, name: str) -> set[str]:
    return set(places(lab)[WorkloadKey(f"ns/{name}")])


def in_use(lab: World) -> set[str]:
    return {host for hosts in places(lab).values() for host in hosts}


def halves(given: EngineConfig = FREES, *, kept: bool = False) -> World:
    """Two nodes of four GPUs: c has two of the first and d one of the second, both a few seconds old."""
    lab = world([node("b/r/n1", 4), node("b/r/n2", 4)], given)
    for at, (name, gpus) in enumerate((("a", 2), ("b", 3), ("c", 2), ("d", 1))):
        made = workload(name, "q", gpus, created_s=at)
        lab.put(kept_in_place(made) if kept else made)
        rest(lab)
    lab.finish("a")
    lab.finish("b")
    rest(lab)
    return lab


def later(lab: World, by_s: float = RESTED_S + INTERVAL_S) -> World:
    lab.now_s += by_s
    rest(lab)
    return lab


def test_the_cheaper_of_two_half_empty_nodes_is_freed_and_its_work_runs_on_the_other() -> None:
    lab = later(halves())
    assert evicted(lab) == ["d"]
    assert lab.running() == {"c", "d"}
    assert on(lab, "d") == on(lab, "c") == {"n1"}
    later(lab)
    assert evicted(lab) == ["d"], "nothing is left to be freed"


def test_by_default_no_node_is_freed() -> None:
    assert evicted(later(halves(config()))) == []


def test_the_one_that_moves_is_told_which_node_is_freed_and_what_that_costs() -> None:
    lab = halves()
    lab.now_s += RESTED_S + INTERVAL_S
    (one,) = [each for _ in range(3) for each in lab.cycle().made if isinstance(each, Evicted)]
    assert one.by is None
    assert one.message.startswith("Moved so that node n2 is free, from n2 to n1; ")
    assert one.message.endswith("GPU-seconds of its work are lost")
    assert [event.reason for event in one.events()] == ["EvictedDueToPreempted", "Preempted"]
    moved = [each.type for each in one.status().status.conditions if each.reason == "Consolidation"]
    assert moved == ["Preempted", "tessera.dev/Moved"], "a new leader counts it"


def test_a_node_is_freed_once_its_work_has_run_for_its_minimum_and_not_before() -> None:
    lab = halves()
    assert evicted(later(lab, RESTED_S / 2)) == []
    due_s = lab.engine.next_wakeup_s()
    assert due_s is not None
    lab.now_s = due_s
    rest(lab)
    lab.now_s += INTERVAL_S
    rest(lab)
    assert len(evicted(lab)) == 1


def test_no_node_is_freed_while_a_workload_waits_that_could_take_what_is_left() -> None:
    lab = halves()
    lab.put(workload("large", "q", 99, created_s=9))
    assert evicted(later(lab)) == []
    lab.delete("large")
    lab.put(workload("small", "q", 1, created_s=10))
    assert evicted(later(lab)) == ["d"]


def test_no_more_move_to_free_nodes_than_the_hour_has_left() -> None:
    lab = world([node(f"b/r/n{at}", 4) for at in range(3)], config(frees_nodes=True, moves_per_hour=1))
    for at in range(3):
        lab.put(workload(f"w{at}", "q", 1, created_s=at))
        lab.put(workload(f"x{at}", "q", 3, created_s=at))
        rest(lab)
    for at in range(3):
        lab.finish(f"x{at}")
    assert len(evicted(later(lab))) == 1
    assert len(evicted(later(lab))) == 1, "the hour's move is spent"
    assert len(evicted(later(lab, 3700.0))) == 2
    assert len(in_use(lab)) == 1


def test_what_pods_say_stays_where_it_is() -> None:
    assert evicted(later(halves(kept=True))) == []


@pytest.mark.parametrize("mark", KEPT_IN_PLACE)
def test_a_pod_that_says_so_while_it_runs_stays_until_it_says_so_no_longer(mark: tuple[str, str]) -> None:
    lab = halves()
    lab.put(saying("c", "n1", dict([mark])), saying("d", "n2", dict([mark])))
    assert evicted(later(lab)) == []
    lab.engine.validate()
    lab.put(saying("d", "n2", {}))
    assert evicted(later(lab)) == ["d"]
    lab.engine.validate()


def test_marks_of_our_own_and_what_pods_said_that_have_ended_or_gone_keep_nobody() -> None:
    lab = halves()
    stay = dict(KEPT_IN_PLACE)
    lab.put(saying("c", "n1", stay), saying("d", "n2", {**stay, MARKED: "autoscalers"}))
    assert evicted(later(lab)) == ["d"]
    for name in ("ended", "gone"):
        lab = halves()
        lab.put(saying("c", "n1", stay), saying("d", "n2", stay))
        if name == "ended":
            lab.put(saying("d", "n2", stay, phase="Succeeded"))
        else:
            lab.engine.drop(Pod, "ns", "d", lab.now_s)
        assert evicted(later(lab)) == ["d"], name


def test_an_elastic_jobs_pod_names_its_first_slice_and_keeps_the_one_that_runs() -> None:
    kept = KeptPods()
    assert not kept.put(saying("old", "n1", {**dict(KEPT_IN_PLACE), SLICE: "first"}))
    assert kept.any_of(workload("second", "q", 1, annotations={SLICE: "first"}))
    assert not kept.any_of(workload("old", "q", 1, annotations={SLICE: "other"}))


def test_a_move_that_was_not_written_is_taken_back() -> None:
    lab = halves()
    lab.now_s += RESTED_S + INTERVAL_S
    left = lab.engine.state.moves.left(lab.now_s)
    lab.cycle(refuse=(Evicted,))
    lab.engine.validate()
    assert lab.engine.state.moves.left(lab.now_s) == left
    assert not lab.leaving()
    assert evicted(later(lab)) == ["d"]


def frees(lab: World) -> int:
    """Settles the world. The number of nodes that were freed: what moved runs again, and no other node is opened."""
    count = 0
    for _ in range(200):
        if lab.engine.settled(lab.now_s):
            return count
        made = [each for each in lab.cycle().made if isinstance(each, Evicted)]
        before, running = in_use(lab), set(places(lab))
        if made and made[0].by is None:
            assert lab.stop_evicted() == len(made)
            while not lab.engine.settled(lab.now_s):
                assert not [each for each in lab.cycle().made if isinstance(each, Evicted)]
            assert set(places(lab)) == running
            assert in_use(lab) < before
            count += 1
    raise AssertionError(f"still changing: {lab.log[-20:]}")


def lived(seed: int) -> int:
    """A history of jobs that come and end. The number of nodes that were freed in it."""
    chance = random.Random(seed)
    given = config(frees_nodes=True, moves_per_hour=4, empty_nodes=chance.choice((0.0, 0.5, 2.0)))
    lab = world([node(f"b/r{at % 2}/n{at}", chance.choice((2, 4))) for at in range(5)], given)
    moved_s: list[float] = []
    freed = 0
    for turn in range(30):
        for at in range(chance.randint(0, 2)):
            runs = {RUNTIME: chance.choice(("20m", "1h", "5h"))} if chance.random() < 0.7 else {}
            asks = chance.randint(1, 2), chance.choice((1, 1, 2))
            lab.put(workload(f"j{turn}-{at}", "q", asks[0], count=asks[1], created_s=turn * 3 + at, annotations=runs))
        for _ in range(3):
            moved = len(evicted(lab))
            freed += frees(lab)
            moved_s += [lab.now_s] * (len(evicted(lab)) - moved)
            lab.now_s += chance.choice((INTERVAL_S, RESTED_S))
        for name in sorted(lab.running()):
            if chance.random() < 0.3:
                lab.finish(name)
    assert all(sum(at - 3600.0 < each <= at for each in moved_s) <= 4 for at in moved_s)
    return freed


@histories(1, 2, 3, 4, 5, 6, 7, 8)
def test_whatever_is_moved_to_free_a_node_runs_again_on_fewer_nodes_and_within_the_budget(seed: int) -> None:
    lived(seed)


def test_most_of_these_histories_have_nodes_to_be_freed() -> None:
    assert sum(map(lived, range(1, 5))) >= 4
