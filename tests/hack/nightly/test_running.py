"""A part within its limit, and a command beside busy loops: nothing that was started outlives them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from hack.nightly import busy, running
from hack.nightly.parts import Part
from hack.nightly.running import run
from tests.support.hang import HANG_S

ENDLESS = "import threading; threading.Event().wait()"


def part(code: str, limit_min: float = 10.0, *words: str) -> Part:
    return Part("one", (sys.executable, "-c", code, *words), "something", limit_min)


def test_a_part_that_exits_with_0_is_green_and_leaves_its_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ended = run(part("import sys; print('seed', sys.argv[1])", 10.0, "{day}"), 17, tmp_path)
    assert ended.green
    first, *rest = (tmp_path / "one.log").read_text().splitlines()
    assert first.endswith(" 17"), "the command, so that it can be run again"
    assert rest == ["seed 17"]
    assert "nightly: one: green in 0 min\n" in capfd.readouterr().out


def test_a_part_that_fails_is_red_and_shows_the_end_of_its_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ended = run(part("import sys; [print(n) for n in range(100)]; sys.exit(3)"), 1, tmp_path)
    assert (ended.green, ended.why) == (False, "exit code 3")
    said = capfd.readouterr().out
    assert "nightly: one: RED, exit code 3. The end of its output:\n  60\n" in said
    assert said.endswith("\n  99\n")


def test_a_part_over_its_limit_is_red_and_ends_with_all_that_it_started(tmp_path: Path) -> None:
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {ENDLESS!r}, {str(tmp_path)!r}]).wait()"
    ended = run(part(code, 1e-9), 1, tmp_path)
    assert ended.why == "over its limit of 1e-09 min"
    psutil.wait_procs(with_word(str(tmp_path)), HANG_S)
    assert not with_word(str(tmp_path))


def test_progress_is_told_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)

    def say(what: str) -> None:
        if what == "one: 0 of 10 min: half" and not go.with_suffix(".told").exists():
            go.with_suffix(".told").touch()
            go.write_text("")  # now it may end

    monkeypatch.setattr(running, "say", say)
    code = f"print('half', flush=True); open({str(go)!r}).read()"
    assert run(part(code), 1, tmp_path, progress_s=0.02).green
    assert go.with_suffix(".told").exists()


def with_word(word: str) -> list[psutil.Process]:
    """Processes with it in their command line that have not ended."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if word in (process.info["cmdline"] or []) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def test_loops_are_busy_as_long_as_the_command_runs_and_end_with_it() -> None:
    with busy.busy(2) as pids:
        assert all(psutil.pid_exists(pid) for pid in pids)
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_loops_end_with_a_command_that_raises() -> None:
    with pytest.raises(KeyboardInterrupt), busy.busy(2) as pids:
        raise KeyboardInterrupt
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_loops_end_where_the_program_is_killed(tmp_path: Path) -> None:
    command = ["--loops", "2", sys.executable, "-c", f"print('runs', flush=True); {ENDLESS}", str(tmp_path)]
    program = subprocess.Popen([sys.executable, "-m", "hack.nightly.busy", *command], stdout=subprocess.PIPE)
    assert program.stdout is not None
    assert program.stdout.readline() == b"runs\n"
    loops = [child for child in psutil.Process(program.pid).children() if busy.LOOP in child.cmdline()]
    assert len(loops) == 2
    program.send_signal(signal.SIGKILL)
    program.wait(HANG_S)
    program.stdout.close()
    for process in with_word(str(tmp_path)):
        process.kill()
    _, left = psutil.wait_procs(loops, HANG_S)
    assert not left


def test_the_command_is_run_so_often_and_the_first_red_one_ends_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    code = f"import sys; f = open({str(runs)!r}, 'a'); f.write('x'); sys.exit(f.tell() == int(sys.argv[1]))"
    assert busy.main(["--times", "3", "--loops", "1", sys.executable, "-c", code, "9"]) == 0
    assert runs.read_text() == "xxx"
    assert capfd.readouterr().out.count("green in") == 3
    assert busy.main(["--times", "3", "--loops", "1", sys.executable, "-c", code, "5"]) == 1
    assert runs.read_text() == "xxxxx"
    assert "busy: 2 of 3: RED (exit code 1)" in capfd.readouterr().out
