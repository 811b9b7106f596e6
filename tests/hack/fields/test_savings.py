"""Caches, slots and structs outside of the collector: what saves is found, and all of the product is measured."""

import pytest

from hack.fields.savings import product, savings

NOT_FOR_SPEED = {"cli/access/cluster.py": "_logged_in"}
"""A login plugin asks the person, once in a command."""


@pytest.mark.parametrize(
    ("source", "name", "kind"),
    [
        ("@cache\ndef f(): ...", "f", "cache"),
        ("@functools.lru_cache(maxsize=2)\ndef f(): ...", "f", "cache"),
        ("f = lru_cache(maxsize=2)(g)", "f", "cache"),
        ("class A:\n    __slots__ = ('x', 'y')", "A", "slots"),
        ("@dataclass(frozen=True, slots=True)\nclass A: ...", "A", "slots"),
        ("class A(Struct, gc=False): ...", "A", "gc=False"),
        ("def f():\n    @cache\n    def g(): ...", "g", "cache"),
    ],
)
def test_what_saves_is_found(source: str, name: str, kind: str) -> None:
    assert [(each.name, each.kind, each.measured) for each in savings("a.py", source)] == [(name, kind, False)]


@pytest.mark.parametrize(
    "source",
    [
        "@cached_property\ndef f(self): ...",
        "class A(tuple):\n    __slots__ = ()",
        "class A(Struct): ...",
        "f = g(h)(1)",
    ],
)
def test_what_saves_nothing_is_not_found(source: str) -> None:
    assert list(savings("a.py", source)) == []


@pytest.mark.parametrize(
    "source",
    [
        '"""A module.\n\nIt saves 40 bytes of each."""\n@cache\ndef f(): ...',
        '@cache\ndef f():\n    """Found in 0.1 us."""',
        'f = lru_cache(2)(g)\n"""Saves 14 MiB."""',
        "# Saves 14 MiB.\nf = lru_cache(2)(g)",
        'class A:\n    """A thing: 5,000 bytes less."""\n    __slots__ = ("x", "y")',
        'class A:\n    # Saves 40 bytes.\n    __slots__ = ("x", "y")',
        '@cache\ndef f():\n    """A text that takes\n    two lines and 3\n    ms."""',
    ],
)
def test_a_figure_with_its_unit_counts_wherever_the_words_stand(source: str) -> None:
    assert [each.measured for each in savings("a.py", source)] == [True]


@pytest.mark.parametrize("words", ["Saves much.", "At most 1024.", "It is of 3 parts.", "Version 2 saves"])
def test_a_number_without_a_unit_is_no_figure(words: str) -> None:
    assert [each.measured for each in savings("a.py", f'@cache\ndef f():\n    """{words}"""')] == [False]


def test_everything_that_saves_says_how_much() -> None:
    several = list(product())
    assert {each.kind for each in several} == {"cache", "slots", "gc=False"}
    unmeasured = {each.place.partition(":")[0]: each.name for each in several if not each.measured}
    assert unmeasured == NOT_FOR_SPEED
