"""Dominant resource shares."""

import math
from collections.abc import Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from controller.scheduler.model.config import PreemptionStrategy
from controller.scheduler.model.resources import (
    UNLIMITED,
    ClusterQueueName,
    CohortName,
    FlavorName,
    FlavorResource,
    ResourceName,
)
from controller.scheduler.quota.cells import Quota
from controller.scheduler.quota.quota import QuotaTree
from controller.scheduler.quota.quotanode import QuotaNode, QuotaNodeSpec
from controller.scheduler.quota.shares import Share, below_common_ancestor, may_preempt, share
from tests.support.engine.forest import FRS, GPU, Model, Step, histories, picture, queue, spec, usages


def borrower(weight: float, used: int = 7) -> QuotaTree:
    """Queue ``a`` uses ``used`` GPUs of its 5; its cohort could give it 10."""
    tree = QuotaTree()
    tree.set_cluster_queue(queue("a"), spec("c", 5, weight=weight))
    tree.set_cluster_queue(queue("b"), spec("c", 5))
    tree.add_usage(queue("a"), {GPU: used})
    return tree


def share_of(weight: float, used: int = 7) -> Share:
    return share(borrower(weight, used).cluster_queue(queue("a")))


def path_shares(
    tree: QuotaTree,
    name: ClusterQueueName,
    *,
    added: Mapping[FlavorResource, int],
    removed: Mapping[FlavorResource, int] | None = None,
) -> list[tuple[QuotaNode, Share]]:
    """Shares from the ClusterQueue up to its root, as they would be with usage added to it and removed from it."""
    with tree.trial():
        tree.remove_usage(name, removed or {})
        tree.add_usage(name, added)
        return [(node, share(node)) for node in tree.cluster_queue(name).path()]


def test_the_share_is_what_is_borrowed_of_what_could_be_had_over_the_weight() -> None:
    found = share_of(2.0)
    assert (found.ratio, found.precise, found.weighted, found.dominant) == (200.0, 100.0, 100, GPU.resource)


def test_the_published_share_is_rounded_up() -> None:
    assert share_of(300.0).weighted == 1


def test_within_own_quota_there_is_no_share() -> None:
    found = share_of(0.0, used=5)
    assert (found.weighted, found.borrowing, found.dominant) == (0, False, None)


def test_weight_0_makes_any_borrowing_infinite_and_two_such_are_compared_without_weights() -> None:
    little, much = share_of(0.0, used=6), share_of(0.0, used=9)
    assert math.isinf(little.precise)
    assert little.weighted == UNLIMITED
    assert share_of(0.1, used=10).rank < little.rank < much.rank


def test_of_equal_ratios_the_first_resource_by_name_dominates() -> None:
    names = [ResourceName(name) for name in ("memory", "cpu")]
    frs = [FlavorResource(FlavorName("f"), name) for name in names]
    tree = QuotaTree()
    tree.set_cluster_queue(queue("a"), QuotaNodeSpec(parent=CohortName("c"), quotas={fr: Quota(0) for fr in frs}))
    tree.set_cluster_queue(queue("b"), QuotaNodeSpec(parent=CohortName("c"), quotas={fr: Quota(10) for fr in frs}))
    tree.add_usage(queue("a"), dict.fromkeys(frs, 3))
    assert share(tree.cluster_queue(queue("a"))).dominant == "cpu"


def test_what_a_queue_has_no_quota_on_at_all_is_not_part_of_its_share() -> None:
    fr = FlavorResource(FlavorName("f"), ResourceName("cpu"))
    tree = QuotaTree()
    tree.set_cluster_queue(queue("a"), QuotaNodeSpec(parent=CohortName("c")))
    tree.set_cluster_queue(queue("b"), QuotaNodeSpec(parent=CohortName("c"), quotas={fr: Quota(10)}))
    tree.add_usage(queue("a"), {fr: 3})
    assert not share(tree.cluster_queue(queue("a")), {fr: 1}).borrowing


def test_a_cohorts_share_counts_only_what_spills_over_its_quota() -> None:
    tree = QuotaTree()
    tree.set_cohort(CohortName("root"), spec(None, 45))
    tree.set_cohort(CohortName("team"), spec("root", 3, weight=2.0))
    tree.set_cluster_queue(queue("a"), spec("team", 5))
    shares = path_shares(tree, queue("a"), added={GPU: 13})
    assert [(node.name, found.ratio, found.weighted) for node, found in shares] == [
        ("a", 8 * 1000 / 53, 151),
        ("team", 5 * 1000 / 53, 48),
        ("root", 0.0, 0),
    ]


@given(histories, usages)
def test_shares_never_fall_while_usage_grows(history: list[Step], usage: dict[FlavorResource, int]) -> None:
    tree, model = QuotaTree(), Model()
    for step in history:
        step(tree, model)
    for name, node in tree.cluster_queues.items():
        if node.in_cycle():
            continue
        now = [(member, share(member)) for member in node.path()]
        for (member, before), (_, then) in zip(now, path_shares(tree, name, added=usage), strict=True):
            assert before.rank <= then.rank, member
        assert share(node, usage) == path_shares(tree, name, added=usage)[0][1]


@given(histories, usages)
def test_asking_for_shares_changes_nothing(history: list[Step], usage: dict[FlavorResource, int]) -> None:
    tree, model = QuotaTree(), Model()
    for step in history:
        step(tree, model)
    before = picture(tree)
    for name, node in tree.cluster_queues.items():
        had = node.used()
        path_shares(tree, name, added=usage, removed=had)
    assert picture(tree) == before


@given(histories)
def test_the_lendable_amounts_follow_every_change_of_limits(history: list[Step]) -> None:
    """They are remembered between changes, so a change that did not reach the memory would show here."""
    tree, model = QuotaTree(), Model()
    for step in history:
        step(tree, model)
        for node in tree.cohorts.values():
            if node.in_cycle():
                continue
            flavors = {fr for fr in FRS if fr in node.root().cells}
            for resource in {fr.resource for fr in flavors}:
                potentials = [node.potential_available(fr) for fr in flavors if fr.resource == resource]
                assert node.lendable().get(resource, 0) == min(sum(potentials), UNLIMITED)


@given(st.floats(0, 1000), st.floats(0, 1000), st.floats(0, 1000))
def test_the_second_strategy_is_open_wherever_the_first_is(mine: float, before: float, after: float) -> None:
    """A victim's loss only lowers its queue's share, except where both strategies meet at equality."""
    assume(after < before)
    ours, theirs, rest = (Share(ratio, 1.0, GPU.resource, borrowing=True) for ratio in (mine, before, after))
    if may_preempt(
        PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,
        preemptor_with=ours,
        target_before=theirs,
        target_after=rest,
    ):
        assert may_preempt(
            PreemptionStrategy.LESS_THAN_INITIAL_SHARE, preemptor_with=ours, target_before=theirs, target_after=rest
        )


def test_two_queues_are_judged_just_below_their_lowest_common_ancestor() -> None:
    tree = QuotaTree()
    tree.set_cohort(CohortName("left"), spec("top"))
    tree.set_cohort(CohortName("right"), spec("top"))
    for name, parent in (("a", "left"), ("b", "right"), ("c", "right"), ("d", "elsewhere")):
        tree.set_cluster_queue(queue(name), spec(parent))
    a, b, c, d = (tree.cluster_queue(queue(name)) for name in "abcd")
    assert [node.name for node in below_common_ancestor(a, b)] == ["left", "right"]
    assert [node.name for node in below_common_ancestor(b, c)] == ["b", "c"]
    with pytest.raises(ValueError, match="do not meet"):
        below_common_ancestor(a, d)
