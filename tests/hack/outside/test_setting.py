"""Settings: queues that the API server would take, and calm ones."""

import random

from hack.outside import setting

SEEDS = range(100)


def test_limits_are_only_on_queues_of_a_cohort() -> None:
    for seed in SEEDS:
        for queue in setting.drawn(random.Random(seed)).queues:
            assert queue.shares or "Limit" not in str(queue.spec)


def test_a_group_has_the_same_resources_in_all_its_flavors_and_no_flavor_is_in_two_groups() -> None:
    for seed in SEEDS:
        for queue in setting.drawn(random.Random(seed)).queues:
            groups = queue.spec["resourceGroups"]
            for group in groups:
                for flavor in group["flavors"]:
                    assert [row["name"] for row in flavor["resources"]] == group["coveredResources"]
            named = [flavor["name"] for group in groups for flavor in group["flavors"]]
            assert len(named) == len(set(named))


def test_a_calm_queue_is_in_no_cohort_and_evicts_nobody() -> None:
    calm = [each for seed in SEEDS for each in setting.drawn(random.Random(seed)).queues if each.calm]
    assert len(calm) > 30
    assert not any("preemption" in each.spec or each.shares for each in calm)
    assert not any("admissionChecksStrategy" in each.spec for each in calm)
