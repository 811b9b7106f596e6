"""One test a case in force. A failure's first line is ``FAIL suite/slug: first difference``; ``conftest`` sums up."""

import traceback
from collections.abc import Iterator

import pytest

from tests.conformance.kueue import differences, harness, suites
from tests.conformance.kueue.harness import TALLIES, Case, Tally

pytestmark = pytest.mark.conformance

suites.load_runners()


def cases_in_force() -> Iterator[Case]:
    """None where there is no corpus, which the first test then says."""
    try:
        harness.roots()
    except FileNotFoundError:
        return
    yield from filter(suites.in_force, harness.all_cases())


def test_every_suite_in_force_has_a_runner_and_the_corpus_is_there() -> None:
    assert [suite for suite in suites.IN_FORCE if suite not in harness.RUNNERS] == []
    assert all(root.is_dir() for root in harness.roots().values())


@pytest.mark.parametrize("case", [pytest.param(case, id=str(case)) for case in cases_in_force()])
def test_case(case: Case) -> None:
    tally = TALLIES.setdefault(case.corpus, Tally())
    tally.ran += 1
    try:
        difference = harness.RUNNERS[case.suite](case)
    except Exception as error:  # noqa: BLE001 - whatever is raised is this case's failure, in the form of any other
        pytest.fail(f"FAIL {case}: raised {type(error).__name__}: {error}\n{traceback.format_exc()}", pytrace=False)
    if difference is None:
        tally.passed += 1
        return
    rule = differences.declared(case)
    if rule is None:
        pytest.fail(f"FAIL {case}: {difference}", pytrace=False)
    tally.declared.append(f"DIFFERENT {case}: {rule.reason}: {difference}")
