"""Limits, order and reclaim between queues of a tree of two departments."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.limits import OverReason, over
from controller.scheduler.kai.proportion.order import order_key
from controller.scheduler.kai.proportion.queues import QueueShare, Tree, path
from controller.scheduler.kai.proportion.reclaim import is_reclaimable, may_reclaim
from controller.scheduler.model.resources import CPU, ResourceName

GPU = ResourceName("nvidia.com/gpu")


def share(name: str, parent: str | None = None, *, gpus: float, quota: float, fair: float) -> QueueShare:
    return QueueShare(
        name=QueueName(name),
        parent=None if parent is None else QueueName(parent),
        quota={GPU: quota},
        limit={GPU: math.inf},
        fair_share={GPU: fair},
        allocated={GPU: gpus},
        non_preemptible={GPU: 0.0},
    )


def departments(vision: float, speech: float) -> Tree:
    """Two departments of one team each, a quota and fair share of 4 GPUs; the numbers are what they run."""
    found = [
        share("vision", gpus=vision, quota=4.0, fair=4.0),
        share("vision-a", "vision", gpus=vision, quota=4.0, fair=4.0),
        share("speech", gpus=speech, quota=4.0, fair=4.0),
        share("speech-a", "speech", gpus=speech, quota=4.0, fair=4.0),
    ]
    return {queue.name: queue for queue in found}


A, B = QueueName("vision-a"), QueueName("speech-a")


def test_a_queue_below_its_fair_share_takes_from_one_above_it() -> None:
    assert is_reclaimable(departments(2.0, 6.0), A, {GPU: 2.0}, {B: [{GPU: 2.0}]}, preemptible=True)


def test_nothing_is_taken_from_a_queue_within_its_share() -> None:
    assert not is_reclaimable(departments(2.0, 4.0), A, {GPU: 2.0}, {B: [{GPU: 2.0}]}, preemptible=True)


def test_each_victim_is_one_that_was_still_above_the_share() -> None:
    one, two = [{GPU: 2.0}], [{GPU: 2.0}, {GPU: 1.0}]
    assert is_reclaimable(departments(2.0, 6.0), A, {GPU: 1.0}, {B: one}, preemptible=True)
    assert not is_reclaimable(departments(2.0, 6.0), A, {GPU: 1.0}, {B: two}, preemptible=True)


def test_a_job_that_is_never_preempted_reclaims_within_its_quota_alone() -> None:
    tree = departments(2.0, 6.0)
    busy = {**tree, A: replace(tree[A], non_preemptible={GPU: 3.0})}
    assert may_reclaim(tree[A], {GPU: 2.0}, preemptible=False)
    assert not may_reclaim(busy[A], {GPU: 2.0}, preemptible=False)
    assert not is_reclaimable(busy, A, {GPU: 2.0}, {B: [{GPU: 2.0}]}, preemptible=False)


def test_above_its_own_share_a_queue_needs_the_other_further_above() -> None:
    tree = departments(5.0, 11.0)
    assert is_reclaimable(tree, A, {GPU: 1.0}, {B: [{GPU: 4.0}]}, preemptible=True)
    assert not is_reclaimable(tree, A, {GPU: 1.0}, {B: [{GPU: 4.0}]}, preemptible=True, saturation=2.0)


@given(st.integers(0, 8), st.integers(0, 8), st.integers(1, 4), st.integers(1, 4))
def test_a_reclaim_never_turns_round(ours: int, theirs: int, need: int, taken: int) -> None:
    """What was taken is not taken back by the same rule: no cycles of eviction."""
    tree = departments(float(ours), float(theirs))
    if taken > theirs or not may_reclaim(tree[A], {GPU: need}, preemptible=True):
        return
    if not is_reclaimable(tree, A, {GPU: need}, {B: [{GPU: taken}]}, preemptible=True):
        return
    after = departments(float(ours + need), float(theirs - taken))
    back = may_reclaim(after[B], {GPU: taken}, preemptible=True)
    assert not (back and is_reclaimable(after, B, {GPU: taken}, {A: [{GPU: need}]}, preemptible=True))


def test_limits_hold_for_every_queue_above() -> None:
    tree = departments(2.0, 2.0)
    top = replace(tree[QueueName("vision")], limit={GPU: 3.0})
    queues = path({**tree, top.name: top}, A)
    assert over(queues, {GPU: 1.0}, preemptible=True) is None
    assert over(queues, {GPU: 2.0}, preemptible=True) == (OverReason.OVER_LIMIT, top)


def test_guaranteed_jobs_stay_within_the_quota_and_others_go_over_it() -> None:
    queues = path(departments(4.0, 0.0), A)
    assert over(queues, {GPU: 5.0}, preemptible=True) is None
    found = over(queues, {GPU: 5.0}, preemptible=False)
    assert found is not None
    assert found[0] is OverReason.NON_PREEMPTIBLE_OVER_QUOTA


def test_a_limit_that_is_absent_allows_nothing() -> None:
    queue = replace(share("a", gpus=0.0, quota=0.0, fair=0.0), limit={})
    assert over([queue], {GPU: 1.0}, preemptible=True) == (OverReason.OVER_LIMIT, queue)
    assert over([queue], {CPU: 0.0}, preemptible=True) is None


def test_tenths_that_do_not_add_up_in_floats_fill_a_limit() -> None:
    queue = replace(share("q", gpus=0.1, quota=0.3, fair=0.3), limit={GPU: 0.3}, non_preemptible={GPU: 0.1})
    assert 0.1 + 0.2 > 0.3
    assert over([queue], {GPU: 0.2}, preemptible=False) is None
    assert over([queue], {GPU: 0.201}, preemptible=False) == (OverReason.OVER_LIMIT, queue)


def test_queues_are_tried_by_quota_then_priority_then_share() -> None:
    total = {GPU: 100.0}
    in_quota = order_key(share("a", gpus=1.0, quota=4.0, fair=4.0), total, next_job={GPU: 1.0})
    over_quota = order_key(share("b", gpus=4.0, quota=4.0, fair=9.0), total, next_job={GPU: 1.0}, priority=9)
    over_share = order_key(share("c", gpus=9.5, quota=4.0, fair=9.0), total, priority=99)
    fuller = order_key(share("d", gpus=2.0, quota=4.0, fair=4.0), total, next_job={GPU: 1.0})
    assert sorted([over_share, over_quota, fuller, in_quota]) == [in_quota, fuller, over_quota, over_share]


def test_victims_already_taken_no_longer_count() -> None:
    queue = share("a", gpus=8.0, quota=4.0, fair=4.0)
    total = {GPU: 100.0}
    assert order_key(queue, total, victims={GPU: 4.0}) < order_key(queue, total)


def test_a_queue_without_a_share_comes_after_one_that_has_some() -> None:
    total = {GPU: 100.0}
    none = order_key(share("a", gpus=1.0, quota=0.0, fair=0.0), total)
    some = order_key(share("b", gpus=9.0, quota=0.0, fair=9.0), total)
    assert some < none
