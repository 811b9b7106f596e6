"""What users read as one text, for reading: ``python -m hack.pages.messages`` writes ``docs/messages.md``.

Those of conditions and Events come from ``controller.messages`` and ``agent.words``, those of layouts from
``inventory.words``, what commands refuse from ``cli.words``; those of rules about Volcano's and KAI's objects from the
tables that the chart's policies are made of, each up to its first value. A test fails when the page is stale.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from agent.words import claims, health, mig, node
from agent.words import repairs as node_repairs
from cli.words import doctor, given, remediation, servers
from cli.words import queues as named
from controller.foreign.rules.refusedkinds import REFUSED
from controller.foreign.rules.table import FOREIGN_KINDS
from controller.messages import (
    bargains,
    forecasts,
    jobs,
    pending,
    provisioning,
    queues,
    repairs,
    restarts,
    statuses,
)
from inventory.words import layouts
from inventory.words.catalog import EVERY, Kind, Place, Sentence

PAGE: Final = Path(__file__).parents[2] / "docs" / "messages.md"
MODULES: Final = (
    pending,
    forecasts,
    queues,
    statuses,
    restarts,
    jobs,
    provisioning,
    repairs,
    bargains,
    health,
    node_repairs,
    layouts,
    mig,
    node,
    claims,
    given,
    named,
    servers,
    remediation,
    doctor,
)
"""Importing one puts its sentences into the catalog."""

_LITERAL: Final = re.compile(r"'((?:[^'\\]|\\.)*)'")
_HEAD: Final = """# Messages

What the controller and the agent say in conditions and Events, what they and the commands refuse, what `tessera doctor`
finds. Words in CAPITALS are values. `.venv/bin/python -m hack.pages.messages` writes this page from
`controller/messages/`, `agent/words/`, `inventory/words/`, `cli/words/` and `controller/foreign/rules/`. What each XID
asks of a person stands in [its table](health.md).

"""


def sentences() -> list[Sentence]:
    """Of all modules, each module's in its own order."""
    return [each for module in MODULES for each in EVERY if each.module == module.__name__]


def rules() -> Iterator[tuple[str, dict[str, list[str]]]]:
    """By kind: what its rules say, up to the first value, and the ends of the paths that they say it of."""
    for kind in FOREIGN_KINDS:
        paths_of: dict[str, list[str]] = {}
        for said in (*kind.says.values(), *kind.deletion_says.values()):
            for path, text in _literals(said):
                known = paths_of.setdefault(text, [])
                if path not in known:
                    known.append(path)
        yield f"{kind.kind}.{kind.group}", paths_of


def page() -> str:
    return _HEAD + "".join([*_conditions(), "\n## Rules about objects of Volcano and KAI\n\n", *_rules()])


def _conditions() -> Iterator[str]:
    order = list(Place)
    for place, told in groupby(sorted(sentences(), key=lambda each: order.index(each.place)), _place):
        yield f"## {place}\n\n"
        every = list(told)
        for kind in Kind:
            yield from _table(kind, [each for each in every if each.kind is kind])


def _table(kind: Kind, told: Iterable[Sentence]) -> Iterator[str]:
    rows = [f"- {each.text}\n" for each in told]
    if rows:
        yield f"{_TITLES[kind]}\n\n{''.join(rows)}\n"


_TITLES: Final = {
    Kind.REFUSAL: "Somebody must act:",
    Kind.WAITING: "It goes on by itself:",
    Kind.NOTE: "What happened:",
    Kind.PART: "Clauses of these sentences:",
}


def _rules() -> Iterator[str]:
    for name, told in rules():
        yield f"{name}:\n\n" + "".join(f"- {_paths(paths)}: {text}\n" for text, paths in told.items()) + "\n"
    yield "Kinds of which none is created:\n\n" + "".join(f"- {each.sentence}\n" for each in REFUSED)


def _paths(paths: Iterable[str]) -> str:
    return ", ".join(f"`{path}`" for path in paths if path) or "any"


def _literals(said: str) -> Iterator[tuple[str, str]]:
    """Path and sentence of each text in CEL that says what is expected."""
    for found in _LITERAL.findall(said):
        path, colon, text = found.replace("\\'", "'").partition(": ")
        if colon and "expected" in text:
            yield path.lstrip("]."), text.strip().removesuffix(", found").removesuffix(" (")


def _place(sentence: Sentence) -> str:
    return sentence.place.value


def main() -> int:
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
