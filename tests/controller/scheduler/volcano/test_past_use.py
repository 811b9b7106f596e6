"""What KAI's Queues had before counts in what they get beyond their quotas."""

import msgspec

from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.model.config import EngineConfig, QueueUsage
from inventory.api.names import QUEUE_USAGE
from tests.support.engine.foreignqueues import GPU, fill, kai_queue, node, rest
from tests.support.engine.world import World

HOUR_S = 3600.0


def world(weight: float = 1.0) -> World:
    """Two Queues of equal weight without quota on four GPUs."""
    lab = World(EngineConfig(queue_usage=QueueUsage(weight=weight, window_s=24 * HOUR_S)))
    lab.put(node("n1", 4), kai_queue("a", born_s=1), kai_queue("b", born_s=2))
    return lab


def run_for(lab: World, hours: int) -> None:
    for _ in range(hours):
        lab.engine.sample_queues(lab.now_s)
        lab.now_s += HOUR_S
    lab.engine.sample_queues(lab.now_s)


def test_a_queue_that_had_everything_stands_back_for_one_that_had_nothing() -> None:
    lab = world()
    fill(lab, "a", 8)
    assert rest(lab) == {"a": 4, "b": 0}
    run_for(lab, 10)
    fill(lab, "b", 8)
    assert rest(lab) == {"a": 0, "b": 4}


def test_without_a_weight_what_was_counts_for_nothing() -> None:
    lab = world(weight=0.0)
    fill(lab, "a", 8)
    rest(lab)
    run_for(lab, 10)
    fill(lab, "b", 8)
    assert rest(lab) == {"a": 2, "b": 2}


def test_time_alone_brings_another_division() -> None:
    lab = world()
    fill(lab, "a", 8)
    rest(lab)
    fill(lab, "b", 8)
    assert rest(lab) == {"a": 2, "b": 2}
    lab.engine.sample_queues(lab.now_s)
    assert not lab.engine.settled(lab.now_s)
    assert rest(lab) == {"a": 2, "b": 2}


def test_a_new_leader_takes_up_what_was_stored() -> None:
    lab = world()
    fill(lab, "a", 8)
    rest(lab)
    run_for(lab, 10)
    lab.now_s += 60.0
    records = lab.engine.sample_queues(lab.now_s)
    assert list(records) == [QueueName("a")]
    after = world()
    after.now_s = lab.now_s
    stored = kai_queue("a", born_s=1)
    metadata = msgspec.structs.replace(stored.metadata, annotations={QUEUE_USAGE: records[QueueName("a")]})
    after.put(msgspec.structs.replace(stored, metadata=metadata))
    fill(after, "a", 4)
    fill(after, "b", 4)
    assert rest(after) == {"a": 0, "b": 4}


def test_a_rebuilt_engine_knows_it_and_a_queue_that_went_is_forgotten() -> None:
    lab = world()
    fill(lab, "a", 8)
    rest(lab)
    run_for(lab, 10)
    lab.rebuild()
    history = lab.engine.state.queue_history
    assert history is not None
    assert history.usage()[QueueName("a")][GPU] == 1.0  # type: ignore[index]
    lab.engine.drop(type(kai_queue("a")), "", "a", lab.now_s)
    assert list(history.names()) == []


def test_where_it_is_not_asked_for_nothing_is_kept() -> None:
    lab = World()
    lab.put(node("n1", 4), kai_queue("a"))
    fill(lab, "a", 4)
    rest(lab)
    assert lab.engine.sample_queues(lab.now_s) == {}
    assert lab.engine.settled(lab.now_s)
