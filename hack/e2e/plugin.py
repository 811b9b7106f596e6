"""pytest's side of ``make e2e``: which tests failed, and those alone once more."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

NOTES: Final = "TESSERA_E2E_FAILED"
"""A file that gets a line of JSON for each failure: the test, or the file that could not be collected."""
AGAIN: Final = "TESSERA_E2E_AGAIN"
"""A file of such lines: no other test is run."""


def write(file: Path, tests: Iterable[str]) -> None:
    """Behind what is there."""
    with file.open("a") as out:
        out.writelines(json.dumps(test) + "\n" for test in tests)


def read(file: Path) -> frozenset[str]:
    """None where there is no file."""
    return frozenset(map(json.loads, file.read_text().splitlines())) if file.exists() else frozenset()


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
        config.pluginmanager.register(_Notes(Path(os.environ[NOTES])))


class _Notes:
    """pytest's own cache does not know of a test whose worker died."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            write(self._file, [report.nodeid])
