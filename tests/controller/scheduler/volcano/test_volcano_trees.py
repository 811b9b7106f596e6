"""Volcano's queues share by weight, or by what each deserves, and take back what is theirs."""

import random
from typing import Any

import pytest

from controller.scheduler.decisions.records import Rule
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.volcano import victims
from tests.support.engine.foreignqueues import GPU, evicted, fill, node, rest, volcano_queue, world
from tests.support.engine.world import requesting, workload
from tests.support.seeds import histories


def test_queues_of_weight_one_and_three_end_with_two_and_six_of_eight_gpus() -> None:
    lab = world(volcano_queue("a", weight=1), volcano_queue("b", weight=3))
    fill(lab, "a", 8)
    assert rest(lab) == {"a": 8, "b": 0}
    fill(lab, "b", 8)
    assert rest(lab) == {"a": 2, "b": 6}
    assert sorted(evicted(lab)) == [f"a{number}" for number in range(3, 9)]


def test_what_a_queue_does_not_ask_for_is_the_others() -> None:
    lab = world(volcano_queue("a", weight=1), volcano_queue("b", weight=3))
    fill(lab, "b", 2)
    fill(lab, "a", 8)
    assert rest(lab) == {"a": 6, "b": 2}
    assert evicted(lab) == []


def test_a_queue_that_is_not_reclaimable_gives_nothing_back() -> None:
    lab = world(volcano_queue("a", weight=1, reclaimable=False), volcano_queue("b", weight=3))
    fill(lab, "a", 8)
    rest(lab)
    fill(lab, "b", 8)
    assert rest(lab) == {"a": 8, "b": 0}


def test_a_guarantee_is_kept_free_and_survives_reclaim() -> None:
    kept = {"resource": {GPU: 4}}
    lab = world(volcano_queue("a", weight=1, guarantee=kept), volcano_queue("b", weight=100))
    fill(lab, "b", 8)
    assert rest(lab) == {"a": 0, "b": 4}
    fill(lab, "a", 8)
    assert rest(lab) == {"a": 4, "b": 4}


def test_nobody_has_more_than_its_capability() -> None:
    lab = world(volcano_queue("a", capability={GPU: 3}), volcano_queue("b"))
    fill(lab, "a", 8)
    assert rest(lab) == {"a": 3, "b": 0}
    (pending,) = [one for one in lab.workloads.values() if one.metadata.name == "a4"]
    told = lab.engine.explain(WorkloadKey(pending.key), lab.now_s)
    assert told is not None
    assert told.record.detail == (
        f"OverDeserved: Queue a has 3 {GPU} of its part by weight of 3 and the job asks for 1"
    )


def test_where_a_queue_says_what_it_deserves_that_is_what_it_takes_back() -> None:
    lab = world(volcano_queue("a", deserved={GPU: 2}), volcano_queue("b", deserved={GPU: 6}), volcano_queue("c"))
    fill(lab, "a", 5)
    fill(lab, "c", 5)
    assert rest(lab) == {"a": 3, "b": 0, "c": 5}
    fill(lab, "b", 8)
    assert rest(lab) == {"a": 2, "b": 6, "c": 0}


@pytest.mark.parametrize("jobs", [1, 6])
def test_a_victim_larger_than_its_preemptor_does_not_come_back_before_it_in_a_tree_of_volcano(jobs: int) -> None:
    """Its Queue is the first in the order once it has nothing."""
    lab = world(volcano_queue("a", deserved={GPU: 2}), volcano_queue("b", born_s=1, deserved={GPU: 6}))
    fill(lab, "a", 1, gpus=8)
    assert rest(lab) == {"a": 8, "b": 0}
    fill(lab, "b", jobs)
    assert rest(lab) == {"a": 0, "b": jobs}
    assert evicted(lab) == ["a1"]


def test_a_capability_holds_for_all_queues_below() -> None:
    top = volcano_queue("top", deserved={GPU: 4}, capability={GPU: 4})
    below = [volcano_queue(name, parent="top", deserved={GPU: 2}) for name in ("a", "b")]
    lab = world(top, *below, volcano_queue("c"))
    for name in ("a", "b"):
        fill(lab, name, 4)
    assert sum(rest(lab).values()) == 4


def test_within_a_queue_that_has_all_it_may_have_one_below_takes_back_what_it_deserves() -> None:
    """A victim outside of it would make room on the nodes, and none in it."""
    top = volcano_queue("top", deserved={GPU: 6}, capability={GPU: 6})
    lab = world(
        volcano_queue("visitors"),
        top,
        volcano_queue("a", parent="top", deserved={GPU: 4}),
        volcano_queue("b", parent="top", deserved={GPU: 2}),
    )
    fill(lab, "b", 8)
    fill(lab, "visitors", 2)
    assert rest(lab) == {"a": 0, "b": 6, "visitors": 2}
    fill(lab, "a", 8)
    assert rest(lab) == {"a": 4, "b": 2, "visitors": 2}


@pytest.mark.parametrize(
    ("b", "visitors", "asks", "after"),
    [
        ({"deserved": {GPU: 1}}, {"deserved": {GPU: 4}}, 2, {"a": 2, "b": 1, "visitors": 5}),
        ({"deserved": {GPU: 2}}, {"deserved": {GPU: 4}}, 2, {"a": 2, "b": 2, "visitors": 4}),
        ({"deserved": {GPU: 2}}, {}, 2, {"a": 2, "b": 2, "visitors": 4}),
        ({"deserved": {GPU: 2}}, {"deserved": {GPU: 5}}, 2, {"a": 0, "b": 3, "visitors": 5}),
        ({"deserved": {GPU: 2}}, {"reclaimable": False}, 2, {"a": 0, "b": 3, "visitors": 5}),
        ({"deserved": {GPU: 3}}, {}, 2, {"a": 0, "b": 3, "visitors": 5}),
        ({"deserved": {GPU: 1}, "reclaimable": False}, {}, 2, {"a": 0, "b": 3, "visitors": 5}),
        ({"deserved": {GPU: 2}}, {}, 1, {"a": 1, "b": 3, "visitors": 4}),
        ({"deserved": {GPU: 2}}, {}, 3, {"a": 0, "b": 3, "visitors": 5}),
    ],
    ids=[
        "those inside are enough",
        "one from inside, one from outside",
        "outside deserves nothing",
        "outside has what it deserves",
        "outside is not reclaimable",
        "inside has what it deserves",
        "inside is not reclaimable",
        "the queue above is not full",
        "more than both can give",
    ],
)
def test_below_a_full_queue_victims_inside_and_outside_of_it_make_room_together(
    b: dict[str, Any], visitors: dict[str, Any], asks: int, after: dict[str, int]
) -> None:
    """Eight GPUs: ``b`` has three of the four that the queue above it may have, ``visitors`` the other five."""
    lab = world(
        volcano_queue("visitors", **visitors),
        volcano_queue("top", deserved={GPU: 4}, capability={GPU: 4}),
        volcano_queue("a", parent="top", deserved={GPU: 3}),
        volcano_queue("b", parent="top", **b),
    )
    fill(lab, "b", 3)
    fill(lab, "visitors", 5)
    assert rest(lab) == {"a": 0, "b": 3, "visitors": 5}
    fill(lab, "a", 1, gpus=asks)
    assert rest(lab) == after


def test_a_victim_that_has_none_of_what_the_queue_above_is_full_of_stays() -> None:
    lab = world(
        volcano_queue("visitors"),
        volcano_queue("top", deserved={GPU: 4, "cpu": 2}, capability={GPU: 4}),
        volcano_queue("a", parent="top", deserved={GPU: 3, "cpu": 2}),
        volcano_queue("b", parent="top", deserved={GPU: 2}),
    )
    fill(lab, "b", 3)
    fill(lab, "visitors", 5)
    lab.put(requesting(workload("idle", "b", created_s=90), {"cpu": "4"}))
    assert rest(lab) == {"a": 0, "b": 3, "visitors": 5}
    lab.put(requesting(workload("both", "a", created_s=91), {GPU: "2", "cpu": "1"}))
    assert rest(lab) == {"a": 2, "b": 2, "visitors": 4}
    assert "idle" not in evicted(lab)


def test_as_many_victims_as_the_queue_above_needs_are_from_inside_of_it() -> None:
    lab = world(
        volcano_queue("visitors"),
        volcano_queue("top", deserved={GPU: 5}, capability={GPU: 5}),
        volcano_queue("a", parent="top", deserved={GPU: 3}),
        volcano_queue("b", parent="top", deserved={GPU: 2}),
    )
    fill(lab, "b", 4)
    fill(lab, "visitors", 4)
    assert rest(lab) == {"a": 0, "b": 4, "visitors": 4}
    fill(lab, "a", 1, gpus=3)
    assert rest(lab) == {"a": 3, "b": 2, "visitors": 3}
    assert len(evicted(lab)) == 3


def test_two_full_queues_above_each_other_each_give_up_what_it_takes() -> None:
    lab = world(
        volcano_queue("visitors"),
        volcano_queue("top", deserved={GPU: 6}, capability={GPU: 6}),
        volcano_queue("middle", parent="top", deserved={GPU: 3}, capability={GPU: 3}),
        volcano_queue("a", parent="middle", deserved={GPU: 2}),
        volcano_queue("b", parent="middle", deserved={GPU: 1}),
        volcano_queue("c", parent="top", deserved={GPU: 2}),
    )
    fill(lab, "b", 2)
    fill(lab, "c", 4)
    fill(lab, "visitors", 2)
    assert rest(lab) == {"a": 0, "b": 2, "c": 4, "visitors": 2}
    fill(lab, "a", 1, gpus=2)
    assert rest(lab) == {"a": 2, "b": 1, "c": 3, "visitors": 2}


def test_a_guarantee_below_another_queue_is_kept_free() -> None:
    kept = {"resource": {GPU: 2}}
    lab = world(
        volcano_queue("top", deserved={GPU: 6}, guarantee=kept),
        volcano_queue("a", parent="top", deserved={GPU: 4}, guarantee=kept),
        volcano_queue("b", parent="top", deserved={GPU: 2}),
        volcano_queue("c", deserved={GPU: 2}, capability={GPU: 4}),
    )
    fill(lab, "b", 8)
    assert rest(lab) == {"a": 0, "b": 6, "c": 0}
    fill(lab, "a", 5)
    assert rest(lab) == {"a": 4, "b": 4, "c": 0}
    fill(lab, "c", 3)
    assert rest(lab) == {"a": 4, "b": 2, "c": 2}


def test_a_queue_at_its_own_capability_takes_nothing() -> None:
    lab = world(volcano_queue("a", deserved={GPU: 4}, capability={GPU: 3}), volcano_queue("b"))
    fill(lab, "b", 8)
    rest(lab)
    fill(lab, "a", 4)
    assert rest(lab) == {"a": 3, "b": 5}


def test_a_queue_of_higher_priority_goes_first() -> None:
    lab = world(volcano_queue("a", priority=1, deserved={GPU: 1}), volcano_queue("b", priority=9))
    fill(lab, "a", 2, gpus=8)
    fill(lab, "b", 1, gpus=8)
    assert rest(lab) == {"a": 0, "b": 8}


def test_in_a_queue_a_job_of_higher_priority_takes_from_a_lower_one() -> None:
    lab = world(volcano_queue("a"))
    fill(lab, "a", 8)
    rest(lab)
    fill(lab, "a", 1, priority=10)
    rest(lab)
    assert evicted(lab) == ["a8"]
    assert "a9" in lab.running()


def test_a_job_that_says_it_is_not_preemptable_is_never_a_victim() -> None:
    lab = world(volcano_queue("a", weight=1), volcano_queue("b", weight=3))
    fill(lab, "a", 8, marks={"volcano.sh/preemptable": "false"})
    rest(lab)
    fill(lab, "b", 8)
    assert rest(lab) == {"a": 8, "b": 0}


def test_a_fifo_queue_lets_nothing_pass_its_head() -> None:
    lab = world(volcano_queue("a", dequeueStrategy="fifo"), volcano_queue("b"))
    fill(lab, "a", 1, gpus=9)
    fill(lab, "a", 2)
    fill(lab, "b", 1)
    assert rest(lab) == {"a": 0, "b": 1}


def test_a_gang_is_on_nodes_that_hold_all_of_it() -> None:
    lab = world(volcano_queue("a"), gpus=4)
    lab.put(node("n2", 4))
    fill(lab, "a", 1, gpus=3, count=2)
    fill(lab, "a", 1, gpus=2)
    assert rest(lab) == {"a": 6}


@pytest.mark.parametrize("deserved", [False, True])
@histories(1, 2, 3, 4)
def test_histories_end_and_keep_every_bound(seed: int, deserved: bool) -> None:
    rng = random.Random(seed)
    names = ("a", "b", "c")
    specs: dict[str, dict[str, Any]] = {}
    for name in names:
        specs[name] = {"weight": rng.randint(1, 4), "capability": {GPU: rng.randint(3, 8)}}
        if deserved:
            specs[name]["deserved"] = {GPU: rng.randint(0, 3)}
    lab = world(*(volcano_queue(name, **specs[name]) for name in names))
    for _ in range(6):
        fill(lab, rng.choice(names), rng.randint(1, 3), rng.choice((1, 2, 4)), priority=rng.choice((0, 5)))
        found = rest(lab)
        assert sum(found.values()) <= 8
        assert all(found[name] <= specs[name]["capability"][GPU] for name in names)
        if lab.running() and rng.random() < 0.5:
            lab.finish(rng.choice(sorted(lab.running())))
    before = rest(lab)
    lab.rebuild()
    assert rest(lab) == before


KEPT = volcano_queue("kept", deserved={GPU: 2}, reclaimable=False)


def test_reclaim_passes_over_a_queue_that_gives_nothing_and_stands_first() -> None:
    """The queue that is furthest above its part comes first in every set of victims."""
    lab = world(KEPT, volcano_queue("over", deserved={GPU: 2}), volcano_queue("under", deserved={GPU: 4}))
    fill(lab, "kept", 5)
    fill(lab, "over", 3)
    rest(lab)
    fill(lab, "under", 1)
    assert rest(lab) == {"kept": 5, "over": 2, "under": 1}
    assert len(evicted(lab)) == 1


def test_queues_that_give_nothing_do_not_count_among_the_candidates_that_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(victims, "_MOST", 3)
    test_reclaim_passes_over_a_queue_that_gives_nothing_and_stands_first()


def test_each_of_two_queues_gives_the_one_that_it_has_too_much() -> None:
    lab = world(*(volcano_queue(name, deserved={GPU: 3}) for name in "ab"), volcano_queue("c", deserved={GPU: 2}))
    fill(lab, "a", 4)
    fill(lab, "b", 4)
    rest(lab)
    fill(lab, "c", 1, gpus=2)
    assert rest(lab) == {"a": 3, "b": 3, "c": 2}
    assert len(evicted(lab)) == 2


def test_a_sibling_gives_what_it_has_too_much_where_the_other_parent_has_its_part() -> None:
    tops = [volcano_queue(name, deserved={GPU: 4}) for name in ("left", "right")]
    below = [volcano_queue(name, parent="left", deserved={GPU: 2}) for name in ("a", "b")]
    lab = world(*tops, *below, volcano_queue("c", parent="right", deserved={GPU: 4}))
    fill(lab, "c", 4)
    fill(lab, "b", 4)
    rest(lab)
    fill(lab, "a", 1)
    assert rest(lab) == {"a": 1, "b": 3, "c": 4}


@pytest.mark.parametrize(("asks", "rule"), [(5, Rule.NEVER), (3, Rule.OVER_SHARE)])
def test_what_is_more_than_the_capability_waits_in_vain_and_the_rest_for_others(asks: int, rule: Rule) -> None:
    top = volcano_queue("top", capability={GPU: 4}, deserved={GPU: 4})
    lab = world(top, volcano_queue("a", parent="top", deserved={GPU: 4}), volcano_queue("b", parent="top"))
    fill(lab, "b", 1, gpus=4, marks={"volcano.sh/preemptable": "false"})
    rest(lab)
    fill(lab, "a", 1, gpus=asks)
    rest(lab)
    (waiting,) = [one for one in lab.workloads.values() if one.metadata.name.startswith("a")]
    told = lab.engine.explain(WorkloadKey(waiting.key), lab.now_s)
    assert told is not None
    assert told.record.rule is rule
    assert told.record.detail.startswith("OverCapability: Queue top has 4 ")
