"""Each problem is said when it is new; a change of health is told to everybody, and loudly when a device goes."""

import logging

import pytest

from agent.cluster.recorder import Recorder
from agent.health.states import HealthState, Transition
from agent.serving.metrics import AgentMetrics
from tests.support.agent.node import Notebook
from tests.support.inventory.builders import uuid


def test_a_problem_is_said_again_only_after_it_was_gone() -> None:
    reporter = Notebook()
    recorder = Recorder(AgentMetrics(), reporter)
    for problems in (("a",), ("a", "b"), ("b", "a"), ("b",), ("a", "b"), ()):
        recorder.problems_are(problems)
        assert recorder.problems == problems
    assert reporter.problems == ["a", "b", "a"]


def test_a_change_of_health_is_logged_counted_and_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    reporter, metrics = Notebook(), AgentMetrics()
    good, bad = HealthState.HEALTHY, HealthState.UNHEALTHY
    changes = [
        Transition(gpu=uuid(0), mig=None, old=old, new=new, reason="Xid", cause="x", at_s=1.0, age_s=1.0)
        for old, new in ((good, bad), (bad, good))
    ]
    with caplog.at_level(logging.INFO):
        Recorder(metrics, reporter).transitions(changes)
    assert reporter.transitions == changes
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    labels = {"from_state": good.value, "to_state": bad.value, "reason": "Xid"}
    assert metrics.registry.get_sample_value("tessera_agent_health_transitions_total", labels) == 1
