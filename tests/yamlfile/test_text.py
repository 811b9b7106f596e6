"""Text becomes the same tree whichever parser reads it, or is refused with a line."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yamlfile import ConfigError, Document, Place, YamlKind, parse_text, read_text
from yamlfile.jsontext import parse_json
from yamlfile.parsers import integer
from yamlfile.tree import MAX_BYTES
from yamlfile.yamltext import parse_yaml

words = st.sampled_from(["version", "flags", "a.b/c", "79", "true"])
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | words | st.text("abc :-#'", max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(words, plain, max_size=5), st.sampled_from([None, 0, 2]))
@settings(max_examples=40, deadline=None)
def test_json_reads_the_same_by_either_parser(document: dict[str, object], indent: int | None) -> None:
    text = json.dumps(document, indent=indent)
    assert parse_json(text, "f") == parse_yaml(text, "f")


def test_every_node_knows_its_line() -> None:
    root = parse_text("a:\n  b:\n  - 1\n  - x: true\n", "f")
    items = root.entries["a"].entries["b"].items
    assert (root.entries["a"].line, root.entries["a"].entries["b"].line) == (1, 2)
    assert [(item.line, item.kind) for item in items] == [(3, YamlKind.INT), (4, YamlKind.MAP)]
    assert items[1].entries["x"].kind is YamlKind.BOOL


def test_a_quoted_word_is_a_string_whatever_it_looks_like() -> None:
    assert parse_text("a: 'true'", "f").entries["a"].kind is YamlKind.STRING


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_text(file) == "a: 1\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "found no such file or directory, expected a readable file"),
        (b"#" * (MAX_BYTES + 1), "expected a smaller file"),
        (b"a: 1\nb: \xff\n", ":2: found bytes that are no UTF-8"),
    ],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "c.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        read_text(file)
    assert said in str(refused.value)


GO_READS = {
    0: ("00", "+0"),
    3: ("0b11",),
    4: ("4.0", "0x4", "4_", "4.", "0x_4", "!!int 4", '!!int "4"', "!!float 4"),
    8: ("010", "08", "0o10"),
    10: ("1e1", "1e+1", "1_0", "1_0.0"),
    -8: ("-010",),
    12000: ("12e03",),
}
"""What Go's sigs.k8s.io/yaml (v1.4.0, run) makes of these where an integer is wanted."""
GO_REFUSES = ("0o", "_4", "4.5", "0x", "1e", "1e19", "685_230.15e+1", "190:20:30", "'4'", ".inf")


def read_integer(written: str) -> int:
    place = Place(Document(file="f"), "", parse_text(f"r: {written}", "f"))
    return int(place.fields(["r"])["r"].value(integer(-(10**9), 10**9)))


@pytest.mark.parametrize("means", GO_READS)
def test_a_number_is_what_gos_reader_makes_of_it(means: int) -> None:
    assert {written: read_integer(written) for written in GO_READS[means]} == dict.fromkeys(GO_READS[means], means)


@pytest.mark.parametrize("written", GO_REFUSES)
def test_what_gos_reader_refuses_is_no_number(written: str) -> None:
    with pytest.raises(ConfigError):
        read_integer(written)


@pytest.mark.parametrize(
    ("text", "a"),
    [
        ("a: 1\na: 2", "2"),
        ("a: 1\n---\na: [", "1"),
        ("x: &b {a: 4}\n<<: *b", "4"),
        ("<<: [{a: 1}, {a: 2}]", "1"),
        ("a: 3\n<<: {a: 5}", "5"),
        ("--- \na: 7\n...\nb", "7"),
        ("%YAML 1.1\n---\na: 8", "8"),
        ('{"a": 1, "a": 2}', "2"),
        ("a: 1\n... \ngarbage: [", "1"),
    ],
)
def test_odd_documents_are_what_gos_reader_makes_of_them(text: str, a: str) -> None:
    """Recorded from sigs.k8s.io/yaml v1.4.0, run."""
    assert parse_text(text, "f", forgiving=True).entries["a"].text == a


def test_of_two_documents_an_empty_first_one_is_nothing() -> None:
    assert parse_text("---\n---\na: 9", "f", forgiving=True).kind is YamlKind.NULL
