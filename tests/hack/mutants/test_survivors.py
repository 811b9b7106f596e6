"""The list of mutants that behave as the original."""

from pathlib import Path

import pytest

from hack.mutants.planting import mutants_of
from hack.mutants.survivors import LIST, listed

ROOT = Path(__file__).parents[3]


def test_each_entry_is_a_mutant_of_the_code_as_it_is() -> None:
    entries = listed(LIST.read_bytes())
    modules = {entry.module for entry in entries}
    assert not [module for module in modules if not (ROOT / module).exists()]
    there = {one.name for module in modules for one in mutants_of(module, (ROOT / module).read_bytes())}
    stale = [f"{entry.module}: {entry.line}" for entry in entries if entry.name not in there]
    assert not stale, "these lines have changed: delete their entries in survivors.toml, or write them anew"


def test_each_entry_has_a_reason_and_stands_once() -> None:
    entries = listed(LIST.read_bytes())
    assert not [entry for entry in entries if len(entry.reason.split()) < 4]
    assert len({entry.name for entry in entries}) == len(entries)


@pytest.mark.parametrize("text", ["[[survivor]]\nmodule = 'a.py'\n", "[[survivors]]\n", "["])
def test_a_list_that_says_something_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of TOML or of msgspec
        listed(text.encode())
