"""An engine whose sums have drifted makes all of them anew, and decides as one whose sums never did."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings

from controller.objects.decode import decode_object
from controller.objects.meta import KubernetesObject
from controller.objects.queues import ClusterQueue
from controller.scheduler.decisions.decisions import Admitted, Evicted, SliceReplaced
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.state.intake import SLICE_REPLACES
from tests.controller.scheduler.test_engine_properties import Act, begun, configs, histories, setups
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

LOWER = {"withinClusterQueue": "LowerPriority"}


def busy() -> World:
    """Queue a (4 devices): ``first`` holds them, ``second`` waits."""
    it = World()
    it.put(flavor(), cluster_queue("a", 4, preemption=LOWER), local_queue("a"), workload("first", "a", 4))
    it.settle()
    it.put(workload("second", "a", 2, created_s=1))
    it.settle()
    return it


def lose_holder(engine: Engine) -> None:
    engine.state.cluster.remove_holder(WorkloadKey("ns/first"))


def lose_pending(engine: Engine) -> None:
    engine.state.queues.remove(WorkloadKey("ns/second"))


def swap_holder(engine: Engine) -> None:
    """Half of what it holds is forgotten, and charged still."""
    queue = next(iter(engine.state.cluster.queues.values()))
    holder = queue.holders[WorkloadKey("ns/first")]
    usage = {fr: amount // 2 for fr, amount in holder.usage.items()}
    queue.holders[holder.key] = msgspec.structs.replace(holder, usage=usage)


@pytest.mark.parametrize("fault", [lose_holder, lose_pending, swap_holder])
def test_what_had_drifted_is_sound_again_and_nobody_is_admitted_twice(fault: Callable[[Engine], None]) -> None:
    it = busy()
    fault(it.engine)
    with pytest.raises(AssertionError):
        it.engine.validate()
    it.rebuild()
    it.settle()
    assert it.running() == {"first"}
    it.finish("first")
    it.settle()
    assert it.running() == {"second"}


def test_an_admission_that_is_being_written_still_counts() -> None:
    it = busy()
    it.finish("first")
    (made,) = it.engine.cycle(it.now_s).made
    assert isinstance(made, Admitted)
    it.put(workload("third", "a", 4, created_s=2))
    it.rebuild()
    assert made.key in it.engine.state.cluster.holders
    assert not any(isinstance(one, Admitted) for one in it.engine.cycle(it.now_s).made)
    assert it.engine.failed(made, it.now_s, "refused"), "what could not be written is taken back"
    it.engine.validate()
    assert made.key not in it.engine.state.cluster.holders


def test_an_admission_that_its_object_shows_by_now_counts_once() -> None:
    it = busy()
    it.finish("first")
    (made,) = it.engine.cycle(it.now_s).made
    it.workloads[made.key] = made.status()
    it.rebuild()
    assert made.key in it.engine.state.cluster.holders
    assert it.engine.state.unwritten.admissions == {}


def test_an_admission_into_a_queue_that_is_gone_is_let_go() -> None:
    it = busy()
    it.finish("first")
    (made,) = it.engine.cycle(it.now_s).made
    del it.others[ClusterQueue, "/a"]
    it.rebuild()
    assert made.key not in it.engine.state.cluster.holders


def test_an_eviction_that_is_being_written_is_not_decided_again() -> None:
    it = busy()
    it.put(workload("high", "a", 4, priority=1, created_s=2))
    evicted = [one for one in it.engine.cycle(it.now_s).made if isinstance(one, Evicted)]
    assert [one.key for one in evicted] == ["ns/first"]
    it.rebuild()
    assert not any(isinstance(one, Evicted) for one in it.engine.cycle(it.now_s).made)
    assert it.engine.failed(evicted[0], it.now_s, "refused")
    it.engine.validate()


def test_a_slice_whose_end_is_being_written_holds_nothing() -> None:
    it = World(EngineConfig(gates=FeatureGates({"ElasticJobsViaWorkloadSlices": True})))
    it.put(flavor(), cluster_queue("a", 4), local_queue("a"), workload("old", "a", 2))
    it.settle()
    it.put(workload("new", "a", 4, created_s=1, annotations={SLICE_REPLACES: "ns/old"}))
    made = it.engine.cycle(it.now_s).made
    assert {type(one) for one in made} == {Admitted, SliceReplaced}
    it.rebuild()
    assert set(it.engine.state.cluster.holders) == {"ns/new"}
    assert it.engine.state.unwritten.ended == {"ns/old"}


def test_why_somebody_waits_is_remembered() -> None:
    it = busy()
    said = it.engine.stories.last(WorkloadKey("ns/second"))
    it.rebuild()
    assert said is not None
    assert it.engine.stories.last(WorkloadKey("ns/second")) == said


def test_an_object_that_cannot_be_taken_in_is_named_and_keeps_no_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    it = busy()
    put = Engine.put

    def stumble(engine: Engine, given: KubernetesObject, now_s: float) -> None:
        if given.metadata.name == "odd":
            raise ValueError("odd")
        put(engine, given, now_s)

    monkeypatch.setattr(Engine, "put", stumble)
    odd = decode_object({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "odd"}})
    ((given, error),) = it.engine.rebuild([odd, *it.others.values(), *it.workloads.values()], it.now_s)
    assert (given.metadata.name, str(error)) == ("odd", "odd")
    it.engine.validate()
    it.settle()
    assert it.running() == {"first"}


@settings(max_examples=30)
@given(configs, setups(), histories, histories)
def test_after_any_history_an_engine_made_anew_knows_what_the_old_one_knew(
    config: EngineConfig, objects: list[KubernetesObject], history: list[Act], more: list[Act]
) -> None:
    run = begun(config, objects)
    for act in history:
        act(run)
    run.world.settle()
    before = run.world.engine.state
    run.world.rebuild()
    after = run.world.engine.state
    assert after.cluster.holders.keys() == before.cluster.holders.keys()
    assert {one.key for one in after.queues} == {one.key for one in before.queues}
    running = run.world.running()
    run.world.settle()
    assert run.world.running() == running, "what stood still stands still"
    for act in more:
        act(run)
