"""Units that an autoscaler is told: exactly as many pods of the shape would be admitted, and one more would wait."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.insight.admissible import UnitCount, annotated, count_parts, next_parts
from controller.insight.forecast.forecast import Forecaster
from controller.insight.forecast.parts import finished
from controller.objects.decode import KUEUE, decode_object
from controller.objects.queues import LocalQueue
from controller.objects.queueunits import UnitsError, unit_shapes
from controller.scheduler.model.config import EngineConfig, Extensions
from controller.scheduler.model.resources import LocalQueueKey
from tests.support.engine.world import World, cluster_queue, flavor, workload

UNITS = "tessera.dev/units"
CONFIG = EngineConfig(extensions=Extensions(requests_withdrawn=True))


def named(name: str, text: str, **spec: Any) -> LocalQueue:
    metadata = {"name": name, "namespace": "ns", "annotations": {UNITS: text}}
    body = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": name, **spec}}
    found = decode_object(body)
    assert isinstance(found, LocalQueue)
    return found


def world(nominal: int = 8, flavors: tuple[str, ...] = ("a", "b"), gpus: int = 2, **spec: Any) -> World:
    made = World(CONFIG)
    made.put(*map(flavor, flavors), cluster_queue("q", nominal, flavors=flavors, **spec))
    made.put(named("q", json.dumps({"server": {"gpu": gpus}})))
    return made


def counts(made: World, priority: int = 0) -> dict[str, tuple[int, int]]:
    """Admissible and held units by flavor."""
    queue = made.engine.state.cluster.local_queues[LocalQueueKey("ns/q")]
    found: list[UnitCount] = finished(count_parts(made.engine, queue, priority, made.now_s))
    return {each.flavor: (each.admissible, each.held) for each in found}


def coming(made: World, priority: int = 0) -> float | None:
    """When the next unit comes."""
    queue = made.engine.state.cluster.local_queues[LocalQueueKey("ns/q")]
    (count,) = finished(count_parts(made.engine, queue, priority, made.now_s))
    known = Forecaster()
    ends_at, lasts_s = known.ends_at(made.engine, made.now_s), known.lasts(made.engine)
    return finished(next_parts(made.engine, queue, count, made.now_s, ends_at, lasts_s))


def test_each_flavor_is_told_by_itself_with_what_runs_there() -> None:
    made = world()
    assert counts(made) == {"a": (4, 0), "b": (4, 0)}
    made.put(workload("one", "q", 5))
    made.settle()
    assert counts(made) == {"a": (1, 2), "b": (4, 0)}


def test_nothing_is_evicted_for_a_unit_and_none_passes_the_head_of_a_strict_queue() -> None:
    made = world(flavors=("a",), preemption={"withinClusterQueue": "LowerPriority"})
    made.put(workload("low", "q", 8, priority=-5))
    made.settle()
    assert counts(made, priority=9) == {"a": (0, 4)}
    strict = world(flavors=("a",), queueingStrategy="StrictFIFO")
    strict.put(workload("head", "q", 9))
    strict.settle()
    assert counts(strict) == {"a": (0, 0)}


def test_a_queue_without_its_cluster_queue_or_with_a_wrong_annotation_tells_nothing() -> None:
    made = World(CONFIG)
    made.put(named("q", '{"server": {"gpu": 1}}'))
    assert counts(made) == {}
    made.put(named("wrong", "[]"))
    assert [each.metadata.name for each in annotated(made.engine)] == ["q"]


@pytest.mark.parametrize(
    ("stopped", "held"),
    [
        ({"queue": {"stopPolicy": "Hold"}}, 4),
        ({"queue": {"stopPolicy": "HoldAndDrain"}}, 0),
        ({"local": {"stopPolicy": "Hold"}}, 4),
        ({"local": {"stopPolicy": "HoldAndDrain"}}, 0),
    ],
)
def test_a_stopped_queue_admits_none_and_keeps_what_runs_unless_it_drains(
    stopped: dict[str, dict[str, Any]], held: int
) -> None:
    made = world(flavors=("a",))
    made.put(workload("there", "q", 4, count=2))
    made.settle()
    assert counts(made) == {"a": (0, 4)}
    made.put(cluster_queue("q", 20, flavors=("a",), **stopped.get("queue", {})))
    text = json.dumps({"server": {"gpu": 2}})
    made.put(named("q", text, **stopped.get("local", {})))
    assert counts(made) == {"a": (0, held)}
    assert coming(made) is None
    made.put(workload("more", "q", 2, created_s=9))
    made.settle()
    assert "ns/more" in {each.key for each in made.engine.state.queues}, "the engine admits none either"


def test_a_queue_whose_flavor_is_missing_admits_none() -> None:
    made = World(CONFIG)
    made.put(cluster_queue("q", 8, flavors=("a",)), named("q", json.dumps({"server": {"gpu": 2}})))
    assert counts(made) == {"a": (0, 0)}
    made.put(flavor("a"))
    assert counts(made) == {"a": (4, 0)}


def test_the_next_unit_comes_when_what_runs_says_that_it_ends_and_nothing_is_evicted_for_it() -> None:
    made = world(flavors=("a",), preemption={"withinClusterQueue": "LowerPriority"})
    made.put(workload("burst", "q", 8, priority=-5))
    made.settle()
    assert coming(made, priority=9) is None, "a burst says nothing of its end"
    told = world(flavors=("a",), preemption={"withinClusterQueue": "LowerPriority"})
    told.put(workload("batch", "q", 8, priority=-5, annotations={"tessera.dev/runtime": "100s"}))
    told.settle()
    began_s = told.now_s
    told.now_s += 40
    assert coming(told, priority=9) == pytest.approx(began_s + 100, abs=1.0)


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 10))
def test_as_many_as_are_told_are_admitted_and_no_more(nominal: int, gpus: int, used: int) -> None:
    made = world(nominal, flavors=("a",), gpus=gpus)
    if used:
        made.put(workload("there", "q", used))
        made.settle()
    told = counts(made)["a"][0]
    for number in range(told + 1):
        made.put(workload(f"unit-{number}", "q", gpus, created_s=number + 1))
    made.settle()
    waiting = [each.key for each in made.engine.state.queues if each.key.startswith("ns/unit-")]
    assert len(waiting) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", 'found "{", expected JSON such as'),
        ("[]", 'found "[]", expected JSON'),
        ('{"A b": {"gpu": 1}}', 'found a unit "A b", expected a name'),
        ('{"a": {}}', "found no requests of unit a"),
        ('{"a": {"gpu": "x"}}', "found gpu of unit a: x, expected a quantity"),
        ('{"a": {"gpu": 0}}', "found gpu of unit a: 0, expected more than 0"),
        ('{"a": {"cpu": "500m", "gpu": "1500m"}}', "found gpu of unit a: 1500m, expected a whole number"),
        (json.dumps({f"u{number}": {"gpu": 1} for number in range(9)}), "found 9 units, expected at most 8"),
    ],
)
def test_a_wrong_annotation_is_told_in_one_line(text: str, said: str) -> None:
    with pytest.raises(UnitsError) as wrong:
        unit_shapes({UNITS: text})
    assert said in str(wrong.value)
    assert "\n" not in str(wrong.value)
