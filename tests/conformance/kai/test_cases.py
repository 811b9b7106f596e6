"""One test for each case of KAI's tables."""

import pytest

from tests.conformance import replay
from tests.conformance.kai import differences, suites
from tests.conformance.replay import Case

pytestmark = pytest.mark.conformance

DECLARED_AT_MOST = 0.15

suites.load_runners()


def is_kais(case: Case) -> bool:
    return case.corpus == replay.KAI


def test_few_cases_are_declared_different() -> None:
    cases = [case for case in replay.all_cases() if is_kais(case)]
    declared = [case for case in cases if any(rule.applies(case.input) for rule in differences.RULES)]
    assert len(declared) <= DECLARED_AT_MOST * len(cases)


@pytest.mark.parametrize("case", [pytest.param(case, id=str(case)) for case in replay.cases_that(is_kais)])
def test_case(case: Case) -> None:
    replay.check(case, differences.RULES)
