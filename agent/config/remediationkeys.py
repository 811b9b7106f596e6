"""The keys of the section ``remediation``, as rows of the table of settings: path, target, parser, default, meaning,
and a flag where the chart sets it.
"""

import re
from typing import Final

from agent.config.parsers import INTERVAL
from agent.health.remediation import STEWARDS, RebootMode, ResetMode
from yamlfile.parsers import NUMBER, STRING, Parser, Unfit, finite, go_duration, integer, one_of, plain

_LONGEST_S: Final = 30 * 86400.0
_MOST_NAMES: Final = 64


def _within(text: str) -> float:
    value_s = finite(text) if re.fullmatch(r"[\d.]+", text) else go_duration(text)
    if not 60 <= value_s <= _LONGEST_S:  # noqa: PLR2004 - a minute
        raise Unfit
    return value_s


def _command(text: str) -> tuple[str, ...]:
    words = tuple(plain(text).split(","))
    if not all(words):
        raise Unfit
    return words


def _names(text: str) -> tuple[str, ...]:
    names = tuple(plain(text).split(",")) if text else ()
    if len(names) > _MOST_NAMES or not all(re.fullmatch(r"[!-~]{1,63}", name) for name in names):
        raise Unfit
    return names


WITHIN = Parser(expected="1m to 720h, or a number of seconds", convert=_within, kinds=STRING | NUMBER)
COMMAND = Parser(expected="a program and its arguments, without commas", convert=_command, kinds=STRING, many=True)
NAMES = Parser(expected="at most 64 names of processes, separated by commas", convert=_names, kinds=STRING, many=True)

KEYS: tuple[tuple[str, str, Parser, str, str, str], ...] = (
    (
        "remediation.reset",
        "remediation.reset",
        one_of(ResetMode),
        "never",
        "whether a GPU whose driver asks for it is reset: never; once nobody holds it; or its pods leave first (drain)",
        "--remediation-reset",
    ),
    (
        "remediation.reboot",
        "remediation.reboot",
        one_of(RebootMode),
        "never",
        "whether the controller is asked for a reboot of the node where a repair wants one",
        "--remediation-reboot",
    ),
    (
        "remediation.attempts",
        "remediation.attempts",
        integer(1, 10),
        "2",
        "resets of one GPU for one fault, after which a reboot is wanted",
        "",
    ),
    (
        "remediation.retireAfter.faults",
        "remediation.retire_faults",
        integer(1, 100),
        "5",
        "so often the same fault on one GPU within that time retires it",
        "",
    ),
    ("remediation.retireAfter.within", "remediation.retire_within_s", WITHIN, "24h", "the time of retireAfter", ""),
    (
        "remediation.stewards",
        "remediation.stewards",
        NAMES,
        ",".join(STEWARDS),
        "processes that have GPUs open without computing: where one holds a reset up, people are told to stop it",
        "--remediation-stewards",
    ),
    (
        "remediation.verify.command",
        "remediation.verify_command",
        COMMAND,
        "",
        "a program that is run after a reset with that GPU alone visible; it must end with 0",
        "",
    ),
    (
        "remediation.verify.timeout",
        "remediation.verify_timeout_s",
        INTERVAL,
        "30s",
        "how long that program may take",
        "",
    ),
)
