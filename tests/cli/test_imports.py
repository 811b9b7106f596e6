"""What each command has imported when it asks its server: the engine, the agent and login libraries are not waited for
by those who do not use them.

A row is tight: what a command imports more or less changes it here.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from hack.bench.commandline.scenes import ENGINE, HANDED_OVER, SCENES, Asked
from tests.cli.test_commands import COMMANDS

LOOK: Final = """
import json, os, sys

def hear(event, given):
    if event == "socket.connect":
        print(json.dumps(sorted(sys.modules)), flush=True)
        os._exit(0)

sys.addaudithook(hear)
from cli.main import main
main()
"""
GROUPS: Final = (
    "agent",
    "aiohttp.web",
    "controller.cluster.config",
    "controller.scheduler.engine",
    "controller.insight.forecast",
    "controller.jobs.kinds",
    "controller.objects",
    "controller.insight.simulation",
    "grpc",
    "kubernetes",
    "oauthlib",
    "pydantic",
    "requests",
    "rich",
    "simulator",
    "urllib3",
    "yaml",
)
"""Packages that cost something. Clicks and sockets, and what the API's client needs, stand for no choice."""
PLAIN: Final = "controller.objects rich yaml"
KINDS: Final = f"{PLAIN} controller.jobs.kinds"
"""With the tables of all kinds of jobs: a workload is found by its job's name."""
ROWS: Final = {
    "audit": f"{KINDS} controller.cluster.config",
    "capacity q --unit cpu=1": PLAIN,
    "create clusterqueue q --nominal-quota a100:cpu=96": PLAIN,
    "delete workload w --yes": KINDS,
    "explain w": f"{KINDS} controller.cluster.config",
    "list clusterqueue": KINDS,
    "queue list": PLAIN,
    "queue pending": PLAIN,
    "queue stop q": PLAIN,
    "remediation list": f"{PLAIN} agent",
    "remediation start n 0": f"{PLAIN} agent",
    "stop clusterqueue q": KINDS,
    "support-bundle": PLAIN,
    "top": PLAIN,
    "version": PLAIN,
    "workload list": KINDS,
    "workload raise w --class c": KINDS,
    "advise": "rich simulator",
    "doctor": "agent grpc rich",
    "node": "agent grpc rich",
    "sim status": "simulator",
}
MANIFESTS: Final = {
    "submit": f"{PLAIN} controller.insight.simulation",
    "layout plan": f"{PLAIN} agent controller.insight.simulation simulator",
}
"""With a file of examples behind."""


def kubeconfig(folder: Path, user: dict[str, Any]) -> Path:
    file = folder / "kubeconfig"
    body = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }
    file.write_text(yaml.safe_dump(body))
    return file


def imported(folder: Path, line: str, user: dict[str, Any]) -> set[str]:
    """The groups that are there when the command connects."""
    asked = SCENES.get(line)
    options = {Asked.NODE: ["--state-dir", str(folder)], Asked.PROMETHEUS: ["--prometheus", "http://127.0.0.1:9"]}
    words = [*line.split(), *options.get(asked or Asked.API, [])]
    env = {"KUBECONFIG": str(kubeconfig(folder, user)), "HOME": str(folder), "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run([sys.executable, "-c", LOOK, *words], env=env, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    found = set(json.loads(done.stdout))
    return {group for group in GROUPS if group in found}


@pytest.mark.parametrize("line", ROWS)
def test_a_command_that_asks_has_imported_what_it_needs_alone(line: str, tmp_path: Path) -> None:
    assert imported(tmp_path, line, {"token": "t"}) == set(ROWS[line].split())


@pytest.mark.parametrize("command", MANIFESTS)
def test_so_has_one_that_reads_manifests(command: str, tmp_path: Path) -> None:
    line = next(each for each in SCENES if each.startswith(f"{command} "))
    assert imported(tmp_path, line, {"token": "t"}) == set(MANIFESTS[command].split())


def test_the_engine_is_imported_where_it_computes_here(tmp_path: Path) -> None:
    for line in ENGINE:
        assert "controller.scheduler.engine" in imported(tmp_path, line, {"token": "t"})


def test_the_package_for_logins_is_imported_for_logins(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(tmp_path / "login")}
    (tmp_path / "login").write_text(
        '#!/bin/sh\necho \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
        ' "status": {"token": "t"}}\'\n'
    )
    (tmp_path / "login").chmod(0o755)
    assert "kubernetes" in imported(tmp_path, "version", {"exec": plugin})


def test_every_command_that_asks_is_measured() -> None:
    alike = {"sim", "delete"}
    """One of them stands for all: an order each, and kinds that kubectl deletes."""
    silent = {"completion", "migrate", "simulate", "try"} | alike | HANDED_OVER
    asking = {name for name in COMMANDS if name.split()[0] not in silent}
    assert {name for name in asking if not any(f"{line} ".startswith(f"{name} ") for line in SCENES)} == set()
