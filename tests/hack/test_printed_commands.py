"""A command that a page shows or a target prints works in a shell that knows no virtual environment."""

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(page for name in ("docs/*.md", "docs/*/*.md", "hack/*/*.md", "tests/*/*.md") for page in ROOT.glob(name)),
]
PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
MODULE = re.compile(r"\.venv/bin/python -m ([\w.]*\w)")
BARE = re.compile(r"(?<![\w./-])(?:python3?|pip3?|pytest) (?:-m (?:hack|tests|controller)\.|install )[\w. -]*")
"""Programs that such a shell does not have, or has without our packages."""
IN_FILES = "hack/crds/"
"""Its texts are comments of generated files."""


def printed() -> Iterator[tuple[str, str]]:
    """The texts of our programs, less what documents their code."""
    for path in sorted((ROOT / "hack").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name.startswith(IN_FILES):
            continue
        tree = ast.parse(path.read_text())
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in alone)
        yield from ((name, node.value) for node in found if isinstance(node.value, str))


def shown() -> Iterator[tuple[str, str]]:
    yield from ((str(page.relative_to(ROOT)), page.read_text()) for page in PAGES if "decisions" not in page.parts)
    yield from printed()


def typed(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, cwd=ROOT, env=PLAIN, capture_output=True, text=True, check=False, timeout=60)


def test_no_command_takes_its_program_from_an_activated_environment() -> None:
    assert [(where, wrong) for where, text in shown() for wrong in BARE.findall(text)] == []


def test_every_module_that_is_shown_is_a_program() -> None:
    """Asked in that shell: the packages that each imports first are those of the environment."""
    modules = sorted({module for _, text in shown() for module in MODULE.findall(text)})
    assert len(modules) > 5
    look = (
        "import sys, psutil; from importlib.util import find_spec as f; print(*(n for n in sys.argv[1:] if not f(n)))"
    )
    done = typed(".venv/bin/python", "-c", look, *modules)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
    for module in modules:
        path = ROOT / module.replace(".", "/")
        source = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        assert "__main__" in source.name or '__name__ == "__main__"' in source.read_text(), module


def test_every_program_of_the_checkout_that_is_shown_can_be_started() -> None:
    programs = {
        name for _, text in shown() for name in re.findall(r"(?<![\w./-])(hack/[\w/]+/cluster|\.ci/run)\b", text)
    }
    assert "hack/cluster/cluster" in programs
    assert [name for name in programs if not os.access(ROOT / name, os.X_OK)] == []


@pytest.mark.parametrize("words", [("--help",), ("kubectl", "--name", "none", "get", "gpunodes", "-o", "yaml")])
def test_the_test_cluster_is_reached_from_any_shell(words: tuple[str, ...], tmp_path: Path) -> None:
    """``make demo`` prints such a command for the reader's own shell."""
    where = () if words == ("--help",) else ("--state-dir", str(tmp_path))
    done = typed("hack/cluster/cluster", words[0], *where, *words[1:])
    assert "Traceback" not in done.stderr
    told = done.stdout if done.returncode == 0 else done.stderr
    assert re.search(r"usage: hack\.cluster|no cluster none in ", told), done.stderr


def test_without_the_environment_it_says_which_target_makes_it(tmp_path: Path) -> None:
    program = tmp_path / "hack" / "cluster" / "cluster"
    program.parent.mkdir(parents=True)
    program.write_text((ROOT / "hack/cluster/cluster").read_text())
    program.chmod(0o755)
    done = typed(str(program), "status")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"make -C {tmp_path} setup" in done.stderr
