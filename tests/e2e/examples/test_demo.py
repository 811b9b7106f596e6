"""``make demo`` and ``make quick``: what a newcomer types first works, is short, and leaves nothing behind."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.layout import ROOT_ENV
from hack.demo import NAME
from tests.support import machine
from tests.support.e2e.lab import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.alone("it compares the machine before and after")]

TWO_SCREENS = 100
DEMO_S, QUICK_S = 40, 20
"""The promises for an idle machine. Here others work beside: three times as long is a failure."""


def typed(module: str, *words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, ROOT_ENV: str(folder)}
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=DEMO_S * 3
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    """For the demo's cluster alone: somebody may be playing with one of their own."""
    folder = Path(f"/var/tmp/tsr-demo-{os.getpid()}")
    yield folder
    Cluster.of(NAME, root=folder).down()
    shutil.rmtree(folder, ignore_errors=True)


def test_the_demo_shows_everything_on_two_screens_and_goes_without_a_trace(folder: Path) -> None:
    cluster = Cluster.of(NAME, root=folder)
    before = machine.surroundings()
    shown = typed("hack.demo", folder=folder)
    assert shown.returncode == 0, shown.stderr + shown.stdout[-2000:]
    assert len(shown.stdout.splitlines()) <= TWO_SCREENS
    for claim in (
        "four-gpus",
        "shared-gpu",
        "allocatable nvidia.com/gpu: 7 -> 6",
        "allocatable nvidia.com/gpu: 7 again",
    ):
        assert claim in shown.stdout
    # It stays up for the reader to play.
    assert cluster.problems() == []
    printed = re.findall(r"^  (\S*/(?:tessera|cluster) .*?)(?: {2,}.*)?$", shown.stdout, re.MULTILINE)
    assert len(printed) > 1, "what to type next"
    plain = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(Path.home()), ROOT_ENV: str(folder)}
    for line in printed:
        done = subprocess.run(["sh", "-c", line], cwd=ROOT, env=plain, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"in a shell of the reader's own: {line}\n{done.stderr}"
    there = machine.traces(cluster.paths)
    assert all(there[kind] for kind in ("processes", "links", "sockets", "cgroups", "files")), there
    assert any("tessera-agent" in line for line in there["processes"])
    gone = typed("hack.demo", "--down", folder=folder)
    assert gone.returncode == 0, gone.stderr
    assert not any(machine.traces(cluster.paths).values()), machine.traces(cluster.paths)
    after = machine.surroundings()
    assert {kind: after[kind] ^ before[kind] for kind in before} == {kind: set() for kind in before}


def test_the_quick_demo_needs_no_cluster(tmp_path: Path) -> None:
    start = time.monotonic()
    shown = typed("hack.quick", folder=tmp_path)
    assert shown.returncode == 0, shown.stderr + shown.stdout[-2000:]
    assert time.monotonic() - start < QUICK_S * 3
    assert len(shown.stdout.splitlines()) <= TWO_SCREENS
    assert not list(tmp_path.iterdir())
