"""The incremental forest against one recomputed from scratch, on random histories of objects and charges."""

import math
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from controller.scheduler.model.resources import UNLIMITED, ClusterQueueName, FlavorResource
from controller.scheduler.quota.cells import Quota
from controller.scheduler.quota.quota import QuotaTree
from controller.scheduler.quota.quotanode import QuotaNode, QuotaNodeSpec
from tests.support.engine.forest import COHORTS, FRS, QUEUES, Model, Step, UnlimitedKeptError, histories, picture, steps


def after(history: list[Step]) -> tuple[QuotaTree, Model]:
    tree, model = QuotaTree(), Model()
    for step in history:
        step(tree, model)
    return tree, model


def seen(amount: float) -> int:
    return UNLIMITED if math.isinf(amount) else int(amount)


@given(histories)
def test_every_sum_is_right_after_every_step(history: list[Step]) -> None:
    tree, model = QuotaTree(), Model()
    for step in history:
        step(tree, model)
        tree.validate()


@given(histories)
def test_answers_equal_those_recomputed_from_what_objects_say(history: list[Step]) -> None:
    tree, model = after(history)
    nodes = [*tree.cluster_queues.values(), *tree.cohorts.values()]
    for node in nodes:
        circular = node.spec is not None and model.path(node.spec) is None
        assert node.in_cycle() == circular
        if circular:
            continue
        for fr in FRS:
            _same(node, model, fr)


def _same(node: QuotaNode, model: Model, fr: FlavorResource) -> None:
    try:
        total, _, used = model.sums(node.name, fr, is_queue=node.is_queue)
        available = model.available(node.name, fr, is_queue=node.is_queue)
        potential = model.potential(node.name, fr, is_queue=node.is_queue)
    except UnlimitedKeptError:
        return
    assert node.quota(fr) == seen(total)
    assert node.usage(fr) == used
    assert node.available(fr) == seen(max(0.0, available))
    assert node.potential_available(fr) == seen(potential)


@given(histories, histories)
def test_a_trial_leaves_no_trace(history: list[Step], tried: list[Step]) -> None:
    tree, model = after(history)
    before = picture(tree)
    with tree.trial():
        for step in tried:
            step(tree, model)
    assert picture(tree) == before
    tree.validate()


@given(histories, histories, histories)
def test_an_inner_trial_that_is_kept_is_undone_with_the_outer_one(
    history: list[Step], outer: list[Step], inner: list[Step]
) -> None:
    tree, model = after(history)
    before = picture(tree)
    with tree.trial():
        for step in outer:
            step(tree, model)
        with tree.trial() as trial:
            for step in inner:
                step(tree, model)
            trial.keep()
    assert picture(tree) == before


@given(histories, st.sampled_from(FRS), st.data())
def test_what_is_available_is_the_most_that_breaks_no_limit(
    history: list[Step], fr: FlavorResource, data: st.DataObject
) -> None:
    tree, model = after(history)
    usable = [name for name, spec in model.queues.items() if model.path(spec) is not None]
    assume(usable)
    name = data.draw(st.sampled_from(usable))
    try:
        assume(not model.exceeded(name, fr))
        room = tree.cluster_queue(name).available(fr)
        assume(room < UNLIMITED)
        charged = model.charged.setdefault(name, {})
        charged[fr] = charged.get(fr, 0) + room
        assert model.exceeded(name, fr) == []
        charged[fr] += 1
        assert model.exceeded(name, fr) != []
    except UnlimitedKeptError:
        assume(condition=False)


@given(histories, st.randoms(use_true_random=False))
def test_the_order_in_which_objects_arrive_does_not_matter(history: list[Step], shuffled: random.Random) -> None:
    tree, model = after(history)
    other = QuotaTree()
    arrivals: list[tuple[str, str]] = [("queue", name) for name in model.queues]
    arrivals += [("cohort", name) for name in model.cohorts]
    shuffled.shuffle(arrivals)
    for kind, name in arrivals:
        if kind == "queue":
            other.set_cluster_queue(ClusterQueueName(name), model.queues[ClusterQueueName(name)])
        else:
            cohort = next(known for known in model.cohorts if known == name)
            other.set_cohort(cohort, model.cohorts[cohort])
    for queue, usage in model.charged.items():
        other.add_usage(queue, usage)
    assert picture(other) == picture(tree)


@given(histories, steps)
def test_a_trees_generation_moves_with_its_limits(history: list[Step], step: Step) -> None:
    """A decision that is kept until the limits change may look at the generation alone."""
    tree, model = after(history)

    def limits() -> dict[str, tuple[int, list[int]]]:
        return {
            name: (queue.quota_generation(), [queue.potential_available(fr) for fr in FRS])
            for name, queue in tree.cluster_queues.items()
            if not queue.in_cycle()
        }

    before = limits()
    step(tree, model)
    for name, (generation, potential) in limits().items():
        if name in before and before[name][1] != potential:
            assert before[name][0] != generation


@pytest.mark.parametrize("fr", FRS)
def test_a_node_that_never_heard_of_a_flavor_uses_what_its_cohort_has(fr: FlavorResource) -> None:
    tree = QuotaTree()
    tree.set_cluster_queue(QUEUES[0], QuotaNodeSpec(parent=COHORTS[0]))
    tree.set_cohort(COHORTS[0], QuotaNodeSpec(quotas={fr: Quota(7)}))
    assert tree.cluster_queue(QUEUES[0]).available(fr) == 7
