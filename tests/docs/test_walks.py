"""The walks of docs/architecture.md by function: each function stands where the page says, and the calls between two
steps are in the code.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/architecture.md"
WALKS: Final = ("From NVML to the kubelet", "From a job to its admission")
MOST_STEPS: Final = 15
_STEP: Final = re.compile(r"^(\d+)\. (?:\*(.+):\* )?`([\w/]+\.py): ([\w.]+)` (\S.*\.)$", re.MULTILINE)
_NUMBERED: Final = re.compile(r"^\d+\. .*$", re.MULTILINE)

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Step(NamedTuple):
    """``outside``: what goes on from the step before, where no call of ours does; empty for a call."""

    number: int
    outside: str
    path: str
    function: str

    @property
    def last(self) -> str:
        return self.function.rpartition(".")[2]

    @property
    def first(self) -> str:
        return self.function.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.number}. {self.path}: {self.function}"


class Source(NamedTuple):
    """``functions`` by qualified name. ``imports``: each imported name with its module. ``assigned``: the names in what
    an attribute of ``self`` was assigned. ``protocols``: the methods of each Protocol.
    """

    functions: dict[str, Function]
    imports: set[tuple[str, str]]
    assigned: dict[str, set[str]]
    protocols: dict[str, set[str]]
    tree: ast.Module


def section(title: str) -> str:
    return PAGE.read_text().partition(f"### {title}\n")[2].partition("\n### ")[0]


def steps(text: str) -> list[Step]:
    return [Step(int(number), outside, path, function) for number, outside, path, function, _ in _STEP.findall(text)]


@cache
def source(path: str) -> Source:
    return parsed((ROOT / path).read_text())


def parsed(text: str) -> Source:
    tree = ast.parse(text)
    functions = dict(_named(tree))
    imports = {
        (node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assigned: defaultdict[str, set[str]] = defaultdict(set)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Attribute):
                    assigned[target.attr] |= mentioned(node.value)
    protocols = {
        node.name: {each.name for each in node.body if isinstance(each, Function)}
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
    }
    return Source(functions, imports, assigned, protocols, tree)


def _named(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    for node in tree.body:
        if isinstance(node, Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{each.name}", each) for each in node.body if isinstance(each, Function))


def mentioned(node: ast.AST) -> set[str]:
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def reached(within: Source, function: str) -> set[str]:
    """The names that the function mentions, those that its module's functions mention which it calls, and those in what
    the attributes that it uses were made of: a work queue stands for the function that it was given.
    """
    by_last: defaultdict[str, list[Function]] = defaultdict(list)
    for name, node in within.functions.items():
        if not name.endswith(".__init__"):
            by_last[name.rpartition(".")[2]].append(node)
    found: set[str] = set()
    todo = mentioned(ast.Module(within.functions[function].body, []))
    while todo:
        name = todo.pop()
        found.add(name)
        further = within.assigned.get(name, set()).union(*(mentioned(node) for node in by_last[name]))
        todo |= further - found
    return found


def imported(by: Source, step: Step) -> bool:
    """Whether the module imports the step's class or function, or its module."""
    module = step.path.removesuffix(".py").replace("/", ".")
    package, _, name = module.rpartition(".")
    return (module, step.first) in by.imports or (package, name) in by.imports


def calls(one: Step, other: Step) -> bool:
    """Whether the first step's function calls the other's: by its name, with its class or module imported, or by a
    Protocol of its own that the other's class has all methods of.
    """
    caller, called = source(one.path), source(other.path)
    if other.last not in reached(caller, one.function):
        return False
    methods = {name.rpartition(".")[2] for name in called.functions if name.startswith(f"{other.first}.")}
    speaks = any(other.last in asked and asked <= methods for asked in caller.protocols.values())
    return one.path == other.path or imported(caller, other) or speaks


def is_given(one: Step, other: Step) -> bool:
    """Whether the other step's function is handed to the first step's class, which then calls it: its module imports
    that class, and its class passes the method on as an argument.
    """
    receiver = source(other.path)
    passed = {
        argument.attr
        for call in ast.walk(receiver.tree)
        if isinstance(call, ast.Call)
        for argument in (*call.args, *(each.value for each in call.keywords))
        if isinstance(argument, ast.Attribute) and isinstance(argument.value, ast.Name) and argument.value.id == "self"
    }
    return imported(receiver, one) and other.last in passed


def wakes(one: Step, other: Step) -> bool:
    """Whether the first step sets an attribute of the object that the other, a method of the same class, waits for."""
    if (one.path, one.first) != (other.path, other.first):
        return False
    within = source(one.path)
    written = {
        node.attr
        for name in [one.function, *(f"{one.first}.{each}" for each in reached(within, one.function))]
        for node in ast.walk(within.functions.get(name, ast.Module([], [])))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    return bool(written & mentioned(within.functions[other.function]))


def connected(one: Step, other: Step) -> bool:
    return calls(one, other) or calls(other, one) or is_given(one, other) or wakes(one, other)


def goes_on(before: Sequence[Step], step: Step) -> bool:
    """Whether what is said to go on outside can: NVML is waited for, or both sides have the type of the object."""
    if step.outside == "NVML":
        return "pynvml" in reached(source(step.path), step.function)
    kinds = re.findall(r"`(\w+)`", step.outside)
    modules = (source(before[-1].path), source(step.path))
    return len(kinds) == 1 and all(
        kinds[0] in {name for _, name in module.imports}
        or f"{kinds[0].upper()}S" in {name for _, name in module.imports}
        for module in modules
    )


def broken(walk: Sequence[Step]) -> list[str]:
    """The steps that nothing leads to."""
    found: list[str] = []
    open_: list[Step] = []
    for place, step in enumerate(walk):
        if step.outside:
            open_ = []
            if not goes_on(walk[:place], step):
                found.append(f"{step}: {step.outside}")
        else:
            while open_ and not connected(open_[-1], step):
                open_.pop()
            if place > 0 and not open_:
                found.append(str(step))
        open_.append(step)
    return found


@pytest.mark.parametrize("title", WALKS)
def test_every_step_of_a_walk_names_one_function_that_stands_in_its_file(title: str) -> None:
    text = section(title)
    walk = steps(text)
    assert len(walk) == len(_NUMBERED.findall(text)), (
        "a step is not written as `folder/file.py: function` and a sentence"
    )
    assert [step.number for step in walk] == [*range(1, len(walk) + 1)]
    assert [str(step) for step in walk if step.function not in source(step.path).functions] == []


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_is_short_enough_to_be_walked(title: str) -> None:
    assert 5 < len(steps(section(title))) <= MOST_STEPS


@pytest.mark.parametrize("title", WALKS)
def test_each_step_of_a_walk_is_connected_with_those_before_it(title: str) -> None:
    assert broken(steps(section(title))) == []


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_from_which_a_step_is_missing_is_seen_to_be_broken(title: str) -> None:
    """Half of them at least: a caller may stand in for a call within its own file."""
    walk = steps(section(title))
    noticed = [step for place, step in enumerate(walk) if broken([*walk[:place], *walk[place + 1 :]])]
    assert len(noticed) >= len(walk) // 2, [str(step) for step in noticed]


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_backwards_leads_nowhere(title: str) -> None:
    walk = steps(section(title))
    assert broken([walk[0], *reversed(walk[1:])])


def test_a_step_that_only_its_name_connects_is_broken() -> None:
    walk = [
        Step(1, "", "controller/core.py", "Core.step"),
        Step(2, "", "agent/mig/change.py", "alike"),
    ]
    assert broken(walk) == ["2. agent/mig/change.py: alike"]
    assert broken([walk[0], Step(2, "", "agent/nodestate.py", "NodeState.apply")]) != []
