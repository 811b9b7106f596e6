"""A log record is one line, whatever is in it."""

import json
import logging
from typing import Any

import pytest

from kube.loglines import LIMIT, JsonFormatter, LogfmtFormatter, logfmt


def record(message: str, **extra: Any) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "core", "levelno": logging.WARNING, "levelname": "WARNING", "created": 0.25})
    made.msg = message
    vars(made).update(extra)
    return made


def test_a_line_has_the_time_in_utc_the_level_the_logger_and_the_message_then_its_fields() -> None:
    line = LogfmtFormatter().format(record("not written", workload="ns/a", tries=3))
    assert line == ('ts=1970-01-01T00:00:00.250Z level=warning logger=core msg="not written" workload=ns/a tries=3')


def test_the_key_of_a_condition_is_no_field() -> None:
    assert "GPU-1" not in LogfmtFormatter().format(record("x", **{LIMIT: "GPU-1"}))


def test_a_traceback_stays_on_the_line() -> None:
    with pytest.raises(ValueError, match="two") as caught:
        raise ValueError("two\nlines")
    info = (caught.type, caught.value, caught.tb)
    line = LogfmtFormatter().format(record("failed", exc_info=info))
    assert len(line.splitlines()) == 1
    assert r"ValueError: two\nlines" in line
    assert json.loads(JsonFormatter().format(record("failed", exc_info=info)))["exception"].endswith("two\nlines")


@pytest.mark.parametrize(
    ("value", "shown"),
    [("a b", '"a b"'), ("", '""'), ("a=b", '"a=b"'), ("\u2028", r'"\u2028"'), ("é", '"é"'), (None, ""), (0.1, "0.1")],
)
def test_values_that_are_not_plain_words_are_quoted(value: object, shown: str) -> None:
    assert logfmt({"a": value}) == f"a={shown}"
