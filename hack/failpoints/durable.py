"""Finds what makes something durable or visible in the code, and the failpoints that stand around it.

By the calls' own words: files that are written, moved, opened up or removed; processes started and killed; NVML's
functions that change a GPU; commands to an MPS daemon; writes of an API client; a plugin's registration. A choke point
that gets the failpoint from its caller counts as named: mypy asks each caller for it.
"""

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

ROOMS: Final = ("agent", "controller", "deviceplugin", "inventory", "kube", "yamlfile")
"""Of the programs that run in a cluster. The command is started by a person, who sees how it ends."""
NOT_READ: Final = ("kube/testing/", "deviceplugin/testing.py", "agent/dra/testing.py")
"""Stand-ins for other programs."""

_PATHS: Final = {
    "rename",
    "unlink",
    "write_text",
    "write_bytes",
    "mkdir",
    "rmdir",
    "symlink_to",
    "hardlink_to",
    "chmod",
    "bind",
}
_OS: Final = {
    "replace",
    "rename",
    "renames",
    "link",
    "symlink",
    "unlink",
    "remove",
    "mkdir",
    "makedirs",
    "rmdir",
    "removedirs",
    "truncate",
    "ftruncate",
    "chmod",
    "fchmod",
    "mkfifo",
    "mknod",
    "kill",
    "killpg",
    "posix_spawn",
    "posix_spawnp",
    "fork",
    "execv",
    "execve",
    "execvp",
    "execvpe",
}
_BY_MODULE: Final = {
    "os": _OS,
    "shutil": {"rmtree", "move", "copy", "copyfile", "copytree"},
    "tempfile": {"mkstemp", "mkdtemp", "NamedTemporaryFile", "TemporaryDirectory", "TemporaryFile"},
}
_ANYWHERE: Final = _PATHS | {"rmtree", "mount", "umount2", "add_insecure_port"}
_NVML: Final = re.compile(
    r"nvml\w*(Set|Create|Destroy|Reset|Clear|Enable|Disable|Modify|Freeze|Add|Remove)[A-Z_\d]?\w*"
)
_NOT_DURABLE: Final = re.compile(r"nvmlEventSet\w+|nvmlGpmSample\w+")
"""Handles of this process."""
_MOMENTS: Final = ("before", "after")
_VERBS: Final = {"create", "update", "apply", "delete"}
_PATCHES: Final = {"merge_patch", "json_patch"}
_LOOKED_AT: Final = {*_ANYWHERE, *_VERBS, *_PATCHES, *chain(*_BY_MODULE.values()), "Write", "open", "ask", "register"}
_WORTH: Final = re.compile(
    rf"\bFailpoint\b|\bpoints\.|\bnvml\w*(Set|Create|Destroy)|\b({'|'.join(sorted(_LOOKED_AT))})\b"
)
"""A source without any of these words need not be read."""


class Durable(NamedTuple):
    """``where`` is the function, ``Class.method``; empty outside of any."""

    where: str
    line: int
    what: str
    named: bool


class Reading(NamedTuple):
    """``named``: the failpoints by name, each with the functions that name it. ``lopsided``: functions that do not say
    ``after`` of all that they say ``before`` of, in the same order, or the reverse.
    """

    durable: list[Durable]
    named: dict[str, set[str]]
    lopsided: set[str]


def sources(root: Path) -> Iterator[Path]:
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            if not str(path.relative_to(root)).startswith(NOT_READ):
                yield path


def read(text: str) -> Reading:
    """What one source makes durable or visible, and what it names."""
    found, names = list[tuple[Function | None, Durable]](), dict[str, set[str]]()
    said: dict[tuple[str, str], list[str]] = {}
    around: dict[Function | None, set[str]] = {}
    for where, function, node in _walk(ast.parse(text)) if _WORTH.search(text) else ():
        found += [(function, Durable(where, getattr(node, "lineno", 0), what, named)) for what, named in _steps(node)]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Failpoint":
            names.setdefault(node.attr, set()).add(where)
        elif isinstance(node, ast.Call) and (moment := _moment(node)):
            said.setdefault((where, moment), []).append(ast.unparse(node.args[0]))
            around.setdefault(function, set()).add(moment)
    both = {function for function, moments in around.items() if function is not None and len(moments) == len(_MOMENTS)}
    return Reading(
        [each._replace(named=each.named or function in both) for function, each in found],
        names,
        {where for where, _ in said if said.get((where, "before")) != said.get((where, "after"))},
    )


Function = ast.FunctionDef | ast.AsyncFunctionDef


def _walk(
    tree: ast.AST, where: str = "", function: Function | None = None
) -> Iterator[tuple[str, Function | None, ast.AST]]:
    """Every node in the order of the text, with the innermost function that it is in."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield from _walk(node, f"{where}.{node.name}".lstrip("."), node)
        elif isinstance(node, ast.ClassDef):
            yield from _walk(node, f"{where}.{node.name}".lstrip("."), function)
        else:
            yield where, function, node
            yield from _walk(node, where, function)


def _moment(call: ast.Call) -> str:
    function = call.func
    ours = (
        isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "points"
    )
    return function.attr if ours and isinstance(function, ast.Attribute) and function.attr in _MOMENTS else ""


def _steps(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """What the node does, and whether it says the name itself."""
    if isinstance(node, ast.Attribute):
        if _NVML.fullmatch(node.attr) and not _NOT_DURABLE.fullmatch(node.attr):
            yield node.attr, False
        return
    if not isinstance(node, ast.Call):
        return
    last, receiver = _called(node.func)
    given = {keyword.arg for keyword in node.keywords}
    if last == "Write" or (last == "replace" and receiver.endswith("structs") and "verb" in given):
        yield last, "failpoint" in given
    elif _on_disk(node, last, receiver) or _told(node, last, receiver):
        yield f"{receiver}.{last}".lstrip("."), False


def _called(function: ast.expr) -> tuple[str, str]:
    """The last word of what is called, and the text before it."""
    if isinstance(function, ast.Name):
        return function.id, ""
    if isinstance(function, ast.Attribute) and function.attr in _LOOKED_AT:
        return function.attr, ast.unparse(function.value)
    return "", ""


def _on_disk(node: ast.Call, last: str, receiver: str) -> bool:
    if last in _BY_MODULE.get(receiver, ()) or (receiver and last in _ANYWHERE):
        return True
    if last == "replace":  # a text's takes two, a struct's and a time's take keywords
        return receiver != "" and len(node.args) == 1 and not node.keywords
    if last == "open":
        return _for_writing(node)
    return any(isinstance(each, ast.Attribute) and each.attr in _ANYWHERE for each in node.args)


def _for_writing(node: ast.Call) -> bool:
    for each in (*node.args, *(keyword.value for keyword in node.keywords)):
        mode = each.value if isinstance(each, ast.Constant) else None
        if isinstance(mode, str) and set(mode) <= set("rwaxbt+") and set(mode) & set("wax+"):
            return True
        if re.search(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)", ast.unparse(each)):
            return True
    return False


def _told(node: ast.Call, last: str, receiver: str) -> bool:
    """The API server, the kubelet, or an MPS daemon."""
    if last in _PATCHES or (last in _VERBS and receiver.lower().endswith("client")):
        return True
    if last == "ask" and node.args:
        return re.match(r"f?['\"](set_|quit|start|terminate)", ast.unparse(node.args[0])) is not None
    return last == "register" and not receiver
