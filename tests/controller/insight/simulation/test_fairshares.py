"""Fair sharing under policy tessera: shares are compared anew after each admission and each victim."""

import pytest

from controller.insight.simulation.timeline import SimulationResult
from tests.support.controller.manifests import (
    GPU,
    Json,
    flavor,
    job,
    kueue,
    local_queue,
    priority_class,
    run,
)

FAIR = "fairSharing: {{preemptionStrategies: [{strategies}]}}\ntessera: {{policy: {policy}}}\n"
BOTH = "LessThanOrEqualToFinalShare, LessThanInitialShare"
FINAL = "LessThanOrEqualToFinalShare"
TAKES: Json = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}


def fair(policy: str = "tessera", strategies: str = BOTH) -> str:
    return FAIR.format(strategies=strategies, policy=policy)


def group(quotas: dict[str, int]) -> list[Json]:
    flavors = [{"name": name, "resources": [{"name": GPU, "nominalQuota": amount}]} for name, amount in quotas.items()]
    return [{"coveredResources": [GPU], "flavors": flavors}]


def cohort(name: str, parent: str = "", **quotas: int) -> Json:
    spec: Json = {"resourceGroups": group(quotas)} if quotas else {}
    return kueue("Cohort", name, spec={**spec, **({"parentName": parent} if parent else {})})


def queue(name: str, parent: str, takes: Json = TAKES, **quotas: int) -> tuple[Json, Json]:
    spec = {
        "namespaceSelector": {},
        "cohortName": parent,
        "preemption": takes,
        "resourceGroups": group(quotas or {"a100": 0}),
    }
    return kueue("ClusterQueue", name, spec=spec), local_queue(name)


def on(flavor_name: str, given: Json) -> Json:
    given["spec"]["template"]["spec"]["nodeSelector"] = {"pool": flavor_name}
    return given


def pools(*names: str) -> list[Json]:
    return [kueue("ResourceFlavor", name, spec={"nodeLabels": {"pool": name}}) for name in names]


def running(result: SimulationResult) -> set[str]:
    return {name.removeprefix("ns/") for name in result.final.running}


def preempted(result: SimulationResult) -> list[str]:
    return sorted(each.workload.removeprefix("ns/") for each in result.timeline if each.event.value == "Preempted")


@pytest.mark.parametrize(
    ("policy", "last"), [("tessera", {"b0", "b1"}), ("kueue", {"b0", "a2"})], ids=["tessera", "kueue"]
)
def test_after_each_admission_the_queue_with_the_lowest_share_is_next(policy: str, last: set[str]) -> None:
    jobs = [
        job(name, queue=name[0], arrival="1s" if name not in ("a0", "a1") else "")
        for name in ("a0", "a1", "a2", "b0", "b1")
    ]
    queues = *queue("a", "all", {}), *queue("b", "all", {})
    result = run(flavor(), cohort("all", a100=4), *queues, *jobs, using=fair(policy))
    assert running(result) == {"a0", "a1"} | last


def test_behind_a_head_that_can_never_fit_the_queue_keeps_its_turn() -> None:
    jobs = [
        job(name, 9 if name == "b0" else 1, queue=name[0], arrival="1s" if name not in ("a0", "a1") else "")
        for name in ("a0", "a1", "a2", "b0", "b1", "b2")
    ]
    queues = *queue("a", "all", {}), *queue("b", "all", {})
    result = run(flavor(), cohort("all", a100=4), *queues, *jobs, using=fair())
    assert running(result) == {"a0", "a1", "b1", "b2"}


def test_a_job_too_large_for_what_is_left_keeps_its_place_for_the_next_cycle() -> None:
    """What comes after an admitted head and does not fit is a head again, and evicts as one."""
    jobs = (
        *(job(f"a{at}", queue="a") for at in range(5)),
        *(job(f"b{at}", gpus, queue="b", arrival="1s") for at, gpus in enumerate((1, 2))),
        job("c0", queue="c", arrival="1s"),
    )
    every = [each for name in "abc" for each in queue(name, "all")]
    result = run(flavor(), cohort("all", a100=7), *every, *jobs, using=fair())
    assert {"b0", "b1", "c0"} <= running(result)
    assert len(preempted(result)) == 2


@pytest.mark.parametrize(("first", "second"), [("high", "normal"), ("normal", "high")])
def test_of_two_cohorts_with_equal_shares_the_one_with_the_lower_priority_gives_way(first: str, second: str) -> None:
    cohorts = [cohort(name, "all") for name in ("ta", "tb", "tc")]
    queues = [each for name in "abc" for each in (*queue(f"{name}-own", f"t{name}", a100=4), *queue(name, f"t{name}"))]
    jobs = (
        job("a0", 6, queue="a", priority=first),
        job("b0", 6, queue="b", priority=second, arrival="1s"),
        job("c0", 4, queue="c-own", priority="normal", arrival="2s"),
    )
    classes = priority_class("high", 100), priority_class("normal", 10)
    result = run(flavor(), *classes, cohort("all"), *cohorts, *queues, *jobs, using=fair())
    assert preempted(result) == ["a0" if first == "normal" else "b0"]


def test_a_larger_share_gives_way_before_a_lower_priority() -> None:
    cohorts = [cohort(name, "all") for name in ("ta", "tb", "tc")]
    queues = [each for name in "abc" for each in (*queue(f"{name}-own", f"t{name}", a100=4), *queue(name, f"t{name}"))]
    jobs = (
        job("a0", 7, queue="a", priority="high"),
        job("b0", 5, queue="b", arrival="1s"),
        job("c0", 4, queue="c-own", arrival="2s"),
    )
    result = run(flavor(), priority_class("high", 9), cohort("all"), *cohorts, *queues, *jobs, using=fair())
    assert preempted(result) == ["a0"]


@pytest.mark.parametrize("depth", [1, 2])
def test_a_cohort_takes_back_its_own_flavor_whatever_it_borrows_of_another(depth: int) -> None:
    """And keeps it: the other, whose share is lower then, does not take it again."""
    below = [cohort("team", "left")] if depth == 2 else []
    world = (
        *pools("f1", "f2"),
        cohort("all", f1=0, f2=20),
        cohort("left", "all", f1=4, f2=0),
        cohort("right", "all"),
        *below,
        *queue("l", below[0]["metadata"]["name"] if below else "left", f1=0, f2=0),
        *queue("r", "right", f1=0, f2=0),
    )
    jobs = (
        on("f2", job("l-f2", 16, queue="l")),
        on("f1", job("r-f1", 4, queue="r", arrival="1s")),
        on("f1", job("l-f1", 4, queue="l", arrival="2s")),
        on("f1", job("r-again", 4, queue="r", arrival="3s")),
    )
    result = run(*world, *jobs, using=fair())
    assert running(result) == {"l-f1", "l-f2"}
    assert preempted(result) == ["r-f1"]


def test_a_cohort_beyond_its_own_quota_is_compared_by_its_share() -> None:
    world = (
        *pools("f1", "f2"),
        cohort("all", f1=2, f2=20),
        cohort("left", "all", f1=2, f2=0),
        cohort("right", "all"),
        *queue("l", "left", f1=0, f2=0),
        *queue("r", "right", f1=0, f2=0),
    )
    jobs = (
        on("f2", job("l-f2", 16, queue="l")),
        on("f1", job("r-f1", 4, queue="r", arrival="1s")),
        on("f1", job("l-f1", 4, queue="l", arrival="2s")),
    )
    assert preempted(run(*world, *jobs, using=fair(strategies=FINAL))) == []


@pytest.mark.parametrize(("policy", "gone"), [("tessera", ["a-low", "b0"]), ("kueue", [])], ids=["tessera", "kueue"])
def test_others_are_asked_again_once_own_jobs_have_lowered_the_share(policy: str, gone: list[str]) -> None:
    queues = [each for name, own in (("a", 2), ("b", 2), ("c", 7)) for each in queue(name, "all", a100=own)]
    jobs = (
        job("a-low", 2, queue="a", priority="low"),
        job("b0", 4, queue="b", priority="low"),
        job("b1", 5, queue="b", priority="low"),
        job("a-high", 5, queue="a", priority="high", arrival="1s"),
    )
    classes = priority_class("low", 1), priority_class("high", 10)
    result = run(flavor(), *classes, cohort("all"), *queues, *jobs, using=fair(policy, FINAL))
    assert preempted(result) == gone


def test_own_jobs_stay_where_those_of_others_are_enough() -> None:
    queues = [each for name, own in (("a", 2), ("b", 2), ("c", 6)) for each in queue(name, "all", a100=own)]
    jobs = (
        *(job(f"b{at}", queue="b", priority="low") for at in range(8)),
        job("a-low", 2, queue="a", priority="low"),
        job("a-high", 2, queue="a", priority="high", arrival="1s"),
    )
    classes = priority_class("low", 1), priority_class("high", 10)
    result = run(flavor(), *classes, cohort("all"), *queues, *jobs, using=fair(strategies=FINAL))
    assert [name[0] for name in preempted(result)] == ["b", "b"]
