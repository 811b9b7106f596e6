"""Completion: the scripts that shells read, and what they and kubectl are answered."""

import click.testing
import pytest

from cli.completion import candidates
from cli.main import COMPLETE_VAR, tessera


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
