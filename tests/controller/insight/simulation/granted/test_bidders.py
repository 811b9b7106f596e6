"""Programs that bargain: whatever they ask and accept, they come to an end, pass nobody, get nothing twice, and learn
nothing of others.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from controller.insight.bargaining.life import State
from controller.insight.bargaining.wishes import Wish
from controller.insight.simulation import run as running
from controller.insight.simulation.granted.bargains import Bargains, _File
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
    run,
    told,
)

PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
NO_HOLD = "tessera: {bargaining: {longestHold: 0s}}\n"
Answers = Callable[[str, float, State], str]
"""Which offer a program accepts, by its request, seconds since the start and the state."""


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Answers]:
    """The programs of the next run: the one function in the list answers for all of them."""
    answering: list[Answers] = []

    class Answered(Bargains):
        def _wish(self, found: _File) -> Wish:
            wish = super()._wish(found)
            if not answering or found.state.state != "Offered":
                return wish
            name = answering[-1](found.given.key, self._host.now_s - self._base_s, found.state)
            return msgspec.structs.replace(wish, accepts=name)

    monkeypatch.setattr(running, "Bargains", Answered)
    return answering


def heartbeat(seconds: int) -> list[Json]:
    """Jobs that ask for nothing of importance, so that something happens each second."""
    return [job(f"tick-{each}", 0, arrival=f"{each}s", runtime="0s") for each in range(1, seconds)]


def test_who_accepts_second_gets_another_offer_in_the_same_answer(answers: list[Answers]) -> None:
    answers.append(lambda _key, t, _state: "offer-1" if t >= 3 else "")
    asks = (capacity_request(name, 6, duration="1h") for name in ("one", "two"))
    busy = job("busy", 3, runtime="1h")
    result = run(flavor(), cluster_queue(), local_queue(), busy, *asks, *heartbeat(6), using=NO_HOLD, until_s=5)
    found = [each for each in told(result) if "tick" not in each]
    assert found == ["0 Admitted busy", "0 Offered one", "0 Offered two", "3 Granted one", "3 Offered two"]
    assert [each["id"] for each in plain(result)["final"]["capacityRequests"]["ns/two"]["offers"]] == ["offer-3"]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Json], int]:
    """A queue or two of a cohort, some jobs, and up to four requests. Returns the requests' number, too."""
    strategy = draw(st.sampled_from(("StrictFIFO", "BestEffortFIFO")))
    objects = [flavor()]
    for queue in ("main", "side"):
        objects += [
            cluster_queue(
                queue, draw(st.integers(2, 8)), cohort="pool", preemption=PREEMPTION, queueingStrategy=strategy
            ),
            local_queue(queue),
        ]
    for number in range(draw(st.integers(0, 4))):
        objects.append(
            job(
                f"job-{number}",
                draw(st.integers(1, 6)),
                queue=draw(st.sampled_from(("main", "side"))),
                arrival=f"{draw(st.integers(0, 60))}s",
                runtime=draw(st.sampled_from(("5s", "40s", "2m"))),
            )
        )
    asks = draw(st.integers(1, 4))
    for number in range(asks):
        least = draw(st.integers(1, 8))
        more: dict[str, Any] = {"duration": draw(st.sampled_from(("10s", "1m")))} if draw(st.booleans()) else {}
        if draw(st.booleans()):
            more["notBefore"] = f"{draw(st.integers(1, 60))}s"
        if draw(st.booleans()):
            more["notAfter"] = f"{draw(st.integers(60, 90))}s"
        request = capacity_request(
            f"ask-{number}",
            least,
            least + draw(st.integers(0, 4)),
            queue=draw(st.sampled_from(("main", "side"))),
            arrival=f"{draw(st.integers(0, 60))}s",
            useWithin=draw(st.sampled_from(("5s", "1m"))),
            answerWithin=draw(st.sampled_from(("1s", "20s"))),
            **more,
        )
        objects.append(request)
        if draw(st.booleans()):
            gpus, runtime = draw(st.integers(1, 4)), draw(st.sampled_from(("5s", "1m")))
            objects.append(
                inside(f"in-{number}", f"ask-{number}", gpus, arrival=f"{draw(st.integers(0, 90))}s", runtime=runtime)
            )
    return objects, asks


CONFIGS = st.sampled_from(("", NO_HOLD, "tessera: {policy: kueue}\n"))
POLICIES: tuple[Answers, ...] = (
    lambda _key, _t, _state: "",
    lambda _key, _t, state: state.offers[0].id,
    lambda _key, _t, state: state.offers[-1].id,
    lambda key, _t, state: state.offers[0 if key.endswith(("0", "2")) else -1].id,
)


@settings(max_examples=60, deadline=None)
@drawn(world=worlds(), using=CONFIGS, policy=st.sampled_from(POLICIES))
def test_programs_that_bargain_come_to_an_end(world: tuple[list[Json], int], using: str, policy: Answers) -> None:
    objects, asks = world
    with pytest.MonkeyPatch.context() as patched:
        answering: list[Answers] = [policy]

        class Answered(Bargains):
            def _wish(self, found: _File) -> Wish:
                wish = super()._wish(found)
                offered = found.state.state == "Offered" and found.state.offers and not found.state.accepted
                chosen = answering[-1](found.given.key, 0.0, found.state) if offered else ""
                return msgspec.structs.replace(wish, accepts=chosen)

        patched.setattr(running, "Bargains", Answered)
        result = run(*objects, using=using)
    rounds = {f"ns/ask-{number}": 0 for number in range(asks)}
    for entry in result.timeline:
        if entry.event == "Offered":
            rounds[entry.workload] += 1
    # An offer leads to another one only where somebody else has taken it; an accepted one of later is told once more.
    jobs = sum(each["kind"] == "Job" for each in objects)
    assert max(rounds.values()) <= 2 * (asks + jobs + 1)
    states = {each["state"] for each in plain(result)["final"]["capacityRequests"].values()}
    assert states <= {"Granted", "Refused", "Expired", "Released", "Offered"}
    for name, each in plain(result)["final"]["capacityRequests"].items():
        assert each["state"] != "Offered" or each["accepted"], f"{name} is offered for ever"
    check_amounts(objects, result)


def check_amounts(objects: list[Json], result: SimulationResult) -> None:
    """Replays the timeline: what jobs and grants have together is never more than there is, and no job inside of a
    grant counts.
    """
    there = sum(
        resource["nominalQuota"]
        for each in objects
        if each["kind"] == "ClusterQueue"
        for group in each["spec"]["resourceGroups"]
        for one in group["flavors"]
        for resource in one["resources"]
    )
    asks = {
        f"ns/{each['metadata']['name']}": each["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][GPU]
        for each in objects
        if each["kind"] == "Job" and "tessera.dev/capacity-request" not in each["metadata"]["labels"]
    }
    has: dict[str, int] = {}
    at: float = -1
    for entry in result.timeline:
        if entry.t > at:
            assert sum(has.values()) <= there, f"{has} at {at}"
        at = entry.t
        if entry.event == "Granted":
            has[entry.workload] = int(entry.message.split()[1])
        elif entry.workload in asks and entry.event == "Admitted":
            has[entry.workload] = asks[entry.workload]
        elif entry.event in ("Finished", "Preempted", "Evicted", "Released", "Expired", "Offered"):
            has.pop(entry.workload, None)
    assert sum(has.values()) <= there


def of_others(result: SimulationResult, until: float) -> list[str]:
    """What happened to all but the request, or the job in its place, before this time."""
    found = zip(result.timeline, told(result), strict=True)
    return [said for each, said in found if each.workload != "ns/ask" and each.t < until]


@settings(max_examples=60, deadline=None)
@drawn(world=worlds(), least=st.integers(1, 8), arrival=st.integers(0, 60))
def test_a_grant_changes_nothing_for_others_that_a_job_of_its_size_would_not(
    world: tuple[list[Json], int], least: int, arrival: int
) -> None:
    """Order and quota decide as for anything else; an answer without a grant leaves everything as it was."""
    jobs = [each for each in world[0] if each["kind"] != "CapacityRequest" and not _is_inside(each)]
    when = f"{arrival}.5s"  # at a moment of its own: of what comes together jobs are decided on first
    asked = capacity_request("ask", least, duration="1m", useWithin="1m", arrival=when)
    result = run(*jobs, asked, using=NO_HOLD)
    events = [each.event.value for each in result.timeline if each.workload == "ns/ask"]
    alone = run(*jobs) if events[0] != "Granted" else run(*jobs, job("ask", 1, pods=least, runtime="1m", arrival=when))
    # A preempted job waits again, a preempted grant is over.
    taken = (each.t for each in result.timeline if each.message.startswith("Its units were taken"))
    until = next(taken, float("inf"))
    assert of_others(result, until) == of_others(alone, until)


def _is_inside(each: Json) -> bool:
    return "tessera.dev/capacity-request" in (each["metadata"].get("labels") or {})


@settings(max_examples=30, deadline=None)
@drawn(world=worlds())
def test_a_bidder_learns_no_name_of_another_namespace(world: tuple[list[Json], int]) -> None:
    objects = json.loads(json.dumps(world[0]))
    for each in objects:
        if each["kind"] == "Job" and not _is_inside(each):
            each["metadata"]["namespace"] = "theirs"
            each["metadata"]["name"] = f"secret-{each['metadata']['name']}"
    theirs = [{**each, "metadata": {**each["metadata"], "namespace": "theirs"}} for each in map(dict, local_queues())]
    result = plain(run(*objects, *theirs))
    said = [each["message"] for each in result["timeline"] if each["workload"].startswith("ns/ask")]
    assert "secret" not in json.dumps([said, result["final"]["capacityRequests"]])


def local_queues() -> list[Json]:
    return [local_queue("main"), local_queue("side")]
