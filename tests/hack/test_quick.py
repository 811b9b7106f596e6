"""``make quick``: the first minute with Tessera."""

import contextlib
import fcntl
import os
import pty
import re
import resource
import struct
import subprocess
import sys
import termios

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
    typed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("$ ")]
    assert len(typed) == 7
    assert all((ROOT / program).is_file() for program in typed), "they can be typed in the checkout"
    assert len(done.stdout.splitlines()) < 90, "more than two screens"
    assert "make page" in "".join(done.stdout.splitlines()[-2:]), "in a pipe it ends, and says what comes next"


@pytest.mark.parametrize(("given", "terminal", "page"), [("", True, True), ("", False, False), ("no", True, False)])
def test_the_page_follows_on_a_terminal_unless_it_is_told_otherwise(given: str, terminal: bool, page: bool) -> None:
    assert goes_on(given, terminal=terminal) is page
    assert goes_on("yes", terminal=terminal)
    with pytest.raises(SystemExit, match="PAGE: found 'perhaps', expected yes or no"):
        goes_on("perhaps", terminal=terminal)


def on_a_terminal(columns: int, program: str) -> list[str]:
    """The lines that a terminal of that width shows."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, cwd=ROOT, stdin=follower, stdout=follower, stderr=follower, env=environment) as run:
        os.close(follower)
        written = b""
        with contextlib.suppress(OSError):  # EIO: nobody writes any more
            while part := os.read(leader, 65536):
                written += part
        os.close(leader)
    assert run.returncode == 0, written.decode()
    return re.sub(r"\x1b\[[0-9;]*m", "", written.decode()).replace("\r", "").splitlines()


def test_on_a_narrow_terminal_no_word_and_no_table_is_broken_and_the_commands_can_be_typed() -> None:
    shown = on_a_terminal(80, "from hack import quick; quick._queues()")
    assert max(map(len, shown)) <= 80
    assert any(line.startswith("left out for want of room: ") for line in shown)
    first = next(at for at, line in enumerate(shown) if line.startswith("$ "))
    typed = "\n".join(shown[first : first + 2]).removeprefix("$ ")
    assert typed.splitlines()[0].endswith(" \\"), "it goes on in the next line"
    plain = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    again = subprocess.run(["sh", "-c", typed], cwd=ROOT, env=plain, capture_output=True, text=True, check=True)
    assert "Still running: research/llm-ft" in again.stdout
