"""Borrowing, lending and reserving by example."""

import pytest

from controller.scheduler.model.resources import UNLIMITED, CohortName
from controller.scheduler.quota.audit import QuotaDriftError
from controller.scheduler.quota.cells import Quota
from controller.scheduler.quota.quota import QuotaTree, UnknownClusterQueueError
from controller.scheduler.quota.quotanode import BorrowLevel, QuotaNodeSpec
from tests.support.engine.forest import FRS, GPU, queue, spec


def tree_of(queues: dict[str, QuotaNodeSpec], cohorts: dict[str, QuotaNodeSpec] | None = None) -> QuotaTree:
    tree = QuotaTree()
    for name, given in queues.items():
        tree.set_cluster_queue(queue(name), given)
    for name, given in (cohorts or {}).items():
        tree.set_cohort(CohortName(name), given)
    return tree


def test_two_queues_of_a_cohort_share_what_neither_uses() -> None:
    tree = tree_of({"a": spec("c", 12), "b": spec("c", 12)})
    tree.add_usage(queue("a"), {GPU: 18})
    assert tree.cluster_queue(queue("b")).available(GPU) == 6
    assert tree.cluster_queue(queue("a")).borrowed(GPU) == 6


def test_a_borrowing_limit_binds_its_queue_only() -> None:
    tree = tree_of({"a": spec("c", 4, borrow=2), "b": spec("c", 10)})
    assert tree.cluster_queue(queue("a")).available(GPU) == 6
    assert tree.cluster_queue(queue("b")).available(GPU) == 14


def test_without_a_cohort_a_borrowing_limit_means_nothing() -> None:
    tree = tree_of({"a": spec(None, 4, borrow=2)})
    assert tree.cluster_queue(queue("a")).available(GPU) == 4


def test_what_is_not_lent_is_used_first_and_by_its_owner_alone() -> None:
    tree = tree_of({"a": spec("c", 10, lend=3), "b": spec("c", 0)})
    b = tree.cluster_queue(queue("b"))
    assert b.available(GPU) == 3
    tree.add_usage(queue("a"), {GPU: 7})
    assert b.available(GPU) == 3
    tree.add_usage(queue("a"), {GPU: 1})
    assert b.available(GPU) == 2


def test_quota_of_the_cohort_itself_serves_all_below_it() -> None:
    tree = tree_of(
        {"a": spec("left"), "b": spec("right")}, {"left": spec("top"), "right": spec("top", 5), "top": spec()}
    )
    assert tree.cluster_queue(queue("a")).available(GPU) == 5


def test_usage_above_what_is_left_after_a_cut_shows_no_negative_room() -> None:
    tree = tree_of({"a": spec(None, 10)})
    tree.add_usage(queue("a"), {GPU: 8})
    tree.set_cluster_queue(queue("a"), spec(None, 5))
    assert tree.cluster_queue(queue("a")).available(GPU) == 0
    assert tree.cluster_queue(queue("a")).usage(GPU) == 8


def test_those_who_borrow_are_counted_whatever_is_charged_and_wherever_they_move() -> None:
    tree = tree_of({"a": spec("x", 4), "b": spec("x", 4), "c": spec("y", 4)}, {"x": spec(), "y": spec()})

    def borrowers() -> tuple[int, int]:
        tree.validate()
        x, y = (tree.cohorts[CohortName(name)].cells[GPU].borrowers for name in "xy")
        return x, y

    tree.add_usage(queue("a"), {GPU: 6})
    assert borrowers() == (1, 0)
    with tree.trial():
        tree.add_usage(queue("b"), {GPU: 5})
        assert borrowers() == (2, 0)
    assert borrowers() == (1, 0)
    tree.set_cluster_queue(queue("a"), spec("y", 4))
    assert borrowers() == (0, 1)
    tree.set_cluster_queue(queue("a"), spec("y", 6))
    assert borrowers() == (0, 0)
    tree.set_cluster_queue(queue("a"), spec("y", 5))
    tree.remove_cluster_queue(queue("a"))
    assert borrowers() == (0, 0)


def test_a_cohort_is_counted_as_a_borrower_when_a_member_brings_its_usage_along() -> None:
    tree = tree_of({"a": spec("x", 4), "b": spec("x", 4)}, {"x": spec("top"), "y": spec(), "top": spec()})
    top = tree.cohorts[CohortName("top")].cells[GPU]
    tree.add_usage(queue("a"), {GPU: 6})
    tree.add_usage(queue("b"), {GPU: 3})
    assert top.borrowers == 1
    tree.set_cluster_queue(queue("a"), spec("y", 4))
    assert top.borrowers == 0
    tree.set_cluster_queue(queue("a"), spec("x", 4))
    assert top.borrowers == 1
    tree.validate()


def test_what_is_kept_outlives_the_trial_around_it_and_nothing_else_does() -> None:
    tree = tree_of({"a": spec("c", 4, lend=1), "b": spec("c", 4)})
    a = tree.cluster_queue(queue("a"))
    with tree.trial():
        tree.add_usage(queue("a"), {GPU: 3})
        tree.keep_usage(a, {GPU: 2})
        tree.add_usage(queue("b"), {GPU: 4})
        tree.validate()
    assert a.used() == {GPU: 2}
    tree.validate()


def test_a_request_fits_when_each_of_its_parts_does() -> None:
    tree = tree_of({"a": QuotaNodeSpec(quotas={FRS[0]: Quota(4), FRS[2]: Quota(1000)})})
    a = tree.cluster_queue(queue("a"))
    assert a.fits({FRS[0]: 4, FRS[2]: 1000})
    assert not a.fits({FRS[0]: 4, FRS[2]: 1001})
    assert not a.fits({FRS[1]: 1})


def test_unlimited_quota_stays_unlimited_whatever_is_used_and_goes_with_its_owner() -> None:
    tree = tree_of({"a": spec("c", 1), "b": spec("c", UNLIMITED)})
    tree.add_usage(queue("a"), {GPU: 100})
    a = tree.cluster_queue(queue("a"))
    assert a.available(GPU) == UNLIMITED
    tree.remove_cluster_queue(queue("b"))
    assert a.available(GPU) == 0
    assert a.potential_available(GPU) == 1


def test_the_borrow_level_is_the_height_of_the_smallest_subtree_with_room() -> None:
    tree = tree_of(
        {"a": spec("team", 4), "b": spec("team", 4), "c": spec("top", 4)},
        {"team": spec("top"), "top": spec()},
    )
    a = tree.cluster_queue(queue("a"))
    assert a.borrow_level(GPU, 4) == BorrowLevel(0, below_root=True)
    assert a.borrow_level(GPU, 8) == BorrowLevel(1, below_root=True)
    assert a.borrow_level(GPU, 9) == BorrowLevel(2, below_root=False)
    assert a.borrow_level(GPU, 99) == BorrowLevel(2, below_root=False)


def test_a_queue_without_a_cohort_never_borrows() -> None:
    tree = tree_of({"a": spec(None, 4)})
    tree.add_usage(queue("a"), {GPU: 9})
    a = tree.cluster_queue(queue("a"))
    assert a.borrow_level(GPU, 9) == BorrowLevel(0, below_root=False)
    assert not a.borrowing()


def test_a_queue_borrows_that_is_beyond_its_quota_in_one_flavor_of_several() -> None:
    quotas = {GPU: Quota(4), FRS[2]: Quota(4)}
    tree = tree_of({"a": QuotaNodeSpec(parent=CohortName("team"), quotas=quotas), "b": spec("team", 4)})
    a = tree.cluster_queue(queue("a"))
    tree.add_usage(queue("a"), {GPU: 4, FRS[2]: 4})
    assert not a.borrowing()
    tree.add_usage(queue("a"), {GPU: 1})
    assert a.borrowing()


def test_cohorts_in_a_circle_are_out_of_use_until_one_of_them_leaves_it() -> None:
    cohorts = {"x": spec("y"), "y": spec("z"), "z": spec("x", 5)}
    tree = tree_of({"a": spec("x", 1), "alone": spec("w", 1)}, cohorts)
    a = tree.cluster_queue(queue("a"))
    assert a.in_cycle()
    assert not tree.cluster_queue(queue("alone")).in_cycle()
    tree.set_cohort(CohortName("y"), spec())
    assert [node.name for node in a.path()] == ["a", "x", "y"]
    assert a.available(GPU) == 6
    tree.validate()


def test_a_cohort_that_is_its_own_parent_is_a_circle() -> None:
    tree = tree_of({"a": spec("x", 1)}, {"x": spec("x")})
    assert tree.cluster_queue(queue("a")).in_cycle()
    tree.remove_cohort(CohortName("x"))
    assert not tree.cluster_queue(queue("a")).in_cycle()


def test_a_deleted_cohort_takes_its_quota_along_and_leaves_its_members_together() -> None:
    tree = tree_of({"a": spec("x", 1), "b": spec("x", 1)}, {"x": spec("top", 5), "top": spec(None, 10)})
    assert tree.cluster_queue(queue("a")).available(GPU) == 17
    tree.remove_cohort(CohortName("x"))
    assert tree.cluster_queue(queue("a")).available(GPU) == 2


def test_a_cohort_nobody_names_any_more_is_forgotten() -> None:
    tree = tree_of({"a": spec("x", 1)})
    tree.set_cluster_queue(queue("a"), spec("y", 1))
    assert set(tree.cohorts) == {"y"}
    tree.remove_cluster_queue(queue("a"))
    assert not tree.cohorts


def test_usage_moves_with_its_queue() -> None:
    tree = tree_of({"a": spec("x", 1), "b": spec("x", 5), "c": spec("y", 5)})
    tree.add_usage(queue("a"), {GPU: 4})
    assert tree.cluster_queue(queue("b")).available(GPU) == 2
    tree.set_cluster_queue(queue("a"), spec("y", 1))
    assert tree.cluster_queue(queue("b")).available(GPU) == 5
    assert tree.cluster_queue(queue("c")).available(GPU) == 2


def test_giving_back_more_than_was_charged_is_refused_and_changes_nothing() -> None:
    tree = tree_of({"a": QuotaNodeSpec(quotas={FRS[0]: Quota(4), FRS[2]: Quota(4)})})
    tree.add_usage(queue("a"), {FRS[0]: 1})
    with pytest.raises(QuotaDriftError, match="given back"):
        tree.remove_usage(queue("a"), {FRS[0]: 1, FRS[2]: 1})
    assert tree.cluster_queue(queue("a")).usage(FRS[0]) == 1


def test_an_unknown_queue_is_named() -> None:
    with pytest.raises(UnknownClusterQueueError, match="nowhere"):
        QuotaTree().add_usage(queue("nowhere"), {GPU: 1})


def test_validation_finds_a_sum_that_drifted() -> None:
    tree = tree_of({"a": spec("x", 1)})
    tree.cohorts[CohortName("x")].cells[GPU].usage += 1
    with pytest.raises(QuotaDriftError, match="Cohort x"):
        tree.validate()
