"""Stories: what somebody writes to the API server, by a seed."""

from collections import Counter

import pytest

from hack.outside.story import Story, told

SEEDS = range(40)
WORDS = ("borrowingLimit", "lendingLimit", "StrictFIFO", "HoldAndDrain", "initContainers", "min-parallelism")


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_tells_the_same_story_and_another_one_another(seed: int) -> None:
    assert told(seed, 10.0) == told(seed, 10.0)
    assert told(seed, 10.0).acts != told(seed + 10, 10.0).acts


def test_acts_are_in_the_order_of_their_times_and_begin_with_what_is_there_first() -> None:
    for seed in SEEDS:
        acts = told(seed, 10.0).acts
        assert [each.at_s for each in acts] == sorted(each.at_s for each in acts)
        assert {"ClusterQueue", "LocalQueue", "ResourceFlavor"} <= {each.kind for each in acts if each.at_s == 0}
        assert acts[-1].at_s < 13.0


def names(story: Story, kind: str) -> set[tuple[str, str]]:
    return {(each.namespace, each.name) for each in story.acts if each.kind == kind and each.verb == "create"}


def test_whatever_is_named_was_created_before() -> None:
    for seed in SEEDS:
        story = told(seed, 10.0)
        queues, jobs = {name for _, name in names(story, "ClusterQueue")}, names(story, "Job")
        locals_ = names(story, "LocalQueue")
        for act in story.acts:
            if act.kind == "LocalQueue":
                assert act.body["spec"]["clusterQueue"] in queues
            if act.kind == "Job" and act.verb == "create":
                assert (act.namespace, act.body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]) in locals_
            if act.kind in ("Job", "WorkloadOf") and act.verb != "create":
                assert (act.namespace, act.name) in jobs


def test_many_seeds_reach_every_kind_of_change() -> None:
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        story = told(seed, 10.0)
        reached.update(f"{each.verb} {each.kind}" for each in story.acts)
        reached["fair"] += story.fair
        reached["nested"] += any(each.kind == "Cohort" for each in story.acts)
        text = " ".join(each.told() for each in story.acts)
        for word in (
            "borrowingLimit",
            "lendingLimit",
            "StrictFIFO",
            "HoldAndDrain",
            "restartPolicy",
            "min-parallelism",
        ):
            reached[word] += word in text
    assert min(reached.values()) >= 5, reached
    assert {"delete Job", "merge Job", "merge ClusterQueue", "merge WorkloadOf"} <= reached.keys()
