"""Whatever jobs, pools and interruptions are: no GPU is promised twice, no gang runs in part or on nodes that are not
there, and node-hours are what a model of its own makes of the timeline.
"""

from collections import defaultdict
from math import inf
from typing import NamedTuple

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from controller.insight.simulation.settling import UnsettledError
from controller.insight.simulation.timeline import SimulationResult, TimelineEntry
from tests.support.controller.manifests import Json, cluster_queue, flavor, job, local_queue, priority_class, run
from tests.support.controller.nodepools import Fleet, node


class World(NamedTuple):
    fleet: Fleet
    objects: list[Json]
    gpus: dict[str, int]
    """GPUs of each node, by its name."""


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A queue or two, up to two pools and a fixed node, up to six jobs, up to two interruptions."""
    fixed = draw(st.sampled_from(((), (node("fixed", 4),))))
    fleet, gpus = Fleet(*fixed), {one["metadata"]["name"]: 4 for one in fixed}
    for name in draw(st.sampled_from((("p",), ("p", "q")))):
        most, size = draw(st.integers(1, 3)), draw(st.sampled_from((2, 4)))
        fleet.pool(
            name,
            most,
            size,
            delay=draw(st.sampled_from((0.0, 60.0))),
            remove_after=draw(st.sampled_from((0.0, 25.0))),
            cooldown_s=200.0,
            price_per_hour=draw(st.sampled_from((0.0, 7.0))),
        )
        gpus |= {f"{name}-{at}": size for at in range(1, most + 1)}
    for at in draw(st.lists(st.integers(0, 300), max_size=2, unique=True)):
        what = draw(st.sampled_from(("pool", "node")))
        target = "p" if what == "pool" else draw(st.sampled_from(sorted(gpus)))
        fleet.interrupted(at, draw(st.sampled_from((0, 15, 80))), **{what: target})
    preemption = {"withinClusterQueue": draw(st.sampled_from(("Never", "LowerPriority")))}
    objects = [flavor(), cluster_queue(gpus=draw(st.sampled_from((6, 40))), preemption=preemption), local_queue()]
    objects += [priority_class("low", 1), priority_class("high", 2), *fleet.nodes]
    for number in range(draw(st.integers(1, 6))):
        objects.append(
            job(
                f"job-{number}",
                draw(st.integers(1, 4)),
                pods=draw(st.integers(1, 3)),
                priority=draw(st.sampled_from(("low", "high"))),
                arrival=f"{draw(st.integers(0, 200))}s",
                runtime=draw(st.sampled_from(("10s", "40s", "300s"))),
            )
        )
    return World(fleet, objects, gpus)


class Use(NamedTuple):
    """Pods of one workload on nodes, from their placement until they leave. ``runs_s``: infinite for one that did not
    start.
    """

    since_s: float
    runs_s: float
    until_s: float
    pods: dict[str, int]


def uses(result: SimulationResult) -> dict[str, list[Use]]:
    """The places of each workload's pods, and when it had them, as the timeline says."""
    found: dict[str, list[Use]] = defaultdict(list)
    placed: dict[str, TimelineEntry] = {}
    runs: dict[str, float] = {}
    for entry in result.timeline:
        key = entry.workload
        if entry.event == "Pending":
            if entry.reason == "WaitingForNodes":
                placed.setdefault(key, entry)
        elif entry.event == "Admitted":
            placed.setdefault(key, entry)
            runs[key] = entry.t
        else:
            begun = placed.pop(key, entry)
            pods = {place.node: place.pods for place in begun.placement}
            found[key].append(Use(begun.t, runs.pop(key, inf), entry.t, pods))
    for key, entry in placed.items():
        pods = {place.node: place.pods for place in entry.placement}
        found[key].append(Use(entry.t, runs.get(key, inf), inf, pods))
    return found


def simulated(world: World) -> SimulationResult | None:
    try:
        return run(*world.objects, pools=world.fleet.comes)
    except UnsettledError:
        return None


@settings(max_examples=60, deadline=None)
@drawn(worlds())
def test_no_gpu_is_promised_twice_and_no_gang_runs_in_part(world: World) -> None:
    result = simulated(world)
    if result is None:
        return
    jobs = {f"ns/{one['metadata']['name']}": one for one in world.objects if one["kind"] == "Job"}
    there: dict[str, list[list[float]]] = defaultdict(list)
    there["fixed"].append([0.0, inf])
    for change in result.nodes:
        if change.event == "Ready":
            there[change.node].append([change.t, inf])
        elif change.event == "Removed":
            there[change.node][-1][1] = change.t
    took: list[tuple[float, float, str, int]] = []
    for key, each in uses(result).items():
        for use in each:
            spec = jobs[key]["spec"]
            assert sum(use.pods.values()) == spec["parallelism"], "all pods or none"
            size = spec["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
            took += [(use.since_s, use.until_s, name, size * pods) for name, pods in use.pods.items()]
            if use.runs_s < inf:
                for name in use.pods:
                    assert any(since <= use.runs_s and use.until_s <= until for since, until in there[name])
    for moment_s in {since_s for since_s, *_ in took}:
        for name, most in world.gpus.items():
            taken = sum(gpus for since, until, on, gpus in took if on == name and since <= moment_s < until)
            assert taken <= most, f"{name} at {moment_s}"


@settings(max_examples=60, deadline=None)
@drawn(worlds())
def test_node_hours_are_those_of_a_model_of_its_own(world: World) -> None:
    result = simulated(world)
    if result is None:
        return
    every = [use for each in uses(result).values() for use in each]
    end_s = max([*(change.t for change in result.nodes), *(entry.t for entry in result.timeline)])
    for pool in world.fleet.comes.pools:
        seconds = 0.0
        for name in pool.nodes:
            cuts = [
                (each.at_s, each.at_s + each.notice_s)
                for each in world.fleet.comes.interruptions
                if pool.name == each.pool or name == each.node
            ]
            taken = sorted((use.since_s, use.until_s) for use in every if name in use.pods)
            seconds += up_s(taken, cuts, pool.delay_s, pool.remove_after_s, end_s)
        assert result.final.node_hours[pool.name] == pytest.approx(seconds / 3600, abs=1e-4)


Spans = list[tuple[float, float]]


def up_s(taken: Spans, cuts: Spans, delay_s: float, after_s: float, end_s: float) -> float:
    """The seconds for which a node is there, until ``end_s`` at most. ``taken``: since and until when workloads have
    pods on it. ``cuts``: its interruptions, each with its notice and its end.
    """
    total, left = 0.0, list(taken)
    while left:
        since_s, until_s = left.pop(0)
        ready_s = since_s + delay_s
        if any(since_s < notice_s <= ready_s for notice_s, _ in cuts):
            while left and left[0][0] < ready_s and left[0][1] <= ready_s:
                left.pop(0)
            continue
        gone_s = max(until_s, ready_s) + after_s
        while left and left[0][0] <= gone_s:
            gone_s = max(gone_s, left.pop(0)[1] + after_s)
        is_cut = False
        for notice_s, cut_s in sorted(cuts):
            if ready_s < notice_s <= gone_s:
                gone_s, is_cut = min(gone_s, cut_s) if is_cut else cut_s, True
        total += max(0.0, min(gone_s, end_s) - ready_s)
    return total
