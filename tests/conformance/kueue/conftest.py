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
    later = sum(map(suites.topology_later, everything))
    without = sum(1 for case in everything if not suites.topology_later(case) and not suites.in_force(case))
    for line in tally.declared:
        reporter.write_line(line)
    reporter.write_line(
        f"conformance: {later + without} not yet in force: {later} wait for topology, {without} for a runner"
    )
    reporter.write_line(
        f"conformance: {tally.passed} passed of {len(everything)} cases, {len(tally.declared)} declared different"
    )
