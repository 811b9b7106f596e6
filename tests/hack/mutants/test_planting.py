"""Which mistakes are planted in a piece of code, and where none is."""

import ast
from pathlib import Path

import pytest

from hack.mutants.planting import mutants_of, planted

ROOT = Path(__file__).parents[3]


def changed(body: str) -> list[str]:
    """The body of a function with each mistake planted."""
    source = f"def tried():\n    {body}\n".encode()
    made = [planted(source, mutant).decode() for mutant in mutants_of("a.py", source)]
    return [text.removeprefix("def tried():\n    ").removesuffix("\n") for text in made]


@pytest.mark.parametrize(
    ("body", "mistakes"),
    [
        ("return a < b <= c", ["return (a <= b <= c)", "return (a < b < c)"]),
        ("return a == b", ["return (a != b)"]),
        ("return a is None", ["return (a is not None)"]),
        ("return a in b", ["return (a not in b)"]),
        ("return a and b", ["return (a or b)"]),
        ("return a + b // c", ["return (a - b // c)", "return a + (b * c)"]),
        ("return a - (b | c)", ["return (a + (b | c))", "return a - ((b & c))"]),
        ("return not a", ["return a"]),
        ("return True", ["return False"]),
        ("return a[3:]", ["return a[4:]"]),
        ("return min(a), any(b)", ["return max(a), any(b)", "return min(a), all(b)"]),
        ("a += b", ["a -= b"]),
        ("a.append(b)", ["pass"]),
        ("await a.close()", ["pass"]),
        ("a.b = c", ["pass"]),
        ("a[b] = c", ["pass"]),
        ("del a[b]", ["pass"]),
        ("if a: return", ["if a: pass", "if (not (a)): return"]),
        ("while a: b = c", ["while (not (a)): b = c"]),
        ("return b if a.c else d", ["return b if (not (a.c)) else d"]),
        ("return [a for a in b if a.c]", ["return [a for a in b if (not (a.c))]"]),
        ("return lambda a=1: not a", ["return lambda a=2: not a", "return lambda a=1: a"]),
    ],
)
def test_a_mistake_takes_the_place_of_what_was_right(body: str, mistakes: list[str]) -> None:
    assert sorted(changed(body)) == sorted(mistakes)


@pytest.mark.parametrize(
    "body",
    [
        '"""What 1 < 2 means."""',
        "a: 1 | 2 = b",
        "assert a < b",
        "log.warning(a, 1)",
        "self._log.info(a + b)",
        "raise Wrong(a + 1)",
        'a = f"{b + 1}"',
        'a = "x" + b',
        'a = b + "x" + c',
        "return zip(a, b, strict=True)",
        "return isinstance(a, b | c)",
        "return cast(a | None, b)",
    ],
)
def test_nothing_is_planted_in_what_the_code_says_of_itself(body: str) -> None:
    assert changed(body) == []


@pytest.mark.parametrize(
    "source",
    [
        "LIMIT = 3\nif LIMIT < 4: LIMIT += 1\n",
        "class A(B, frozen=True):\n    size: int = 3\n",
        "@cached(3)\ndef f(a: L[3]) -> L[4]: return a\n",
        "class A:\n    def __repr__(self): return 1 + 2\n",
        "class A:\n    def _validate_owners(self): self.b.check(1)\n",
        "class A:\n    def __init__(self): self.a = b\n",
    ],
)
def test_nothing_is_planted_outside_of_what_functions_do(source: str) -> None:
    assert mutants_of("a.py", source.encode()) == []


def test_a_default_is_something_a_function_does() -> None:
    source = b"def f(a=1, *, b=False): ...\n"
    assert [planted(source, one) for one in mutants_of("a.py", source)] == [
        b"def f(a=2, *, b=False): ...\n",
        b"def f(a=1, *, b=True): ...\n",
    ]


def test_a_mutant_is_named_by_its_function_its_line_and_the_mistake() -> None:
    source = "class Ä:\n    async def f(self):\n        def g(): return 'ä', 1 + b  # why\n".encode()
    sum_, number = sorted(mutants_of("a/b.py", source), key=lambda one: one.mutation)
    assert number.name == ("a/b.py", "Ä.f", "def g(): return 'ä', 1 + b  # why", "1 -> 2", 0)
    assert (sum_.mutation, sum_.line) == ("1 + b -> (1 - b)", 3)
    assert planted(source, sum_).decode().endswith("def g(): return 'ä', (1 - b)  # why\n")


def test_a_name_stays_when_the_code_moves_within_its_module() -> None:
    source = b"def f(a):\n    a.b()\n    if a.c:\n        a.b()\n"
    moved = b"import c\n\n\ndef g(): a.b()\n\n\n" + source
    names = {one.name for one in mutants_of("a.py", source)}
    assert len(names) == 3
    assert names < {one.name for one in mutants_of("a.py", moved)}


def test_alike_in_one_function_are_told_apart() -> None:
    source = b"def f(a):\n    a.b()\n    a.b()\n"
    first, second = mutants_of("a.py", source)
    assert (first.nth, second.nth) == (0, 1)
    assert planted(source, second) == b"def f(a):\n    a.b()\n    pass\n"


@pytest.mark.parametrize("path", ["deviceplugin/manager.py", "deviceplugin/answer.py"])
def test_a_real_module_with_a_mistake_is_still_python_and_another_program(path: str) -> None:
    source = (ROOT / path).read_bytes()
    right = ast.dump(ast.parse(source))
    mutants = mutants_of(path, source)
    assert mutants
    assert len({one.name for one in mutants}) == len(mutants)
    assert not [one for one in mutants if ast.dump(ast.parse(planted(source, one))) == right]
