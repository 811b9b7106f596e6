"""``tessera version`` without a cluster, and what it says of one."""

import json
from pathlib import Path

import click.testing

from cli.main import tessera
from cli.version import agents, lines
from inventory import __version__


def call(*words: str, home: Path) -> click.testing.Result:
    return click.testing.CliRunner().invoke(tessera, ["version", *words], env={"KUBECONFIG": str(home / "none")})


def test_the_clients_version_needs_no_cluster(tmp_path: Path) -> None:
    assert call("--client", home=tmp_path).stdout == f"client: {__version__}\n"
    assert json.loads(call("--client", "-o", "json", home=tmp_path).stdout) == {"client": __version__}


def test_without_a_cluster_it_says_why_and_is_done(tmp_path: Path) -> None:
    done = call(home=tmp_path)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == f"client: {__version__}"
    assert [line.partition(": not known: ")[0] for line in done.stdout.splitlines()[1:]] == ["controller", "agents"]
    assert "found no such file" in done.stdout


def test_agents_are_counted_by_version() -> None:
    told = [{"status": {"agentVersion": version}} for version in ("0.2.0", "0.1.0", "0.2.0")]
    found = agents((*told, {}, {"status": None}, {"status": {"agentVersion": 7}}))
    counted = [(each["version"], each["nodes"]) for each in found]
    assert counted == [("", 2), ("0.2.0", 2), ("0.1.0", 1), ("7", 1)]
    assert lines({"client": "1", "controller": {"version": "2"}, "agents": found}) == [
        "client: 1",
        "controller: 2",
        "agents: older, which tells none on 2 nodes, 0.2.0 on 2 nodes, 0.1.0 on 1 node, 7 on 1 node",
    ]
    assert lines({"client": "1", "controller": None, "agents": []})[1:] == [
        "controller: unknown",
        "agents: no node has one",
    ]
