"""Places lead through a file with types, and their messages name file, line, key, what was found and expected."""

import pytest

from yamlfile import ConfigError, Document, Place, parse_text
from yamlfile.parsers import BOOL, TEXT, Unfit, go_duration, integer

TEXT_OF = "jobs:\n- name: a\n  count: 3\n- nme: b\nempty:\n"


def root(document: Document | None = None) -> Place:
    return Place(document or Document(file="f"), "", parse_text(TEXT_OF, "f"))


def test_the_ways_down_keep_path_and_line() -> None:
    first = root().fields(["jobs", "empty"])["jobs"].items()[0]
    count = first.fields(["name", "count"])["count"]
    assert (count.path, count.where, count.value(integer(1, 9))) == ("jobs[0].count", "f:3", 3)


def test_a_key_without_a_value_is_as_if_it_were_not_there() -> None:
    assert list(root().fields(["jobs", "empty"])) == ["jobs"]


def test_an_unknown_key_is_an_error_with_the_nearest_name() -> None:
    second = root().fields(["jobs", "empty"])["jobs"].items()[1]
    with pytest.raises(ConfigError) as refused:
        second.fields(["name", "count"])
    assert str(refused.value) == (
        "f:4: jobs[1].nme: found an unknown key; did you mean name?, expected one of count, name"
    )


def test_where_the_document_is_lenient_it_is_a_warning() -> None:
    document = Document(file="f", lenient=lambda path: path.startswith("jobs"))
    assert root(document).fields(["jobs", "empty"])["jobs"].items()[1].fields(["name"]) == {}
    assert document.warnings == ["f:4: jobs[1].nme: unknown key, ignored; did you mean name?"]


def test_a_value_of_another_kind_is_an_error() -> None:
    name = root().fields(["jobs", "empty"])["jobs"].items()[0].fields(["name", "count"])["name"]
    assert name.value(TEXT) == "a"
    with pytest.raises(ConfigError, match=r"^f:2: jobs\[0\].name: found 'a', expected true or false$"):
        name.value(BOOL)


@pytest.mark.parametrize(("text", "seconds"), [("5m", 300), ("1h30m", 5400), ("1.5s", 1.5), ("250ms", 0.25), ("0s", 0)])
def test_durations_are_gos(text: str, seconds: float) -> None:
    assert go_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "5 m", "m", "-5m", "5d", "1h m", "٣s"])
def test_what_go_does_not_read_is_no_duration(text: str) -> None:
    with pytest.raises(Unfit):
        go_duration(text)
