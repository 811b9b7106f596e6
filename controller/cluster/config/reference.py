"""The tables of the pages on the configuration, from those of keys: ``python -m controller.cluster.config.reference``.

A page holds ``<!-- table: name -->`` and ``<!-- end -->``; the text between them is rewritten. A test fails when a
table is stale.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from controller.cluster.config.inertgates import GONE, IDLE
from controller.cluster.config.key import Key
from controller.cluster.config.keys import KUEUE, OWN

PAGES = ("docs/controller-config.md", "docs/controller-config-kueue.md")
_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def _name(key: Key) -> str:
    return f"`{key.path}`" + (" (v1beta1)" if key.instead else "")


def _honoured(keys: Iterable[Key]) -> str:
    return _table(
        ("key", "default", "meaning", "values"),
        ((_name(key), key.default, key.meaning, key.expected) for key in keys if not key.without_effect),
    )


def _unused(keys: Iterable[Key]) -> str:
    return _table(
        ("key", "why it has no effect"), ((_name(key), key.without_effect) for key in keys if key.without_effect)
    )


def rewritten(page: str) -> str:
    """``page`` with each marked table brought up to date."""
    tables = {
        "kueue": _honoured(KUEUE),
        "unused": _unused(KUEUE),
        "own": _honoured(OWN),
        "idle": _table(("gate", "what holds"), ((f"`{name}`", text) for name, text in IDLE.items())),
        "gates": _table(("gate", "what holds"), ((f"`{name}`", text) for name, text in GONE.items())),
    }
    return _MARKED.sub(lambda match: match[1] + tables[match[2]] + match[3], page)


if __name__ == "__main__":
    for path in map(Path, PAGES):
        path.write_text(rewritten(path.read_text()))
