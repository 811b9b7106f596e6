"""The XID table is complete enough, consistent, and what the documentation says."""

import pytest

from agent.health.settings import HealthSettings, XidOverride
from agent.health.xids import XIDS, FaultClass, XidScope

CLASSES = {
    FaultClass.APPLICATION: {13, 31, 43, 45, 68, 109},
    FaultClass.RESET: {48, 74, 79, 95, 119, 120},
    FaultClass.CONTAINED: {63, 94},
    FaultClass.REPLACE: {64},
}


@pytest.mark.parametrize("fault_class", CLASSES)
def test_the_xids_that_everyone_meets_have_their_class(fault_class: FaultClass) -> None:
    assert {xid for xid in CLASSES[fault_class] if XIDS[xid].fault_class is fault_class} == CLASSES[fault_class]


def test_every_row_says_what_who_and_what_to_do() -> None:
    for xid, rule in XIDS.items():
        assert rule.xid == xid
        assert rule.name
        assert rule.action
        assert rule.source


def test_an_xid_that_is_the_programs_fault_is_scoped_to_a_process() -> None:
    assert {rule.scope for rule in XIDS.values() if rule.fault_class is FaultClass.APPLICATION} == {XidScope.PROCESS}


def test_an_override_replaces_only_what_it_gives() -> None:
    rule = HealthSettings(xids={79: XidOverride(action="call the on-call")}).rule(79)
    assert (rule.fault_class, rule.action, rule.source) == (FaultClass.RESET, "call the on-call", "configuration")


def test_an_enabled_xid_wins_over_a_disabled_one() -> None:
    settings = HealthSettings(disabled_xids=None, enabled_xids=frozenset({48}))
    assert settings.rule(48).fault_class is FaultClass.RESET
    assert settings.rule(79).fault_class is FaultClass.NOTICE


def test_all_enabled_makes_even_application_xids_count() -> None:
    assert HealthSettings(enabled_xids=None).rule(13).fault_class is FaultClass.RESET
    assert HealthSettings(enabled_xids=None).rule(94).fault_class is FaultClass.CONTAINED


def test_an_unknown_xid_takes_the_device_out_unless_told_otherwise() -> None:
    assert HealthSettings().rule(4711).fault_class is FaultClass.RESET
    assert HealthSettings(unknown_xids=FaultClass.DEGRADED).rule(4711).fault_class is FaultClass.DEGRADED
