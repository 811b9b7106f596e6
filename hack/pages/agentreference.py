"""The tables in the documentation, from the tables the agent works by: ``python -m hack.pages.agentreference``.

A page holds ``<!-- table: name -->`` and ``<!-- end -->``; what stands between is rewritten. A test fails when it is
stale.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from agent.config.table import NVIDIA, OWN, PROCESS, Option
from agent.health.xids import XIDS
from agent.telemetry.fields import FIELDS

PAGES = ("docs/agent-settings.md", "docs/health.md", "docs/metrics.md")
_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words if word)


def _settings(options: Iterable[Option]) -> str:
    return _markdown(
        ("config key", "flag", "environment", "default", "meaning", "values"),
        [
            (
                _code(option.paths),
                _code([option.flag]),
                _code(option.variables),
                option.default,
                option.help,
                option.parser.expected if option.target or option.caution else "",
            )
            for option in options
        ],
    )


def _xids() -> str:
    return _markdown(
        ("XID", "what happened", "class", "scope", "what to do", "source"),
        [
            (str(rule.xid), rule.name, rule.fault_class, rule.scope, rule.action, rule.source)
            for rule in sorted(XIDS.values(), key=lambda rule: rule.xid)
        ],
    )


def _fields() -> str:
    return _markdown(
        ("field", "type", "help", "without a file"),
        [(_code([field.name]), field.kind.value, field.help, "yes" if field.usual else "") for field in FIELDS],
    )


def rewritten(page: str) -> str:
    """``page`` with each marked table as it should be."""
    tables = {
        "process": _settings(PROCESS),
        "nvidia": _settings(NVIDIA),
        "own": _settings(OWN),
        "xids": _xids(),
        "fields": _fields(),
    }
    return _MARKED.sub(lambda match: match[1] + tables[match[2]] + match[3], page)


if __name__ == "__main__":
    for name in PAGES:
        path = Path(name)
        path.write_text(rewritten(path.read_text()))
