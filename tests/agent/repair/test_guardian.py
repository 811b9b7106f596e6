"""Programs of a repair end with the agent, and what they print fills no memory."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from agent.repair import guardian
from agent.repair.tool_shell import run
from kube.testing import eventually
from tests.support.hang import HANG_S

AGENT = """
import asyncio, sys
from agent.repair.tool_shell import run
print(asyncio.run(run(tuple(sys.argv[1:]), {}, 600.0)).output)
"""
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))"


def of_session(marker: str) -> list[int]:
    """The processes that have the marker in their words."""
    found = []
    for process in psutil.process_iter():
        try:
            if marker in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


async def test_the_programs_exit_code_and_the_end_of_its_output_are_told() -> None:
    ended = await run(("sh", "-c", "echo one; echo two >&2; exit 3"), {}, HANG_S)
    assert (ended.code, ended.output) == (3, "one two")
    assert (await run(("sh", "-c", "kill -9 $$"), {}, HANG_S)).code == 137
    assert (await run(("true",), {}, HANG_S)).output == "exit code 0"


async def test_a_program_that_is_not_there_or_may_not_be_run_is_told_from_one_that_fails(tmp_path: Path) -> None:
    (plain := tmp_path / "plain").write_text("x")
    assert (await run(("/no/such",), {}, HANG_S)).code == 127
    ended = await run((str(plain),), {}, HANG_S)
    assert (ended.code, ended.output) == (126, "Permission denied")


def test_three_hundred_megabytes_are_read_in_time_and_only_their_end_is_kept() -> None:
    script = "head -c 300000000 /dev/zero | tr '\\0' x; echo; echo well"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED + AGENT, "sh", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_S,
    )
    assert done.stdout.endswith("x well\n")
    assert len(done.stdout) <= 402


async def test_a_program_has_ended_though_a_child_of_it_keeps_its_output_open() -> None:
    ended = await run(("sh", "-c", "sleep 30 & echo well; exit 0"), {}, 15.0)
    assert (ended.code, ended.output) == (0, "well")


async def test_one_that_does_not_end_in_its_time_is_killed_with_its_children() -> None:
    marker = f"w-{os.getpid()}-late"
    ended = await run(("sh", "-c", "sh -c 'sleep 600; :' $0; :", marker), {}, 0.5)
    assert ended.code is None
    await eventually(lambda: of_session(marker) == [], within_s=HANG_S)


@pytest.mark.parametrize("word", ["", "exec "], ids=["a-child", "itself"])
async def test_no_program_outlives_an_agent_that_is_killed(word: str, tmp_path: Path) -> None:
    marker, begun = f"w-{os.getpid()}-{word.strip()}-killed", tmp_path / "begun"
    script = f"touch {begun}; {word}sh -c 'sleep 600; :' $0"
    agent = subprocess.Popen([sys.executable, "-c", AGENT, "sh", "-c", script, marker])  # noqa: ASYNC220 - it returns at once
    try:
        await eventually(begun.exists, within_s=HANG_S)
        assert of_session(marker) != []
        agent.send_signal(signal.SIGKILL)
        await asyncio.to_thread(agent.wait)
        await eventually(lambda: of_session(marker) == [], within_s=HANG_S)
    finally:
        agent.kill()
        agent.wait()
    assert guardian.KEPT_BYTES < 1 << 16
