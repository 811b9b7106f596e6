"""pytest's side of ``make explore``: properties in an order of their own, none begun after the time is up."""

import json
import os
import random
import time
from pathlib import Path
from typing import Final

import pytest

from hack.findings import to_pin
from tests.support.seeds import ROUND

UNTIL: Final = "TESSERA_EXPLORE_UNTIL"
"""Seconds since 1970."""
FOUND: Final = "TESSERA_EXPLORE_FOUND"
"""A file that gets a line of JSON for each test that fails: ``{"node": ..., "error": ..., "pins": [...]}``."""

DONE: Final = "TESSERA_EXPLORE_DONE"
"""A file that gets a byte for each test that ran."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Every worker of a round shuffles alike.
    random.Random(ROUND).shuffle(items)


def pytest_runtest_setup() -> None:
    if time.time() > float(os.environ[UNTIL]):
        pytest.skip("the time is up")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a worker's reports are told again by who started it
        config.pluginmanager.register(_Notes())


class _Notes:
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            with Path(os.environ[DONE]).open("ab") as done:
                done.write(b".")
        if not report.failed:
            return
        text = report.longreprtext
        errors = (line[2:].strip() for line in text.splitlines() if line.startswith("E "))
        line = {"node": report.nodeid, "error": next(errors, "")[:200], "pins": to_pin(report.nodeid, text)}
        with Path(os.environ[FOUND]).open("a") as file:
            file.write(json.dumps(line) + "\n")
