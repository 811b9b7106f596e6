"""Ranges for what waits, out of an engine's state."""

from typing import Any

import pytest

from controller.insight.forecast.forecast import Forecast, Forecaster
from controller.insight.forecast.forward import Forward
from controller.insight.forecast.model import model_of
from controller.insight.forecast.runtimes import FinishedRun
from controller.insight.forecast.shown import brief
from controller.messages import spans
from controller.scheduler.model.config import BackfillPolicy, EngineConfig, Extensions
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import RUNTIME
from tests.support.engine.world import NOW_S, World, cluster_queue, cohort, flavor, local_queue, workload

TESSERA = EngineConfig(extensions=Extensions(backfill=BackfillPolicy.CONSERVATIVE))


def world(config: EngineConfig | None = None, **queues: int) -> World:
    made = World(config)
    made.put(flavor(), cohort("all"))
    for name, nominal in (queues or {"q": 10}).items():
        made.put(cluster_queue(name, nominal, cohort="all"), local_queue(name))
    return made


def told(seconds: int) -> dict[str, str]:
    return {RUNTIME: f"{seconds}s"}


def starts(made: World, exactly: dict[str, float | None]) -> dict[str, float]:
    """The tree let forward once, with these run times."""
    model = model_of(made.engine, NOW_S)
    found: dict[str, float] = {}
    for tree in model.trees:
        totals = {WorkloadKey(f"ns/{name}"): seconds for name, seconds in exactly.items()}
        forward = Forward(tree, NOW_S, totals, backfill=model.backfill, fair=model.fair, grain=0.0)
        for _ in forward.run():
            pass
        found |= {key.partition("/")[2]: start_s for key, start_s in forward.starts.items()}
        assert all(not cell.usage for line in tree.lines for cell in line.node.cells.values())
    return found


def test_one_starts_when_what_it_waits_for_ends() -> None:
    made = world()
    made.put(workload("runs", "q", 10))
    made.settle()
    made.put(workload("next", "q", 6), workload("last", "q", 6, created_s=5))
    made.settle()
    assert starts(made, {"runs": 100.0, "next": 50.0, "last": 1.0}) == {"next": 100.0, "last": 150.0}


def test_what_never_ends_lets_nothing_start() -> None:
    made = world()
    made.put(workload("runs", "q", 10))
    made.settle()
    made.put(workload("next", "q", 6))
    made.settle()
    assert starts(made, {"runs": None, "next": 50.0}) == {}
    found = Forecaster().all(made.engine, made.now_s)
    assert found[WorkloadKey("ns/next")].from_s is None
    assert "no known end" in found[WorkloadKey("ns/next")].assumes[0]


def test_a_small_one_passes_a_large_one_where_nothing_is_reserved() -> None:
    made = world()
    made.put(workload("runs", "q", 8))
    made.settle()
    made.put(workload("large", "q", 10), workload("small", "q", 2, created_s=5, annotations=told(500)))
    found = starts(made, {"runs": 100.0, "large": 50.0, "small": 500.0})
    assert found == {"small": 0.0, "large": 500.0}


def test_what_is_reserved_for_the_head_by_told_times_keeps_a_long_one_back() -> None:
    made = world(TESSERA)
    made.put(workload("runs", "q", 8, annotations=told(100)))
    made.settle()
    made.put(workload("large", "q", 10), workload("long", "q", 2, created_s=5, annotations=told(500)))
    made.put(workload("short", "q", 2, created_s=6, annotations=told(90)))
    exactly: dict[str, float | None] = {"runs": 100.0, "large": 50.0, "long": 10.0, "short": 90.0}
    assert starts(made, exactly) == {"short": 0.0, "large": 100.0, "long": 150.0}


def test_a_strict_queue_lets_nothing_pass() -> None:
    made = World()
    made.put(flavor(), cluster_queue("q", 10, queueingStrategy="StrictFIFO"), local_queue("q"))
    made.put(workload("runs", "q", 8))
    made.settle()
    made.put(workload("large", "q", 10), workload("small", "q", 2, created_s=5))
    assert starts(made, {"runs": 100.0, "large": 50.0, "small": 5.0}) == {"large": 100.0, "small": 150.0}


def test_queues_of_a_cohort_borrow_from_each_other() -> None:
    made = world(a=5, b=5)
    made.put(workload("runs", "a", 10))
    made.settle()
    made.put(workload("more", "b", 8))
    made.settle()
    assert starts(made, {"runs": 100.0, "more": 5.0}) == {"more": 100.0}


def test_the_more_urgent_starts_first() -> None:
    made = world()
    made.put(workload("runs", "q", 10))
    made.settle()
    made.put(workload("low", "q", 10), workload("high", "q", 10, priority=5, created_s=5))
    made.settle()
    assert starts(made, {"runs": 100.0, "low": 7.0, "high": 7.0}) == {"high": 100.0, "low": 107.0}


def test_the_second_flavor_is_taken_where_the_first_is_full() -> None:
    made = World()
    made.put(flavor("one"), flavor("two"), cluster_queue("q", 10, flavors=("one", "two")), local_queue("q"))
    made.put(workload("a", "q", 10), workload("b", "q", 10, created_s=1))
    made.settle()
    made.put(workload("next", "q", 10, created_s=2))
    made.settle()
    assert starts(made, {"a": 300.0, "b": 100.0, "next": 5.0}) == {"next": 100.0}


def test_a_range_holds_what_is_likely_and_says_what_it_assumes() -> None:
    made = world()
    made.put(workload("runs", "q", 10, annotations=told(3600)))
    made.settle()
    made.put(workload("next", "q", 6, created_s=3), workload("last", "q", 6, created_s=5))
    made.settle()
    found = Forecaster().all(made.engine, made.now_s)
    first, second = (found[WorkloadKey(f"ns/{name}")] for name in ("next", "last"))
    assert first.from_s is not None
    assert first.to_s is not None
    assert first.likely_s is not None
    assert first.from_s < 3600 < first.to_s
    assert (first.ahead, second.ahead) == (0, 1)
    assert first.assumes[0] == "Of 1 workload that holds quota 1 says how long it runs"


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ((1.3,), "The last one of ClusterQueue q that finished ran 1.3 times as long as it said"),
        ((1.3, 1.3), "The last 2 of ClusterQueue q that finished ran 1.3 times as long as they said"),
        ((0.5, 1.5), "The last 2 of ClusterQueue q that finished ran 0.5 to 1.5 times as long as they said"),
    ],
)
def test_a_range_whose_ends_are_equal_is_one_number(ratios: tuple[float, ...], said: str) -> None:
    made = world()
    made.put(workload("runs", "q", 10, annotations=told(3600)), workload("next", "q", 6, created_s=3))
    made.settle()
    forecaster = Forecaster()
    for number, ratio in enumerate(ratios):
        forecaster.history.note("q", f"u{number}", FinishedRun(ratio * 60.0, 60.0))
    assert said in forecaster.all(made.engine, made.now_s)[WorkloadKey("ns/next")].assumes


def test_the_same_state_has_the_same_forecast() -> None:
    made = world()
    made.put(workload("runs", "q", 10, annotations=told(3600)))
    made.settle()
    made.put(workload("next", "q", 6))
    made.settle()
    assert Forecaster().all(made.engine, made.now_s) == Forecaster().all(made.engine, made.now_s)


def test_nothing_of_the_engine_changes_by_it() -> None:
    made = world(TESSERA, a=5, b=5)
    for number in range(8):
        made.put(workload(f"w-{number}", "ab"[number % 2], 3, created_s=number, annotations=told(60 * number + 1)))
    made.settle()
    before = made.engine.state.changes
    Forecaster().all(made.engine, made.now_s)
    asked = made.engine.as_pending(workload("asked", "a", 4, created_s=30))
    assert Forecaster().of(made.engine, asked, made.now_s) is not None
    assert made.engine.tried(asked, made.now_s) is not None
    made.engine.validate()
    assert made.engine.state.changes == before
    assert made.engine.settled(made.now_s)
    assert made.engine.state.queues.get(WorkloadKey("ns/asked")) is None


def test_of_too_many_the_first_of_each_queue_are_looked_at() -> None:
    made = world(a=1, b=1)
    for number in range(12):
        made.put(workload(f"w-{number}", "ab"[number % 2], 2, created_s=number, annotations=told(60)))
    made.settle()
    found = Forecaster().all(made.engine, made.now_s, most=4)
    looked_at = {
        key
        for key, forecast in found.items()
        if forecast.assumes != ("It is too far behind in its queue to be looked at",)
    }
    waiting = made.engine.state.queues
    assert len(found) == len(list(waiting))
    assert len(looked_at) == 4
    asked = made.engine.as_pending(workload("asked", "a", 2, created_s=50))
    assert Forecaster().of(made.engine, asked, made.now_s) is not None


def test_one_whose_queue_is_stopped_or_missing_starts_not_before_that_is_over() -> None:
    made = world()
    made.put(cluster_queue("q", 10, stopPolicy="Hold"), workload("next", "q", 6), workload("lost", "nowhere", 1))
    found = Forecaster().all(made.engine, made.now_s)
    assert {key: spans.starts(brief(forecast)) for key, forecast in found.items()} == {
        WorkloadKey("ns/next"): "not before the ClusterQueue is resumed",
        WorkloadKey("ns/lost"): "not before the LocalQueue is created",
    }
    assert Forecaster().of(made.engine, made.engine.as_pending(workload("new", "nowhere", 1)), made.now_s) is None


@pytest.mark.parametrize("runtime", ["-5s", "nan", "9" * 60 + "h", "", "10000000h"])
def test_a_hostile_runtime_leaves_a_sane_answer(runtime: str) -> None:
    made = world()
    made.put(workload("runs", "q", 10, annotations={RUNTIME: runtime}))
    made.settle()
    made.put(workload("next", "q", 6, annotations={RUNTIME: runtime}))
    made.settle()
    found = Forecaster().all(made.engine, made.now_s)[WorkloadKey("ns/next")]
    assert isinstance(found, Forecast)
    assert found.from_s is None or found.from_s >= 0.0
    assert found.to_s is None or found.from_s is None or found.from_s <= found.to_s < 1e12


@pytest.mark.parametrize(
    ("objects", "until"),
    [
        ([local_queue("q", stopPolicy="Hold")], "the LocalQueue is resumed"),
        ([cluster_queue("q", 10, stopPolicy="HoldAndDrain")], "the ClusterQueue is resumed"),
        ([cluster_queue("q", 10, flavors=("other",))], "the flavor is created"),
        ([local_queue("q", "elsewhere")], "the ClusterQueue is created"),
        (
            [cluster_queue("q", 10, admissionChecksStrategy={"admissionChecks": [{"name": "c"}]})],
            "the admission check is created",
        ),
    ],
)
def test_what_has_to_happen_first_is_told(objects: list[Any], until: str) -> None:
    made = world()
    made.put(workload("next", "q", 6), *objects)
    found = Forecaster().all(made.engine, made.now_s)[WorkloadKey("ns/next")]
    assert spans.starts(brief(found)) == f"not before {until}"
