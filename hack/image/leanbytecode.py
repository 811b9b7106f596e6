"""Bytecode as the image has it: without docstrings in what the daemons load, without columns in all of it.

    python -X no_debug_ranges leanbytecode.py [--loaded] INTO ROOT...

A Python with PYTHONPYCACHEPREFIX=INTO then compiles nothing that stands in the roots, folders of ``sys.path``; the
standard library is one of them, since published images come without its bytecode. ``--loaded``: only what the daemons
load.

Docstrings are two of the agent's 50 MiB. ``python -OO`` would leave them out, and the assertions with them. Packages
that are not named here keep theirs: click prints them, and some libraries have grammars in them.

The image is made with this file alone: it needs nothing but Python.
"""

import _imp
import ast
import importlib.util
import marshal
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_OURS = "agent controller deviceplugin failpoints inventory kube kubeletapi simulator yamlfile"
_THEIRS = (
    "aiohappyeyeballs aiohttp aiosignal attr attrs cronsim cryptography frozenlist google grpc idna msgspec multidict "
    "prometheus_client propcache pynvml typing_extensions yaml yarl"
)
LOADED: Final = frozenset(f"{_OURS} {_THEIRS}".split())
"""Packages that the daemons load, beside the standard library."""
_NO_PROGRAM = "__pycache__ ensurepip idlelib lib2to3 pip setuptools site-packages dist-packages test tests tkinter"
LEFT_OUT: Final = frozenset(_NO_PROGRAM.split())
NOT_CHECKED: Final = (0b01).to_bytes(4, "little")
"""Says that Python takes the bytecode without a look at its source (PEP 552)."""


def fill(into: Path, roots: Sequence[Path], *, loaded: bool) -> int:
    """Compile what is not there yet, or is of another source; how many files that were."""
    sys.pycache_prefix = str(into.absolute())
    library = Path(sysconfig.get_path("stdlib"))
    made = 0
    for root in roots:
        for entry in sorted(root.absolute().iterdir()):
            lean = root == library or entry.stem in LOADED
            if lean or not loaded:
                made += sum(_compile(source, lean=lean) for source in _sources(entry))
    return made


def _sources(path: Path) -> Iterator[Path]:
    if path.is_dir() and path.name not in LEFT_OUT:
        for entry in sorted(path.iterdir()):
            yield from _sources(entry)
    elif path.suffix == ".py":
        yield path


def _compile(source: Path, *, lean: bool) -> bool:
    text = source.read_bytes()
    magic = importlib.util.MAGIC_NUMBER
    head = magic + NOT_CHECKED + _imp.source_hash(int.from_bytes(magic, "little"), text)
    target = Path(importlib.util.cache_from_source(str(source)))
    if target.exists() and target.read_bytes()[: len(head)] == head:
        return False
    try:
        tree = ast.parse(text)
        code = compile(without_docstrings(tree) if lean else tree, str(source), "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False  # a library's examples of what is no Python, or another version's
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(head + marshal.dumps(code))
    return True


def without_docstrings(tree: ast.Module) -> ast.Module:
    """The tree, changed in place. All else stays, line numbers and assertions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
                node.body[:1] = [] if len(node.body) > 1 else [ast.copy_location(ast.Pass(), first)]
    return tree


def main(words: list[str]) -> None:
    """The words after the program's name."""
    loaded = words[0] == "--loaded"
    into, *roots = map(Path, words[loaded:])
    print(fill(into, roots, loaded=loaded), "files compiled")


if __name__ == "__main__":
    main(sys.argv[1:])
