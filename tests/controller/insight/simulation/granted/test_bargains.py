"""A program asks for capacity and is answered at once: granted, offered or refused; what is granted is charged once."""

import pytest

from controller.insight.simulation.timeline import SimulationResult
from tests.support.controller.manifests import (
    GPU,
    Json,
    capacity_request,
    cluster_queue,
    flavor,
    inside,
    job,
    local_queue,
    plain,
    priority_class,
    run,
    told,
)

ONE_QUEUE = (flavor(), cluster_queue(), local_queue())
LOWER = {"withinClusterQueue": "LowerPriority"}
HOUR: Json = {"duration": "1h"}


def status(result: SimulationResult, name: str = "ask") -> Json:
    found: Json = plain(result)["final"]["capacityRequests"][f"ns/{name}"]
    return found


def offers(result: SimulationResult, name: str = "ask") -> list[tuple[int, float, bool]]:
    return [(each["units"], each["from"], each["held"]) for each in status(result, name)["offers"]]


# -- the answer --------------------------------------------------------------------------------------------------------


def test_as_many_units_as_are_free_are_granted_at_once_and_charged() -> None:
    result = run(*ONE_QUEUE, capacity_request("ask", 2, 4, **HOUR), until_s=60)
    assert told(result) == ["0 Granted ask"]
    assert result.final.cluster_queues["main"].usage == {GPU: 4}
    found = status(result)
    assert (found["state"], found["units"], found["from"], found["until"]) == ("Granted", 4, 0, 3600)
    assert (found["flavor"], found["workload"], found["offers"]) == ("a100", "ns/ask", [])
    assert not result.final.running


def test_fewer_are_granted_where_fewer_are_free() -> None:
    result = run(*ONE_QUEUE, job("busy", 5), capacity_request("ask", 2, 4, arrival="1s"), until_s=60)
    assert status(result)["units"] == 3


def test_what_is_free_now_and_what_comes_later_is_offered_with_the_arithmetic() -> None:
    result = run(*ONE_QUEUE, job("busy", 6, runtime="2h"), capacity_request("ask", 4, 4), until_s=10)
    assert told(result) == ["0 Admitted busy", "0 Offered ask"]
    assert offers(result) == [(2, 0, True), (4, 7200, False)]
    assert (
        result.timeline[-1].message
        == "Offers 2 units now (offer-1, held until t = 30), 4 units from t = 7200 (offer-2)"
    )
    first, second = status(result)["offers"]
    assert first["why"] == "2 of at most 8 nvidia.com/gpu of flavor a100 free in ClusterQueue main"
    assert second["why"].endswith("; 6 nvidia.com/gpu of ns/busy end by t = 7200")
    assert result.final.cluster_queues["main"].usage == {GPU: 8}


def test_more_than_there_ever_is_is_refused_in_one_sentence() -> None:
    result = run(*ONE_QUEUE, capacity_request("ask", 9, 12))
    assert told(result) == ["0 Refused ask"]
    assert status(result)["state"] == "Refused"
    assert "at most 8 nvidia.com/gpu of flavor a100" in status(result)["message"]
    assert result.final.cluster_queues["main"].usage == {GPU: 0}


def test_refused_where_nothing_is_free_and_nothing_that_is_held_has_an_end() -> None:
    result = run(*ONE_QUEUE, job("busy", 8), capacity_request("ask", 4))
    assert told(result)[-1] == "0 Refused ask"
    assert "0 of at most 8" in status(result)["message"]


@pytest.mark.parametrize("queue", ["none", "stopped"])
def test_a_queue_that_takes_nothing_refuses(queue: str) -> None:
    stopped = cluster_queue("stopped", stopPolicy="Hold")
    result = run(*ONE_QUEUE, stopped, local_queue("stopped"), capacity_request("ask", 1, queue=queue))
    assert told(result) == ["0 Refused ask"]


def test_a_queue_that_does_not_take_the_namespace_says_so() -> None:
    closed = cluster_queue("closed", namespaceSelector={"matchLabels": {"team": "b"}})
    result = run(flavor(), closed, local_queue("closed"), capacity_request("ask", 1, queue="closed"))
    assert told(result) == ["0 Refused ask"]
    assert "does not take workloads of namespace ns" in status(result)["message"]


def test_an_offer_that_is_not_answered_expires_and_what_was_held_is_free_again() -> None:
    result = run(
        *ONE_QUEUE,
        job("busy", 6, runtime="2h"),
        capacity_request("ask", 4, answerWithin="20s"),
        job("next", 2, arrival="5s", runtime="1m"),
    )
    assert told(result)[2:6] == ["5 Pending next", "20 Expired ask", "20 Admitted next", "80 Finished next"]
    assert offers(result) == [(2, 0, True), (4, 7200, False)]
    assert (status(result)["state"], status(result)["workload"]) == ("Expired", "")


def test_a_hold_is_no_longer_than_the_site_allows() -> None:
    using = "tessera: {bargaining: {longestHold: 5s}}\n"
    asks = job("busy", 6, runtime="2h"), capacity_request("ask", 4), job("next", 2, arrival="1s", runtime="1m")
    assert told(run(*ONE_QUEUE, *asks, using=using))[2:5] == ["1 Pending next", "5 Admitted next", "30 Expired ask"]
    free = run(*ONE_QUEUE, *asks, using="tessera: {bargaining: {longestHold: 0s}}\n")
    assert told(free)[2] == "1 Admitted next"
    assert offers(free) == [(2, 0, False), (4, 7200, False)]


def test_a_later_beginning_is_offered_for_then_and_an_earlier_end_leaves_later_offers_out() -> None:
    later = run(*ONE_QUEUE, capacity_request("ask", 2, 4, notBefore="1h"))
    assert offers(later) == [(4, 3600, False)]
    soon = run(*ONE_QUEUE, job("busy", 6, runtime="2h"), capacity_request("ask", 4, notAfter="1h"))
    assert offers(soon) == [(2, 0, True)]
    never = run(*ONE_QUEUE, job("busy", 8, runtime="2h"), capacity_request("ask", 4, notAfter="1h"))
    assert told(never)[-2:] == ["0 Refused ask", "7200 Finished busy"]


def test_who_waits_before_it_in_its_queue_starts_before_it() -> None:
    busy = job("busy", 6, runtime="2h"), job("waits", 8, arrival="1s", runtime="1h")
    short, endless = capacity_request("ask", 4, arrival="2s", **HOUR), capacity_request("ask", 4, arrival="2s")
    assert offers(run(*ONE_QUEUE, *busy, short)) == [(2, 2, True), (4, 10800, False)]
    assert offers(run(*ONE_QUEUE, *busy, endless)) == [(4, 10800, False)], "it would delay the head of its queue"


def test_the_arithmetic_names_who_waits_where_quota_is_not_what_is_short() -> None:
    fewer = job("busy", 4, runtime="2h"), job("waits", 7, arrival="1s", runtime="1h")
    found = run(*ONE_QUEUE, *fewer, capacity_request("ask", 5, arrival="2s"))
    assert offers(found)[0] == (1, 2, True)
    why = status(found)["offers"][0]["why"]
    assert why.startswith("4 of at most 8 nvidia.com/gpu of flavor a100 free in ClusterQueue main; 2 units would delay")
    assert "workload ns/waits, which is to start by" in why
    fits = status(run(*ONE_QUEUE, *fewer, capacity_request("ask", 3, arrival="2s")))["offers"]
    assert all("3 units would delay workload ns/waits" in each["why"] for each in fits if not each["held"])
    assert [each["held"] for each in fits] == [True, False]
    assert "2 units would delay workload ns/waits" in fits[0]["why"]


def test_a_strict_queue_lets_no_request_pass_its_head() -> None:
    strict = flavor(), cluster_queue(queueingStrategy="StrictFIFO"), local_queue()
    jobs = job("busy", 6, runtime="2h"), job("head", 4, arrival="1s", runtime="1h")
    result = run(*strict, *jobs, capacity_request("ask", 1, 2, arrival="2s"))
    assert told(result)[2] == "2 Offered ask"
    assert offers(result) == [(2, 7200, False)]


def test_another_flavor_is_offered_where_the_template_keeps_to_one() -> None:
    h100 = {**flavor("h100"), "spec": {"nodeLabels": {"gpu": "h100"}}}
    a100 = {**flavor("a100"), "spec": {"nodeLabels": {"gpu": "a100"}}}
    container = {"name": "main", "image": "i", "resources": {"limits": {GPU: 1}}}
    template = {"spec": {"containers": [container], "nodeSelector": {"gpu": "a100"}}}
    asked = capacity_request("ask", 4, template=template, accept="offer-1")
    del asked["spec"]["unit"]
    queues = a100, h100, cluster_queue(flavors=("a100", "h100")), local_queue()
    busy = job("busy", 8, runtime="1h")
    result = run(*queues, busy, asked, until_s=10)
    assert told(result)[-2:] == ["0 Offered ask", "0 Granted ask"]
    assert (status(result)["units"], status(result)["flavor"]) == (4, "h100")


# -- accepting ---------------------------------------------------------------------------------------------------------


def test_an_accepted_offer_that_is_held_is_granted() -> None:
    result = run(*ONE_QUEUE, job("busy", 6, runtime="2h"), capacity_request("ask", 4, accept="offer-1", **HOUR))
    assert told(result)[1:4] == ["0 Offered ask", "0 Granted ask", "600 Released ask"]
    assert result.timeline[2].message == "Granted 2 units of 1 nvidia.com/gpu of flavor a100 now until t = 3600"


def test_an_accepted_offer_of_later_waits_in_the_ordinary_order() -> None:
    result = run(*ONE_QUEUE, job("busy", 6, runtime="2h"), capacity_request("ask", 4, accept="offer-2"), until_s=7300)
    assert told(result)[1:] == ["0 Offered ask", "0 Offered ask", "7200 Finished busy", "7200 Granted ask"]
    assert (status(result)["state"], status(result)["units"], status(result)["from"]) == ("Granted", 4, 7200)


def test_an_offer_for_later_is_asked_for_when_its_time_has_come() -> None:
    asked = capacity_request("ask", 4, notBefore="1h", notAfter="2h", accept="offer-1")
    result = run(*ONE_QUEUE, asked, job("busy", 6, arrival="10m", runtime="65m"))
    assert told(result)[:5] == [
        "0 Offered ask",
        "0 Offered ask",
        "600 Admitted busy",
        "4500 Finished busy",
        "4500 Granted ask",
    ]
    late = run(*ONE_QUEUE, asked, job("busy", 6, arrival="10m", runtime="3h"))
    assert told(late)[-2:] == ["7200 Expired ask", "11400 Finished busy"]


def test_an_offer_that_nobody_made_cannot_be_accepted() -> None:
    result = run(*ONE_QUEUE, job("busy", 6, runtime="2h"), capacity_request("ask", 4, accept="offer-9"))
    assert told(result)[1:3] == ["0 Offered ask", "30 Expired ask"]


# -- giving back -------------------------------------------------------------------------------------------------------


def test_what_nobody_uses_is_given_back() -> None:
    result = run(
        *ONE_QUEUE, capacity_request("ask", 2, useWithin="5m", **HOUR), job("next", 8, arrival="1s", runtime="1s")
    )
    assert told(result)[:4] == ["0 Granted ask", "1 Pending next", "300 Released ask", "300 Admitted next"]


def test_a_job_runs_inside_of_a_grant_at_once_and_is_charged_once() -> None:
    jobs = inside("mine", "ask", 2, pods=2, arrival="1m", runtime="10m"), job("other", 4, arrival="2m", runtime="1m")
    result = run(*ONE_QUEUE, capacity_request("ask", 4, **HOUR), *jobs, until_s=130)
    assert told(result) == ["0 Granted ask", "60 Admitted mine", "120 Admitted other"]
    assert result.final.cluster_queues["main"].usage == {GPU: 8}
    assert result.final.running == ("ns/mine", "ns/other")
    assert result.timeline[1].flavors == {"main": {GPU: "a100"}}
    assert status(result)["used"] == 4


def test_a_job_that_names_a_grant_needs_no_queue() -> None:
    mine = inside("mine", "ask", 2, runtime="10m")
    del mine["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    assert told(run(*ONE_QUEUE, mine, capacity_request("ask", 2, **HOUR)))[:2] == ["0 Granted ask", "0 Admitted mine"]


def test_a_grant_that_was_used_is_kept_until_its_end_and_its_jobs_stop_with_it() -> None:
    mine = inside("mine", "ask", 2, runtime="10m"), inside("long", "ask", 2, arrival="50m", runtime="1h")
    result = run(*ONE_QUEUE, capacity_request("ask", 2, **HOUR), *mine)
    assert told(result) == [
        "0 Granted ask",
        "0 Admitted mine",
        "600 Finished mine",
        "3000 Admitted long",
        "3600 Released ask",
        "3600 Evicted long",
        "3600 Pending long",
    ]
    (waits,) = result.final.pending
    assert (waits.workload, waits.reason) == ("ns/long", "WaitingForGrant")
    assert result.final.cluster_queues["main"].usage == {GPU: 0}


def test_a_grant_without_an_end_is_given_back_once_nothing_uses_it_any_more() -> None:
    result = run(*ONE_QUEUE, capacity_request("ask", 2, useWithin="1m"), inside("mine", "ask", 2, runtime="1h"))
    assert told(result) == ["0 Granted ask", "0 Admitted mine", "3600 Finished mine", "3660 Released ask"]


def test_renewing_begins_the_duration_anew() -> None:
    asked = capacity_request("ask", 2, renew="2026-01-01T00:40:00Z", **HOUR)
    result = run(*ONE_QUEUE, asked, inside("mine", "ask", 2), start_s=1767225600.0)
    assert told(result)[2] == "6000 Released ask"


@pytest.mark.parametrize(
    ("mine", "sentence"),
    [
        (inside("mine", "ask", 3), "Needs 3 units, and CapacityRequest ns/ask has 2 in all"),
        (inside("mine", "other", 1), "There is no CapacityRequest ns/other"),
    ],
)
def test_a_job_that_does_not_fit_into_a_grant_waits_and_says_why(mine: Json, sentence: str) -> None:
    result = run(*ONE_QUEUE, capacity_request("ask", 2, **HOUR), mine, until_s=10)
    (waits,) = result.final.pending
    assert waits.message.startswith(sentence)
    assert result.final.cluster_queues["main"].usage == {GPU: 2}


def test_jobs_of_one_grant_wait_for_each_other_and_not_for_the_queue() -> None:
    jobs = (inside(name, "ask", 2, runtime="10m") for name in ("a", "b"))
    busy = job("busy", 6, arrival="1s", runtime="1h")
    result = run(*ONE_QUEUE, capacity_request("ask", 2, **HOUR), *jobs, busy)
    assert told(result)[:6] == [
        "0 Granted ask",
        "0 Admitted a",
        "0 Pending b",
        "1 Admitted busy",
        "600 Finished a",
        "600 Admitted b",
    ]


def test_a_grant_is_preempted_like_anything_else() -> None:
    classes = priority_class("low", 1), priority_class("high", 2)
    asked = capacity_request("ask", 6, priorityClassName="low", **HOUR)
    jobs = inside("mine", "ask", 2), job("urgent", 4, arrival="1m", priority="high", runtime="1m")
    result = run(flavor(), cluster_queue(preemption=LOWER), local_queue(), *classes, asked, *jobs)
    assert told(result)[2:6] == ["60 Released ask", "60 Evicted mine", "60 Admitted urgent", "60 Pending mine"]
    assert status(result)["state"] == "Released"


def test_a_request_of_a_higher_class_preempts_like_anything_else_and_never_for_an_offer() -> None:
    classes = priority_class("low", 1), priority_class("high", 2)
    queue = flavor(), cluster_queue(preemption=LOWER), local_queue()
    low = job("low", 6, priority="low", runtime="1h")
    granted = run(*queue, *classes, low, capacity_request("ask", 4, priorityClassName="high", arrival="1s"), until_s=5)
    assert told(granted)[1:3] == ["1 Preempted low", "1 Granted ask"]
    assert granted.timeline[1].preempted_by == "ns/ask"
    jobs = job("high", 4, priority="high", runtime="1h"), job("low", 3, priority="low", runtime="2h")
    offered = run(
        *queue, *classes, *jobs, capacity_request("ask", 6, priorityClassName="high", arrival="1s"), until_s=5
    )
    assert told(offered)[2:] == ["1 Offered ask"], "four units at the price of low would not do"
    assert offers(offered)[0] == (1, 1, True)


def test_a_job_of_the_requests_name_is_another_workload() -> None:
    result = run(*ONE_QUEUE, job("ask", 2, runtime="1h"), capacity_request("ask", 2, **HOUR), until_s=10)
    assert told(result) == ["0 Admitted ask", "0 Granted ask"]
    assert status(result)["workload"] == "ns/ask-request"
