"""Property tests look at the same cases in each run: a verdict must be repeatable, on a stranger's machine above all.
``make explore`` looks at others. A test that needs more cases than fifty says so itself.

Nor does a verdict hang on how fast the machine is: no example has a deadline, and slow ones are no error. And what a
test does to logging ends with it: a program that configures its process leaves a handler on a stream that is gone.
"""

import gc
import logging
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from kube.brokenpeers import LOGGERS
from tests.support.seeds import ROUND

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", UNTIMED, max_examples=50, derandomize=True)
settings.register_profile("explore", UNTIMED, max_examples=100, derandomize=False, print_blob=True)
# For mutants: that a case fails is enough, the smallest is of no use.
UNSHRUNK = (Phase.explicit, Phase.generate)
settings.register_profile("unshrunk", UNTIMED, max_examples=50, derandomize=True, phases=UNSHRUNK)
settings.load_profile("explore" if ROUND else "same")

# The default is a look after every 700 new objects, and hypothesis counts each: a tenth of all tests' time.
gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what ``tests/thorough.txt`` names: ``make check`` leaves it to ``make thorough``."""
    listed = set((config.rootpath / "tests" / "thorough.txt").read_text().splitlines())
    for item in items:
        if item.nodeid.partition("[")[0] in listed:
            item.add_marker(pytest.mark.thorough)


def pytest_collection_finish() -> None:
    """Modules and tests live to the end: they need not be looked through for garbage again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    root = logging.getLogger()
    handlers, levels, filters = root.handlers[:], _levels(), _filters()
    try:
        return (yield)
    finally:
        root.handlers[:] = handlers
        for name, before in filters.items():
            logging.getLogger(name).filters[:] = before
        for name, level in _levels().items():
            if levels.get(name, logging.NOTSET) != level:
                logging.getLogger(name or None).setLevel(levels.get(name, logging.NOTSET))


def _filters() -> dict[str, list[Any]]:
    """Of the loggers that our programs filter."""
    return {name: logging.getLogger(name).filters[:] for name in LOGGERS}


def _levels() -> dict[str, int]:
    """By logger; the root's name is empty."""
    known = logging.root.manager.loggerDict.items()
    return {"": logging.root.level, **{name: one.level for name, one in known if isinstance(one, logging.Logger)}}
