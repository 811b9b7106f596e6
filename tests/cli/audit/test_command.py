"""``tessera audit`` against an API server in this process, and on files."""

import asyncio
import gzip
import json
import os
import signal
import sys
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click.testing
import pytest

import cli.audit.command
from cli.audit.recorder import Recorder
from cli.main import tessera
from controller.cluster.watching.kinds import JOBS, PODS, WORKLOADS
from history.judge import Judge
from history.settings import Settings
from kube.testing import VirtualClock, eventually
from tests.support.cli.shell import Shell
from tests.support.e2e.lab import ROOT
from tests.support.hang import HANG_S
from tests.support.history.told import Told, cluster_queue, job, local_queue, pod, workload


class Hurried(VirtualClock):
    """No wait with an end takes any time."""

    async def wait(self, event: Any, timeout_s: float | None) -> bool:
        if timeout_s is None:
            return await super().wait(event, None)
        self.advance(timeout_s)
        return bool(event.is_set())


def wrong(told: Told) -> Told:
    """A pod that runs and is not admitted."""
    told.put(cluster_queue(), local_queue())
    told.put(job("j"), workload(job("j")), pod("p", job("j")))
    told.later(6)
    told.put(cluster_queue())
    return told


GOOD = b'{"t": 0, "source": "recorder", "type": "END"}\n'


def run(*words: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(tessera, ["audit", *words])


def test_a_record_is_judged_for_people(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_bytes(wrong(Told()).text())
    found = run(str(file))
    assert found.exit_code == 1
    assert [" ".join(line.split()) for line in found.stdout.splitlines()] == [
        "Findings",
        "at rule objects what",
        "0.0s ran-without-admission Pod team/p, Workload team/job-j it runs on n1 and no Workload of it is admitted",
        "1 finding in 6 facts",
        "not seen: hardware: GPUs, MIG instances and shares that exist are not in the record",
        "not seen: kubelets: which pod has which device is not in the record",
    ]


def test_a_record_is_judged_for_programs(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl.gz"
    file.write_bytes(gzip.compress(wrong(Told()).text()))
    found = run(str(file), "-o", "json")
    assert found.exit_code == 1
    assert json.loads(found.stdout) == {
        "findings": [
            {
                "t": 0.0,
                "rule": "ran-without-admission",
                "objects": ["Pod team/p", "Workload team/job-j"],
                "message": "it runs on n1 and no Workload of it is admitted",
            }
        ],
        "facts": 6,
        "unseen": [
            "hardware: GPUs, MIG instances and shares that exist are not in the record",
            "kubelets: which pod has which device is not in the record",
        ],
    }


def test_without_findings_the_exit_code_is_0(tmp_path: Path) -> None:
    told = Told()
    told.put(cluster_queue())
    (tmp_path / "good").write_bytes(told.text())
    found = run(str(tmp_path / "good"))
    assert (found.exit_code, found.stdout.splitlines()[0]) == (0, "0 findings in 1 fact")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"t": 0}\n', "line 1: source: found nothing, expected one of api, kubelet, hardware, recorder"),
        (b"", "found no line, expected a record"),
        (GOOD[:20], "line 1: found '{"),
        (GOOD + b"\n" + GOOD, "line 2: found '', expected a JSON object"),
        (gzip.compress(GOOD, mtime=0)[:12], "found gzip that is cut or broken (no line is whole), expected a record"),
        (gzip.compress(GOOD, mtime=0)[:-8] + bytes(8), "found gzip that is cut or broken"),
        (b"\x1f\x8bnothing of the kind", "found gzip that is cut or broken"),
    ],
)
def test_what_is_no_record_is_told_in_a_line(tmp_path: Path, body: bytes, told: str) -> None:
    file = tmp_path / "record"
    file.write_bytes(body)
    found = run(str(file))
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith(f"Error: {file}: ")
    assert told in found.stderr
    assert len(found.stderr.splitlines()) == 1


CUT = "the end: the record is cut after 6.0 s, it is judged up to there"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("bytes_", [1, 30])
def test_a_record_that_is_cut_is_judged_up_to_there_and_that_is_said(
    tmp_path: Path, *, packed: bool, bytes_: int
) -> None:
    whole = wrong(Told()).text()
    written = whole + b'{"t": 7, "source": "recorder", "type": "END"}\n'[:bytes_]
    packer = zlib.compressobj(wbits=31)
    file = tmp_path / "record"
    # A process that is killed leaves the file flushed, without gzip's end.
    file.write_bytes(packer.compress(written) + packer.flush(zlib.Z_SYNC_FLUSH) if packed else written)
    found = run(str(file), "-o", "json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["facts"] == 6
    assert json.loads(found.stdout)["unseen"][-1] == CUT


def test_a_record_of_ours_that_ends_without_its_end_is_cut(tmp_path: Path) -> None:
    file, lines = tmp_path / "record", list[bytes]()
    recorder = Recorder(lines.append, 0.0)
    recorder.begin({}, Settings(), ())
    recorder.changed(PODS, "ADDED", pod("p", job("j")), 6.0)
    file.write_bytes(b"".join(lines))
    assert json.loads(run(str(file), "-o", "json").stdout)["unseen"][-1] == CUT
    recorder.end(7.0)
    file.write_bytes(b"".join(lines))
    assert CUT not in run(str(file)).stdout


def test_blank_lines_at_the_end_of_a_record_are_none(tmp_path: Path) -> None:
    file = tmp_path / "record"
    file.write_bytes(GOOD + b"\n \n")
    assert run(str(file)).exit_code == 0
    file.write_bytes(GOOD.rstrip())
    assert run(str(file)).exit_code == 0


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_and_pipes_are_read(tmp_path: Path, *, packed: bool) -> None:
    text = wrong(Told()).text()
    text = gzip.compress(text) if packed else text
    file = tmp_path / "record"
    file.write_bytes(text)
    told = run(str(file)).stdout
    assert click.testing.CliRunner().invoke(tessera, ["audit", "-"], input=text).stdout == told
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(text)  # less than a pipe holds
    try:
        assert run(f"/dev/fd/{reading}").stdout == told
    finally:
        os.close(reading)
    found = click.testing.CliRunner().invoke(tessera, ["audit", "-"], input=b"")
    assert (found.exit_code, found.stderr) == (2, "Error: standard input: found no line, expected a record\n")


def test_the_times_of_findings_are_since_the_record_began(tmp_path: Path) -> None:
    told = Told()
    told.later(1.7e9)
    (tmp_path / "record").write_bytes(wrong(told).text())
    (finding,) = json.loads(run(str(tmp_path / "record"), "-o", "json").stdout)["findings"]
    assert finding["t"] == 0.0


def fail(_judge: Judge, _fact: object) -> None:
    raise KeyError("no such thing")


def test_a_fault_of_the_judge_is_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "history.jsonl"
    file.write_bytes(GOOD)
    monkeypatch.setattr(Judge, "take", fail)
    found = run(str(file))
    assert found.exit_code == 2
    assert found.stderr == (
        f"Error: {file}: found line 1, which the judge fails at (KeyError: 'no such thing'), expected any record;"
        " please report it\n"
    )


async def test_a_live_record_at_which_the_judge_fails_is_kept(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.audit.command, "clock", Hurried)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(Judge, "take", fail)
    found = await shell.run("audit", "--for", "10s", code=2)
    (record,) = tmp_path.glob("tessera-audit-*/history.jsonl.gz")
    assert found.exit_code == 2
    assert str(record) in found.stderr
    assert gzip.decompress(record.read_bytes()).count(b"\n") > 1


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    found = run(str(tmp_path / "nowhere"))
    assert found.exit_code == 2
    assert "found no file that can be read (no such file or directory), expected a record" in found.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["f", "--for", "1h"], "FILE: found one together with --for or --record"),
        (["f", "--record", "g"], "FILE: found one together with --for or --record"),
        (["--for", "0s"], "--for: found 0s, expected a duration above 0"),
        (["--for", "soon"], 'found "soon", expected a duration such as 7d, 12h or 1h30m'),
    ],
)
def test_a_wrong_call_is_refused(words: list[str], told: str) -> None:
    found = run(*words)
    assert found.exit_code == 2
    assert told in found.stderr


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.audit.command, "clock", Hurried)


@pytest.mark.usefixtures("hurried")
async def test_a_cluster_is_watched_and_judged(shell: Shell, tmp_path: Path) -> None:
    server = shell.scene.server
    shell.scene.queue()
    one = job("j")
    server.create(JOBS, "j", one, namespace="team")
    server.create(WORKLOADS, "job-j", workload(one), namespace="team")
    server.create(PODS, "p", pod("p", one), namespace="team")
    kept = tmp_path / "history.jsonl.gz"
    found = await shell.run("audit", "--for", "1m", "--record", str(kept), code=1)
    assert "ran-without-admission" in found.stdout
    assert "not seen: kubelets" in found.stdout
    assert "kinds are watched for 60 s" in found.stderr
    assert kept.stat().st_mode & 0o777 == 0o600
    assert (await shell.run("audit", str(kept), code=1)).stdout == found.stdout
    assert "file exists" in (await shell.run("audit", "--for", "1m", "--record", str(kept), code=2)).stderr


@pytest.mark.usefixtures("hurried")
async def test_what_may_not_be_read_is_said_and_what_is_needed_ends_it(shell: Shell) -> None:
    shell.scene.queue()
    shell.door.forbidden = "/cohorts|configmaps|/namespaces$"
    found = await shell.run("audit", "-o", "json")
    unseen = json.loads(found.stdout)["unseen"]
    assert "cohorts: may not be listed" in unseen
    assert any(line.startswith("the controller's configuration: ") for line in unseen)
    said = "namespaces: may not be listed, all but kube-system and tessera-system are taken for queued"
    assert said in unseen
    shell.door.forbidden = "/pods"
    assert "forbidden" in (await shell.run("audit", code=2)).stderr


async def test_what_is_needed_and_may_not_be_watched_ends_it_and_leaves_no_record(shell: Shell, tmp_path: Path) -> None:
    shell.scene.queue()
    shell.door.forbidden = r"/localqueues\?.*watch="
    kept = tmp_path / "history.jsonl"
    found = await shell.run("audit", "--for", "1h", "--record", str(kept), code=2)
    assert "localqueues is forbidden" in found.stderr
    assert not kept.exists()


@pytest.mark.usefixtures("hurried")
async def test_namespaces_that_cannot_be_listed_for_now_are_no_missing_right(shell: Shell) -> None:
    shell.scene.queue()
    shell.scene.server.refuse = lambda _method, path: 503 if path.endswith("/namespaces") else None
    found = await shell.run("audit", code=2)
    assert "namespaces" in found.stderr


@asynccontextmanager
async def watching(shell: Shell, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """``tessera audit`` as a process of its own, which has begun to watch."""
    begun = [sys.executable, "-c", "from cli.main import main; main()", "audit", "--for", "1h", *words]
    environment = {**os.environ, "KUBECONFIG": str(shell.kubeconfig)}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*begun, env=environment, cwd=ROOT, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(HANG_S):
            assert process.stderr is not None
            assert b"kinds are watched for 3600 s" in await process.stderr.readline()
            yield process
    finally:
        if process.returncode is None:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_sooner_and_what_was_seen_is_judged(shell: Shell, number: signal.Signals) -> None:
    shell.scene.queue()
    async with watching(shell) as process:
        process.send_signal(number)
        told, wrong = await process.communicate()
    assert (process.returncode, wrong) == (0, b"")
    assert told.startswith(b"0 findings in ")


@pytest.mark.parametrize("name", ["record.jsonl", "record.jsonl.gz"])
async def test_what_was_seen_until_it_is_killed_can_be_judged(shell: Shell, tmp_path: Path, name: str) -> None:
    shell.scene.queue()
    kept = tmp_path / name
    async with watching(shell, "--record", str(kept)) as process:
        await eventually(lambda: kept.stat().st_size > 100, within_s=HANG_S)
        process.kill()
        await process.wait()
    found = await shell.run("audit", str(kept), code=0)
    assert "not seen: the end: the record is cut after " in found.stdout


@pytest.mark.usefixtures("hurried")
async def test_a_configuration_of_ones_own_has_to_be_one(shell: Shell, tmp_path: Path) -> None:
    shell.scene.queue()
    assert "nowhere.yaml" in (await shell.run("audit", "--config", "nowhere.yaml", code=2)).stderr
    (tmp_path / "c.yaml").write_text("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n")
    found = await shell.run("audit", "--config", str(tmp_path / "c.yaml"), "-o", "json")
    assert not [line for line in json.loads(found.stdout)["unseen"] if "configuration" in line]
