"""What a program is told without an object is what its request would get at that moment, and every offer's arithmetic
adds up.
"""

import re
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from controller.insight.bargaining.arithmetic import Clock
from controller.insight.bargaining.asking import state_parts
from controller.insight.bargaining.life import State
from controller.insight.forecast.parts import finished
from controller.insight.simulation import run as running
from controller.insight.simulation.granted.bargains import Bargains, _File
from controller.insight.simulation.start import EPOCH_S
from controller.insight.simulation.timeline import SimulationResult
from tests.controller.insight.simulation.granted.test_bidders import NO_HOLD, worlds
from tests.support.controller.manifests import (
    Json,
    capacity_request,
    cluster_queue,
    flavor,
    job,
    local_queue,
    plain,
    priority_class,
    run,
)

ASK = "ns/ask"
CLASSES = (priority_class("low", -5), priority_class("high", 5))
NO_HOLD_OF_KUEUE = "tessera: {policy: kueue, bargaining: {longestHold: 0s}}\n"
LOWER = {"withinClusterQueue": "LowerPriority"}


class Told(Bargains):
    """The requests of a run. ``read`` is what the request was told without an object when it was first looked at,
    ``got`` its first answer.
    """

    read: State | None = None
    got: State | None = None

    def _move(self, found: _File) -> None:
        if found.given.key == ASK and Told.read is None:
            now_s = self._host.now_s
            clock = Clock(now_s, self._ends_at(), self._runs, self._rules.say)
            given = found.given
            Told.read = finished(state_parts(self._host.engine, given.request, given.composer, clock))
        super()._move(found)

    def _tell(self, found: _File) -> None:
        if found.given.key == ASK and found.state.state and Told.got is None:
            Told.got = found.state
        super()._tell(found)


def told_twice(*objects: Json, using: str = NO_HOLD) -> tuple[State, State]:
    """The answer without an object, and the object's own."""
    Told.read = Told.got = None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(running, "Bargains", Told)
        run(*objects, using=using, start_s=EPOCH_S)
    assert Told.read is not None
    assert Told.got is not None
    return Told.read, Told.got


def same(read: State, got: State) -> None:
    def numbers(state: State) -> tuple[Any, ...]:
        offers = tuple((each.units, each.from_s, each.until_s, each.flavor, each.why) for each in state.offers)
        return state.state, state.units, state.from_s, state.until_s, state.flavor, offers

    assert numbers(read) == numbers(got)
    assert read.message.startswith(got.message)


@st.composite
def asked(draw: st.DrawFn) -> Json:
    """A request that comes at a moment of its own."""
    least = draw(st.integers(1, 8))
    windows: tuple[Json, ...] = ({}, {"notBefore": "30s"}, {"notAfter": "20s"}, {"notAfter": "2000-01-01T00:00:30Z"})
    spec = {"duration": "1m", **draw(st.sampled_from(windows))}
    if draw(st.booleans()):
        spec["priorityClassName"] = "high"
    arrival = f"{draw(st.integers(0, 60))}.5s"
    return capacity_request("ask", least, least + draw(st.integers(0, 4)), arrival=arrival, **spec)


@settings(max_examples=80, deadline=None)
@drawn(
    world=worlds(),
    wanted=asked(),
    classes=st.lists(st.sampled_from(("", "low", "low")), min_size=4, max_size=4),
    busy=st.lists(st.integers(1, 4), max_size=3),
    using=st.sampled_from((NO_HOLD, NO_HOLD_OF_KUEUE)),
)
def test_what_is_told_without_an_object_is_what_a_request_gets(
    world: tuple[list[Json], int], wanted: Json, classes: list[str], busy: list[int], using: str
) -> None:
    jobs = [each for each in world[0] if each["kind"] != "CapacityRequest"]
    for each, name in zip([each for each in jobs if each["kind"] == "Job"], classes, strict=False):
        each["metadata"]["labels"] |= {"kueue.x-k8s.io/priority-class": name} if name else {}
    jobs += [job(f"busy-{number}", gpus, priority="low") for number, gpus in enumerate(busy)]
    same(*told_twice(*CLASSES, *jobs, wanted, using=using))


def test_a_time_that_has_passed_is_refused_by_both() -> None:
    request = capacity_request("ask", 1, arrival="1m", notAfter="2000-01-01T00:00:30Z")
    read, got = told_twice(flavor(), cluster_queue(), local_queue(), request)
    assert read.state == "Refused"
    same(read, got)


def test_units_that_it_preempts_for_are_granted_by_both() -> None:
    queue = cluster_queue(preemption=LOWER)
    request = capacity_request("ask", 4, 8, arrival="1s", priorityClassName="high")
    read, got = told_twice(*CLASSES, flavor(), queue, local_queue(), job("busy", 8, priority="low"), request)
    assert (read.state, read.units) == ("Granted", 8)
    assert read.message.endswith("now, once it has preempted 1 workload")
    same(read, got)


@pytest.mark.parametrize(
    ("lows", "units"), [((8,), 8), ((1,) * 8, 4), ((3, 3), 5), ((2, 2, 2, 2), 4), ((5, 2), 6)], ids=str
)
def test_it_preempts_for_min_alone_and_takes_all_that_is_free_then(lows: tuple[int, ...], units: int) -> None:
    busy = [job(f"low-{number}", gpus, priority="low") for number, gpus in enumerate(lows)]
    queue = cluster_queue(preemption=LOWER)
    request = capacity_request("ask", 4, 8, arrival="1s", priorityClassName="high")
    alone = capacity_request("ask", 4, arrival="1s", priorityClassName="high")
    found = plain(run(*CLASSES, flavor(), queue, local_queue(), *busy, request, until_s=5))
    least = plain(run(*CLASSES, flavor(), queue, local_queue(), *busy, alone, until_s=5))
    assert found["final"]["capacityRequests"][ASK]["units"] == units
    assert preempted(found) == preempted(least)
    left = sum(lows[int(each.partition("low-")[2])] for each in found["final"]["running"] if "low-" in each)
    assert left + units <= 8


def preempted(result: Json) -> set[str]:
    return {each["workload"] for each in result["timeline"] if each["event"] == "Preempted"}


# -- the arithmetic ----------------------------------------------------------------------------------------------------


def whys(*objects: Json, using: str = "") -> list[str]:
    found = plain(run(*objects, using=using, until_s=5))["final"]["capacityRequests"][ASK]
    return [each["why"] for each in found["offers"]]


STRICT = (flavor(), cluster_queue(queueingStrategy="StrictFIFO"), local_queue())
BUSY = (job("busy", 6, runtime="2h"), job("big", 8, arrival="1s", runtime="1h"))
KUEUE = "tessera: {policy: kueue}\n"


def test_units_that_are_free_before_their_time_are_said_to_be_free() -> None:
    (why,) = whys(flavor(), cluster_queue(), local_queue(), capacity_request("ask", 8, notBefore="1h"))
    assert why == "8 of at most 8 nvidia.com/gpu of flavor a100 free in ClusterQueue main; notBefore is t = 3600"


def test_the_head_of_a_strict_queue_is_named_and_its_hour_counted() -> None:
    (why,) = whys(*STRICT, *BUSY, capacity_request("ask", 1, arrival="2s"), using=KUEUE)
    assert why == (
        "2 of at most 8 nvidia.com/gpu of flavor a100 free in ClusterQueue main; "
        "ns/big is the first in ClusterQueue main, which is StrictFIFO, and waits; "
        "6 nvidia.com/gpu of ns/busy end by t = 7200; "
        "8 nvidia.com/gpu of ns/big, which waits, run from t = 7200 to t = 10800"
    )
    (why,) = whys(*STRICT, *BUSY, capacity_request("ask", 1, arrival="2s"))
    assert "; 1 unit would delay workload ns/big, which is to start by t = 7200; " in why


def test_nothing_is_offered_now_that_a_strict_queue_would_not_give() -> None:
    for using in (NO_HOLD, KUEUE):
        request = capacity_request("ask", 4, arrival="2s", accept="offer-1")
        (why,) = whys(*STRICT, *BUSY, capacity_request("ask", 4, arrival="2s"), using=using)
        assert "from t = 7200" in why
        result = run(*STRICT, *BUSY, request, using=using, until_s=5)
        assert [each.event.value for each in result.timeline if each.workload == ASK] == ["Offered", "Offered"]
        assert result.timeline[-1].reason == "Accepted"


@st.composite
def single_queues(draw: st.DrawFn) -> list[Json]:
    """One queue of 8, with jobs that say how long they run, of which some wait."""
    strategy = draw(st.sampled_from(("StrictFIFO", "BestEffortFIFO")))
    objects = [flavor(), cluster_queue(queueingStrategy=strategy), local_queue()]
    for number in range(draw(st.integers(1, 9))):
        runtime = draw(st.sampled_from(("1m", "5m", "1h", "2h", "3h")))
        objects.append(job(f"job-{number}", draw(st.integers(1, 8)), runtime=runtime))
    return objects


_FREE = re.compile(r"(\d+) of at most 8 nvidia.com/gpu")
_END = re.compile(r"(\d+) nvidia.com/gpu of \S+(?: other workloads?)? end by")
_RUNS = re.compile(r"(\d+) nvidia.com/gpu of \S+, which waits, run from t = \d+$")
_MORE = re.compile(r"before it: (\d+) nvidia.com/gpu of that run then")


@settings(max_examples=80, deadline=None)
@drawn(single_queues(), st.integers(1, 8), st.sampled_from(("", KUEUE)))
def test_what_is_free_and_ends_less_what_starts_before_is_enough(objects: list[Json], units: int, using: str) -> None:
    result: SimulationResult = run(*objects, capacity_request("ask", units, arrival="1s"), using=using, until_s=5)
    for offer in plain(result)["final"]["capacityRequests"][ASK]["offers"]:
        if offer["from"] <= 5:
            continue
        free, *clauses = offer["why"].split("; ")
        found = _FREE.match(free)
        assert found is not None, offer["why"]
        left = int(found[1])
        for clause in clauses:
            left += sum(map(int, _END.findall(clause))) - sum(map(int, _RUNS.findall(clause) + _MORE.findall(clause)))
        assert left >= offer["units"], offer["why"]
