"""Every command of ``tessera`` and of its groups: help with an example, JSON for programs, no colour in a pipe."""

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import click.testing
import pytest

from cli import main
from cli.main import program, tessera
from cli.naming.nearest import NearestGroup
from cli.printing.output import FORMATS, LIST_FORMATS, TABLE_FORMATS
from cli.sim import sim
from tests.support.cli.lines import understood

ROOT = Path(__file__).parents[2]
BARE = {"sim status": "its answer is JSON with and without -o"}
"""Commands for which -o changes nothing, and why."""
SILENT = {"page", "try", "completion", "describe", "edit", "get", "patch"}
SILENT |= {f"delete {kind}" for kind in ("clusterqueue", "localqueue", "resourceflavor")}
"""Commands whose answer is for a shell, or is kubectl's."""
LISTS = {"queue list", "queue pending", "workload list"}
LISTS |= {f"list {kind}" for kind in ("clusterqueue", "localqueue", "pods", "resourceflavor", "workload")}
"""Commands that list objects."""
TABLES = {"advise", "explain", "node", "simulate", "top", "workload show", "workload story"}
TABLES |= {"remediation list", "remediation plan"}
"""Others that show tables."""


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands that do something, by the words that lead to them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, (*path, name))
        else:
            yield (*path, name), found


COMMANDS = {" ".join(words): command for words, command in commands(tessera)}
GROUPS = ("", *sorted({" ".join(name.split()[:-1]) for name in COMMANDS if " " in name}))


def call(*words: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(tessera, words)


def test_the_commands_are_found() -> None:
    assert {"node", "queue stop", "sim xid", "layout apply", "simulate"} <= set(COMMANDS)
    assert {"", "queue", "sim", "layout"} <= set(GROUPS)


@pytest.mark.parametrize("name", [*COMMANDS, *GROUPS[1:], "node release"])
def test_help_has_examples_that_the_command_understands(name: str) -> None:
    shown = call(*name.split(), "--help")
    assert shown.exit_code == 0
    told = shown.output.partition("Example")[2].partition("Options")[0]
    examples = re.findall(r"^ +(tessera [^\n]+)$", told, re.MULTILINE)
    assert examples, f"tessera {name} --help shows no example"
    assert [wrong for wrong in map(understood, examples) if wrong] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is(name: str) -> None:
    for option in COMMANDS[name].params:
        assert not isinstance(option, click.Option) or option.help, f"tessera {name} {option.name}"


@pytest.mark.parametrize("name", sorted({*COMMANDS, "node release"} - SILENT))
def test_every_command_speaks_json_and_yaml_and_every_list_names_and_more_columns(name: str) -> None:
    formats = LIST_FORMATS if name in LISTS else TABLE_FORMATS if name in TABLES else FORMATS
    help_text = call(*name.split(), "--help").output
    assert f"-o, --output [{'|'.join(formats)}]" in help_text
    if name in BARE:
        return
    wrong = call(*name.split(), "-o", "toml")
    assert wrong.exit_code == 2
    assert "'toml' is not one of 'text', " in wrong.stderr


def test_an_unknown_word_is_a_line_and_exit_2() -> None:
    for name in GROUPS:
        done = call(*name.split(), "nosuch")
        assert done.exit_code == 2
        assert done.stderr.splitlines()[-1] == "Error: No such command 'nosuch'."


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("quee", "'queue'"),
        ("wl", "'workload'"),
        ("queue lst", "'list'"),
        ("stop cqs x", "'clusterqueue'"),
        ("list wll", "'workload'"),
        ("sim xd", "'xid'"),
        ("layout aply", "'apply'"),
        ("remediation pln", "'plan'"),
        ("workload stopp x", "'stop' or 'story'"),
    ],
)
def test_a_word_that_is_nearly_a_command_is_told_which(words: str, meant: str) -> None:
    said = call(*words.split()).stderr.splitlines()[-1]
    assert said.startswith("Error: No such command ")
    assert said.endswith(f"Did you mean {meant}?")


def test_every_group_says_what_was_probably_meant() -> None:
    for name in GROUPS:
        command: click.Command | None = tessera
        for word in name.split():
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), word)
        assert isinstance(command, NearestGroup), name


def test_what_a_command_of_sim_says_of_itself_is_told_in_its_group() -> None:
    shown = call("sim", "--help").output
    assert all(re.search(rf"^  {name} ", shown, re.MULTILINE) for name in sim.commands)


def test_the_root_names_every_command_in_an_example() -> None:
    shown = call("--help").output
    used = {shlex.split(line)[1] for line in re.findall(r"^ +(tessera [a-z-]+)", shown, re.MULTILINE)}
    assert {name.split()[0] for name in COMMANDS} - used == {"release-nvml"}, (
        "release-nvml: tessera node release is better"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("sim xid --gpu x 79", "Invalid value for '--gpu': 'x' is not a valid integer."),
        ("sim slow * x", "Invalid value for 'SECONDS': 'x' is not a valid number."),
        ("node release --gpu -1", "Invalid value for '--gpu': -1 is not in the range x>=0."),
        ("queue pending --limit 0", "Invalid value for '--limit': 0 is not in the range 1<=x<=100000."),
    ],
)
def test_a_number_that_is_none_is_told_as_such(words: str, said: str) -> None:
    done = call(*words.split())
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, f"Error: {said}")


@pytest.mark.parametrize("name", GROUPS)
def test_a_list_of_commands_says_whole_sentences(name: str) -> None:
    shown = click.testing.CliRunner().invoke(tessera, [*name.split(), "--help"], terminal_width=80).output
    told = shown.partition("Commands:")[2]
    assert told
    assert "..." not in told


def test_the_list_of_commands_has_the_first_line_of_each() -> None:
    context = click.Context(tessera)
    for name, (_, line) in main.COMMANDS.items():
        command = tessera.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(200) == line


@pytest.mark.parametrize("words", ["['--help']", "['simulate', '--help']", "['node', '--help']"])
def test_what_asks_no_api_server_does_not_load_its_client(words: str) -> None:
    code = (
        f"import sys; from cli.main import tessera; tessera({words}, standalone_mode=False)\n"
        "print(sorted(sys.modules.keys() & {'aiohttp', 'kubernetes'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("called", "said"),
    [("/usr/bin/kubectl-tessera", "kubectl tessera"), ("/usr/bin/tessera", "tessera"), ("main.py", "tessera")],
)
def test_help_names_the_program_as_it_was_called(called: str, said: str) -> None:
    shown = click.testing.CliRunner().invoke(tessera, ["queue", "--help"], prog_name=program(called))
    assert shown.output.startswith(f"Usage: {said} queue [OPTIONS]")


def test_both_names_are_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-tessera"] == scripts["tessera"] == "cli.main:main"
    assert scripts["kubectl_complete-tessera"] == "cli.completion:of_kubectl"
