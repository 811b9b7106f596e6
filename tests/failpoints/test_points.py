"""Failpoints do nothing but in tests, and every one of them is tested."""

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from failpoints import points
from failpoints.names import Failpoint
from hack.failpoints.armed import ALL, VARIABLE, Moment, Point, armed, failure
from tests.support.failpoints.acts import ACTS
from tests.support.failpoints.bargainacts import BARGAINS
from tests.support.failpoints.deaths import Deaths, DiedError
from tests.support.failpoints.furtheracts import FURTHER
from tests.support.failpoints.gangacts import GANGS
from tests.support.failpoints.nodeacts import ACTS as NODE_ACTS
from tests.support.failpoints.provisioningacts import PROVISIONING
from tests.support.failpoints.repairacts import REPAIRS
from tests.support.failpoints.routines import ROUTINES

ROOT = Path(__file__).parents[2]
SEAM = ROOT / "hack" / "failpoints" / "seam"
SAVES = """
import pathlib, sys
from agent.persistence.statefiles import LayoutState, save_layout
save_layout(pathlib.Path(sys.argv[1]), LayoutState())
print("saved")
"""


def saved(folder: Path, text: str, *, seam: bool) -> subprocess.CompletedProcess[str]:
    """A process of its own that writes a file of the agent's."""
    path = [str(SEAM)] if seam else []
    env = {**os.environ, VARIABLE: text, "PYTHONPATH": os.pathsep.join([*path, str(ROOT)])}
    words = [sys.executable, "-c", SAVES, str(folder)]
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False)


def test_each_failpoint_is_killed_at_in_exactly_one_test() -> None:
    tested = [
        each
        for act in (*ACTS, *FURTHER, *GANGS, *REPAIRS, *PROVISIONING, *BARGAINS, *NODE_ACTS, *ROUTINES)
        for each in act.failpoints
    ]
    assert len(tested) == len(set(tested))
    assert set(tested) == set(Failpoint)


def test_the_functions_of_the_product_do_nothing() -> None:
    tree = ast.parse((ROOT / "failpoints" / "points.py").read_text())
    functions = {each.name: each.body for each in tree.body if isinstance(each, ast.FunctionDef)}
    assert set(functions) == set(Moment)
    for body in functions.values():
        assert [type(each) for each in body] == [ast.Expr], "no more than a docstring"
    assert {type(each) for each in tree.body} == {ast.Expr, ast.ImportFrom, ast.FunctionDef}


def test_nothing_of_the_image_knows_the_variable_or_what_is_armed() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
        "packages"
    ]
    assert "failpoints" in packages
    assert "hack" not in packages
    sources = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    assert not [path for path in sources if VARIABLE in path.read_text() or "sitecustomize" in path.name]


def test_the_variable_alone_arms_nothing(tmp_path: Path) -> None:
    ended = saved(tmp_path, "file.layout.before=die", seam=False)
    assert (ended.returncode, ended.stdout) == (0, "saved\n")


@pytest.mark.parametrize(("moment", "there"), [("before", False), ("after", True)])
def test_with_the_seam_a_process_is_killed_there(tmp_path: Path, moment: str, there: bool) -> None:
    ended = saved(tmp_path, f"file.layout.{moment}=die", seam=True)
    assert (ended.returncode, ended.stdout) == (-9, "")
    assert (tmp_path / "layout.json").exists() is there


def test_a_step_fails_as_such_a_step_does_and_only_when_it_is_told_to() -> None:
    found = armed("file.layout.before=error#2, api.lease.after=error")
    found.before(Failpoint.LAYOUT)
    found.after(Failpoint.LAYOUT)
    with pytest.raises(OSError, match=r"file\.layout\.before"):
        found.before(Failpoint.LAYOUT)
    found.before(Failpoint.LAYOUT)
    assert found.counts[Point(Failpoint.LAYOUT, Moment.BEFORE)] == 3


def test_every_point_can_fail() -> None:
    assert all(f"{point}" in str(failure(point)) for point in ALL)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("file.nothing.before=die", "found 'file.nothing.before', expected a name"),
        ("file.layout=die", "found 'file.layout', expected a name"),
        ("file.layout.before=explode", "found 'explode', expected die, error or stall:SECONDS"),
        ("file.layout.before=stall:soon", "found 'stall:soon', expected die"),
        ("file.layout.before=die#0", "found #0, expected a number from 1 on"),
    ],
)
def test_words_that_arm_nothing_are_refused_by_name(text: str, found: str) -> None:
    with pytest.raises(ValueError, match=found):
        armed(text)


async def test_a_death_leaves_nothing_undone_that_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process would still write while it unwinds is not written."""
    from failpoints.names import Failpoint
    from hack.failpoints.armed import Moment, Point

    deaths = Deaths(monkeypatch)
    deaths.life(Point(Failpoint.LAYOUT, Moment.AFTER))
    points.before(Failpoint.LAYOUT)
    with pytest.raises(DiedError):
        points.after(Failpoint.LAYOUT)
    with pytest.raises(DiedError):
        points.before(Failpoint.CHECKPOINT)
    deaths.life()
    points.before(Failpoint.CHECKPOINT)
