"""Finds what makes something durable or visible in the code, and the failpoints that stand around it.

By the calls' own words: files that are written, moved, opened up or removed; processes started and killed; NVML's
functions that change a GPU; commands to an MPS daemon; writes of an API client; a plugin's registration. Whatever name
an import gave a function is resolved, and a function that is passed on (``partial``, ``to_thread``) counts as called. A
choke point that gets the failpoint from its caller counts as named: mypy asks each caller for it.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

ROOMS: Final = ("agent", "controller", "deviceplugin", "inventory", "kube", "yamlfile")
"""Of the programs that run in a cluster. The command is started by a person, who sees how it ends."""
NOT_READ: Final = ("kube/testing/", "deviceplugin/testing.py", "agent/dra/testing.py")
"""Stand-ins for other programs."""

_PATHS: Final = frozenset(
    [
        "rename",
        "unlink",
        "write_text",
        "write_bytes",
        "mkdir",
        "rmdir",
        "symlink_to",
        "hardlink_to",
        "chmod",
        "lchmod",
        "bind",
    ]
)
_OS: Final = frozenset(
    [
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
        "lchmod",
        "chown",
        "fchown",
        "lchown",
        "utime",
        "setxattr",
        "removexattr",
        "mkfifo",
        "mknod",
        "write",
        "writev",
        "pwrite",
        "pwritev",
        "sendfile",
        "copy_file_range",
        "kill",
        "killpg",
        "pidfd_send_signal",
        "posix_spawn",
        "posix_spawnp",
        "fork",
        "forkpty",
        "execl",
        "execle",
        "execlp",
        "execv",
        "execve",
        "execvp",
        "execvpe",
        "spawnl",
        "spawnle",
        "spawnlp",
        "spawnv",
        "spawnve",
        "spawnvp",
        "spawnvpe",
        "system",
        "popen",
    ]
)
_SHUTIL: Final = frozenset(
    [
        "rmtree",
        "move",
        "copy",
        "copy2",
        "copyfile",
        "copyfileobj",
        "copymode",
        "copystat",
        "copytree",
        "chown",
        "make_archive",
        "unpack_archive",
    ]
)
_TEMPFILE: Final = frozenset(
    ["mkstemp", "mkdtemp", "NamedTemporaryFile", "TemporaryDirectory", "TemporaryFile", "SpooledTemporaryFile"]
)
_SUBPROCESS: Final = frozenset(["run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput"])
_ASYNCIO: Final = frozenset({"create_subprocess_exec", "create_subprocess_shell"})
_BY_MODULE: Final = {
    "os": _OS,
    "shutil": _SHUTIL,
    "tempfile": _TEMPFILE,
    "subprocess": _SUBPROCESS,
    "asyncio": _ASYNCIO,
    "asyncio.subprocess": _ASYNCIO,
}
_PROCESSES: Final = frozenset({"kill", "terminate", "send_signal", "subprocess_exec", "subprocess_shell"})
_ANYWHERE: Final = _PATHS | _PROCESSES | {"rmtree", "mount", "umount2", "add_insecure_port"}
_READ_ONLY: Final = frozenset({"os", "O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "O_PATH"})
_TOUCHED_IN_MEMORY: Final = frozenset({"self", "state", "failures"})
"""Receivers whose ``touch`` is a method of ours that notes a change; any other is a path's."""
_NVML: Final = re.compile(
    r"nvml\w*(?:Set|Create|Destroy|Reset|Clear|Enable|Disable|Modify|Freeze|Add|Remove)(?:[A-Z_\d]\w*)?"
)
_NOT_DURABLE: Final = re.compile(r"nvmlEventSet\w+|nvmlGpmSample\w+")
"""Handles of this process."""
_MOMENTS: Final = ("before", "after")
_VERBS: Final = frozenset({"create", "update", "apply", "delete"})
_PATCHES: Final = frozenset({"merge_patch", "json_patch"})
_CLIENTS: Final = ("client", "api", "kube", "apiserver")
"""How receivers are called that write to an API server."""
_POSTS: Final = frozenset({"post", "put", "patch", "delete"})
_SESSIONS: Final = ("session", "http", *_CLIENTS)
_METHODS_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_BY_ARGUMENTS: Final = frozenset({"replace", "open", "fdopen", "touch", "ask", "register", "request", "Write"})
_ALSO_FIELDS: Final = frozenset({"rename", "request"})
"""Structs have fields of these names, which are no functions that are passed on."""
_LOOKED_AT: Final = frozenset(chain(_ANYWHERE, _VERBS, _PATCHES, _POSTS, _BY_ARGUMENTS, *_BY_MODULE.values()))
_WORTH: Final = re.compile(rf"\bFailpoint\b|\bpoints\.|\b{_NVML.pattern}|\b(?:{'|'.join(sorted(_LOOKED_AT))})\b")
"""A source without any of these words need not be read: an import tells the name that a function has at home."""


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
    if not _WORTH.search(text):
        return Reading([], {}, set())
    durable, names = list[tuple[Function | None, Durable]](), dict[str, set[str]]()
    moments_at: dict[tuple[str, str], list[str]] = {}
    around: dict[Function | None, set[str]] = {}
    tree = ast.parse(text)
    steps = _Steps(tree)
    for where, function, node in _walk(tree):
        durable += [
            (function, Durable(where, getattr(node, "lineno", 0), what, named)) for what, named in steps.of(node)
        ]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Failpoint":
            names.setdefault(node.attr, set()).add(where)
        elif isinstance(node, ast.Call) and (moment := _moment(node)):
            moments_at.setdefault((where, moment), []).append(ast.unparse(node.args[0]))
            around.setdefault(function, set()).add(moment)
    both = {function for function, moments in around.items() if function is not None and len(moments) == len(_MOMENTS)}
    return Reading(
        [each._replace(named=each.named or function in both) for function, each in durable],
        names,
        {where for where, _ in moments_at if moments_at.get((where, "before")) != moments_at.get((where, "after"))},
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


class _Called(NamedTuple):
    """A function that is called, or passed on to be called. ``receiver``: the text before its ``last`` word, with
    what imports stand for; empty where there is none. ``is_attribute``: the source itself has both. ``is_passed``: to
    another, which calls it with ``args``.
    """

    last: str
    receiver: str
    is_attribute: bool
    is_passed: bool
    args: Sequence[ast.expr]
    keywords: dict[str, ast.expr]

    @property
    def what(self) -> str:
        return f"{self.receiver}.{self.last}".lstrip(".")


class _Steps:
    """The durable steps of one source. ``_imports``: local names and what they stand for, ``os.replace``; ``_clients``:
    the last words of what is declared or made as a Client; ``_passed``: nodes that ``of`` their call looks at;
    ``_types``: those of annotations, which call nothing.
    """

    def __init__(self, tree: ast.AST) -> None:
        nodes = list(ast.walk(tree))
        self._imports = dict(chain.from_iterable(map(_imported, nodes)))
        self._clients = _clients(nodes)
        self._passed = {id(each) for node in nodes if isinstance(node, ast.Call) for each in (node.func, *node.args)}
        self._types = {id(each) for node in nodes for type_ in _annotations(node) for each in ast.walk(type_)}

    def of(self, node: ast.AST) -> Iterator[tuple[str, bool]]:
        """What the node does, and whether it says the name itself."""
        if isinstance(node, ast.Name | ast.Attribute):
            yield from self._named(node)
        elif isinstance(node, ast.Call):
            keywords = {each.arg or "**": each.value for each in node.keywords}
            for at, function in enumerate((node.func, *node.args)):
                called = self._called(function, node.args[at:], keywords, is_passed=at > 0)
                if called is not None and (at == 0 or called.args or called.last not in _ALSO_FIELDS):
                    yield from _done(called, self._is_client(called))

    def _named(self, node: ast.Name | ast.Attribute) -> Iterator[tuple[str, bool]]:
        called = self._called(node, (), {}, is_passed=True)
        if called is None or not isinstance(node.ctx, ast.Load) or id(node) in self._types:
            return
        if _NVML.fullmatch(called.last):
            if not _NOT_DURABLE.fullmatch(called.last):
                yield called.last, False
        elif id(node) not in self._passed and (
            (_whatever_it_gets(called) and called.last not in _ALSO_FIELDS)
            or (called.last in _VERBS and self._is_client(called))
        ):
            yield called.what, False

    def _called(
        self, function: ast.expr, args: Sequence[ast.expr], keywords: dict[str, ast.expr], *, is_passed: bool
    ) -> _Called | None:
        is_attribute = isinstance(function, ast.Attribute)
        if isinstance(function, ast.Name):
            whole = self._imports.get(function.id, function.id)
        elif isinstance(function, ast.Attribute) and (function.attr in _LOOKED_AT or _NVML.fullmatch(function.attr)):
            whole = f"{self._resolved(function.value)}.{function.attr}"
        else:
            return None
        receiver, _, last = whole.rpartition(".")
        return _Called(last, receiver, is_attribute, is_passed, args, keywords)

    def _resolved(self, value: ast.expr) -> str:
        root, dot, rest = ast.unparse(value).partition(".")
        return f"{self._imports.get(root, root)}{dot}{rest}"

    def _is_client(self, called: _Called) -> bool:
        word = called.receiver.rpartition(".")[2]
        return word in self._clients or word.lower().endswith(_CLIENTS)


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        yield from ((each.asname, each.name) for each in node.names if each.asname)
    elif isinstance(node, ast.ImportFrom):
        yield from ((each.asname or each.name, f"{node.module or ''}.{each.name}") for each in node.names)


def _annotations(node: ast.AST) -> Iterator[ast.expr]:
    found = (getattr(node, "annotation", None), getattr(node, "returns", None))
    yield from (each for each in found if isinstance(each, ast.expr))


def _clients(nodes: Sequence[ast.AST]) -> set[str]:
    clients: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.arg) and _is_of_client(node.annotation):
            clients.add(node.arg)
        elif isinstance(node, ast.AnnAssign) and _is_of_client(node.annotation):
            clients.add(_word(node.target))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None and _is_of_client(node.context_expr):
            clients.add(_word(node.optional_vars))
    for node in nodes:
        if isinstance(node, ast.Assign) and (_word(node.value) in clients or _is_of_client(node.value)):
            clients.update(map(_word, node.targets))
    return clients - {""}


def _is_of_client(node: ast.expr | None) -> bool:
    """An annotation with Client, or a call of it."""
    looked = node.func if isinstance(node, ast.Call) else node
    return looked is not None and re.search(r"(^|[^\w\[])Client\b", ast.unparse(looked)) is not None


def _word(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _done(called: _Called, is_client: bool) -> Iterator[tuple[str, bool]]:
    last, receiver = called.last, called.receiver
    if last == "Write" or (last == "replace" and receiver.endswith("structs") and "verb" in called.keywords):
        yield last, "failpoint" in called.keywords
    elif _whatever_it_gets(called) or _on_disk(called) or _told(called, is_client):
        yield called.what, False


def _whatever_it_gets(called: _Called) -> bool:
    """It is durable with any arguments."""
    last, receiver = called.last, called.receiver
    return last in _BY_MODULE.get(receiver, ()) or (called.is_attribute and last in _ANYWHERE) or last in _PATCHES


def _on_disk(called: _Called) -> bool:
    last, receiver = called.last, called.receiver
    if last == "replace":  # a text's takes two, a struct's and a time's take keywords of their own
        count = len(called.args) + ("target" in called.keywords)
        if receiver in {"Path", "pathlib.Path"}:
            return True
        return called.is_attribute and count == 1 and called.keywords.keys() <= {"target"}
    if last == "touch":
        return called.is_attribute and receiver.rpartition(".")[2].lstrip("_") not in _TOUCHED_IN_MEMORY
    if last == "open" and receiver == "os":
        return _flags_may_write(called)
    return last in ("open", "fdopen") and _mode_may_write(called)


def _flags_may_write(called: _Called) -> bool:
    """Whatever is not known to read alone."""
    flags = called.keywords.get("flags", called.args[1] if len(called.args) > 1 else None)
    return flags is None or not set(re.findall(r"\w+", ast.unparse(flags))) <= _READ_ONLY


def _mode_may_write(called: _Called) -> bool:
    for each in (*called.args, *called.keywords.values()):
        mode = each.value if isinstance(each, ast.Constant) else None
        if isinstance(mode, str) and set(mode) <= set("rwaxbt+") and set(mode) & set("wax+"):
            return True
    mode_ = called.keywords.get("mode")
    return mode_ is not None and not isinstance(mode_, ast.Constant)


def _told(called: _Called, is_client: bool) -> bool:
    """The API server, the kubelet, an MPS daemon, or another server."""
    last, args = called.last, called.args
    if last in _VERBS and called.is_attribute and (is_client or _is_resource(called)):
        return True
    if last in _POSTS:
        return called.is_attribute and called.receiver.lower().endswith(_SESSIONS)
    if last == "request" and called.is_attribute:
        return _may_write(called)
    if last == "ask" and args:
        return re.match(r"f?['\"](set_|quit|start|terminate)", ast.unparse(args[0])) is not None
    return last == "register" and called.receiver in {"", "deviceplugin.kubelet"}


def _may_write(called: _Called) -> bool:
    """Whatever method is not known to read alone, of a call with a method and an address."""
    method = called.keywords.get("method", called.args[0] if called.args else None)
    if isinstance(method, ast.Constant):
        return str(method.value).upper() not in _METHODS_READING
    return not called.is_passed and len(called.args) + len(called.keywords) > 1


def _is_resource(called: _Called) -> bool:
    """The first argument is one of ``kube.resources``, as PODS, and a name or an object follows."""
    if len(called.args) + len(called.keywords) < 2:  # noqa: PLR2004 - both
        return False
    first = called.keywords.get("resource", called.args[0] if called.args else None)
    word = _word(first) if first is not None else ""
    return word == "resource" or (word.isupper() and len(word) > 1)
