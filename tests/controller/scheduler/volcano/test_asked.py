"""A job that is not there yet is tried as the next turn of its tree would decide on it, and nothing comes of that."""

import random
from typing import Any

import pytest

from controller.foreign.objects.kai import KaiQueue
from controller.foreign.objects.volcanoqueue import VolcanoQueue
from controller.scheduler.decisions.records import Rule
from tests.support.engine.foreignqueues import GPU, asks, fill, kai_queue, rest, volcano_queue, world
from tests.support.engine.world import Admitted, Evicted, World
from tests.support.seeds import histories

NAMES = ("a", "b")


def queues(system: str) -> list[KaiQueue | VolcanoQueue]:
    if system == "kai":
        return [kai_queue(name, quota=4) for name in NAMES]
    return [volcano_queue(name, weight=1, capability={GPU: 6}) for name in NAMES]


def rule(lab: World, queue: str, gpus: int, **more: Any) -> Rule | None:
    record = lab.engine.tried(lab.engine.as_pending(asks("new", queue, gpus, **more)), lab.now_s, in_turns=True)
    lab.engine.validate()
    return None if record is None else record.rule


@pytest.mark.parametrize("system", ["kai", "volcano"])
def test_the_first_job_of_a_namespace_is_told_of_a_queue_that_nothing_waits_in(system: str) -> None:
    lab = world(*queues(system))
    assert rule(lab, "a", 4) is Rule.FITS
    assert rule(lab, "a", 9) not in (Rule.FITS, None)
    assert rule(lab, "none", 1) is None
    assert not lab.engine.state.cluster.local_queues, "whoever asks leaves no LocalQueue behind"


@pytest.mark.parametrize("system", ["kai", "volcano"])
@histories(1, 2, 3, 4, 5, 6)
def test_it_starts_or_preempts_just_when_the_next_turn_says_so(seed: int, system: str) -> None:
    rng = random.Random(seed)
    lab = world(*queues(system))
    for _ in range(5):
        fill(lab, rng.choice(NAMES), rng.randint(1, 3), rng.choice((1, 2, 4)), priority=rng.choice((0, 5)))
        rest(lab)
        before = (lab.engine.state.changes, lab.running())
        queue, gpus, priority = rng.choice(NAMES), rng.choice((1, 2, 4)), rng.choice((0, 5))
        told = rule(lab, queue, gpus, priority=priority, created_s=1800)
        assert before == (lab.engine.state.changes, lab.running())
        assert lab.engine.settled(lab.now_s), "nothing is to be decided because somebody asked"
        lab.put(asks("new", queue, gpus, priority=priority, created_s=1800))
        made = lab.cycle().made
        started = any(isinstance(each, Admitted) and each.key == "ns/new" for each in made)
        evicts = any(isinstance(each, Evicted) and each.by is not None and each.by.key == "ns/new" for each in made)
        assert (told is Rule.FITS, told is Rule.PREEMPTS) == (started, evicts)
        rest(lab)
        (lab.finish if "new" in lab.running() else lab.delete)("new")
        rest(lab)
