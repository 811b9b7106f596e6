"""What people see while they wait, and where nobody watches."""

import asyncio

import pytest

from cli.console import console, patience


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
