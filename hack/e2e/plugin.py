"""pytest's side of ``make e2e``: which tests failed, those alone once more, and which files took longest."""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

NOTES: Final = "TESSERA_E2E_FAILED"
"""A file that gets a line of JSON for each failure: the test (or the file that could not be collected), and how."""
AGAIN: Final = "TESSERA_E2E_AGAIN"
"""A file of tests, each as a line of JSON: no other is run."""
PASSED: Final = "TESSERA_E2E_PASSED"
"""A file that gets such a line for each test that passed."""
_LONGEST: Final = 200
"""Characters of how a test failed."""
PART: Final = "TESSERA_E2E_PART"
"""Set where only some of the tier's files are run: what no test needs has not been shown."""
SLOWEST: Final = 25
"""So many files are named with their seconds."""


def write(file: Path, tests: Iterable[str]) -> None:
    """Behind what is there."""
    with file.open("a") as out:
        out.writelines(json.dumps(test) + "\n" for test in tests)


def read(file: Path) -> frozenset[str]:
    """None where there is no file."""
    return frozenset(map(json.loads, file.read_text().splitlines())) if file.exists() else frozenset()


def read_failures(file: Path) -> Mapping[str, str]:
    """How each test failed that did, in a line each. None where there is no file."""
    lines = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
    found: dict[str, list[str]] = {}
    for test, how in lines:
        found.setdefault(test, []).append(how)
    return {test: "; ".join(how) for test, how in found.items()}


def how_it_failed(report: pytest.TestReport | pytest.CollectReport) -> str:
    """A line: the phase where that is not the test itself, the error, the file and the line that raised it."""
    phase = getattr(report, "when", "collect")
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        # A worker that died, or a file that cannot be read: the last line says why.
        said, at = next((line for line in reversed(str(report.longrepr).splitlines()) if line.strip()), ""), ""
    else:
        said, at = str(crash.message), f" ({Path(crash.path).name}:{crash.lineno})"
    text = " ".join(said.split())
    cut = text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
    return f"{'' if phase == 'call' else f'{phase}: '}{cut}{at}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if AGAIN not in os.environ:
        return
    wanted = read(Path(os.environ[AGAIN]))
    chosen = [item for item in items if item.nodeid in wanted]
    if lost := wanted - {item.nodeid for item in chosen}:
        raise pytest.UsageError(f"failed before and not found again: {', '.join(sorted(lost))}")
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
    items[:] = chosen


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a worker's reports are told again by who started it
        config.pluginmanager.register(_Notes(Path(os.environ[NOTES]), Path(os.environ[PASSED])))
        config.pluginmanager.register(_Times())


class _Notes:
    """pytest's own cache does not know of a test whose worker died."""

    def __init__(self, failed: Path, passed: Path) -> None:
        self._failed, self._passed = failed, passed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)
        if report.when == "call" and report.passed:
            write(self._passed, [report.nodeid])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            with self._failed.open("a") as out:
                out.write(json.dumps([report.nodeid, how_it_failed(report)]) + "\n")


class _Times:
    """A file is one worker's from its first set-up to its last tear-down, so its seconds say what a pass waits for."""

    def __init__(self) -> None:
        self._s_by_file: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._s_by_file[report.nodeid.partition("::")[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._s_by_file:
            terminalreporter.section(f"slowest files, seconds of {sum(self._s_by_file.values()):.0f} in all")
            for file, s in sorted(self._s_by_file.items(), key=lambda each: -each[1])[:SLOWEST]:
                terminalreporter.line(f"{s:6.0f}  {file}")
