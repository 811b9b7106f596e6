"""Calendars in the engine: what waits starts when its window begins, and what runs stays when it ends."""

from datetime import datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.objects.core import Namespace, Node
from controller.objects.decode import decode
from controller.objects.meta import KubernetesObject
from controller.objects.queues import ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from controller.objects.workload import Workload
from controller.scheduler.decisions.decisions import Admitted, Evicted
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import EngineConfig, Extensions, InterruptionRules
from controller.scheduler.model.resources import ClusterQueueName, FlavorName, FlavorResource, ResourceName
from controller.scheduler.quota.calendar import calendar_of, overlaid

GPUS = FlavorResource(FlavorName("a100"), ResourceName("nvidia.com/gpu"))
NIGHTS = '[{from: "0 20 * * *", for: 10h, nominal: {a100: {nvidia.com/gpu: 8}}}]'
CLOSED_NIGHTS = '[{from: "0 20 * * *", for: 10h, nominal: {a100: {nvidia.com/gpu: 0}}}]'


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


DAY_S, NIGHT_S, MORNING_S = at("2026-01-05T18:00:00Z"), at("2026-01-05T20:00:00Z"), at("2026-01-06T06:00:00Z")


def metadata(name: str, calendar: str | None, **more: Any) -> dict[str, Any]:
    annotations = {} if calendar is None else {"tessera.dev/quota-calendar": calendar}
    return {"name": name, "annotations": {**annotations, **more}}


def groups(nominal: str) -> list[dict[str, Any]]:
    quota = {"name": "a100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": nominal}]}
    return [{"coveredResources": ["nvidia.com/gpu"], "flavors": [quota]}]


def queue(calendar: str | None, name: str = "cq", nominal: str = "2", cohort: str = "", **more: Any) -> ClusterQueue:
    preemption = {"reclaimWithinCohort": "Any"}
    spec = {"resourceGroups": groups(nominal), "namespaceSelector": {}, "cohortName": cohort, "preemption": preemption}
    return decode({"metadata": metadata(name, calendar, **more), "spec": spec}, ClusterQueue)


def job(name: str, gpus: int, queue_name: str = "cq") -> Workload:
    containers = [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}]
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}
    meta = {"name": name, "namespace": "ns", "uid": name}
    return decode({"metadata": meta, "spec": {"queueName": queue_name, "podSets": [pod_set]}}, Workload)


def local(name: str) -> LocalQueue:
    return decode({"metadata": {"name": name, "namespace": "ns"}, "spec": {"clusterQueue": name}}, LocalQueue)


def engine_with(*objects: KubernetesObject, shares: bool = False) -> Engine:
    engine = Engine(EngineConfig(extensions=Extensions(quota_from_capacity=shares)))
    flavor = decode({"metadata": {"name": "a100"}, "spec": {"nodeLabels": {"gpu": "a100"}}}, ResourceFlavor)
    for one in (decode({"metadata": {"name": "ns"}}, Namespace), flavor, local("cq"), local("other"), *objects):
        engine.put(one, DAY_S)
    return engine


def made(engine: Engine, now_s: float) -> list[str]:
    """Runs cycles until nothing changes; the keys of what was admitted, and of what was evicted with a minus."""
    names: list[str] = []
    while not engine.settled(now_s):
        for one in engine.cycle(now_s).made:
            names += [one.key] if isinstance(one, Admitted) else [f"-{one.key}"] if isinstance(one, Evicted) else []
        engine.validate()
    return names


def test_what_waits_starts_when_the_window_begins() -> None:
    engine = engine_with(queue(NIGHTS), job("j", 8))
    assert made(engine, DAY_S) == []
    assert engine.next_wakeup_s() == NIGHT_S
    assert made(engine, NIGHT_S - 1) == []
    assert made(engine, NIGHT_S) == ["ns/j"]
    assert engine.next_wakeup_s() == MORNING_S


def test_what_runs_stays_when_the_window_ends_and_nothing_new_starts() -> None:
    engine = engine_with(queue(NIGHTS), job("first", 6))
    assert made(engine, NIGHT_S) == ["ns/first"]
    engine.put(job("second", 2), NIGHT_S)
    assert made(engine, MORNING_S) == []
    assert "ns/first" in engine.state.cluster.holders


def test_what_is_above_the_quota_after_a_window_is_reclaimed_by_others() -> None:
    engine = engine_with(
        queue(NIGHTS, nominal="0", cohort="pool"), queue(CLOSED_NIGHTS, "other", "8", "pool"), job("day", 8, "other")
    )
    assert made(engine, DAY_S) == ["ns/day"]
    engine.put(job("night", 8), DAY_S)
    assert made(engine, NIGHT_S) == ["-ns/day"]


def test_a_cohort_may_have_a_calendar() -> None:
    pool = decode({"metadata": metadata("pool", NIGHTS), "spec": {"resourceGroups": groups("0")}}, Cohort)
    engine = engine_with(queue(None, nominal="0", cohort="pool"), pool, job("j", 8))
    assert made(engine, DAY_S) == []
    assert made(engine, NIGHT_S) == ["ns/j"]


def test_a_calendar_wins_over_shares_while_its_window_is_open() -> None:
    status = {"allocatable": {"nvidia.com/gpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}
    node = decode({"metadata": {"name": "n1", "labels": {"gpu": "a100"}}, "status": status}, Node)
    shares = {"tessera.dev/quota-shares": '{"a100": {"nvidia.com/gpu": "50%"}}'}
    engine = engine_with(queue(NIGHTS, **shares), node, shares=True)
    found = []
    for now_s in (DAY_S, NIGHT_S, MORNING_S):
        made(engine, now_s)
        found.append(engine.state.cluster.quota.cluster_queues["cq"].cells[GPUS].nominal)  # type: ignore[index]
    assert found == [2, 8, 2]


def test_another_calendar_takes_the_place_of_the_first_and_none_ends_it() -> None:
    engine = engine_with(queue(NIGHTS), job("j", 8))
    engine.put(queue(CLOSED_NIGHTS), DAY_S)
    assert made(engine, NIGHT_S) == []
    engine.put(queue(None, nominal="8"), NIGHT_S)
    assert made(engine, NIGHT_S) == ["ns/j"]
    assert engine.next_wakeup_s() is None
    engine.put(queue(NIGHTS), NIGHT_S)
    engine.drop(ClusterQueue, "", "cq", NIGHT_S)
    assert engine.next_wakeup_s() is None


def test_an_engine_that_makes_no_cycles_keeps_the_quotas_too() -> None:
    engine = engine_with(queue(NIGHTS))
    engine.follow(NIGHT_S)
    assert engine.state.cluster.quota.cluster_queues["cq"].cells[GPUS].nominal == 8  # type: ignore[index]


HALF_HOURS = '[{from: "*/30 * * * *", for: 11m, nominal: {a100: {nvidia.com/gpu: 5}}}]'
CALENDARS = st.sampled_from([None, NIGHTS, CLOSED_NIGHTS, HALF_HOURS, "x"])


@settings(max_examples=40)
@given(st.lists(st.tuples(CALENDARS, st.integers(1, 90_000), st.booleans()), max_size=12))
def test_the_quota_is_at_any_time_that_of_the_object_and_its_open_windows(
    steps: list[tuple[str | None, int, bool]],
) -> None:
    engine, now_s, owner = engine_with(queue(None)), DAY_S, queue(None)
    for calendar, after_s, put in steps:
        if put:
            owner = queue(calendar)
            engine.put(owner, now_s)
        now_s += after_s
        made(engine, now_s)
        wanted = overlaid(owner, calendar_of(owner).entries, now_s).spec
        assert engine.state.cluster.queues["cq"].object.spec == wanted  # type: ignore[index]
        wakes_s = engine.next_wakeup_s()
        assert wakes_s is None or wakes_s > now_s


def test_a_flavor_that_is_marked_within_a_window_leaves_the_quotas_of_the_day_as_they_were() -> None:
    """The order of the flavors is made anew then, from the queue as it was given."""
    two = [{**groups("2")[0]["flavors"][0], "name": name} for name in ("a100", "calm")]
    whole = {"resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": two}], "namespaceSelector": {}}
    given = decode({"metadata": metadata("cq", NIGHTS), "spec": whole}, ClusterQueue)
    engine = Engine(EngineConfig(extensions=Extensions(interruptions=InterruptionRules())))
    marks = {"tessera.dev/interrupted-often": "2.00"}
    for name in ("a100", "calm"):
        engine.put(decode({"metadata": {"name": name}, "spec": {}}, ResourceFlavor), DAY_S)
    engine.put(given, DAY_S)
    assert made(engine, NIGHT_S) == []
    state = engine.state.cluster.queues[ClusterQueueName("cq")]
    assert state.node.cells[GPUS].subtree_quota == 8
    engine.put(decode({"metadata": {"name": "a100", "annotations": marks}, "spec": {}}, ResourceFlavor), NIGHT_S + 60)
    assert [group.flavors for group in state.groups] == [("calm", "a100")]
    assert state.node.cells[GPUS].subtree_quota == 8
    assert made(engine, MORNING_S) == []
    assert state.node.cells[GPUS].subtree_quota == 2
    assert [group.flavors for group in state.groups] == [("calm", "a100")]
