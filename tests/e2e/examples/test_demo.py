"""``make demo`` and ``make quick``: what a newcomer types first works, is short, and leaves nothing behind."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
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
DEMO_S, QUICK_S, QUIET_S = 90, 20, 10
"""The promises for an idle machine. Here others work beside: three times as long is a failure."""
ONCE = ("kubectl create", "kubectl label", "helm install")
"""Commands of the demo that can be run once only."""


def typed(module: str, *words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, ROOT_ENV: str(folder)}
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=DEMO_S * 3
    )


def followed(module: str, *, folder: Path) -> tuple[str, list[float]]:
    """What it prints, and the seconds before each line."""
    environment = {**os.environ, ROOT_ENV: str(folder)}
    lines, pauses_s, last_s = [], [], time.monotonic()
    words = [sys.executable, "-m", module]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, cwd=ROOT, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            now_s = time.monotonic()
            pauses_s.append(now_s - last_s)
            last_s = now_s
            lines.append(line)
    assert running.returncode == 0, "".join(lines)[-3000:]
    return "".join(lines), pauses_s


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
    shown, pauses_s = followed("hack.demo", folder=folder)
    assert sum(pauses_s) < DEMO_S * 3
    assert max(pauses_s) < QUIET_S * 3, "what takes long says what it does"
    assert len(shown.splitlines()) <= TWO_SCREENS
    for claim in (
        "research    company  open   1        2        gpus    nvidia.com/gpu  6     3      3",
        "job-evaluation",
        "allocatable nvidia.com/gpu: 8 -> 7",
        "allocatable nvidia.com/gpu: 8 again",
    ):
        assert claim in shown
    # It stays up for the reader to play.
    assert cluster.problems() == []
    assert_typed_again(shown, folder)
    address = shown.splitlines()[-1]
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert "<title>" in answer.read().decode()
    there = machine.traces(cluster.paths)
    assert all(there[kind] for kind in ("processes", "links", "sockets", "cgroups", "files")), there
    assert any("hack.demopage" in line for line in there["processes"])
    gone = typed("hack.demo", "--down", folder=folder)
    assert gone.returncode == 0, gone.stderr
    assert not any(machine.traces(cluster.paths).values()), machine.traces(cluster.paths)
    after = machine.surroundings()
    assert {kind: after[kind] ^ before[kind] for kind in before} == {kind: set() for kind in before}


def assert_typed_again(shown: str, folder: Path) -> None:
    """What the demo printed works in a shell of the reader's own, which knows no virtual environment."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(Path.home()), ROOT_ENV: str(folder)}
    export = next(line.removeprefix("$ ") for line in shown.splitlines() if line.startswith("$ export"))
    ran = re.findall(r"^\$ ((?:kubectl|tessera) .*)$", shown, re.MULTILINE)
    again = [line for line in ran if not line.startswith(ONCE) and " exec " not in line]
    after = re.findall(r"^  (\S*/(?:tessera|cluster) .*?)(?: {2,}.*)?$", shown, re.MULTILINE)
    after += re.findall(r"or: (tessera .*)$", shown, re.MULTILINE)
    assert len(again) > 5
    assert len(after) == 3
    for line in (*again, *after):
        script = f"{export}\n{line}"
        done = subprocess.run(
            ["sh", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_the_quick_demo_needs_no_cluster(tmp_path: Path) -> None:
    start = time.monotonic()
    shown = typed("hack.quick", folder=tmp_path)
    assert shown.returncode == 0, shown.stderr + shown.stdout[-2000:]
    assert time.monotonic() - start < QUICK_S * 3
    assert len(shown.stdout.splitlines()) <= TWO_SCREENS
    assert not list(tmp_path.iterdir())
    (simulate,) = re.findall(r"^\$ (\S+/tessera simulate .*)$", shown.stdout, re.MULTILINE)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["sh", "-c", simulate], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"in a shell of the reader's own: {simulate}\n{done.stderr}"


def test_on_a_terminal_quick_goes_on_to_the_page(tmp_path: Path) -> None:
    mine, its = os.openpty()
    environment = {**os.environ, "HOME": str(tmp_path)}
    environment.pop("PAGE", None)
    words = [sys.executable, "-m", "hack.quick"]
    with subprocess.Popen(words, cwd=ROOT, env=environment, stdin=its, stdout=its, stderr=its) as process:
        os.close(its)
        try:
            shown = b""
            while (found := re.search(rb"^(http://127.0.0.1:[0-9]+/)\r$", shown, re.MULTILINE)) is None:
                shown += os.read(mine, 4096)
            assert b"PAGE=no leaves it out" in shown
            with urllib.request.urlopen(found[1].decode(), timeout=60) as answer:
                assert "<title>" in answer.read().decode()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
            os.close(mine)
    assert list(tmp_path.iterdir()) == []
