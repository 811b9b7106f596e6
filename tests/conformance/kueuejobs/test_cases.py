"""One test for each case of job kinds in force."""

import pytest

from tests.conformance import replay
from tests.conformance.kueuejobs import differences, suites
from tests.conformance.replay import Case

pytestmark = pytest.mark.conformance

suites.load_runners()


def test_every_suite_in_scope_has_a_runner_or_is_listed_as_missing() -> None:
    unknown = {case.suite for case in replay.all_cases() if case.corpus == replay.JOBS and suites.is_missing(case)}
    assert sorted(unknown - set(suites.NOT_YET)) == []


@pytest.mark.parametrize("case", [pytest.param(case, id=str(case)) for case in replay.cases_that(suites.in_force)])
def test_case(case: Case) -> None:
    replay.check(case, differences.RULES)
