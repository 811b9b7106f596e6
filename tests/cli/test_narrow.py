"""Every table of every command on terminals of 60 and 80 columns: each word and each name is whole."""

import re
from pathlib import Path

import click.testing
import msgspec
import pytest

from cli.main import tessera
from controller.cluster.watching.kinds import GPU_NODES
from controller.jobs.framework import names
from kube.resources import PODS
from kube.testing import eventually
from tests.cli.advise.test_command import FULL, Stored
from tests.cli.advise.test_command import run as advised
from tests.cli.advise.test_packing import written
from tests.cli.conftest import AgentSocket, Run
from tests.cli.node.test_command import report
from tests.cli.queue.test_command import served
from tests.cli.test_commands import LISTS, TABLES
from tests.controller.scheduler.consolidation.test_packing import fragmented
from tests.support.cli.shell import Shell, terminal
from tests.support.controller.gpunodes import full_status
from tests.support.engine.world import workload
from tests.support.inventory.builders import gpu

ROOT = Path(__file__).parents[2]
WIDTHS = (60, 80)
NOTES = {"Quota", "left", "out", "for", "want", "of", "room:", "(-o", "wide)"}
OF_CLUSTER = (
    "queue list",
    "queue pending",
    "explain team/job-llama-finetune-91b7d",
    "explain team/job-bert-large-uncased-4f1c2",
    "workload list -A",
    "workload show job-bert-large-uncased-4f1c2",
    "workload story job-bert-large-uncased-4f1c2",
    "list clusterqueue",
    "list localqueue",
    "list resourceflavor",
    "list workload",
    "list pods --for workload/job-bert-large-uncased-4f1c2",
    "top --once",
    "top --once --by node",
    "remediation list",
    "remediation plan",
)
OTHERS = {"node", "simulate", "advise"}
"""Tested one by one below."""


def words(text: str) -> set[str]:
    """As a reader sees them, without digits: times pass between two calls."""
    return {re.sub(r"\d+", "0", word.rstrip(";,")) for word in text.split()}


def whole(at_width: str, in_a_pipe: str, width: int) -> None:
    """What stands on a terminal stands in a pipe, word by word, and no line is longer than the terminal."""
    assert words(at_width) - words(in_a_pipe) - {word.rstrip(";,") for word in NOTES} == set()
    for line in at_width.splitlines():
        assert len(line) <= width or len(line.split()) == 1, line


async def check(shell: Shell, *command: str) -> None:
    everything = (await shell.run(*command, "-o", "wide")).stdout
    assert len(everything.splitlines()) > 2, everything
    for width in WIDTHS:
        text = (await shell.run(*command, width=width)).stdout
        whole(text, everything, width)
        wide = (await shell.run(*command, "-o", "wide", width=width)).stdout
        whole(wide, everything, width)
        missing = {word for word in words(everything) - words(wide) if not re.fullmatch(r"[A-Za-z]+:?", word)}
        assert missing <= {"-"}, "wide leaves nothing out but the headings of what nothing has"


async def test_tables_of_the_cluster(shell: Shell) -> None:
    scene, server = shell.scene, shell.scene.server
    long = "research-and-development-of-language-models"
    scene.queue(long, cpus=2, cohort="all-departments-of-the-institute")
    async with scene.controller(served(), core_only=False) as process:
        shell.door.behind = process
        scene.workload("job-bert-large-uncased-4f1c2", 2, queue=f"lq-{long}")
        await scene.until_admitted("job-bert-large-uncased-4f1c2")
        scene.workload("job-llama-finetune-91b7d", 2, queue=f"lq-{long}")
        await eventually(lambda: bool(scene.condition("job-llama-finetune-91b7d", "QuotaReserved")))
        note = {names.WORKLOAD: "job-bert-large-uncased-4f1c2"}
        pod = {"metadata": {"annotations": note}, "spec": {"nodeName": "gpu-node-17.rack-4.example.com"}}
        server.create(PODS, "bert-large-uncased-0-xk2p9", pod, namespace="team")
        device = {"uuid": "GPU-0", "index": 0, "product": "NVIDIA H100 80GB HBM3", "memoryMiB": 81559}
        device["health"] = {"state": "Unhealthy", "reasons": ["XID 79: the GPU has fallen off the bus"], "since": None}
        holders = [{"device": "GPU-0", "namespace": "team", "pod": f"bert-large-uncased-{at}-xk2p9"} for at in range(5)]
        repair = {"gpu": "GPU-0", "state": "Draining", "asks": "drain", "note": "held by five pods of this node"}
        status = full_status({"devices": [device], "holders": holders, "repairs": [repair]})
        server.create(GPU_NODES, "gpu-node-17.rack-4.example.com", {"status": status})
        for command in OF_CLUSTER:
            await check(shell, *command.split())


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_of_a_node(agent: AgentSocket, state_dir: Path, run: Run, width: int) -> None:
    agent.answer = (200, msgspec.json.encode(report(*(gpu(at) for at in range(16)))))
    for sections in (("node",), ("node", "links"), ("node", "-o", "wide")):
        env = {"TESSERA_STATE_DIR": str(state_dir), **terminal(width)}
        shown = click.testing.CliRunner().invoke(tessera, sections, env=env).stdout
        whole(shown, run(*sections).stdout, width)


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_of_simulations_and_advice(tmp_path: Path, width: int) -> None:
    lab = fragmented()
    lab.put(workload("wide", "q", 4, created_s=50))
    folder = ROOT / "examples/simulate"
    simulation = ("simulate", "--fleet", str(folder / "fleet-8.yaml"), str(folder / "cohort-borrowing.yaml"))
    for command in (simulation, ("advise", "--pack", "-f", str(written(lab, tmp_path)))):
        everything = click.testing.CliRunner().invoke(tessera, command).stdout
        for more in ((), ("-o", "wide")):
            narrow = click.testing.CliRunner().invoke(tessera, [*command, *more], env=terminal(width)).stdout
            whole(narrow, everything, width)
            assert narrow


@pytest.mark.parametrize("width", WIDTHS)
def test_the_table_of_smaller_requests(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = advised(Stored(FULL))
    for name, value in terminal(width).items():
        monkeypatch.setenv(name, value)
    whole(advised(Stored(FULL)), everything, width)


def test_every_command_with_tables_is_looked_at() -> None:
    seen = {name for name in {*LISTS, *TABLES} if any(each.startswith(name) for each in OF_CLUSTER)}
    assert seen | OTHERS == {*LISTS, *TABLES}
