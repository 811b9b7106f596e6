"""JSON paths of JobKinds: what is parsed, where they lead in an object, and what hostile input gets."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.framework.raw import JobError
from controller.jobs.kinds.declared.paths import All, JsonPath, PathError, items, number, parsed, words

STEPS = st.one_of(
    st.text(min_size=1, max_size=20).filter(lambda key: not set(key) & set("'\\[]")), st.integers(0, 9999)
)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (".spec", ("spec",)),
        (".spec.groups[0].template", ("spec", "groups", 0, "template")),
        (".spec.groups[*].template", ("spec", "groups", All(), "template")),
        (".status['example.dev/a b'].x-y", ("status", "example.dev/a b", "x-y")),
    ],
)
def test_a_path_is_keys_indexes_and_one_star(text: str, steps: tuple[object, ...]) -> None:
    assert parsed(text).steps == steps
    assert str(parsed(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "spec",
        "$.spec",
        "..spec",
        ".spec.",
        ".spec[",
        ".spec[-1]",
        ".spec[0:2]",
        ".spec[?(@.a)]",
        ".a[*].b[*]",
        ".1a",
    ],
)
def test_what_is_no_such_path_is_refused_with_what_was_found(text: str) -> None:
    with pytest.raises(PathError, match=r"expected .*, found"):
        parsed(text)


@given(st.text(max_size=60))
def test_any_text_is_a_path_or_refused(text: str) -> None:
    with contextlib.suppress(PathError):
        assert parsed(text) == parsed(str(parsed(text)))


@given(st.lists(STEPS, min_size=1, max_size=6))
def test_a_path_says_what_it_was_parsed_from(steps: list[str | int]) -> None:
    path = JsonPath(("spec", *steps))
    assert parsed(str(path)) == path


def test_a_star_is_each_index_of_a_list_and_each_key_of_a_map_in_order() -> None:
    path = parsed(".spec.groups[*].template")
    assert list(items({"spec": {"groups": [1, 2]}}, path)) == [
        (0, ("spec", "groups", 0, "template")),
        (1, ("spec", "groups", 1, "template")),
    ]
    assert [key for key, _ in items({"spec": {"groups": {"b": 1, "a": 2}}}, path)] == ["a", "b"]
    assert list(items({"spec": {}}, path)) == []


def test_a_value_of_another_type_is_refused_with_its_path() -> None:
    job = {"spec": {"groups": "many", "size": "3", "on": True, "what": []}}
    with pytest.raises(JobError, match=r"spec\.groups: expected a list or an object, found str"):
        list(items(job, parsed(".spec.groups[*].x")))
    with pytest.raises(JobError, match=r"spec\.size: expected an integer, found str"):
        number(job, ("spec", "size"))
    with pytest.raises(JobError, match=r"spec\.on: expected an integer, found bool"):
        number(job, ("spec", "on"))
    with pytest.raises(JobError, match=r"spec\.what: expected a string, found list"):
        words(job, ("spec", "what"))
    assert [words(job, ("spec", key)) for key in ("groups", "on", "none")] == ["many", "true", ""]
