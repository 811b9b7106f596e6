"""One test a case of every suite in force. A failure's first line is ``FAIL suite/slug: first difference``."""

from collections.abc import Iterator

import pytest

from tests.conformance.kueue import harness, suites
from tests.conformance.kueue.harness import Case

pytestmark = pytest.mark.conformance

suites.load_runners()


def all_cases() -> Iterator[Case]:
    """Every case of the suites in force; none where there is no corpus, which the first test then says."""
    try:
        harness.root()
    except FileNotFoundError:
        return
    for suite in suites.IN_FORCE:
        yield from harness.cases(suite)


def test_every_suite_in_force_has_a_runner_and_the_corpus_is_there() -> None:
    assert [suite for suite in suites.IN_FORCE if suite not in harness.RUNNERS] == []
    assert harness.root().is_dir()


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.suite}/{case.slug}") for case in all_cases()])
def test_case(case: Case) -> None:
    difference = harness.RUNNERS[case.suite](case)
    if difference is not None:
        pytest.fail(f"FAIL {case.suite}/{case.slug}: {difference}", pytrace=False)
