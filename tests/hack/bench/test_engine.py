"""Claims about the engine's benchmark: what it measures happens, under every policy."""

import pytest

from controller.scheduler.model.config import EngineConfig
from hack.bench.decisions.engine import drain
from hack.bench.decisions.engineload import POLICIES


@pytest.mark.parametrize("config", POLICIES.values(), ids=POLICIES)
def test_everybody_is_admitted_once_and_nobody_is_evicted(config: EngineConfig) -> None:
    found = drain(config, queues=4, cohorts=2, each=10)
    assert (found.workloads, found.admitted, found.evicted) == (40, 40, 0)
    assert found.tried >= found.admitted
    assert min(found.arrivals.cpu_s, found.deciding.cpu_s, found.telling.cpu_s) > 0
