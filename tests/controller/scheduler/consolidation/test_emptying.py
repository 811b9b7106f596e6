"""Nodes that would be free as a whole if a few workloads ran elsewhere."""

import random
from collections import Counter

import pytest
from msgspec.structs import replace

from controller.objects.workload import Workload
from controller.scheduler.consolidation.emptying import Emptied, emptied
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import CHECKPOINT_INTERVAL, RESTART_COST, RUNTIME, SPOT
from tests.controller.scheduler.consolidation.test_packing import RESTED_S, config, rest, world
from tests.support.engine.topologylab import node, pod
from tests.support.engine.world import World, workload
from tests.support.seeds import histories


def found(lab: World) -> list[Emptied]:
    state = lab.engine.state
    return emptied(state.cluster, state.assigner, state.reservations, lab.now_s)


def kept_in_place(made: Workload) -> Workload:
    (pod_set,) = made.spec.pod_sets
    metadata = replace(pod_set.template.metadata, annotations={"karpenter.sh/do-not-disrupt": "true"})
    pod_set = replace(pod_set, template=replace(pod_set.template, metadata=metadata))
    return replace(made, spec=replace(made.spec, pod_sets=(pod_set,)))


def told(one: Emptied) -> list[str]:
    return [f"{each.holder.key} {','.join(each.move.leaves)}>{','.join(each.move.goes_to)}" for each in one.moves]


def halves(given: EngineConfig | None = None, /, **annotations: dict[str, str]) -> World:
    """Two nodes of four GPUs: c has two of the first, d one of the second, both for ten minutes."""
    lab = world([node("b/r/n1", 4), node("b/r/n2", 4)], given)
    for at, (name, gpus) in enumerate((("a", 2), ("b", 3), ("c", 2), ("d", 1))):
        lab.put(workload(name, "q", gpus, created_s=at, annotations=annotations.get(name)))
        rest(lab)
    lab.finish("a")
    lab.finish("b")
    lab.now_s += RESTED_S
    return lab


def test_the_node_whose_work_costs_least_is_emptied_and_what_nobody_knows_saves_for_ever() -> None:
    (one,) = found(halves())
    assert (one.node, told(one), one.saves_s) == ("n2", ["ns/d n2>n1"], None)
    assert one.moves[0].price.work == pytest.approx(RESTED_S, abs=10)


def test_what_is_saved_is_what_the_node_would_be_needed_less_what_the_other_is_needed_longer() -> None:
    costs = {CHECKPOINT_INTERVAL: "1s", RESTART_COST: "60s"}
    (one,) = found(halves(c={RUNTIME: "2h"}, d={RUNTIME: "1h", **costs}))
    assert one.saves_s == pytest.approx(3600 - RESTED_S, abs=40), "c runs for longer anyway"
    assert one.moves[0].price.restart == 60
    (one,) = found(halves(c={RUNTIME: "1h"}, d={RUNTIME: "3h", **costs}))
    assert one.saves_s == pytest.approx(3600 - RESTED_S - 60, abs=40), "n1 is needed until d ends, its restart included"


def test_nothing_moves_that_would_lose_more_gpu_time_than_it_saves() -> None:
    assert found(halves(c={RUNTIME: "11m"}, d={RUNTIME: "5h"})) == [], "a minute of four GPUs for ten of two"


def test_a_job_that_is_for_no_spot_node_is_not_moved_to_one() -> None:
    def emptied_of(word: str) -> list[str]:
        lab = halves(config(spot_words=True), d={SPOT: word})
        lab.put(node("b/r/n1", 4, labels={"karpenter.sh/capacity-type": "spot"}))
        rest(lab)
        return [one.node for one in found(lab)]

    assert emptied_of("allowed") == ["n2"]
    assert emptied_of("never") == ["n1"], "the other goes beside it"


def test_what_stays_in_place_keeps_its_node() -> None:
    lab = halves()
    lab.put(pod("other", "n2", gpus=1))
    (one,) = found(lab)
    assert one.node == "n1", "of n2 others have a GPU: it cannot be freed, and may be filled"
    lab = world([node("b/r/n1", 4), node("b/r/n2", 4)])
    for name, gpus in (("large", 3), ("small", 2)):
        made = kept_in_place(workload(name, "q", gpus))
        lab.put(made)
        rest(lab)
    assert found(lab) == []


def test_a_node_is_not_emptied_onto_one_that_is_empty_and_none_is_emptied_twice() -> None:
    lab = world([node(f"b/r/n{at}", 4) for at in range(1, 6)], config())
    for at in range(4):
        lab.put(workload(f"w{at}", "q", 1, created_s=at))
        lab.put(workload(f"x{at}", "q", 3, created_s=at))
        rest(lab)
    for at in range(4):
        lab.finish(f"x{at}")
    lab.now_s += RESTED_S
    plan = found(lab)
    assert len(plan) == 3, "four nodes of a quarter each become one"
    targets = {place for one in plan for each in one.moves for place in each.move.goes_to}
    assert len(targets) == 1
    assert targets.isdisjoint(one.node for one in plan)
    assert "n5" not in targets


@histories(25)
def test_each_node_is_free_afterwards_and_no_other_has_more_than_it_holds(seed: int) -> None:
    chance = random.Random(seed)
    sizes = {f"n{at}": chance.choice((2, 4)) for at in range(5)}
    lab = world([node(f"b/r/{name}", gpus) for name, gpus in sizes.items()])
    for at in range(12):
        runs = {RUNTIME: chance.choice(("20m", "1h", "5h"))} if chance.random() < 0.7 else {}
        lab.put(workload(f"w{at}", "q", chance.randint(1, 2), count=chance.choice((1, 1, 2)), annotations=runs))
        rest(lab)
        if chance.random() < 0.4 and (running := sorted(lab.running())):
            lab.finish(chance.choice(running))
    lab.now_s += RESTED_S
    before = places(lab)
    plan = found(lab)
    lab.engine.validate()
    assert places(lab) == before, "it is a question"
    after, on = dict(before), {host for each in before.values() for host in each}
    for one in plan:
        assert one.node in on
        for each in one.moves:
            assert after[each.holder.key] == before[each.holder.key], "nobody moves twice"
            after[each.holder.key] = frozenset(each.move.goes_to)
            assert each.move.goes_to != ()
            assert set(each.move.goes_to) <= on - {one.node}
    used = {host for each in after.values() for host in each}
    assert used.isdisjoint(one.node for one in plan)
    assert all(one.saves_s is None or one.saves_s > 0 for one in plan)
    least = Counter[str]()
    for key, hosts in after.items():
        gpus = sum(amount for fr, amount in lab.engine.state.cluster.holders[key].usage.items() if fr.resource == "gpu")
        for host in hosts:
            least[host] += gpus if len(hosts) == 1 else 1
    assert all(gpus <= sizes[host] for host, gpus in least.items())


def places(lab: World) -> dict[WorkloadKey, frozenset[str]]:
    return {
        key: frozenset(
            domain.values[-1]
            for pod_set in holder.info.pod_sets
            if pod_set.topology is not None
            for domain in pod_set.topology.domains
        )
        for key, holder in lab.engine.state.cluster.holders.items()
    }
