"""KAI's queues: limits, quota that is guaranteed, shares beyond it by weight, and minimum runtimes."""

import random
from typing import Any

import pytest

from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.decisions.records import Rule
from controller.scheduler.model.resources import WorkloadKey
from tests.support.engine.foreignqueues import GPU, asks, evicted, fill, kai_queue, node, rest, world
from tests.support.engine.world import World
from tests.support.seeds import histories

KEPT = {"kai.scheduler/preemptibility": "non-preemptible"}


def department(*teams: Any, **spec: Any) -> World:
    return world(kai_queue("dept", quota=8, **spec), *teams)


def said(lab: World, name: str) -> str:
    told = lab.engine.explain(WorkloadKey(f"ns/{name}"), lab.now_s)
    assert told is not None
    return told.record.detail


@pytest.mark.parametrize("jobs", [1, 6])
def test_a_victim_larger_than_what_it_makes_room_for_does_not_come_back_before_it(jobs: int) -> None:
    lab = world(kai_queue("a", quota=2), kai_queue("b", born_s=1, quota=6))
    fill(lab, "a", 1, gpus=8)
    assert rest(lab) == {"a": 8, "b": 0}
    fill(lab, "b", jobs)
    assert rest(lab) == {"a": 0, "b": jobs}
    assert evicted(lab) == ["a1"]


def test_a_limit_holds_for_a_queue_and_for_all_below_a_department() -> None:
    lab = department(kai_queue("a", "dept", limit=2), kai_queue("b", "dept"), limit=5)
    fill(lab, "a", 4)
    fill(lab, "b", 8)
    assert rest(lab) == {"a": 2, "b": 3}
    assert said(lab, "a3") == f"OverLimit: Queue dept has 5 {GPU} of its limit of 5 and the job asks for 1"


def test_a_limit_of_nothing_allows_nothing() -> None:
    lab = department(kai_queue("a", "dept", quota=4, limit=0))
    fill(lab, "a", 1)
    assert rest(lab) == {"a": 0}


def test_jobs_that_are_never_preempted_live_on_quota_alone() -> None:
    lab = department(kai_queue("a", "dept", quota=2))
    fill(lab, "a", 4, marks=KEPT)
    assert rest(lab) == {"a": 2}
    assert said(lab, "a3").startswith("NonPreemptibleOverQuota: Queue a has 2")
    fill(lab, "a", 4)
    assert rest(lab) == {"a": 6}


def test_what_is_over_quota_is_shared_by_weight_and_taken_back() -> None:
    lab = department(kai_queue("a", "dept", quota=2, weight=1), kai_queue("b", "dept", quota=2, weight=3))
    fill(lab, "a", 8)
    assert rest(lab) == {"a": 8, "b": 0}
    fill(lab, "b", 8)
    assert rest(lab) == {"a": 3, "b": 5}


@pytest.mark.parametrize(("priority", "marks"), [(100, {}), (0, KEPT)])
def test_jobs_of_a_high_priority_or_that_say_so_are_no_victims(priority: int, marks: dict[str, str]) -> None:
    lab = department(kai_queue("a", "dept", quota=8), kai_queue("b", "dept", quota=8))
    fill(lab, "a", 8, priority=priority, marks=marks)
    rest(lab)
    fill(lab, "b", 1)
    assert rest(lab) == {"a": 8, "b": 0}


def test_a_job_takes_from_a_lower_priority_of_its_own_queue() -> None:
    lab = department(kai_queue("a", "dept", quota=8))
    fill(lab, "a", 8, priority=50)
    rest(lab)
    fill(lab, "a", 1, gpus=2, priority=75)
    assert rest(lab) == {"a": 8}
    assert sorted(evicted(lab)) == ["a7", "a8"]


def test_a_victim_runs_for_its_minimum_first() -> None:
    lab = department(kai_queue("a", "dept", reclaimMinRuntime="10m"), kai_queue("b", "dept", quota=8))
    fill(lab, "a", 8)
    rest(lab)
    lab.put(asks("b1", "b", 1, created_s=60))
    assert rest(lab) == {"a": 8, "b": 0}
    due_s = lab.engine.next_wakeup_s()
    assert due_s is not None
    assert due_s <= lab.now_s + 600
    lab.now_s = due_s
    assert rest(lab) == {"a": 7, "b": 1}


@histories(1, 2, 3)
def test_histories_end_within_limits_and_spare_what_is_never_preempted(seed: int) -> None:
    rng = random.Random(seed)
    limits = {name: rng.choice((2, 4, -1)) for name in ("a", "b", "c")}
    teams = [
        kai_queue(
            name, "dept", quota=rng.randint(0, 3), limit=limit, weight=rng.randint(0, 3), priority=rng.randint(1, 2)
        )
        for name, limit in limits.items()
    ]
    lab = department(*teams)
    for _ in range(6):
        marks = rng.choice(({}, KEPT))
        fill(lab, rng.choice("abc"), rng.randint(1, 3), rng.choice((1, 2)), priority=rng.choice((0, 60)), marks=marks)
        found = rest(lab)
        assert sum(found.values()) <= 8
        assert all(limit < 0 or found[name] <= limit for name, limit in limits.items())
        kept = {one.metadata.name for one in lab.workloads.values() if one.metadata.annotations == KEPT}
        assert not kept & set(evicted(lab))
    before = rest(lab)
    lab.rebuild()
    assert rest(lab) == before


@pytest.mark.parametrize("gpus", [(8,), (4, 4)], ids=["one node", "two nodes"])
def test_below_a_full_department_victims_inside_and_outside_of_it_make_room_together(gpus: tuple[int, ...]) -> None:
    lab = World()
    lab.put(*(node(f"n{at}", each) for at, each in enumerate(gpus)))
    lab.put(kai_queue("dept", quota=4, limit=4), kai_queue("other", quota=4), kai_queue("v", "other", quota=4))
    lab.put(kai_queue("a", "dept", quota=2), kai_queue("b", "dept", quota=2))
    fill(lab, "b", 3)
    fill(lab, "v", 5)
    assert rest(lab) == {"a": 0, "b": 3, "v": 5}
    fill(lab, "a", 1, gpus=2)
    assert rest(lab) == {"a": 2, "b": 2, "v": 4}


def test_reclaim_passes_over_a_queue_within_its_quota_that_stands_first() -> None:
    lab = world(
        kai_queue("org", quota=6, priority=200),
        kai_queue("under", "org", quota=4),
        kai_queue("over", "org", quota=2),
        kai_queue("kept", quota=4, priority=100),
        gpus=7,
    )
    fill(lab, "kept", 2)
    fill(lab, "over", 5)
    rest(lab)
    fill(lab, "under", 1, gpus=2)
    assert rest(lab) == {"kept": 2, "over": 3, "under": 2}
    assert len(evicted(lab)) == 2


def test_each_of_two_queues_gives_the_one_that_it_has_above_its_quota() -> None:
    lab = world(*(kai_queue(name, quota=3, weight=0) for name in "ab"), kai_queue("c", quota=2, weight=0, born_s=1))
    for name in "ab":
        fill(lab, name, 4)
    rest(lab)
    fill(lab, "c", 1, gpus=2)
    assert rest(lab) == {"a": 3, "b": 3, "c": 2}
    assert len(evicted(lab)) == 2


@pytest.mark.parametrize(
    ("asks", "marks", "rule"),
    [(3, {}, Rule.NEVER), (2, {}, Rule.OVER_SHARE), (2, KEPT, Rule.NEVER), (1, KEPT, Rule.FITS)],
    ids=["over the limit", "over what is left of it", "over the quota, never preempted", "within it"],
)
def test_what_is_more_than_a_queue_may_ever_have_waits_in_vain(asks: int, marks: dict[str, str], rule: Rule) -> None:
    lab = world(kai_queue("dept", quota=8, limit=2), kai_queue("a", "dept", quota=1), kai_queue("b", "dept", quota=1))
    fill(lab, "b", 1)
    rest(lab)
    fill(lab, "a", 1, gpus=asks, marks=marks)
    rest(lab)
    record = lab.engine.stories.last(WorkloadKey("ns/a2"))
    assert record is not None
    assert record.rule is rule
    assert (record.reason is PendingReason.EXCEEDS_MAX_QUOTA) == (rule is Rule.NEVER)
