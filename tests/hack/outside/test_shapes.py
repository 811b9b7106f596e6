"""Shapes of jobs: what the API server would take, whatever was drawn."""

import random

from hack.outside import shapes
from history.podcost import pod_cost, quantity

SEEDS = range(200)


def test_cpus_are_asked_for_only_where_quotas_count_them() -> None:
    for seed in SEEDS:
        assert "cpu" not in pod_cost(shapes.drawn(random.Random(seed), cpus=False).pod)
        assert "cpu" in pod_cost(shapes.drawn(random.Random(seed), cpus=True).pod)


def test_a_job_may_not_ask_for_fewer_pods_than_one_nor_for_as_many_as_it_has() -> None:
    least = 0
    for seed in SEEDS:
        shape = shapes.drawn(random.Random(seed), cpus=False)
        if found := shape.notes.get("kueue.x-k8s.io/job-min-parallelism"):
            assert 1 <= int(found) < shape.pods
            least += 1
    assert least > 5


def test_a_pod_as_a_whole_asks_for_no_less_than_its_containers() -> None:
    wholes = 0
    for seed in SEEDS:
        pod = shapes.drawn(random.Random(seed), cpus=True).pod
        if "resources" in pod:
            wholes += 1
            asked = sum(quantity(each["resources"]["requests"]["cpu"]) or 0 for each in pod["containers"])
            assert (quantity(pod["resources"]["requests"]["cpu"]) or 0) >= asked
    assert wholes > 5


def test_a_job_is_created_suspended_with_as_many_pods_as_its_shape() -> None:
    body = shapes.job(shapes.alike(3, pods=4, cpus=True), {"queue": "q"})
    assert (body["spec"]["suspend"], body["spec"]["parallelism"], body["spec"]["completions"]) == (True, 4, 4)
    assert body["metadata"]["annotations"] == {"tessera.dev/runtime": "3s"}
