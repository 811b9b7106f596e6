"""Selectors of devices: within the part of CEL that ours has, it says what Google's own runtime says."""

import random
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from cel_expr_python import cel

from controller.objects.quantity import parse_quantity
from controller.scheduler.dra.claims.cel import ByDomain, CelSyntaxError, Selector, compiled
from controller.scheduler.dra.claims.celvalues import CelError, Semver
from tests.support.seeds import histories

DEVICE: dict[str, Any] = {
    "driver": "gpu.example.com",
    "attributes": ByDomain(
        {
            "gpu.example.com": {"type": "gpu", "index": 3, "ecc": True, "driverVersion": Semver("550.107.2")},
            "resource.kubernetes.io": {"numaNode": 1},
        }
    ),
    "capacity": ByDomain({"gpu.example.com": {"memory": parse_quantity("80Gi")}}),
    "allowMultipleAllocations": False,
}
G = "device.attributes['gpu.example.com']"
M = "device.capacity['gpu.example.com'].memory"


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].type == 'gpu'",
        'device.attributes["resource.kubernetes.io"].numaNode == 1',
        f"{M}.compareTo(quantity('8Gi')) > 0",
        f"{M} == quantity('81920Mi')",
        f"{M}.isGreaterThan(quantity('79Gi')) && {M}.isLessThan(quantity('81Gi'))",
        f"{M}.compareTo(quantity('80Gi')) == 0",
        f"{G}.driverVersion.isGreaterThan(semver('550.99.0'))",
        f"{G}.driverVersion.compareTo(semver('550.107.2')) == 0",
        f"{G}.driverVersion.major() == 550 && {G}.driverVersion.minor() == 107 && {G}.driverVersion.patch() == 2",
        f"cel.bind(d, {G}, d.type == 'gpu' && d.index in [1, 2, 3])",
        f"'type' in {G} && !('other' in {G})",
        "!('type' in device.attributes['elsewhere.example.com'])",
        f"{G}.missing == 'x' || {G}.ecc",
        f"{G}.ecc || {G}.missing == 'x'",
        f"!({G}.missing == 'x' && false)",
        f"has({G}.type) && !has({G}.missing)",
        f"{G}.index > 2 ? {G}.ecc : {G}.missing",
        "['gpu', 'mig'].exists(kind, kind == device.attributes['gpu.example.com'].type)",
        "[2, 4].all(n, n % 2 == 0)",
        "// a line of its own\n true",
        r"'a\'b' == \"a'b\"".replace('\\"', '"'),
        r"r'a\d' == 'a\\d'",
        "size('abc') == 3 && 'abc'.size() == 3 && size([1, 2]) == 2",
        "'Gpu'.lowerAscii() == 'gpu' && 'gpu'.upperAscii() == 'GPU' && 'gpu'.startsWith('g') && 'gpu'.endsWith('u')",
        "'gpu'.contains('p') && int('7') == 7 && string(7) == '7' && string(true) == 'true'",
        "-7 / 2 == -3 && -7 % 2 == -1 && 7 / -2 == -3 && 2 - 3 == -1 && 2 * 3 + 1 == 7",
        "0x10 == 16 && 3u == 3 && 1.5 < 2",
        "isQuantity('1Gi') && !isQuantity('many') && isSemver('1.2.3') && !isSemver('1.2')",
        "semver('1.0.0-rc.1').isLessThan(semver('1.0.0')) && semver('1.0.0-2').isLessThan(semver('1.0.0-a'))",
        "!device.allowMultipleAllocations",
        "[0, 2].exists(n, 4 / n == 2) && [2, 0].exists(n, 4 / n == 2) && !([0, 2].all(n, 4 / n == 9))",
        "[1, [2, 'a']] == [1, [2, 'a']] && [1, [2]] != [1, [3]] && [1, 2] != [1] && [1] != 1 && [[1]] in [[[1]]]",
        "[1] != [true] && [[0]] != [[false]] && !([true] in [[1]]) && [1] == [1.0]",
        "[7, 8][0] == 7",
        f"{G} == {G} && {G} != device.attributes['resource.kubernetes.io'] && {G} != []",
    ],
)
def test_what_selectors_say_of_a_device(expression: str) -> None:
    selector = compiled(expression)
    assert selector.unknown == ()
    assert selector.matches(DEVICE)
    assert not Selector(f"!({expression})").matches(DEVICE)


@pytest.mark.parametrize(
    "expression",
    [
        f"{G}.missing == 'x'",
        f"{G}.type > 1",
        f"{G}.type",
        "1 / 0 == 1",
        "[0, 2].exists(n, 4 / n == 9)",
        "!([2, 0].exists(n, 4 / n == 9))",
        "!([0, 2].all(n, 4 / n == 2))",
        "9223372036854775807 + 1 > 0",
        "[1][2] == 1",
        "nothing == 1",
        "quantity('many') == quantity('1')",
        "semver('01.0.0') == semver('1.0.0')",
        "1 == true",
        "true + true == 2",
        "!'a'",
        "size(3) == 1",
        "(3).all(n, n == 3)",
        "1 in 3",
        "int('9x') == 9",
        f"{M}.major() == 1",
    ],
)
def test_what_has_no_value_matches_nothing(expression: str) -> None:
    assert not compiled(expression).matches(DEVICE)


@pytest.mark.parametrize(
    ("expression", "unknown"),
    [
        ("device.driver.matches('g.*')", "matches()"),
        ("device.driver.split('.').size() == 3", "split()"),
        ("sets(device)", "sets()"),
        ("device.?driver.orValue('') == ''", "optional values"),
        ("device[?'driver'] == ''", "optional values"),
    ],
)
def test_what_is_not_known_here_may_match(expression: str, unknown: str) -> None:
    selector = compiled(expression)
    assert unknown in selector.unknown
    assert selector.matches(DEVICE)
    assert not Selector(f"({expression}) && false").matches(DEVICE)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "expected a value, found the end"),
        ("device.", "expected a name, found the end"),
        ("device.driver ==", "expected a value, found the end"),
        ("(true", "expected ')', found the end"),
        ("true true", "expected an operator or the end, found 'true'"),
        ("'open", 'unexpected "\'open"'),
        (r"'\q' == ''", r"unknown escape '\\q'"),
        ("cel.block(1)", "expected cel.bind"),
        ("in == 1", "expected a value, found 'in'"),
        ("(" * 10_240, "nested deeper than 40 levels"),
        ("a" * 10_241, "longer than 10240 characters"),
        ("(" * 41 + "true" + ")" * 41, "nested deeper than 40 levels"),
    ],
)
def test_what_is_no_cel_is_said_in_a_line(expression: str, why: str) -> None:
    with pytest.raises(CelSyntaxError) as refused:
        Selector(expression)
    assert str(refused.value) == why


@pytest.mark.parametrize(
    "expression",
    [
        " && ".join(["true"] * 1_200),
        f"{'-' * 4_000}1 == 1",
        "cel.bind(a, 'x' + 'x', " * 30 + "true" + ")" * 30,
        "[" + ",".join(["1"] * 500) + "]" + ".all(a, [" + ",".join(["1"] * 500) + "].all(b, a == b))",
        "device" + ".x" * 4_000 + " == 1",
    ],
)
def test_hostile_expressions_end_soon(expression: str) -> None:
    assert compiled(expression).matches(DEVICE) in (True, False)


def _of_eights(name: str) -> str:
    """18 lists, each of eight times the one before it."""
    first = f"cel.bind({name}0, [1, 1], "
    rest = (f"cel.bind({name}{at}, [{', '.join([f'{name}{at - 1}'] * 8)}], " for at in range(1, 18))
    return first + "".join(rest)


@pytest.mark.parametrize("test", ["a17 == b17", "a17 != b17", "a17 in [b17]"])
def test_lists_of_lists_are_compared_for_a_while_and_may_be_equal(test: str) -> None:
    expression = f"{_of_eights('a')}{_of_eights('b')}{test}{')' * 36}"
    assert compiled(expression).matches(DEVICE)
    assert compiled(f"!({expression})").matches(DEVICE)


@pytest.mark.parametrize(
    ("test", "steps"),
    [("size([1]) == 1", 3), ("[[1], [2]] == [[1], [2]]", 9 + 4), ("[1] != [2]", 3 + 1), ("[1] in [[2], [1]]", 6 + 4)],
)
def test_each_element_that_is_compared_is_a_step(test: str, steps: int) -> None:
    found = Selector(f"!!({test})")
    assert found.matches(DEVICE, [steps])
    assert Selector(f"!({test})").matches(DEVICE, [steps]) is False
    assert Selector(f"!({test})").matches(DEVICE, [steps - 1])


def test_a_question_about_many_devices_is_bounded_as_a_whole() -> None:
    """What is still to be asked when the steps are used up may match."""
    long = "[" + ",".join(["1"] * 99) + "].all(n, n == 2)"
    found, steps = Selector(long), [450]
    assert [found.matches(DEVICE, steps) for _ in range(4)] == [False, False, True, True]
    assert Selector("false").matches(DEVICE, steps) is False
    nested = "[1,1].all(a, [1,1].all(b, true))"
    assert Selector(nested).matches(DEVICE, [4 + 2 * 4])
    assert Selector(f"!({nested})").matches(DEVICE, [4 + 2 * 4]) is False
    assert Selector(f"!({nested})").matches(DEVICE, [4 + 2 * 4 - 1]) is True


def test_strings_do_not_grow_without_bound() -> None:
    grown = "'xxxxxxxxxxxxxxxx'"
    text = "".join(f"cel.bind(v{n}, {grown if not n else f'v{n - 1} + v{n - 1}'}, " for n in range(30))
    assert not Selector(f"{text}v29 == ''{')' * 30}").matches(DEVICE)


def test_versions_compare_as_semver_says() -> None:
    ordered = ["1.0.0-1", "1.0.0-2", "1.0.0-a", "1.0.0-a.1", "1.0.0-a.b", "1.0.0-b", "1.0.0", "1.0.1", "1.1.0", "2.0.0"]
    made = [Semver(each) for each in ordered]
    assert all(one < other for one, other in pairwise(made))
    assert Semver("1.0.0+one") == Semver("1.0.0+two")
    assert len({Semver("1.0.0+one"), Semver("1.0.0")}) == 1
    for wrong in ("1.0", "01.0.0", "1.0.0-", "v1.0.0", ""):
        with pytest.raises(CelError):
            Semver(wrong)


PLAIN = {"i": 3, "s": "gpu", "t": True, "m": {"a": 1}, "l": [1, 2]}


LEAVES = {
    "bool": ["t", "true", "false"],
    "int": ["i", "m.a", "m.b", "0", "2", "l[1]"],
    "text": ["s", "'a'", "'gpu'"],
}


@cache
def oracle() -> Any:
    return cel.NewEnv(variables=dict.fromkeys(PLAIN, cel.Type.DYN))


def _expression(rng: random.Random, kind: str, depth: int = 0) -> str:
    """Of one kind, so that most have a value; some are of another."""
    if rng.random() < 0.05:
        kind = rng.choice(["bool", "int", "text"])
    if depth > 3 or rng.random() < 0.2:
        return rng.choice(LEAVES[kind])

    def part(wanted: str) -> str:
        return _expression(rng, wanted, depth + 1)

    if kind == "int":
        return f"({part('int')} {rng.choice('+-*/%')} {part('int')})"
    if kind == "text":
        return rng.choice([f"({part('text')} + {part('text')})", f"({part('bool')} ? {part('text')} : {part('text')})"])
    return rng.choice(
        [
            f"({part('bool')} {rng.choice(['&&', '||'])} {part('bool')})",
            f"({part('int')} {rng.choice(['<', '<=', '>', '>=', '==', '!='])} {part('int')})",
            f"({part('text')} {rng.choice(['==', '!=', '<', '>'])} {part('text')})",
            f"!{part('bool')}",
            f"({part('int')} in l)",
            f"({part('text')} in m)",
            f"{part('text')}.startsWith({part('text')})",
            f"l.exists(x, x == {part('int')})",
            f"l.all(x, x < {part('int')})",
            f"l.exists(x, {part('int')} / (x - 1) == {part('int')})",
            f"l.all(x, {part('int')} % (x - 2) < {part('int')})",
            "has(m.a)",
            "has(m.b)",
        ]
    )


@histories(1, 2, 3)
def test_the_runtime_of_the_language_says_the_same(seed: int) -> None:
    rng = random.Random(seed)
    seen = set()
    for _ in range(150):
        text = _expression(rng, "bool")
        try:
            found = oracle().compile(text).eval(data=PLAIN)
        except RuntimeError:
            continue  # it is told from the text alone that the types do not go together
        wanted = found.type() != cel.Type.ERROR and found.plain_value() is True
        ours = Selector("".join(f"cel.bind({name}, device.{name}, " for name in PLAIN) + text + ")" * len(PLAIN))
        assert ours.matches(PLAIN) is wanted, text
        seen.add(wanted)
    assert seen == {True, False}
