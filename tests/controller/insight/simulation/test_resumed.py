"""A stopped job goes on from what it saved: its next run is shorter, for placement, backfill and forecasts too."""

import re
from typing import Any

import pytest

from controller.insight.simulation.documents import InputError
from controller.insight.simulation.timeline import SimulationResult
from tests.support.controller.manifests import (
    GPU,
    Json,
    cluster_queue,
    flavor,
    job,
    kueue,
    local_queue,
    priority_class,
    run,
    told,
)
from tests.support.controller.nodepools import node

LOWER = {"withinClusterQueue": "LowerPriority"}
START_S = 1_767_636_000.0
"""2026-01-05T18:00:00Z."""


def saves(given: Json, **annotations: str) -> Json:
    more = {f"tessera.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {**given, "metadata": {**given["metadata"], "annotations": {**given["metadata"]["annotations"], **more}}}


def queues(gpus: int = 8, **spec: Any) -> list[Json]:
    return [cluster_queue(gpus=gpus, preemption=LOWER, **spec), local_queue(), priority_class("urgent", 10)]


def urgent(arrival: str, gpus: int = 8) -> Json:
    return job("urgent", gpus, priority="urgent", arrival=arrival, runtime="5m")


def told_losses(result: SimulationResult) -> float:
    found = (re.search(r"It loses (\d+) GPU-seconds of work", entry.message) for entry in result.timeline)
    return sum(float(match[1]) for match in found if match is not None)


def test_a_job_that_needs_less_than_the_time_to_the_drain_goes_on_there() -> None:
    """The job has saved 50 of its 100 minutes at 59, and loading takes 5: it goes on at 64, and ends at 119."""
    levels = {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}
    placed = kueue("ResourceFlavor", "a100", spec={"topologyName": "dc"})
    only = node("a")
    only["metadata"]["annotations"] = {"tessera.dev/drain-at": "8400s"}
    long = saves(job("long", 8, runtime="100m"), checkpoint_interval="10m", restart_cost="5m")
    world = (placed, kueue("Topology", "dc", spec=levels), only, *queues(), urgent("59m"))
    assert told(run(*world, long))[-2:] == ["3840 Admitted long", "7140 Finished long"]
    forgets = run(*world, saves(long, checkpoint_interval="100m"))
    assert [waits.workload for waits in forgets.final.pending] == ["ns/long"], "from zero it would overrun the drain"


def test_the_head_behind_a_job_that_goes_on_is_told_the_time_that_is_left() -> None:
    """Half an hour of ten hours is left at 9h35m: a job of eight hours may not pass the head until then."""
    long = saves(job("long", 8, runtime="10h"), checkpoint_interval="10m")
    head, passes = job("head", 16, arrival="9h36m", runtime="5m"), job("passes", 8, arrival="9h37m", runtime="8h")
    world = (flavor(), *queues(16, queueingStrategy="StrictFIFO"), long, urgent("9h30m", 16), head, passes)
    result = run(*world)
    (kept_back,) = (entry for entry in result.timeline if entry.workload == "ns/passes" and entry.event == "Pending")
    assert kept_back.message == "Fits, but would delay workload ns/head, which is to start by 10h5m"
    assert [entry.t for entry in result.timeline if entry.workload == "ns/head"][1:] == [36300.0, 36600.0]


def test_the_forecast_of_who_waits_for_a_job_that_goes_on_counts_what_is_left() -> None:
    long = saves(job("long", 8, runtime="10h"), checkpoint_interval="10m")
    result = run(flavor(), *queues(), long, urgent("9h"), job("waits", 8, arrival="9h6m"), until_s=9.2 * 3600)
    (waits,) = result.final.pending
    assert waits.forecast is not None
    likely_s = waits.forecast["likelySeconds"]
    assert isinstance(likely_s, float)
    assert likely_s < 2 * 3600, "an hour of its ten is left"


def test_what_a_last_checkpoint_saves_is_kept_and_the_sum_is_what_victims_were_told() -> None:
    long = saves(job("long", 8, runtime="2h"), last_checkpoint="2026-01-05T18:30:00Z")
    result = run(flavor(), *queues(), long, urgent("65m"), start_s=START_S)
    assert result.final.lost_gpu_seconds == told_losses(result) == 8 * 35 * 60
    assert told(result)[-1] == f"{(70 + 90) * 60} Finished long"


def in_template(given: Json, **annotations: str) -> Json:
    """The job, whose pods say so and not the job itself."""
    said = {f"tessera.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    template = {**given["spec"]["template"], "metadata": {"annotations": said}}
    return {**given, "spec": {**given["spec"], "template": template}}


def test_what_the_pod_template_says_counts_where_the_job_says_nothing() -> None:
    long = in_template(job("long", 8, runtime="2h"), checkpoint_interval="10m", restart_cost="1m")
    result = run(flavor(), *queues(), long, urgent("65m"))
    (preempted,) = (entry for entry in result.timeline if entry.event == "Preempted")
    assert preempted.message.endswith("It loses 2400 GPU-seconds of work and 480 by its restart")
    result = run(flavor(), *queues(), saves(long, checkpoint_interval="25m", restart_cost="0s"), urgent("65m"))
    assert result.final.lost_gpu_seconds == told_losses(result) == 8 * 15 * 60, "the job's own word goes first"
    saved = in_template(job("long", 8, runtime="2h"), last_checkpoint="2026-01-05T18:30:00Z")
    assert run(flavor(), *queues(), saved, urgent("65m"), start_s=START_S).final.lost_gpu_seconds == 8 * 35 * 60
    graced = in_template(job("long", 8, runtime="2h"), checkpoint_grace="1m")
    assert run(flavor(), *queues(), graced, urgent("65m")).final.lost_gpu_seconds == 0


def test_a_grace_is_believed_as_far_as_the_configuration_says_that_pods_are_given_it() -> None:
    given = (flavor(), *queues(), saves(job("long", 8, runtime="2h"), checkpoint_grace="15m"), urgent("65m"))
    assert run(*given).final.lost_gpu_seconds == told_losses(run(*given)) == 8 * 65 * 60
    raised = run(*given, using="tessera: {spot: {maxGrace: 15m}}")
    assert raised.final.lost_gpu_seconds == told_losses(raised) == 0


@pytest.mark.parametrize(
    ("key", "text", "found"),
    [
        ("last_checkpoint", "yesterday", 'last-checkpoint]: found "yesterday", expected a time with its zone'),
        ("checkpoint_interval", "0", 'checkpoint-interval]: found "0", expected a duration above 0s'),
        ("restart_cost", "soon", 'restart-cost]: found "soon", expected a duration'),
    ],
)
def test_what_a_pod_template_says_wrongly_is_refused(key: str, text: str, found: str) -> None:
    with pytest.raises(InputError, match=re.escape(found)) as refused:
        run(flavor(), *queues(), in_template(job("long", 8), **{key: text}))
    assert "pod template" in str(refused.value)


@pytest.mark.parametrize("arrivals", [("65m", "100m"), ("33m", "71m"), ("33m", "40m")])
def test_the_sum_of_several_stops_is_what_the_victim_was_told(arrivals: tuple[str, str]) -> None:
    long = saves(job("long", 8, runtime="3h"), checkpoint_interval="10m", restart_cost="4m")
    comes = [{**urgent(at), "metadata": {**urgent(at)["metadata"], "name": f"urgent-{at}"}} for at in arrivals]
    result = run(flavor(), *queues(), long, *comes)
    assert sum(entry.event == "Preempted" for entry in result.timeline) == 2
    assert result.final.lost_gpu_seconds == told_losses(result) > 0


def test_pods_of_a_group_are_told_what_they_save() -> None:
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {GPU: 4}}}]}
    labels = {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/pod-group-name": "g"}
    count = {"kueue.x-k8s.io/pod-group-total-count": "2", "tessera.dev/runtime": "2h"}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"g{number}",
                "namespace": "ns",
                "labels": labels,
                "annotations": {**count, "tessera.dev/checkpoint-interval": interval},
            },
            "spec": spec,
        }
        for number, interval in enumerate(("10m", "15m"))
    ]
    result = run(flavor(), *queues(), *pods, urgent("65m"))
    assert result.final.lost_gpu_seconds == told_losses(result) == 8 * 5 * 60, "of two intervals the longer counts"


@pytest.mark.parametrize("text", ["yesterday", "2026-01-05T18:30:00", "5m", ""])
def test_a_last_checkpoint_that_is_no_time_is_refused(text: str) -> None:
    expected = "expected a time with its zone such as 2026-01-05T18:00:00Z"
    found = re.escape(f'metadata.annotations[tessera.dev/last-checkpoint]: found "{text}", {expected}')
    with pytest.raises(InputError, match=found):
        run(flavor(), *queues(), saves(job("long", 8), last_checkpoint=text))


def test_the_forecast_of_a_preemptor_that_waits_for_a_checkpoint_follows_the_wait() -> None:
    """The victim saves each ten minutes; the preemptor that comes at 65m waits until 70m."""
    queue = cluster_queue(gpus=8, preemption=LOWER)
    queue["metadata"]["annotations"] = {"tessera.dev/checkpoint-wait": "5m"}
    long = saves(job("long", 8, runtime="20h"), checkpoint_interval="10m")
    world = (flavor(), queue, local_queue(), priority_class("urgent", 10), long, urgent("65m"))
    (waits,) = run(*world, until_s=66 * 60.0).final.pending
    assert waits.message.endswith("until 1h10m it waits for checkpoints of 1 workload that it would preempt")
    assert waits.forecast is not None
    low, high = waits.forecast["fromSeconds"], waits.forecast["toSeconds"]
    started_s = next(e.t for e in run(*world).timeline if e.workload == "ns/urgent" and e.event == "Admitted")
    assert started_s == 4200
    assert low == started_s - 66 * 60
    assert isinstance(high, float)
    assert started_s - 66 * 60 <= high < 600
