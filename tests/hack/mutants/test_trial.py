"""Mutants of a small tree against its tests, with the real pytest."""

import subprocess
from pathlib import Path

import pytest

from hack.mutants import running
from hack.mutants.running import CannotTell
from hack.mutants.trial import Tree, Trial
from hack.mutants.verdict import Outcome

PRODUCT = """\
def larger(a, b):
    return a if a > b else b


def emptied(items):
    while items:
        items.pop()
    return items
"""
TESTS = """\
from room.product import emptied, larger


def test_the_larger_one_is_found():
    assert larger(1, 2) == 2


def test_all_goes():
    assert emptied([1, 2]) == []
"""
PROFILE = """\
from hypothesis import settings

settings.register_profile("unshrunk")
"""


def tree(root: Path, tests: str = TESTS) -> Tree:
    files = {"room/product.py": PRODUCT, "tests/room/test_product.py": tests, "tests/conftest.py": PROFILE}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "pytest.ini").write_text("[pytest]\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return Tree(root, {"room": ["room"]})


def test_only_the_folders_that_are_named_are_mutated_and_all_tests_of_the_room_look(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "room/inner").mkdir()
    (tmp_path / "room/inner/part.py").write_text("def one(a):\n    return a > 1\n")
    inner = Tree(tmp_path, {"room": ["room"]}, within=["room/inner/"])
    assert {mutant.module for _, mutant in inner.drawn(100, 1)} == {"room/inner/part.py"}
    assert inner.tests("room") == ["tests/room/test_product.py"]
    assert not Tree(tmp_path, {"room": ["room"]}, within=["roo", "tests/room"]).drawn(100, 1)


def test_a_mutant_dies_by_a_test_or_hangs_or_survives_and_the_checkout_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "TEST_LIMIT_S", 1)
    small = tree(tmp_path / "checkout")
    chosen = {mutant.mutation: ("room", mutant) for _, mutant in small.drawn(100, 1)}
    assert set(chosen) == {"a > b -> (a >= b)", "items -> (not (items))", "items.pop() -> pass"}
    known = {chosen["a > b -> (a >= b)"][1].name: "two that are equal are the same"}
    trial = Trial(small, tmp_path / "copies", known, jobs=2)
    results = {one.mutant.mutation: one for one in trial.results(list(chosen.values()))}
    assert {mutation: one.outcome for mutation, one in results.items()} == {
        "a > b -> (a >= b)": Outcome.LISTED,
        "items -> (not (items))": Outcome.KILLED,
        "items.pop() -> pass": Outcome.TIMED_OUT,
    }
    assert results["items -> (not (items))"].by == "tests/room/test_product.py::test_all_goes"
    assert (tmp_path / "checkout/room/product.py").read_text() == PRODUCT
    assert not list((tmp_path / "checkout").rglob("__pycache__"))


def test_tests_that_fail_by_themselves_say_nothing_about_mutants(tmp_path: Path) -> None:
    small = tree(tmp_path / "checkout", TESTS.replace("== 2", "== 3"))
    trial = Trial(small, tmp_path / "copies", {})
    with pytest.raises(CannotTell, match=r"fail without any mutant: .*::test_the_larger_one_is_found"):
        list(trial.results(small.drawn(1, 1)))


def test_between_two_mutants_a_copy_is_as_the_checkout_was(tmp_path: Path) -> None:
    small = tree(tmp_path / "checkout")
    copy = running.copied(small.root, small.names, tmp_path / "copy")
    (_, mutant), *_ = small.drawn(1, 1)
    with running.mutated(copy, mutant):
        assert (copy / "room/product.py").read_text() != PRODUCT
    assert (copy / "room/product.py").read_text() == PRODUCT
