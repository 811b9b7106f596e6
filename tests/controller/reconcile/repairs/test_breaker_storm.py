"""A storm over 1,000 nodes: the breaker trips, its budget acts, the next leader counts the same, it heals by itself."""

from collections.abc import Mapping

import pytest

from controller.cluster.config.settings import RemediationRules
from controller.reconcile.repairs.breaker import Why
from inventory.api.gpunode import GRANT_LASTS_S
from tests.support.controller.repairfleet import Fleet, why

NODES, GPUS = [f"n{number:04}" for number in range(1000)], 8
BUDGET = len(NODES) * GPUS // 10
"""A tenth of the flavor's GPUs, as is usual."""


def storm() -> Fleet:
    fleet = Fleet(RemediationRules(), NODES, GPUS, validates=False)
    for node in NODES:
        fleet.asks(node, 0)
    return fleet


def test_a_storm_trips_the_breaker_which_heals_when_the_window_is_over() -> None:
    fleet = storm()
    found = fleet.decide()
    assert (len(found.granted), set(why(found).values())) == (BUDGET, {Why.BUDGET})
    assert found.tripped["a"].waiting == len(NODES) - BUDGET
    fleet.land()
    fleet.take_over()
    found = fleet.decide(GRANT_LASTS_S - 1.0)
    assert (found.granted, len(found.held_back)) == ((), len(NODES) - BUDGET), "the next leader counts the same"
    for node, _ in fleet.log:
        fleet.well(node, 0)
    found = fleet.decide(1.0)
    assert len(found.granted) == len(NODES) - BUDGET
    assert (found.tripped, found.held_back) == ({}, ()), "it has healed"
    fleet.core.validate()


def test_the_budget_is_counted_once_for_all_that_it_holds_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = storm()
    fleet.step()
    for index in range(1, GPUS):
        for node in NODES:
            fleet.asks(node, index)
    counts: list[str] = []
    counted = fleet.core._counted

    def counting(group: str, in_action: Mapping[tuple[str, str], float]) -> list[float]:
        counts.append(group)
        return counted(group, in_action)

    monkeypatch.setattr(fleet.core, "_counted", counting)
    found = fleet.core.decide(fleet.now_s)
    assert len(found.held_back) == len(NODES) * GPUS - BUDGET
    assert counts == ["a", "a"], "once to refuse, and once to tell since when"
