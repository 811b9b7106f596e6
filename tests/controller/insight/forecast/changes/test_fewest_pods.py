"""A workload that may start with fewer pods waits for these: what it could never have with all of them is no matter."""

import pytest

from controller.insight.explain import explained
from controller.insight.forecast.changes.never import never_of
from controller.scheduler.decisions.sentences import sentence
from controller.scheduler.model.config import EngineConfig, Extensions
from controller.scheduler.model.resources import WorkloadKey
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

TOLD = EngineConfig(extensions=Extensions(fewest_pods_told=True))
KEY = WorkloadKey("ns/gang")


def waiting(quota: int, used: int, *, pods: int = 6, least: int = 2, config: EngineConfig = TOLD) -> World:
    it = World(config)
    it.put(flavor(), cluster_queue("a", quota), local_queue("a"))
    it.put(*(workload(f"other{number}", "a") for number in range(used)))
    it.settle()
    it.put(workload("gang", "a", count=pods, least=least, created_s=9))
    it.settle()
    assert "gang" not in it.running()
    return it


def never(it: World) -> str | None:
    pending = it.engine.state.queues.get(KEY)
    record = it.engine.stories.last(KEY) if pending is not None else None
    assert pending is not None
    assert record is not None
    return never_of(it.engine, pending, record)


def test_a_gang_whose_minimum_fits_its_quota_waits_and_says_with_how_many_it_starts() -> None:
    it = waiting(quota=4, used=3)
    assert it.condition("gang") == "False/WaitingForQuota"
    said = explained(it.engine, it.workloads[KEY], it.now_s)["decision"]["sentence"]
    assert said.startswith("Needs 2 gpu of flavor default: 1 free, 1 more needed; it starts with 2 of its 6 pods")
    assert never(it) is None
    it.finish("other0")
    it.settle()
    assert "gang" in it.running()


def test_a_gang_whose_minimum_is_beyond_all_quota_never_starts_and_says_so() -> None:
    it = waiting(quota=1, used=0)
    assert it.condition("gang") == "False/ExceedsMaxQuota"
    assert never(it) is not None


@pytest.mark.parametrize(("quota", "used"), [(4, 3), (1, 0)])
def test_under_kueues_rules_the_reason_is_that_of_all_pods(quota: int, used: int) -> None:
    it = waiting(quota, used, config=EngineConfig())
    assert it.condition("gang") == "False/ExceedsMaxQuota"
    assert "it starts with" not in sentence(it.engine.stories.last(KEY))  # type: ignore[arg-type]
