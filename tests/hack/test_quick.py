"""``make quick``: the first minute with Tessera."""

import subprocess
import sys
import time

from hack.show import ROOT

STEPS = [
    "1. The agent starts on a simulated DGX-1",
    "2. What it found",
    "3. A pod asks for one GPU, another for four",
    "4. A GPU that nobody holds fails",
    "5. It is reset, passes its probation",
    "Done in ",
]


def test_quick_shows_every_step_in_time_and_leaves_nothing_behind() -> None:
    start_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "hack.quick"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    took_s = time.monotonic() - start_s
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    at = [done.stdout.find(step) for step in STEPS]
    assert -1 not in at, done.stdout
    assert at == sorted(at)
    assert took_s < 60, "the first minute"
    assert "listed 8 GPUs" in done.stdout
    assert "asked for 4, got [" in done.stdout
    assert "XID 79: GPU has fallen off the bus" in done.stdout
    assert "\x1b" not in done.stdout
    assert "Traceback" not in done.stdout
    assert len(done.stdout.splitlines()) < 90, "more than two screens"
