"""Stories: what somebody writes to the API server, by a seed."""

from collections import Counter
from itertools import pairwise

import pytest

from hack.outside.acts import Story
from hack.outside.story import told

SEEDS = range(40)
WORDS = (
    "borrowingLimit",
    "lendingLimit",
    "StrictFIFO",
    "HoldAndDrain",
    "initContainers",
    '"restartPolicy":"Always"',
    "min-parallelism",
    "runtimeClassName",
    "admissionChecksStrategy",
    '"nominalQuota":"0"',
    '"name":"cpus"',
)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_tells_the_same_story_and_another_one_another(seed: int) -> None:
    assert told(seed, 10.0) == told(seed, 10.0)
    assert told(seed, 10.0).acts != told(seed + 10, 10.0).acts


def test_acts_are_in_the_order_of_their_times_and_begin_with_what_is_there_first() -> None:
    for seed in SEEDS:
        acts = told(seed, 10.0).acts
        assert [each.at_s for each in acts] == sorted(each.at_s for each in acts)
        assert {"ClusterQueue", "LocalQueue", "ResourceFlavor"} <= {each.kind for each in acts if each.at_s == 0}
        assert acts[-1].at_s < 15.0


def names(story: Story, kind: str) -> set[tuple[str, str]]:
    return {(each.namespace, each.name) for each in story.acts if each.kind == kind and each.verb == "create"}


def test_whatever_is_named_was_created_before() -> None:
    for seed in SEEDS:
        story = told(seed, 10.0)
        queues, jobs = {name for _, name in names(story, "ClusterQueue")}, names(story, "Job")
        locals_, checks = names(story, "LocalQueue"), names(story, "AdmissionCheck")
        for act in story.acts:
            if act.kind == "LocalQueue":
                assert act.body["spec"]["clusterQueue"] in queues
            if act.kind == "Job" and act.verb == "create":
                assert (act.namespace, act.body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]) in locals_
            if act.kind in ("Job", "WorkloadOf") and act.verb != "create":
                assert (act.namespace, act.name) in jobs
            if act.kind == "PendingChecks":
                assert ("", act.name) in checks


def test_many_seeds_reach_every_kind_of_change() -> None:
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        story = told(seed, 10.0)
        reached.update({f"{each.verb} {each.kind}" for each in story.acts})
        reached["fair"] += story.fair
        text = " ".join(each.told() for each in story.acts)
        for word in WORDS:
            reached[word] += word in text
    assert min(reached.values()) >= 5, reached
    assert {
        "delete Job",
        "merge Job",
        "merge ClusterQueue",
        "merge WorkloadOf",
        "merge PendingChecks",
        "create Cohort",
    } <= reached.keys()


def test_jobs_of_a_calm_queue_are_alike_created_in_different_seconds_and_left_alone() -> None:
    """The judge of order needs all three."""
    lines = 0
    for seed in SEEDS:
        story = told(seed, 10.0)
        mine = [each for each in story.acts if '"calm"' in each.told() and each.kind == "Job" and each.at_s < 10.0]
        lines += bool(mine)
        assert len({str(each.body) for each in mine}) <= 1
        times = [each.at_s for each in mine]
        assert all(after - before > 1.0 for before, after in pairwise(times))
        theirs = {each.name for each in mine}
        changed = {each.name for each in story.acts if each.verb != "create" and each.at_s < 10.0}
        assert not changed & {*theirs, "calm"}
    assert lines >= 10
