"""Victims of preemption are told when they are likely to start again, live: in their condition, and by an Event."""

from typing import Any

import pytest

from controller.insight.forecast.forecast import Forecast
from controller.insight.forecast.shown import starts_again
from controller.messages.restarts import STARTS_AGAIN
from controller.objects.decode import decode
from controller.objects.workload import Workload
from controller.reconcile.failures.restartspromised_shell import is_untold
from kube.resources import EVENTS
from kube.testing import eventually
from tests.support.controller.stage import CONFIG, Stage, config, stage

TESSERA = CONFIG.replace("policy: kueue", "policy: tessera")
AT_S = 1_767_636_000.0
"""2026-01-05 18:00 UTC."""


def preempted(here: Stage, name: str) -> str:
    return next((one["message"] for one in here.conditions(name) if one["type"] == "Preempted"), "")


def notes(here: Stage) -> list[str]:
    found = [one["note"] for one in here.server.list_all(EVENTS) if one["reason"] == "Preempted"]
    return [note for note in found if STARTS_AGAIN in note]


async def preempts(here: Stage) -> None:
    """Workload victim gives way to one that says it runs for an hour, and its job has not stopped yet."""
    here.queue(cpus=4, preemption={"withinClusterQueue": "LowerPriority"})
    here.workload("victim", 4)
    await here.until_admitted("victim")
    here.workload("urgent", 4, priority=100, annotations={"tessera.dev/runtime": "1h"})
    await eventually(lambda: here.condition("victim", "Evicted") == "True/Preempted")


async def test_a_victim_is_told_once_it_waits_again_and_once_only() -> None:
    async with stage() as here, here.controller(config(TESSERA), core_only=False):
        await preempts(here)
        assert STARTS_AGAIN not in preempted(here, "victim"), "its job has not stopped: nothing is known yet"
        here.release("victim")
        await eventually(lambda: STARTS_AGAIN in preempted(here, "victim"))
        said = preempted(here, "victim")
        assert said.startswith("Preempted to accommodate workload team/urgent (UID ")
        assert " UTC" in said
        await eventually(lambda: notes(here) == [said])
        here.workload("other", 1)
        await eventually(lambda: here.condition("other", "QuotaReserved").startswith("False"))
        assert preempted(here, "victim") == said
        assert notes(here) == [said]


async def test_the_next_leader_tells_what_a_former_one_did_not() -> None:
    async with stage() as here:
        async with here.controller(config(TESSERA), core_only=False):
            await preempts(here)
        here.release("victim")
        async with here.controller(config(TESSERA), core_only=False, name="two"):
            await eventually(lambda: STARTS_AGAIN in preempted(here, "victim"))


async def test_under_the_policy_kueue_nothing_is_foretold() -> None:
    async with stage() as here, here.controller(core_only=False):
        await preempts(here)
        here.release("victim")
        await here.until_admitted("urgent")
        await eventually(lambda: here.condition("victim", "QuotaReserved").startswith("False"))
        assert STARTS_AGAIN not in preempted(here, "victim")
        assert notes(here) == []


def workload(reason: str, message: str = "Preempted", *, status: str = "True", **spec: Any) -> Workload:
    told = {"type": "Preempted", "status": status, "reason": reason, "message": message}
    body = {"metadata": {"name": "w", "namespace": "team"}, "spec": spec, "status": {"conditions": [told]}}
    return decode(body, Workload)


def test_who_runs_again_has_moved_is_off_or_has_been_told_is_told_nothing() -> None:
    assert is_untold(workload("InClusterQueue"))
    assert not is_untold(workload("InClusterQueue", status="False"))
    assert not is_untold(workload("Consolidation"))
    assert not is_untold(workload("InClusterQueue", "Preempted. It likely starts again by noon"))
    assert not is_untold(workload("InClusterQueue", active=False))


@pytest.mark.parametrize(
    ("forecast", "said"),
    [
        (
            {"from_s": 600.0, "to_s": 4200.0},
            "It likely starts again between 2026-01-05 18:10 UTC and 2026-01-05 19:10 UTC, as in four of five cases",
        ),
        ({"from_s": 0.0, "to_s": 4200.0}, "It likely starts again by 2026-01-05 19:10 UTC"),
        ({"from_s": 600.0, "to_s": 600.0}, "It likely starts again by 2026-01-05 18:10 UTC"),
        (
            {"from_s": 600.0},
            "It starts again after 2026-01-05 18:10 UTC, and nobody knows how long after",
        ),
        ({}, "Nobody knows yet when it starts again"),
        ({"never": "unless the quota is raised"}, "It never starts again, unless the quota is raised"),
        ({"not_before": "the ClusterQueue is resumed"}, "It starts again not before the ClusterQueue is resumed"),
    ],
)
def test_a_promise_names_moments_since_it_is_kept(forecast: dict[str, Any], said: str) -> None:
    found = starts_again(Forecast(at_s=AT_S, **forecast))
    assert found == said
    assert STARTS_AGAIN in found
