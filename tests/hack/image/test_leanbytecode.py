"""The image's bytecode does what its sources say, holds no docstrings of what the daemons load, and is complete."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from hack.image.leanbytecode import LOADED, without_docstrings

PROGRAM = Path(__file__).parents[3] / "hack" / "image" / "leanbytecode.py"
SOURCE = '''"""A module."""

class Empty:
    """Nothing else."""

def checked(number: int) -> int:
    """A function."""
    assert number, "an assertion"
    return 1 // (number - 1)
'''


def compiled(into: Path, *roots: Path, loaded: bool = False) -> int:
    words = [sys.executable, "-X", "no_debug_ranges", str(PROGRAM), *(["--loaded"] if loaded else []), str(into)]
    done = subprocess.run([*words, *map(str, roots)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])


def run(into: Path, root: Path, words: str) -> subprocess.CompletedProcess[str]:
    env = {"PYTHONPYCACHEPREFIX": str(into), "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-c", words], cwd=root, env=env, capture_output=True, text=True, check=False)


def test_docstrings_are_gone_and_assertions_and_lines_are_not(tmp_path: Path) -> None:
    root, into = tmp_path / "root", tmp_path / "into"
    root.mkdir()
    for name in ("yarl.py", "click.py"):
        (root / name).write_text(SOURCE)
    assert compiled(into, root) == 2
    said = run(
        into, root, "import yarl; print(yarl.__doc__, yarl.Empty.__doc__, yarl.checked.__doc__, yarl.checked(2))"
    )
    assert said.stdout == "None None None 1\n"
    assert "an assertion" in run(into, root, "import yarl; yarl.checked(0)").stderr
    failed = run(into, root, "import yarl; yarl.checked(1)").stderr
    assert "line 9, in checked" in failed
    assert "~" not in failed, "a column was kept"
    kept = run(into, root, "import click; print(click.__doc__, click.checked.__doc__)")
    assert kept.stdout == "A module. A function.\n", "nobody knows what that package does with them"


def test_only_what_is_new_is_compiled_and_only_what_is_loaded_where_that_is_asked(tmp_path: Path) -> None:
    root, into = tmp_path / "root", tmp_path / "into"
    (root / "agent").mkdir(parents=True)
    (root / "agent" / "__init__.py").touch()
    (root / "agent" / "one.py").write_text("a = 1")
    (root / "agent" / "bad.py").write_text("a =")
    (root / "click.py").write_text("b = 1")
    assert compiled(into, root, loaded=True) == 2
    assert compiled(into, root) == 1
    assert compiled(into, root) == 0
    (root / "agent" / "one.py").write_text("a = 2")
    assert run(into, root, "from agent.one import a; print(a)").stdout == "1\n", "it is not looked at by Python"
    assert compiled(into, root) == 1
    assert run(into, root, "from agent.one import a; print(a)").stdout == "2\n"


def test_a_string_that_documents_nothing_stays() -> None:
    tree = without_docstrings(ast.parse('"doc"\na = "text"\ndef f():\n  return "value"\n"last"'))
    assert ast.unparse(tree) == "a = 'text'\n\ndef f():\n    return 'value'\n'last'"


AGENT = "agent.command, agent.cluster.apireporter, agent.serving.handlers, agent.dra.server_shell, simulator, yaml"

_PROCESS = "controller.cluster.process"
CONTROLLER = f"controller.main, {_PROCESS}.view, {_PROCESS}.webhook, {_PROCESS}.submissions"


@pytest.mark.parametrize("modules", [AGENT, CONTROLLER])
def test_every_package_that_a_daemon_loads_is_named(modules: str) -> None:
    words = f"import {modules}, sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if not name.startswith("_") and name not in sys.stdlib_module_names}
    places = {name: importlib.util.find_spec(name) for name in loaded - {"cython_runtime"}}
    packages = {name for name, spec in places.items() if spec is not None and (spec.origin or "").endswith(".py")}
    assert packages - LOADED <= {"grpc_tools"}, "that one is loaded by grpc, and is no part of the image"
