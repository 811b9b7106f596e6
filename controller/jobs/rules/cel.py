"""Pieces of CEL, the language of the API server's admission policies. Pure text.

Every expression here is a sentence: empty if nothing is wrong. Variables of policies are those of ``VARIABLES``, those
that a kind adds (``suspended``, ``wasSuspended``, ``podSets``), and ``gates``, the feature gates by name.
"""

from collections.abc import Iterable
from typing import Final

from controller.jobs.framework import names

_MOST_SHOWN: Final = 63
_TRUE: Final = "['1', 't', 'T', 'true', 'TRUE', 'True']"
_FALSE: Final = "['0', 'f', 'F', 'false', 'FALSE', 'False']"
SUBDOMAIN: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL_NAME: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
MOST_PLACES: Final = 32
"""The number of a list's items that are read by their index: more pod sets than a Workload has."""


def quoted(text: str) -> str:
    """``text`` as a literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def shown(value: str) -> str:
    """A value for a sentence: quoted and cut, as by ``raw.shown``."""
    return f'"\'" + (size({value}) > {_MOST_SHOWN} ? {value}.substring(0, {_MOST_SHOWN}) : {value}) + "\'"'


def text(*parts: str) -> str:
    """The concatenation of expressions of text."""
    return " + ".join(parts)


def says(where: str, sentence: str) -> str:
    """The literal of a whole sentence that is always the same."""
    return quoted(f"{where}: {sentence}")


def when(condition: str, sentence: str, otherwise: str = "''") -> str:
    """``sentence`` if ``condition`` holds, else ``otherwise``."""
    return f"({condition} ? {sentence} : {otherwise})"


def first(sentences: str) -> str:
    """The first of a list of sentences that is not empty."""
    return f"{sentences}.filter(s, s != '')[?0].orValue('')"


def any_of(*sentences: str) -> str:
    return sentences[0] if len(sentences) == 1 else first(f"[{', '.join(sentences)}]")


def key(where: str, name: str) -> str:
    """The value under ``name``, empty if it is absent; ``where`` is a map."""
    return f"{where}[?{quoted(name)}].orValue('')"


def has_key(where: str, name: str) -> str:
    return f"({quoted(name)} in {where})"


def field(at: str, *path: str) -> str:
    """An optional with the value at the path, if all that is above it exists."""
    return at + "".join(f".?{step}" for step in path)


def is_object_name(value: str) -> str:
    return f"(size({value}) <= 253 && {value}.matches({quoted(f'^{SUBDOMAIN}$')}))"


def is_label_key(value: str) -> str:
    pattern = quoted(f"^({SUBDOMAIN}/)?{_LABEL_NAME}$")
    return f"({value}.matches({pattern}) && size({value}.split('/')[0]) <= 253)"


def is_integer(value: str) -> str:
    return f"{value}.matches('^[+-]?[0-9]{{1,18}}$')"


def is_flag(value: str) -> str:
    return f"({value} in {_TRUE} || {value} in {_FALSE})"


def is_true(value: str) -> str:
    return f"({value} in {_TRUE})"


def added(path: str, value: str) -> str:
    """An operation of a JSON patch (RFC 6902); both are expressions, steps of the path escaped."""
    return f"JSONPatch{{op: 'add', path: {path}, value: {value}}}"


def pointer(*steps: str) -> str:
    """The path of a JSON patch, with its steps escaped."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def places(items: str) -> str:
    """The indexes of a list."""
    return f"{list(range(MOST_PLACES))}.filter(i, i < size({items}))"


def _both(name: str, path: tuple[str, ...], *, empty: str) -> Iterable[tuple[str, str]]:
    """Two variables of a field: of the object, and of the object before the change."""
    before = field("oldObject", *path)
    return (
        (name, f"{field('object', *path)}.orValue({empty})"),
        (f"{name}Before", f"variables.updated ? {before}.orValue({empty}) : {empty}"),
    )


VARIABLES: Final[tuple[tuple[str, str], ...]] = (
    ("updated", "oldObject != null"),
    *_both("labels", ("metadata", "labels"), empty="{}"),
    *_both("annotations", ("metadata", "annotations"), empty="{}"),
    ("queue", key("variables.labels", names.QUEUE_NAME)),
    ("queueBefore", key("variables.labelsBefore", names.QUEUE_NAME)),
    ("elasticMarked", is_true(key("variables.annotations", names.ELASTIC_JOB))),
    ("elasticBefore", is_true(key("variables.annotationsBefore", names.ELASTIC_JOB))),
    (
        "elastic",
        is_true(
            f"variables.annotations[?{quoted(names.ELASTIC_JOB)}]"
            f".orValue(variables.labels[?{quoted(names.ELASTIC_JOB)}].orValue(''))"
        ),
    ),
)
"""The variables that every policy of rules declares, in this order."""
