"""The line between quick and thorough tests: few take most of the time, and every one of them is there."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hack.durations import LISTED, ROOT, seconds, slowest

REPORT = """<testsuites><testsuite>
<testcase classname="tests.kube.test_clock" name="test_one" time="0.5"/>
<testcase classname="tests.kube.test_clock" name="test_each[a.b]" time="1.5"/>
<testcase classname="tests.kube.test_clock" name="test_each[c]" time="2.0"/>
<testcase classname="tests.agent.test_any.TestAnyOrder" name="runTest" time="4.0"/>
</testsuite></testsuites>"""


def listed() -> list[str]:
    return LISTED.read_text().splitlines()


def names_of(tree: ast.Module) -> Iterator[str]:
    """The names that the module defines: tests, and the classes that state machines are run by."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case (
                ast.Assign(targets=[ast.Name(id=name)])
                | ast.AnnAssign(target=ast.Name(id=name))
                | ast.ClassDef(name=name)
            ):
                yield name


def test_every_thorough_test_is_there_once_and_in_order() -> None:
    functions: dict[str, set[str]] = {}
    for name in listed():
        file, _, function = name.partition("::")
        if file not in functions:
            functions[file] = set(names_of(ast.parse((ROOT / file).read_text())))
        assert function.partition("::")[0] in functions[file], f"tests/thorough.txt: {name} is not there any more"
    assert listed() == sorted(set(listed()))


def test_the_list_says_which_tests_are_marked() -> None:
    file = "tests/docs/scheduler/test_preemption_recipe.py"
    run = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "thorough", file]
    collected = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert sorted({line.partition("[")[0] for line in collected if "::" in line}) == [
        name for name in listed() if name.startswith(f"{file}::")
    ]


def test_the_cases_of_a_test_count_together(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert seconds(tmp_path / "report.xml") == {
        "tests/kube/test_clock.py::test_one": 0.5,
        "tests/kube/test_clock.py::test_each": 3.5,
        "tests/agent/test_any.py::TestAnyOrder::runTest": 4.0,
    }


@given(st.dictionaries(st.text(min_size=1, max_size=4), st.integers(1, 1000), min_size=1), st.floats(0, 0.99))
def test_no_fewer_tests_take_that_share_of_the_time(by_test: dict[str, int], share: float) -> None:
    names = slowest(by_test, share)
    taken = sorted((by_test[name] for name in names), reverse=True)
    assert sum(taken) >= share * sum(by_test.values())
    assert sum(taken[:-1]) < share * sum(by_test.values()) or not names
    assert all(by_test[name] <= taken[-1] for name in by_test.keys() - set(names)) if names else share == 0
