"""No verdict of the fast tier hangs on how busy the machine is: tests wait for events, and limits only end a hang."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from deviceplugin import testing as kubelet
from tests.support.hang import HANG_S

ROOT = Path(__file__).parents[2]
OTHERS = ("tests/e2e", "tests/conformance", "tests/gpu", "tests/support/e2e", "tests/hack/cluster")
"""Other tiers."""
LEAST_S = 60.0
KEYWORDS = {"timeout", "timeout_s", "within_s", "limit_s"}
WAITS = {"timeout": 0, "wait_for": 1, "join": 0, "result": 0, "settimeout": 0, "wait": 0, "eventually": 1}
"""Functions and methods, and the position of their limit; ``wait`` of more arguments is a virtual clock's."""
CLOCKS = {"monotonic", "perf_counter", "time"}


@cache
def sources() -> dict[str, ast.Module]:
    """By path."""
    found = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "kube/testing").rglob("*.py"), ROOT / "deviceplugin/testing.py"]
    by_path = {str(path.relative_to(ROOT)): path for path in found}
    return {path: ast.parse(file.read_text()) for path, file in by_path.items() if not path.startswith(OTHERS)}


def short_waits(tree: ast.Module) -> Iterator[int]:
    """Lines with a limit of a second and more that a busy machine could reach; shorter ones are the claim itself."""
    numbers = dict(_constants(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and any(1 <= numbers.get(ast.unparse(one), 0) < LEAST_S for one in _limits(node)):
            yield node.lineno
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            of_all = node.args.posonlyargs + node.args.args
            named = [*zip(reversed(of_all), reversed(node.args.defaults), strict=False)]
            for argument, default in [*named, *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]:
                if default and argument.arg in KEYWORDS and 1 <= numbers.get(ast.unparse(default), 0) < LEAST_S:
                    yield node.lineno


def measured_waits(tree: ast.Module) -> Iterator[int]:
    """Lines that assert that something took less than a time by the clock on the wall."""
    for claim in ast.walk(tree):
        if not isinstance(claim, ast.Assert):
            continue
        for node in ast.walk(claim):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE) and _reads_time(node.left):
                yield claim.lineno


def _limits(call: ast.Call) -> Iterator[ast.expr]:
    yield from (each.value for each in call.keywords if each.arg in KEYWORDS)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    place = WAITS.get(name)
    if place is not None and len(call.args) == place + 1:
        yield call.args[place]


def _constants(tree: ast.Module) -> Iterator[tuple[str, float]]:
    """Each number of the module as it is written, and the names it has at the top."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield ast.unparse(node), float(node.value)
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Constant):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if isinstance(statement.value.value, int | float):
                yield from ((ast.unparse(each), float(statement.value.value)) for each in targets)


def _reads_time(expression: ast.expr) -> bool:
    if not isinstance(expression, ast.BinOp):  # a deadline ends a hang
        return False
    calls = [node.func for node in ast.walk(expression) if isinstance(node, ast.Call)]
    return any(
        isinstance(each, ast.Attribute) and ast.unparse(each.value) == "time" and each.attr in CLOCKS for each in calls
    )


def test_every_limit_of_a_wait_only_ends_a_hang() -> None:
    assert LEAST_S <= HANG_S == kubelet.HANG_S
    found = {path: [*short_waits(tree)] for path, tree in sources().items()}
    assert "tests/hack/test_waits.py" in found
    assert not {file: lines for file, lines in found.items() if lines}


def test_nothing_is_asserted_to_be_quick_by_the_clock_on_the_wall() -> None:
    """CPU time is what a claim about speed counts."""
    found = {path: [*measured_waits(tree)] for path, tree in sources().items()}
    assert not {file: lines for file, lines in found.items() if lines}


def test_a_short_limit_is_found_however_it_is_written() -> None:
    lines = [
        "WAIT_S = 30",
        "asyncio.timeout(5)",
        "thread.join(10)",
        "asyncio.wait_for(task, WAIT_S)",
        "subprocess.run(words, timeout=59)",
        "eventually(condition, within_s=10.0)",
        "def until(condition, timeout_s=WAIT_S): ...",
        "asyncio.timeout(60), thread.join(HANG_S), ', '.join(words), clock.wait(event, 10)",
        "thread.join(0.05)  # the claim: it does not end",
    ]
    assert sorted(short_waits(ast.parse("\n".join(lines)))) == [2, 3, 4, 5, 6, 7]
    text = (
        "assert time.monotonic() - begun_s < 5\nassert time.monotonic() - begun_s >= 5\nassert time.thread_time() < 5"
    )
    assert [*measured_waits(ast.parse(text))] == [1]
