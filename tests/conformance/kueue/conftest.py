"""The last lines of a conformance run: what passed of all there is."""

import pytest

from tests.conformance.kueue import harness, suites


def pytest_unconfigure(config: pytest.Config) -> None:
    """Printed after everything pytest says itself, and only where cases were run."""
    tally = harness.TALLY
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not tally.ran or reporter is None:
        return
    everything = list(harness.all_cases())
    without = sum(not suites.in_force(case) for case in everything)
    for line in tally.declared:
        reporter.write_line(line)
    reporter.write_line(f"conformance: {without} not yet in force: no runner")
    reporter.write_line(
        f"conformance: {tally.passed} passed of {len(everything)} cases, {len(tally.declared)} declared different"
    )
