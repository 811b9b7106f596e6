"""``make quick``: the first minute with Tessera."""

import resource
import subprocess
import sys

import pytest

from hack.quick import goes_on
from hack.show import ROOT

STEPS = [
    "1. The agent starts on a simulated DGX-1",
    "2. What it found",
    "3. A pod asks for one GPU, another for four",
    "4. A GPU that nobody holds fails",
    "5. It is reset, passes its probation",
    "Done in ",
]


def work_s() -> float:
    """CPU time of the processes that have ended: it does not depend on what else the machine does."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def test_quick_shows_every_step_in_time_and_leaves_nothing_behind() -> None:
    before_s = work_s()
    done = subprocess.run(
        [sys.executable, "-m", "hack.quick"], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    took_s = work_s() - before_s
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    at = [done.stdout.find(step) for step in STEPS]
    assert -1 not in at, done.stdout
    assert at == sorted(at)
    assert took_s < 30, "the first minute, on one core, with what it waits for"
    assert "listed 8 GPUs" in done.stdout
    assert "asked for 4, got [" in done.stdout
    assert "XID 79: GPU has fallen off the bus" in done.stdout
    assert "\x1b" not in done.stdout
    assert "Traceback" not in done.stdout
    assert len(done.stdout.splitlines()) < 90, "more than two screens"
    assert "make page" in "".join(done.stdout.splitlines()[-2:]), "in a pipe it ends, and says what comes next"


@pytest.mark.parametrize(("given", "terminal", "page"), [("", True, True), ("", False, False), ("no", True, False)])
def test_the_page_follows_on_a_terminal_unless_it_is_told_otherwise(given: str, terminal: bool, page: bool) -> None:
    assert goes_on(given, terminal=terminal) is page
    assert goes_on("yes", terminal=terminal)
    with pytest.raises(SystemExit, match="PAGE: found 'perhaps', expected yes or no"):
        goes_on("perhaps", terminal=terminal)
