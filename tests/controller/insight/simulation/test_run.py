"""A simulation moves through virtual time as a cluster would through real time."""

import pytest

from controller.insight.simulation.documents import InputError
from controller.insight.simulation.settling import UnsettledError
from tests.support.controller.manifests import (
    GPU,
    cluster_queue,
    flavor,
    job,
    kueue,
    local_queue,
    plain,
    priority_class,
    run,
    told,
)

ONE_QUEUE = (flavor(), cluster_queue(), local_queue())
KUEUE_POLICY = "tessera: {policy: kueue}\n"
LOWER = {"withinClusterQueue": "LowerPriority"}


def test_a_job_arrives_waits_runs_and_ends_at_its_times() -> None:
    result = run(*ONE_QUEUE, job("a", 6, runtime="30s"), job("b", 4, arrival="10s", runtime="1m"))
    assert told(result) == ["0 Admitted a", "10 Pending b", "30 Finished a", "30 Admitted b", "90 Finished b"]
    assert result.final.t == 90
    assert not result.final.pending
    assert not result.final.running


def test_jobs_that_arrive_together_go_in_the_order_of_the_files() -> None:
    names = ["m", "a", "z", "k"]
    result = run(*ONE_QUEUE, *(job(name, 8, arrival="5s", runtime="1s") for name in names))
    assert [one.workload for one in result.timeline if one.event == "Admitted"] == [f"ns/{name}" for name in names]


def test_who_waits_from_the_same_moment_on_is_told_of_in_the_order_of_arrival_whatever_that_of_the_files() -> None:
    queue = cluster_queue(preemption=LOWER)
    jobs = job("late", 4, arrival="1s"), job("early", 4), job("high", 8, arrival="5s", priority="high")
    result = run(flavor(), queue, local_queue(), priority_class("high", 9), *jobs)
    assert told(result)[-2:] == ["5 Pending early", "5 Pending late"]


def test_who_ends_makes_room_for_who_arrives_at_that_moment() -> None:
    result = run(*ONE_QUEUE, job("a", 8, runtime="10s"), job("b", 8, arrival="10s", runtime="5s"))
    assert told(result) == ["0 Admitted a", "10 Finished a", "10 Admitted b", "15 Finished b"]


def test_without_a_runtime_a_job_runs_for_ever() -> None:
    result = run(*ONE_QUEUE, job("a", 8), job("b", 1, arrival="1h"))
    assert (result.final.t, result.final.running) == (3600, ("ns/a",))
    assert [one.workload for one in result.final.pending] == ["ns/b"]


def test_a_job_that_takes_no_time_ends_at_once_and_blocks_nobody() -> None:
    result = run(*ONE_QUEUE, *(job(f"j{n}", 8, runtime="0s") for n in range(5)))
    assert [one.t for one in result.timeline if one.event == "Finished"] == [0.0] * 5


def test_a_run_can_be_cut_off() -> None:
    result = run(*ONE_QUEUE, job("a", 8, runtime="1h"), job("later", 1, arrival="2h"), until_s=60)
    assert told(result) == ["0 Admitted a"]
    assert (result.final.t, result.final.running, result.final.pending) == (60, ("ns/a",), ())


def test_nothing_happens_without_jobs() -> None:
    result = run(*ONE_QUEUE)
    assert (result.timeline, result.final.t) == ((), 0.0)
    assert result.final.cluster_queues["main"].usage == {GPU: 0}


def test_an_evicted_job_starts_from_zero_when_it_is_admitted_again() -> None:
    result = run(
        flavor(),
        cluster_queue(preemption=LOWER),
        local_queue(),
        priority_class("low", 1),
        priority_class("high", 2),
        job("long", 8, priority="low", runtime="100s"),
        job("urgent", 8, priority="high", arrival="90s", runtime="10s"),
    )
    assert told(result) == [
        "0 Admitted long",
        "90 Preempted long",
        "90 Admitted urgent",
        "90 Pending long",
        "100 Finished urgent",
        "100 Admitted long",
        "200 Finished long",
    ]
    preempted = result.timeline[1]
    assert (preempted.reason, preempted.preempted_by) == ("InClusterQueue", "ns/urgent")
    assert preempted.flavors == {"main": {GPU: "a100"}}


def test_lent_quota_is_taken_back_and_the_reason_says_so() -> None:
    result = run(
        flavor(),
        cluster_queue("owner", 8, cohort="pool", preemption={"reclaimWithinCohort": "Any"}),
        cluster_queue("guest", 0, cohort="pool"),
        local_queue("owner"),
        local_queue("guest"),
        job("borrower", 8, queue="guest"),
        job("mine", 8, queue="owner", arrival="5s"),
    )
    assert told(result) == ["0 Admitted borrower", "5 Preempted borrower", "5 Admitted mine", "5 Pending borrower"]
    assert result.timeline[1].reason == "InCohortReclamation"
    assert result.final.cluster_queues["owner"].usage == {GPU: 8}


def test_the_longest_a_job_may_run_ends_it() -> None:
    bound = {"kueue.x-k8s.io/max-exec-time-seconds": "20"}
    result = run(*ONE_QUEUE, job("a", 8, labels=bound, runtime="60s"), job("b", 8, runtime="1s"))
    assert told(result)[:4] == ["0 Admitted a", "0 Pending b", "20 Evicted a", "20 Admitted b"]
    assert result.timeline[2].reason == "DeactivatedDueToMaximumExecutionTimeExceeded"
    (waits,) = result.final.pending
    assert (waits.workload, waits.reason) == ("ns/a", "Deactivated")


def test_a_minimum_runtime_is_waited_for() -> None:
    using = "tessera: {policy: tessera, minimumRuntimeBeforePreemption: {default: 30s}}\n"
    classes = priority_class("low", 1), priority_class("high", 2)
    queues = flavor(), cluster_queue(preemption=LOWER), local_queue()
    jobs = job("long", 8, priority="low"), job("urgent", 8, priority="high", arrival="10s")
    result = run(*queues, *classes, *jobs, using=using)
    assert told(result)[:3] == ["0 Admitted long", "10 Pending urgent", "30 Preempted long"]


def test_admission_checks_are_answered_with_yes() -> None:
    check = kueue("AdmissionCheck", "site", spec={"controllerName": "example.com/site"})
    queue = cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": "site"}]})
    assert told(run(flavor(), check, queue, local_queue(), job("a", runtime="5s"))) == ["0 Admitted a", "5 Finished a"]


@pytest.mark.parametrize(
    ("objects", "reason", "said"),
    [
        ((flavor(), cluster_queue()), "Misconfigured", "no LocalQueue ns/main"),
        ((flavor(), local_queue()), "Misconfigured", "no ClusterQueue main"),
        ((cluster_queue(), local_queue()), "Suspended", "no such ResourceFlavors: a100"),
        ((flavor(), cluster_queue(stopPolicy="Hold"), local_queue()), "Suspended", "stopped (Hold)"),
        ((flavor(), cluster_queue(gpus=1), local_queue()), "ExceedsMaxQuota", "can have 1 at most"),
        ((flavor(), cluster_queue(namespaceSelector=None), local_queue()), "Misconfigured", "namespace ns"),
    ],
    ids=["local queue", "cluster queue", "flavor", "stopped", "too large", "namespace"],
)
def test_who_never_runs_is_told_why(objects: tuple[dict[str, object], ...], reason: str, said: str) -> None:
    result = run(*objects, job("a", 2))
    (entry,) = result.timeline
    assert (entry.event, entry.reason) == ("Pending", reason)
    assert said in entry.message
    assert [(one.workload, one.reason) for one in result.final.pending] == [("ns/a", reason)]


def test_every_key_is_always_there() -> None:
    result = plain(run(*ONE_QUEUE, job("a", 4), job("b", 8)))
    entry_keys = {
        *("t", "time", "event", "workload", "clusterQueue", "reason", "message", "flavors", "preemptedBy", "placement"),
    }
    assert set(result) == {"start", "timeline", "final", "fragmentation", "nodes", "tooLarge"}
    assert [set(entry) for entry in result["timeline"]] == [entry_keys, entry_keys]
    assert (result["timeline"][1]["flavors"], result["timeline"][1]["preemptedBy"]) == ({}, None)
    sums = {"nodeHours", "cost", "lostGpuSeconds", "capacityRequests"}
    assert set(result["final"]) == {"t", "pending", "running", "clusterQueues", *sums}
    assert set(result["final"]["pending"][0]) == {"workload", "reason", "message", "forecast"}
    assert result["final"]["clusterQueues"] == {
        "main": {"usage": {GPU: 4}, "borrowed": {GPU: 0}, "share": 0.5, "weightedShare": 0}
    }


def test_a_share_is_of_quota_and_borrowing_limit() -> None:
    result = run(
        flavor(),
        cluster_queue("a", 4, cohort="pool", borrow=12),
        cluster_queue("b", 8, cohort="pool"),
        local_queue("a"),
        job("j", 6, queue="a"),
    )
    end = result.final.cluster_queues["a"]
    assert (end.usage, end.borrowed, end.share) == ({GPU: 6}, {GPU: 2}, 6 / 16)
    assert end.weighted_share == 2 * 1000 / 12 // 1 + 1  # borrowed over all 12 of the pool, rounded up


def test_workloads_that_push_each_other_out_for_ever_are_named() -> None:
    """A pool of 4 in which b has no weight: a-four and b's two jobs have reason to evict each other without an end."""
    policies = {"reclaimWithinCohort": "Any"}
    objects = (
        flavor(),
        cluster_queue("a", 3, cohort="pool", preemption=policies, queueingStrategy="StrictFIFO"),
        cluster_queue("b", 1, cohort="pool", preemption=policies, fairSharing={"weight": 0}),
        local_queue("a"),
        local_queue("b"),
        job("b-three", 3, queue="b"),
        job("b-one", 1, queue="b"),
        job("a-four", 4, queue="a", arrival="1s"),
    )
    named = "at 1 s these workloads preempt each other for ever: ns/a-four, ns/b-one, ns/b-three"
    with pytest.raises(UnsettledError, match=named):
        run(*objects, using="fairSharing: {}\n" + KUEUE_POLICY)
    assert run(*objects, using="fairSharing: {}\ntessera: {policy: tessera}\n").final.running


def test_jobs_of_two_queues_that_arrive_together_go_in_the_order_of_the_files() -> None:
    pool = flavor(), cluster_queue("lender", 4, cohort="pool"), *(cluster_queue(q, 0, cohort="pool") for q in "xy")
    queues = *pool, local_queue("x"), local_queue("y")
    for first, second in (("a", "b"), ("b", "a")):
        result = run(*queues, job(first, 4, queue="y"), job(second, 4, queue="x"))
        assert told(result) == [f"0 Admitted {first}", f"0 Pending {second}"]


BY_USAGE = cluster_queue(admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"})
HISTORY = "admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 5m}\n"


def test_what_runs_in_virtual_time_counts_as_past_usage() -> None:
    """Anna has run for an hour when she and Ben ask: Ben goes first, and only where usage counts."""
    world = (flavor(), BY_USAGE, local_queue("anna", to="main"), local_queue("ben", to="main"))
    jobs = (
        job("long", 8, queue="anna", runtime="1h"),
        job("again", 8, queue="anna", arrival="30m", runtime="1m"),
        job("ben", 8, queue="ben", arrival="31m", runtime="1m"),
    )
    admitted = [one for one in told(run(*world, *jobs, using=HISTORY)) if "Admitted" in one]
    assert admitted == ["0 Admitted long", "3600 Admitted ben", "3660 Admitted again"]
    assert "3600 Admitted again" in told(run(*world, *jobs))


@pytest.mark.parametrize("updated", [{}, {"lastUpdate": "2026-03-01T12:00:00Z"}])
def test_past_usage_with_and_without_its_time_is_that_of_the_start(updated: dict[str, str]) -> None:
    used = {
        "fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": {"consumedResources": {GPU: "5"}, **updated}}
    }
    world = (flavor(), BY_USAGE, local_queue("anna", to="main", status=used), local_queue("ben", to="main"))
    jobs = job("hers", 8, queue="anna", runtime="1m"), job("his", 8, queue="ben", runtime="1m")
    assert told(run(*world, *jobs, using=HISTORY))[0] == "0 Admitted his"
    assert told(run(*world, *jobs))[0] == "0 Admitted hers"


def test_usage_of_a_time_after_which_none_can_be_written_is_refused() -> None:
    told_then = {"consumedResources": {GPU: "5"}, "lastUpdate": "9999-03-01T12:00:00Z"}
    used = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": told_then}}
    world = (flavor(), BY_USAGE, local_queue("anna", to="main", status=used))
    with pytest.raises(InputError, match=r"anna: lastUpdate: found 9999-03-01T12:00:00Z, expected a time of year 8999"):
        run(*world, job("hers", 8, queue="anna", runtime="1m"), using=HISTORY)


def test_a_long_job_weighs_more_than_two_short_ones() -> None:
    """Each admission weighs the same at first: that Anna's job went on running is known from samples alone."""
    world = (flavor(), BY_USAGE, local_queue("anna", to="main"), local_queue("ben", to="main"))
    jobs = (
        job("long", 4, queue="anna", runtime="2h"),
        job("short-1", 4, queue="ben", runtime="1s"),
        job("short-2", 4, queue="ben", arrival="10m", runtime="1s"),
        job("hers", 8, queue="anna", arrival="1h"),
        job("his", 8, queue="ben", arrival="61m"),
    )
    assert told(run(*world, *jobs, using=HISTORY))[-1] == "7200 Admitted his"


def test_who_fits_behind_a_blocked_head_is_told_so() -> None:
    strict = flavor(), cluster_queue(queueingStrategy="StrictFIFO"), local_queue()
    jobs = job("a", 6), job("head", 8, arrival="1s"), job("c", 1, arrival="2s")
    result = run(*strict, *jobs, using=KUEUE_POLICY)
    (head, waits) = result.final.pending
    assert (head.workload, head.reason) == ("ns/head", "WaitingForQuota")
    assert (waits.reason, waits.message) == (
        "PendingEvaluation",
        "It fits by itself, and waits for workloads before it in the queue",
    )
