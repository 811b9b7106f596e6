"""The migration pages' tables are those of the lists, and what a list says is served stands in the code."""

import re
from pathlib import Path

import pytest

from cli.migrate.foreign.part import FIELDS, MARKS
from cli.migrate.foreign.rows import Refused, Served
from hack.migration.pages import page, rewritten, unserved

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = pytest.mark.parametrize("system", FIELDS)


@SYSTEMS
def test_the_tables_on_the_page_are_those_of_the_list(system: str) -> None:
    name = next(each for each in FIELDS if each == system)
    text = page(name).read_text()
    assert text == rewritten(text, name), "the tables are stale: run .venv/bin/python -m hack.migration"
    assert f"\n{unserved(name)} of its " in text


def rows() -> list[tuple[str, str, Served]]:
    return [
        (kind, path, row)
        for tables in FIELDS.values()
        for kind, found in tables.items()
        for path, row in found.items()
        if isinstance(row, Served)
    ]


def test_code_that_serves_a_field_names_it() -> None:
    def named(path: str, row: Served) -> bool:
        camel = re.split(r"[.\[\]{}]+", path)[-1]
        snake = re.sub(r"([A-Z])", lambda found: f"_{found[1].lower()}", camel)
        text = (ROOT / row.module).read_text()
        return re.search(rf"\b({camel}|{snake})\b", text) is not None

    assert [(kind, path) for kind, path, row in rows() if not named(path, row)] == []


def test_code_that_serves_a_mark_names_it() -> None:
    served = [(mark, row) for marks in MARKS.values() for mark, row in marks.items() if isinstance(row, Served)]
    assert [mark for mark, row in served if f'"{mark}"' not in (ROOT / row.module).read_text()] == []


def test_a_sentence_of_a_refusal_names_its_field_or_its_kind() -> None:
    for tables in FIELDS.values():
        for kind, found in tables.items():
            for path, row in found.items():
                if isinstance(row, Refused):
                    field = re.sub(r"\[\d+\]", "[]", row.sentence).partition(": ")[0]
                    assert f"{path}.".startswith(f"{field}.") or field.startswith(f"{kind.partition(' ')[2]}."), row
