"""What people see while they wait, and where nobody watches."""

import asyncio

import click
import click.testing
import pytest
from rich.text import Text

from cli.main import tessera
from cli.printing.console import aside, console, patience, show, titled


async def test_who_waits_is_told_what_for(capsys: pytest.CaptureFixture[str]) -> None:
    told = ""
    async with patience(lambda: "waiting for the API server", quiet_s=0):
        while not told:
            await asyncio.sleep(0)
            told = capsys.readouterr().err
    assert told == "waiting for the API server, 0 s\n"


async def test_what_is_done_in_a_moment_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async with patience(lambda: "waiting for the API server", quiet_s=60):
        for _ in range(5):
            await asyncio.sleep(0)
    assert capsys.readouterr().err == ""


def test_without_a_terminal_nothing_is_folded_or_coloured() -> None:
    assert console().width > 1000
    assert console().no_color


HOSTILE = "a\x1b]0;t\x07b"


def test_no_control_character_of_an_object_reaches_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    table = titled("", "a heading that is wide enough")
    table.add_row(Text(HOSTILE))
    show(Text(HOSTILE), table, HOSTILE)
    aside(f"{HOSTILE}\n\tError: forged")
    out, err = capsys.readouterr()
    assert "\x1b" not in out
    assert out.count("a\\x1b]0;t") == 3
    assert err == "note: a\\x1b]0;t\\x07b\\n\\tError: forged\n"


def test_what_a_refusal_cites_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise click.ClickException(f"found {HOSTILE}")

    monkeypatch.setattr(tessera, "get_command", lambda _context, name: click.Command(name, callback=refuse))
    told = click.testing.CliRunner().invoke(tessera, ["version"])
    assert (told.exit_code, told.stderr) == (1, "Error: found a\\x1b]0;t\\x07b\n")
