"""Whatever the jobs are: names and the order of documents change nothing but names, and the books add up."""

from typing import Any

from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from controller.insight.simulation.settling import UnsettledError
from controller.insight.simulation.timeline import SimulationResult
from tests.support.controller.manifests import (
    GPU,
    Json,
    cluster_queue,
    flavor,
    job,
    local_queue,
    plain,
    priority_class,
    run,
)

PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
NAMES = ("alpha", "beta", "gamma", "delta", "class-1", "class-2", "pool", *(f"job-{n}" for n in range(6)))


@st.composite
def worlds(draw: st.DrawFn) -> list[Json]:
    """Two queues of a cohort, two flavors, two classes, up to six jobs that all arrive at times of their own."""
    flavors = ("alpha", "beta")
    objects = [flavor(one) for one in flavors]
    for queue in ("gamma", "delta"):
        fair: Json = {"fairSharing": {"weight": draw(st.integers(1, 3))}} if draw(st.booleans()) else {}
        strategy = draw(st.sampled_from(("StrictFIFO", "BestEffortFIFO")))
        objects.append(
            cluster_queue(
                queue,
                draw(st.integers(0, 6)),
                cohort="pool",
                flavors=flavors,
                preemption=PREEMPTION,
                queueingStrategy=strategy,
                **fair,
            )
        )
        objects.append(local_queue(queue))
    objects += [priority_class("class-1", 1), priority_class("class-2", 2)]
    arrivals = draw(st.lists(st.integers(0, 60), max_size=6, unique=True))
    for number, arrival in enumerate(arrivals):
        objects.append(
            job(
                f"job-{number}",
                draw(st.integers(1, 4)),
                pods=draw(st.integers(1, 3)),
                queue=draw(st.sampled_from(("gamma", "delta"))),
                priority=draw(st.sampled_from(("", "class-1", "class-2"))),
                arrival=f"{arrival}s",
                runtime=draw(st.sampled_from(("", "5s", "40s"))),
            )
        )
    return objects


def renamed(value: Any, names: dict[str, str]) -> Any:
    """Names wherever they stand alone, or as the name of a namespaced object."""
    if isinstance(value, dict):
        return {renamed(key, names): renamed(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    if isinstance(value, str):
        space, slash, name = value.partition("/")
        return f"{space}/{names[name]}" if slash and name in names else names.get(value, value)
    return value


def without_sentences(result: SimulationResult) -> Any:
    """Sentences name their objects in the middle of words."""
    found = plain(result)
    for entry in (*found["timeline"], *found["final"]["pending"]):
        del entry["message"]
    for entry in found["final"]["pending"]:
        if entry["forecast"] is not None:
            entry["forecast"]["never"] = entry["forecast"]["never"] is not None
    return found


CONFIGS = st.sampled_from(("", "fairSharing: {}\ntessera: {policy: tessera}\n", "tessera: {policy: kueue}\n"))


@settings(max_examples=25, deadline=None)
@drawn(worlds(), CONFIGS, st.data())
def test_shuffling_and_renaming_change_nothing_but_names(world: list[Json], using: str, data: st.DataObject) -> None:
    names = dict(zip(NAMES, data.draw(st.permutations([f"n{n}" for n in range(len(NAMES))])), strict=True))
    try:
        before = without_sentences(run(*world, using=using))
    except UnsettledError:
        before = None
    shuffled = data.draw(st.permutations([renamed(one, names) for one in world]))
    try:
        after = without_sentences(run(*shuffled, using=using))
    except UnsettledError:
        after = None
    assert after == renamed(before, names)


def test_forecasts_go_by_times_and_not_by_names() -> None:
    world = [flavor("alpha"), flavor("beta")]
    for queue, nominal in (("gamma", 1), ("delta", 3)):
        world += [cluster_queue(queue, nominal, cohort="pool", flavors=("alpha", "beta")), local_queue(queue)]
    jobs = (("gamma", 1, 1), ("gamma", 1, 1), ("gamma", 1, 1), ("gamma", 1, 2), ("gamma", 1, 3), ("delta", 2, 2))
    for number, (queue, gpus, pods) in enumerate(jobs):
        runtime = "5s" if number in (2, 4) else "40s"
        world.append(job(f"job-{number}", gpus, pods=pods, queue=queue, arrival=f"{number}s", runtime=runtime))
    names = {"gamma": "delta", "delta": "gamma"}
    before = without_sentences(run(*world, until_s=12.0))
    after = without_sentences(run(*(renamed(one, names) for one in world), until_s=12.0))
    assert [one["workload"] for one in before["final"]["pending"] if one["forecast"]["toSeconds"]] == [
        "ns/job-4",
        "ns/job-5",
    ]
    assert after == renamed(before, names)


@settings(max_examples=25, deadline=None)
@drawn(worlds(), CONFIGS)
def test_the_books_add_up(world: list[Json], using: str) -> None:
    """Runs and ends follow from each other, no moment uses more than there is, and everybody is accounted for."""
    try:
        result = run(*world, using=using)
    except UnsettledError:
        return
    asks = {one["metadata"]["name"]: _gpus(one) for one in world if one["kind"] == "Job"}
    queues = [one for one in world if one["kind"] == "ClusterQueue"]
    quotas = [group["flavors"][0]["resources"][0] for one in queues for group in one["spec"]["resourceGroups"]]
    has = 2 * sum(quota["nominalQuota"] for quota in quotas)
    running: set[str] = set()
    ended: set[str] = set()
    assert [one.t for one in result.timeline] == sorted(one.t for one in result.timeline)
    for entry in result.timeline:
        name = entry.workload.removeprefix("ns/")
        assert name not in ended
        if entry.event == "Admitted":
            assert name not in running
            running.add(name)
        elif entry.event != "Pending":
            running.remove(name)
            if entry.event == "Finished":
                ended.add(name)
        assert sum(asks[one] for one in running) <= has
    final = result.final
    assert {one.removeprefix("ns/") for one in final.running} == running
    assert {one.workload.removeprefix("ns/") for one in final.pending} == asks.keys() - running - ended
    assert sum(end.usage[GPU] for end in final.cluster_queues.values()) == sum(asks[one] for one in running)


def _gpus(given: Json) -> int:
    (container,) = given["spec"]["template"]["spec"]["containers"]
    return int(given["spec"]["parallelism"] * container["resources"]["limits"][GPU])
