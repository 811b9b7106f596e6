"""The last lines of a conformance run: what passed of all there is."""

from collections.abc import Callable
from typing import Final

import pytest

from tests.conformance import replay
from tests.conformance.kueue import suites as scheduling
from tests.conformance.kueuejobs import suites as jobs
from tests.conformance.replay import JOBS, KAI, RANDOM, Case

_WHAT: Final = {KAI: "cases of KAI", RANDOM: "random worlds", JOBS: "job cases", "": "cases"}


def pytest_unconfigure(config: pytest.Config) -> None:
    """Printed after everything pytest says itself, and only where cases were run."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not replay.TALLIES or reporter is None:
        return
    for line in (*passed_over(), *summary(list(replay.all_cases()))):
        reporter.write_line(line)


def passed_over() -> list[str]:
    """Of a given folder the files that are no cases: their number and the first of them."""
    folder = replay.given_folder()
    others = [] if folder is None else [str(file.relative_to(folder)) for file in replay.sorted_out(folder)[1]]
    if not others:
        return []
    first = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
    return [f"conformance: {len(others)} files hold no case and were passed over: {first}"]


def summary(everything: list[Case]) -> list[str]:
    """Kueue's own cases of scheduling come last; a folder of one layout ends with the sum of all its files."""
    there = {case.corpus for case in everything}
    lines = [line for tally in replay.TALLIES.values() for line in tally.declared]
    if JOBS in there:
        own = [case for case in everything if case.corpus == JOBS]
        lines.append(f"conformance: {_counted(own, jobs.is_out_of_scope)} are out of scope: {', '.join(jobs.SCOPE)}")
        lines.append(f"conformance: {_counted(own, jobs.is_missing)} are not replayed yet")
    if there - {JOBS, KAI}:
        without = sum(case.corpus not in (JOBS, KAI) and not scheduling.in_force(case) for case in everything)
        lines.append(f"conformance: {without} not yet in force: no runner")
    for name in sorted(there, key=list(_WHAT).index):
        tally = replay.TALLIES.get(name, replay.Tally())
        what = "cases" if len(there) == 1 else _WHAT[name]
        total = sum(case.corpus == name for case in everything)
        passed = f"{tally.passed} passed of {total} {what}"
        lines.append(f"conformance: {passed}, {len(tally.declared)} declared different")
    return lines


def _counted(cases: list[Case], holds: Callable[[Case], bool]) -> str:
    found = [case for case in cases if holds(case)]
    return f"{len(found)} cases of {len({case.suite for case in found})} suites"
