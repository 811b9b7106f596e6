"""One test for each of the scheduler's cases in force."""

import pytest

from tests.conformance import replay
from tests.conformance.kueue import differences, suites
from tests.conformance.replay import Case

pytestmark = pytest.mark.conformance

suites.load_runners()


def test_every_suite_in_force_has_a_runner_and_the_corpus_is_there() -> None:
    assert [suite for suite in suites.IN_FORCE if suite not in replay.RUNNERS] == []
    assert all(root.is_dir() for root in replay.roots().values())


@pytest.mark.parametrize("case", [pytest.param(case, id=str(case)) for case in replay.cases_that(suites.in_force)])
def test_case(case: Case) -> None:
    replay.check(case, differences.RULES)
