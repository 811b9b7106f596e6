"""The page's pure modules under Node, and what of its files can be seen without a browser."""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hack.supply import vendored
from tests.support.page.record import recorded

ROOT = Path(__file__).parents[4]
WEB = ROOT / "controller/people/page"
PAGE = WEB / "script"
SCRIPTS = sorted(PAGE.rglob("*.js"))
TESTS = sorted((Path(__file__).parent / "script").glob("*.test.js"))


def test_pure_modules_pass_their_tests_under_node(tmp_path: Path) -> None:
    shutil.copytree(PAGE / "pure", tmp_path / "pure")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    for test in (*TESTS, TESTS[0].with_name("recorded.js")):
        shutil.copy(test, tmp_path)
    (tmp_path / "recorded.json").write_text(json.dumps(recorded()))
    # One process for all: each start of Node costs more than the tests do.
    (tmp_path / "all.js").write_text("".join(f'import "./{test.name}";\n' for test in TESTS))
    done = subprocess.run(
        ["node", "--test-reporter=tap", "all.js"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    ran = re.search(r"^# pass (\d+)$", done.stdout, re.MULTILINE)
    assert ran is not None
    assert int(ran[1]) >= sum(test.read_text().count('\ntest("') for test in TESTS)


def test_pure_modules_reach_for_nothing_of_a_browser() -> None:
    for path in (PAGE / "pure").glob("*.js"):
        found = re.findall(
            r"\b(document|window|fetch|localStorage|Date\.now|setTimeout|import\(.*)\b", path.read_text()
        )
        assert not found, f"{path.name}: {found}"


@pytest.mark.parametrize("name", ["lit-html"])
def test_vendored_files_are_the_packages_own(name: str) -> None:
    told = json.loads((WEB / "vendor" / f"{name}.json").read_text())
    folder = WEB / "vendor" / name
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    assert {key: hashlib.sha256(path.read_bytes()).hexdigest() for key, path in found.items()} == told["sha256"]
    assert told["version"]
    assert told["licence"] in (folder / "LICENSE").read_text()


def test_the_accessibility_checker_is_the_packages_own() -> None:
    folder = ROOT / "tests" / "support" / "page"
    told, found = vendored.read(folder / "axe-core.json"), (folder / "axe.min.js").read_text()
    assert found.startswith(f"/*! axe v{told.version}\n")


def test_nothing_that_is_text_can_become_html() -> None:
    """lit-html writes text nodes; the ways around it are not used."""
    for path in SCRIPTS:
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|unsafeHTML|document\.write|\beval\b|new Function", path.read_text()
        )
        assert not found, f"{path.name}: {found}"


def test_no_file_needs_what_the_policy_forbids() -> None:
    """No inline script, style or handler, and nothing from elsewhere."""
    for path in [*SCRIPTS, *PAGE.rglob("*.html"), *PAGE.rglob("*.css")]:
        text = path.read_text()
        assert not re.search(r"\bstyle=|<style|<script>|\son\w+=[\"']|@import|url\(", text), path.name
        assert not re.search(r"(?:src|href|from|fetch\()\s*=?\s*[\"'`]?(?:https?:)?//", text), path.name


def test_every_import_leads_to_a_file() -> None:
    for path in SCRIPTS:
        for target in re.findall(r"(?:from|import)\s+\"(\.[^\"]+)\"", path.read_text()):
            # The server gives the vendor folder below the page.
            wanted = WEB / target[2:] if target.startswith("./vendor/") else path.parent / target
            assert wanted.is_file(), f"{path.name}: {target}"
    for page in PAGE.glob("*.html"):
        for target in re.findall(r"(?:src|href)=\"page/([^\"]+)\"", page.read_text()):
            assert (
                target.startswith("oidc/")
                or (WEB / target if target.startswith("vendor/") else PAGE / target).is_file()
            )


def test_modules_keep_to_the_projects_sizes() -> None:
    for path in SCRIPTS:
        assert len(path.read_text().splitlines()) <= 350, path.name
    for folder in {path.parent for path in SCRIPTS}:
        assert len(list(folder.glob("*.js"))) <= 16, folder
