"""What the agent's log says of peers that break off, by its own configuration of the log."""

import io
from pathlib import Path

import pytest

from agent.config.settings import Address, LogLevel, LogSettings
from agent.process.log import configure
from agent.report import Answers
from agent.serving.endpoints import Endpoints
from tests.agent.serving.test_endpoints import REPORT
from tests.support.brokenpeers import Target, claim_one_line


@pytest.fixture
def written() -> io.StringIO:
    """Its log, with debug lines."""
    stream = io.StringIO()
    configure(LogSettings(level=LogLevel.DEBUG), stream=stream)
    return stream


async def test_a_peer_that_breaks_off_is_one_line_at_debug_and_no_traceback(
    written: io.StringIO, short_folder: Path
) -> None:
    answers = Answers(lambda: b"x" * 30_000_000, lambda: REPORT, lambda: None, lambda: None, lambda _: None, None)
    endpoints = Endpoints(answers)
    await endpoints.start(Address("127.0.0.1", 0), short_folder)
    try:
        await claim_one_line(Target(endpoints.port, "/metrics", "/healthz"), written.getvalue)
    finally:
        await endpoints.stop()
