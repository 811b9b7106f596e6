"""The last lines of a conformance run: what passed of all there is."""

import pytest

from tests.conformance.kueue import harness, suites


def pytest_unconfigure(config: pytest.Config) -> None:
    """Printed after everything pytest says itself, and only where cases were run."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not harness.TALLIES or reporter is None:
        return
    everything = list(harness.all_cases())
    without = sum(not suites.in_force(case) for case in everything)
    for tally in harness.TALLIES.values():
        for line in tally.declared:
            reporter.write_line(line)
    reporter.write_line(f"conformance: {without} not yet in force: no runner")
    # Kueue's own cases come last.
    for name in sorted(harness.roots(), reverse=True):
        tally = harness.TALLIES.get(name, harness.Tally())
        total = sum(case.corpus == name for case in everything)
        result = f"{tally.passed} passed of {total}"
        what = "cases" if not name else "random worlds"
        reporter.write_line(f"conformance: {result} {what}, {len(tally.declared)} declared different")
