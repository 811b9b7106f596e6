"""Log lines are one line each, tell their fields, and do not repeat themselves."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from agent.config.settings import LogFormat, LogLevel, LogSettings
from agent.process.log import MAX_KEYS, Limiter, configure

log = logging.getLogger("test")


class Lines(io.StringIO):
    now_s = 0.0

    def take(self) -> list[str]:
        lines = self.getvalue().splitlines()
        self.seek(0)
        self.truncate()
        return lines


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = handlers, level


@pytest.fixture
def lines() -> Lines:
    found = Lines()
    configure(LogSettings(), stream=found, clock=lambda: found.now_s)
    return found


def test_a_line_tells_its_fields(lines: Lines) -> None:
    log.info("GPU is out", extra={"gpu": "GPU-1", "xid": 79, "age_s": 0.25, "advertised": False})
    (line,) = lines.take()
    assert line.startswith("ts=20")
    assert line.endswith('level=info logger=test msg="GPU is out" gpu=GPU-1 xid=79 age_s=0.25 advertised=false')


def test_a_field_cannot_break_out_of_its_line(lines: Lines) -> None:
    log.info("x", extra={"error": 'two\nlines "and" a=b', "msg_": "\u2028", "level": "fake"})
    (line,) = lines.take()
    assert r'error="two\nlines \"and\" a=b"' in line
    assert "level_=fake" in line


def test_json_lines_hold_the_same() -> None:
    lines = Lines()
    configure(LogSettings(format=LogFormat.JSON, level=LogLevel.DEBUG), stream=lines)
    try:
        int("boom")
    except ValueError:
        log.exception("broke", extra={"gpu": "GPU-1", "what": object})
    line = json.loads(lines.take()[0])
    assert (line["level"], line["msg"], line["gpu"]) == ("error", "broke", "GPU-1")
    assert "'boom'" in line["exception"]


def test_a_repeating_condition_is_told_once_a_minute_with_how_often(lines: Lines) -> None:
    for second in range(130):
        lines.now_s = second
        log.warning("cannot reach", extra={"server": "a"})
    said = lines.take()
    assert len(said) == 3
    assert "suppressed" not in said[0]
    assert said[1].endswith("suppressed=59")
    assert said[2].endswith("suppressed=59")


def test_another_condition_is_not_held_back(lines: Lines) -> None:
    for server in ("a", "b", "a"):
        log.warning("cannot reach", extra={"server": server})
    assert len(lines.take()) == 2


def test_information_repeats_unless_it_is_given_a_key(lines: Lines) -> None:
    for _ in range(3):
        log.info("allocated")
    for n in range(3):
        log.info("waiting %d", n, extra={"limit": "waiting"})
    said = lines.take()
    assert [line.split("msg=")[1] for line in said] == ["allocated", "allocated", "allocated", '"waiting 0"']


def test_a_warning_may_opt_out(lines: Lines) -> None:
    for _ in range(3):
        log.warning("each counts", extra={"limit": None})
    assert len(lines.take()) == 3


def test_a_limit_spans_different_texts_of_one_condition(lines: Lines) -> None:
    for n in range(5):
        log.warning("failed after %d ms", n, extra={"limit": ("probe", "GPU-1")})
    assert len(lines.take()) == 1


def test_the_memory_of_conditions_is_bounded() -> None:
    limiter = Limiter(lambda: 0.0)
    for n in range(MAX_KEYS * 3):
        limiter.filter(logging.makeLogRecord({"levelno": logging.WARNING, "msg": f"m{n}"}))
    assert len(limiter._seen) == MAX_KEYS


def test_levels_below_the_settings_are_not_written() -> None:
    lines = Lines()
    configure(LogSettings(level=LogLevel.ERROR), stream=lines)
    log.warning("no")
    log.error("yes")
    assert len(lines.take()) == 1
