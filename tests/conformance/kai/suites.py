"""The suites of KAI's tables: one runner plays them all."""

from typing import Final

from tests.conformance.kai.player import play
from tests.conformance.replay import RUNNERS, Case, Difference, runner

SUITES: Final = (
    *(f"integration_{name}" for name in ("allocate", "consolidation", "consolidation_and_reclaim", "deletion_tests")),
    *(f"integration_{name}" for name in ("preempt", "reclaim", "stalegangeviction")),
    *(f"unit_{name}" for name in ("allocate", "consolidation", "preempt", "reclaim", "stalegangeviction")),
)


def load_runners() -> None:
    for suite in SUITES:
        if suite not in RUNNERS:
            runner(suite)(_run)


def _run(case: Case) -> Difference | None:
    return play(case.input)
