"""Which lines are about a peer that broke off, and which are not."""

import errno
import logging
from collections.abc import Callable

import aiohttp
import pytest
from aiohttp import web

from kube import brokenpeers

Told = Callable[[], list[logging.LogRecord]]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    caplog.set_level(logging.DEBUG)
    brokenpeers.install()
    return lambda: caplog.records


async def answered(handler: Callable[[web.Request], object]) -> int:
    app = web.Application()
    app.router.add_get("/", handler)  # type: ignore[arg-type]
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{runner.addresses[0][1]}/") as answer:
        status = answer.status
    await runner.cleanup()
    return status


@pytest.mark.parametrize("error", [ValueError("ours"), ConnectionResetError("another connection"), OSError(5, "disk")])
async def test_what_a_handler_does_wrong_keeps_its_level_and_its_traceback(told: Told, error: Exception) -> None:
    async def handler(_: web.Request) -> web.Response:
        raise error

    assert await answered(handler) == 500
    (line,) = [line for line in told() if line.name == "aiohttp.server"]
    assert line.levelno == logging.ERROR
    assert line.exc_info is not None
    assert line.exc_info[1] is error


async def test_a_server_that_the_handler_asked_and_that_broke_off_is_no_peer(told: Told) -> None:
    async def asking(_: web.Request) -> web.Response:
        async with aiohttp.ClientSession() as client:
            await client.get("http://127.0.0.1:1/")
        raise AssertionError

    assert await answered(asking) == 500
    (line,) = [line for line in told() if line.name == "aiohttp.server"]
    assert (line.levelno, bool(line.exc_info)) == (logging.ERROR, True)


def test_writes_after_the_end_are_lines_at_debug(told: Told) -> None:
    for message in ("socket.send() raised exception.", "SSL connection is closed", "another"):
        logging.getLogger("asyncio").warning(message)
    assert [(line.levelname, line.getMessage()) for line in told()] == [
        ("DEBUG", "a peer broke off"),
        ("DEBUG", "a peer broke off"),
        ("WARNING", "another"),
    ]


def test_a_lack_of_files_is_a_warning_without_a_traceback(told: Told) -> None:
    error = OSError(errno.EMFILE, "Too many open files")
    logging.getLogger("asyncio").error("socket.accept() out of system resource\nsocket: <socket>", exc_info=error)
    (line,) = told()
    assert (line.levelname, line.getMessage(), line.exc_info) == ("WARNING", "new connections wait", None)
    assert vars(line)["error"] == "OSError: [Errno 24] Too many open files"


def test_where_debug_lines_are_not_written_there_is_none(caplog: pytest.LogCaptureFixture) -> None:
    brokenpeers.install()
    brokenpeers.install()
    assert len(logging.getLogger("asyncio").filters) == 1
    caplog.set_level(logging.INFO)
    logging.getLogger("asyncio").warning("SSL connection is closed")
    assert not caplog.records
