"""Where faults go: each has one place in the product, whatever module that is in."""

import ast
from pathlib import Path

import pytest
from msgspec.structs import replace

from hack.planted.__main__ import FAULTS, drawn
from hack.planted.planting import Fault, UnplantableError, is_product, place_of, planted
from hack.planted.running import Tree

ROOT = Path(__file__).parents[3]
SOURCE = '''\
class Ledger:
    def release(self, name):
        """Gives back."""
        if name in self.held:
            self.free(self.held[name])
            del self.held[name]
        return self.total - 1


def release(name):
    del self.held[name]
'''
FAULT = Fault("f", "Ledger.release", "del self.held[name]", "", "queues", ("history",), "A user suffers.")


def source_with(fault: Fault, source: str = SOURCE) -> str:
    return planted(source, place_of(fault, {"controller/a.py": source}))


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("del self.held[name]", "", "            pass"),
        ("self.free(self.held[name])\ndel self.held[name]", "x = 1", "            x = 1"),
        ("self.total - 1", "self.total", "        return self.total"),
        ("name in self.held", "True", "        if True:"),
        ("self.free(self.held[name])", "self.free(None)", "            self.free(None)"),
    ],
)
def test_a_fault_replaces_statements_or_an_expression_of_its_function_alone(before: str, after: str, line: str) -> None:
    found = source_with(replace(FAULT, before=before, after=after))
    ast.parse(found)
    new = set(found.splitlines()) - set(SOURCE.splitlines())
    assert new == {line}
    assert found.endswith("def release(name):\n    del self.held[name]\n")


@pytest.mark.parametrize(
    ("function", "before"),
    [("Ledger.gone", "pass"), ("Ledger.release", "self.total - 2"), ("Ledger.release", "self.held")],
)
def test_a_fault_without_one_place_is_refused_by_its_name(function: str, before: str) -> None:
    with pytest.raises(UnplantableError, match=r"^f: found \d places in Ledger\.\w+ for .*, expected 1$"):
        source_with(replace(FAULT, function=function, before=before, after="other"))


def test_a_function_of_that_name_in_two_modules_is_no_place() -> None:
    with pytest.raises(UnplantableError, match="found 2 places"):
        place_of(FAULT, {"controller/a.py": SOURCE, "agent/b.py": SOURCE})


def test_the_module_that_a_fault_is_in_does_not_matter() -> None:
    for module in ("controller/a.py", "agent/deep/b.py"):
        assert place_of(FAULT, {module: SOURCE}).module == module


def test_every_fault_has_one_place_in_the_product_and_the_module_still_parses() -> None:
    tree = Tree(ROOT)
    for fault in FAULTS:
        place = tree.place(fault)
        assert is_product(place.module)
        source = (ROOT / place.module).read_text()
        assert ast.dump(ast.parse(tree.source(place))) != ast.dump(ast.parse(source)), fault.name


def test_faults_are_twenty_seven_with_names_of_their_own() -> None:
    assert len({each.name for each in FAULTS}) == len(FAULTS) == 27
    assert all(each.nets and each.says.endswith(".") for each in FAULTS)


def test_a_draw_is_the_same_for_the_same_text_and_reaches_all_over_many() -> None:
    assert [each.name for each in drawn(3, "a")] == [each.name for each in drawn(3, "a")]
    assert len(drawn(None, "a")) == len(FAULTS)
    reached = {each.name for number in range(100) for each in drawn(3, str(number))}
    assert reached == {each.name for each in FAULTS}
