"""No rule of difference covers a neighbour of what it is about: another place of the same input, or another input."""

from collections.abc import Iterator

import pytest

from tests.conformance import replay
from tests.conformance.kueuejobs import suites
from tests.conformance.kueuejobs.differences import RULES
from tests.conformance.replay import ABSENT, RUNNERS, Case, Difference, Rule

pytestmark = pytest.mark.conformance

suites.load_runners()
STRANGERS = (
    Difference("workloads[0].metadata.labels.stray", ABSENT, "x"),
    Difference("workloads[0].status.conditions.PodsReady", ABSENT, {"status": "True", "reason": "Started"}),
    Difference("pods[0].spec.nodeSelector.zone", "a", "b"),
    Difference("pods[0].metadata.finalizers", ABSENT, ["kueue.x-k8s.io/managed"]),
    Difference("job.spec.parallelism", 3, 4),
    Difference("errors[0].type", "FieldValueInvalid", "FieldValueForbidden"),
    Difference("refused", ["spec.queueName"], []),
    Difference("status.pendingWorkloads", 1, 0),
)


def declared() -> Iterator[tuple[Case, Difference]]:
    for case in replay.cases_that(suites.in_force):
        difference = RUNNERS[case.suite](case)
        if difference is not None:
            yield case, difference


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.reason[:60])
def test_a_rule_is_about_no_stranger(rule: Rule) -> None:
    assert [str(one) for one in STRANGERS if rule.differs(one)] == []


def test_a_rule_covers_its_difference_alone_and_where_its_input_is() -> None:
    for case, difference in declared():
        covering = [rule for rule in RULES if rule.covers(case.input, difference)]
        assert covering, str(case)
        elsewhere = Difference(f"other.{difference.path}", difference.expected, difference.found)
        for rule in covering:
            assert not rule.covers(case.input, elsewhere), (str(case), rule.reason)
            assert not rule.applies({"now": case.input["now"]}), rule.reason


def test_a_difference_is_covered_by_one_rule() -> None:
    """Two that cover one are too wide, or one."""
    for case, difference in declared():
        reasons = [rule.reason for rule in RULES if rule.covers(case.input, difference)]
        assert len(reasons) == 1, (str(case), reasons)
