"""The rooms of the code: no circle in any package, and the page's pictures are those of the code."""

import re

import pytest

from hack.pages.rooms import PACKAGES, PAGE, ROOT, TOP, arrows, circles, needed, parents, picture, reached, rewritten


@pytest.mark.parametrize("parent", parents())
def test_no_rooms_import_one_another(parent: str) -> None:
    assert circles(arrows(parent)) == []


def test_every_top_level_package_is_in_the_graph() -> None:
    wheel = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"hack", "tests"}
    assert wheel == set(PACKAGES)
    assert arrows(TOP).keys() == wheel


def test_the_pictures_on_the_page_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert page.count("```mermaid") >= 4
    assert page == rewritten(page), "the pictures are stale: run .venv/bin/python -m hack.pages.rooms"


def test_every_folder_of_the_code_has_its_line_on_the_page() -> None:
    page = PAGE.read_text()
    folders = {parent.replace(".", "/") for parent in parents() if parent != TOP} | set(PACKAGES)
    assert [folder for folder in sorted(folders) if f"`{folder}/`" not in page] == []


def test_a_file_that_is_named_alone_stands_beside_one_of_its_line() -> None:
    for line in PAGE.read_text().splitlines():
        beside = {(ROOT / path).parent for path in re.findall(r"`([\w/]+/\w+\.py)`", line)}
        for name in re.findall(r"`(\w+\.py)`", line):
            assert any((folder / name).exists() for folder in beside), f"{name}: {line}"


def test_a_circle_is_found_through_others() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str](), "e": {"a"}}
    assert circles(graph) == [frozenset("abc")]
    assert reached(graph)["e"] == set("abcd")
    assert circles({"a": {"b"}, "b": set()}) == []


def test_arrows_that_follow_from_others_are_left_out() -> None:
    graph = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set[str]()}
    assert sorted(needed(graph)) == [("a", "b"), ("b", "c"), ("c", "d")]


def test_arrows_inside_a_circle_are_all_drawn() -> None:
    graph = {"a": {"b"}, "b": {"a", "c"}, "c": {"a"}}
    assert sorted(needed(graph)) == [("a", "b"), ("b", "a"), ("b", "c"), ("c", "a")]


def test_a_picture_begins_with_the_highest_room() -> None:
    graph = {"low": set[str](), "high": {"middle", "low"}, "middle": {"low"}, "alone": set[str]()}
    assert picture(graph) == "```mermaid\nflowchart TD\n  high --> middle\n  middle --> low\n  alone\n```\n"
