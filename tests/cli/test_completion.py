"""Completion: the scripts that shells read, and what they and kubectl are answered."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import click.testing
import pytest

from cli.completion import candidates
from cli.main import COMPLETE_VAR, tessera
from controller.cluster.watching.kinds import GPU_NODES, WORKLOADS
from kube.resources import NODES, PODS
from tests.support.cli.shell import Shell


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_a_script_asks_the_program_by_its_variable(shell: str) -> None:
    told = click.testing.CliRunner().invoke(tessera, ["completion", shell])
    assert told.exit_code == 0
    assert f"{COMPLETE_VAR}={shell}_complete" in told.stdout


def test_a_shell_is_answered() -> None:
    env = {COMPLETE_VAR: "bash_complete", "COMP_WORDS": "tessera queue pe", "COMP_CWORD": "2"}
    told = click.testing.CliRunner().invoke(
        tessera, [], env=env, prog_name="tessera", standalone_mode=True, complete_var=COMPLETE_VAR
    )
    assert told.output == "plain,pending\n"


def test_commands_complete_with_their_lines_and_nothing_is_imported_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.main.importlib.import_module", lambda name: pytest.fail(f"{name} is imported"))
    assert candidates(["do"]) == ["doctor\tWhat keeps GPUs from being served on this node.", ":4"]
    assert len(candidates([])) > 9


def test_options_and_choices_complete() -> None:
    assert "--local\tNAMESPACE/NAME of a LocalQueue." in candidates(["queue", "pending", "--lo"])
    assert candidates(["queue", "pending", "-o", "y"]) == ["yaml", ":4"]
    assert candidates(["--ver"]) == ["--version\tShow the version and exit.", ":4"]


SHELLS = [found for found in ("bash", "fish", "zsh") if shutil.which(found)]
"""Real ones that are here. All are asked by the program's own protocol, too."""
TYPED = {
    "bash": 'source "$1"; COMP_WORDS=($2); [ "${2: -1}" = " " ] && COMP_WORDS+=("");'
    "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tessera_completion tessera; printf '%s\\n' \"${COMPREPLY[@]}\"",
    # zsh's builtins of completion work in a terminal alone: functions stand in for them, and print what is added.
    "zsh": 'compdef() { :; }; shown() { print -rl -- "${(@)${(@P)1}%%:*}"; }; compadd() { shown "${@[-1]}"; };'
    '_describe() { shown "$3"; };'
    'source "$1"; words=(${(z)2}); [[ "$2" == *" " ]] && words+=(""); CURRENT=$#words; _tessera_completion; true',
    "fish": 'source $argv[1]; complete --do-complete $argv[2] | string replace -r "\\t.*" ""',
}


@pytest.fixture
async def cluster(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("KUBECONFIG", str(shell.kubeconfig))
    shell.scene.queue("research")
    shell.scene.queue("training", namespace="other")
    shell.scene.workload("job-bert-4f1c2", queue="lq-research")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "bert", "uid": "u", "controller": True}
    shell.scene.server.merge(WORKLOADS, "job-bert-4f1c2", {"metadata": {"ownerReferences": [owner]}}, namespace="team")
    shell.scene.workload("hers", queue="lq-training", namespace="other")
    shell.scene.server.create(NODES, "node-1", {})
    devices = [{"uuid": f"GPU-{at}", "index": at} for at in (0, 1, 11)]
    shell.scene.server.create(GPU_NODES, "gpu-7", {"status": {"devices": devices}})
    shell.scene.server.create(PODS, "bert-0", {}, namespace="team")
    shell.scene.server.create(PODS, "theirs-0", {}, namespace="other")
    return shell


async def completed(line: str) -> list[str]:
    """What is offered after the line."""
    found = await asyncio.to_thread(candidates, line.split(" "))
    return [each.partition("\t")[0] for each in found[:-1]]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("queue stop ", ["other/lq-training", "research", "team/lq-research", "training"]),
        ("queue pending --queue re", ["research"]),
        ("queue pending --local ", ["other/lq-training", "team/lq-research"]),
        ("explain ", ["bert", "job-bert-4f1c2"]),
        ("explain other/", ["other/hers"]),
        ("explain -n other ", ["hers"]),
        ("explain -n ", ["other", "team"]),
        ("workload move bert --to ", ["lq-research"]),
        ("workload list -c t", ["training"]),
        ("stop lq ", ["lq-research"]),
        ("stop lq -n other ", ["lq-training"]),
        ("resume lq --namespace other ", ["lq-training"]),
        ("explain ot", ["other/hers"]),
        ("explain te", ["team/bert", "team/job-bert-4f1c2"]),
        ("explain -n other h", ["hers"]),
        ("explain po", ["pod/bert-0"]),
        ("explain pod", ["pod/bert-0"]),
        ("explain pods/", ["pods/bert-0"]),
        ("explain -n other pod/", ["pod/theirs-0"]),
        ("workload show ot", ["other/hers"]),
        ("workload show po", []),
        ("workload move other/hers --to ", ["lq-training"]),
        ("workload move -n other hers --to ", ["lq-training"]),
        ("workload move other/hers -n team --to ", ["lq-research"]),
        ("workload list -q ", ["lq-research"]),
        ("workload list -n other -q ", ["lq-training"]),
        ("workload list -A -q ", ["lq-research", "lq-training"]),
        ("list workload -n other -q ", ["lq-training"]),
        ("delete workload other/", ["other/hers"]),
        ("delete workload -n other ", ["hers"]),
        ("stop cq ", ["research", "training"]),
        ("delete workload b", ["bert"]),
        ("create lq jobs -c ", ["research", "training"]),
        ("layout plan -f x.yaml --node ", ["node-1"]),
        ("top --context ", ["x"]),
        ("remediation retire gp", ["gpu-7"]),
        ("remediation retire gpu-7 ", ["0", "1", "11"]),
        ("remediation retire gpu-7 1", ["1", "11"]),
        ("remediation retire gpu-7 G", ["GPU-0", "GPU-1", "GPU-11"]),
        ("remediation start gpu-8 ", []),
        ("remediation list --node ", ["gpu-7"]),
        ("remediation resume def", ["default"]),
    ],
)
@pytest.mark.usefixtures("cluster")
async def test_names_of_the_cluster_complete(line: str, offered: list[str]) -> None:
    assert await completed(line) == offered


@pytest.mark.usefixtures("cluster")
async def test_kubectls_verbs_complete_kinds_and_names() -> None:
    assert await completed("describe cl") == ["clusterqueue", "clusterqueues"]
    assert await completed("describe cq re") == ["research"]
    assert await completed("delete cq re") == ["research"]
    for line in (
        "get lq -n other ",
        "delete lq --namespace=other ",
        "describe lq -nother ",
        "edit lq -n other -o yaml ",
    ):
        assert await completed(line) == ["lq-training"], line
    assert await completed("get lq ") == ["lq-research"]
    assert await completed("get lq -A ") == ["lq-research", "lq-training"]
    assert await completed("get lq -n ") == ["other", "team"]
    assert await completed("get lq --context ") == ["x"]
    assert await completed("get lq -o ") == []


async def test_names_are_of_the_cluster_that_the_line_names(
    cluster: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert await completed("stop cq ") == []
    assert await completed(f"stop cq --kubeconfig {cluster.kubeconfig} re") == ["research"]


async def test_who_cannot_be_told_gets_no_names_and_no_message(
    cluster: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.door.forbidden = "."
    assert await completed("queue stop ") == []
    cluster.kubeconfig.write_text("kind: [")
    assert await completed("queue stop ") == []
    assert await completed("top --context ") == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", SHELLS)
async def test_a_real_shell_completes_commands_and_names(cluster: Shell, tmp_path: Path, name: str) -> None:
    program = tmp_path / "tessera"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'from cli.main import main; main()' \"$@\"\n")
    program.chmod(0o755)
    script = tmp_path / "script"
    script.write_text(click.testing.CliRunner().invoke(tessera, ["completion", name]).stdout)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(cluster.kubeconfig), "PYTHONPATH": str(Path.cwd())}

    async def typed(line: str) -> list[str]:
        words = [name, "-c", TYPED[name], *([name] if name != "fish" else []), str(script), line]
        pipe = asyncio.subprocess.PIPE
        done = await asyncio.create_subprocess_exec(*words, env=env, stdout=pipe, stderr=pipe)
        told, errors = await done.communicate()
        assert errors == b""
        return told.decode().split()

    assert await typed("tessera que") == ["queue"]
    assert await typed("tessera explain -n other ") == ["hers"]
    assert await typed("tessera explain ot") == ["other/hers"]
    assert await typed("tessera workload move other/hers --to ") == ["lq-training"]
    assert await typed("tessera get lq -n other ") == ["lq-training"]


@pytest.mark.parametrize("name", ["bash", "fish", "zsh"])
async def test_each_shells_protocol_gives_the_same_names(cluster: Shell, name: str) -> None:
    line = "tessera queue stop tr"
    env = {COMPLETE_VAR: f"{name}_complete", "KUBECONFIG": str(cluster.kubeconfig)}
    env |= {"COMP_WORDS": line, "COMP_CWORD": "tr" if name == "fish" else "3"}

    def ask() -> str:
        runner = click.testing.CliRunner()
        return runner.invoke(tessera, [], env=env, prog_name="tessera", complete_var=COMPLETE_VAR).output

    assert "training" in await asyncio.to_thread(ask)
