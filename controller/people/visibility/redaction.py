"""Removes from an answer every name of a namespace whose workloads the user may not list. Pure.

Answers are JSON in which objects of namespaces are written as ``NAMESPACE/NAME``, alone or inside a sentence. A hidden
name becomes "a workload of queue X"; amounts stay.
"""

import re
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

Json = Any

UNKNOWN: Final = "an object of another namespace"
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_KEY: Final = re.compile(rf"(?<![\w.-])({_LABEL})(?=/([a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?))")
"""A namespace before a slash and a name. A name's first part has no dot: ``nvidia.com/gpu`` is none. The name is
matched by lookahead, so that in ``a/b/c`` both ``a/b`` and ``b/c`` are found."""

_SHORT: Final = 128
_NONE: Final = frozenset[str]()
_KEYS: Final = ("workload", "localQueue", "pod")
"""Fields whose text is one object's key, in rows of workloads that wait, hold quota or are preempted."""


class Named(NamedTuple):
    """Namespaces in an answer: ``keyed`` are those of keys that stand for themselves, ``said`` what may be one inside
    of a sentence.
    """

    keyed: frozenset[str]
    said: frozenset[str]


def named(answer: Json) -> Named:
    """The namespaces that an answer names. It is one walk without generators, because the page makes it for each
    row.
    """
    keyed, mentioned, left = set[str](), set[str](), [answer]
    while left:
        part = left.pop()
        if isinstance(part, str):
            mentioned |= _said(part)
        elif isinstance(part, list | tuple):
            left += part
        elif isinstance(part, dict):
            for field, value in part.items():
                mentioned |= _said(field)
                if not isinstance(value, str):
                    left.append(value)
                elif "/" in value:
                    mentioned |= _said(value)
                    if field in _KEYS:
                        keyed.add(value.partition("/")[0])
    return Named(frozenset(keyed), frozenset(mentioned - keyed))


def _said(text: str) -> frozenset[str]:
    # Without a slash there is no key; most texts are names of fields.
    if "/" not in text:
        return _NONE
    return _said_shortly(text) if len(text) <= _SHORT else _found(text)


def _found(text: str) -> frozenset[str]:
    return frozenset(match[1] for match in _KEY.finditer(text))


_said_shortly = lru_cache(maxsize=16_384)(_found)
"""``_found``, cached: rows that are made anew name the same as before. A sentence is searched in 8 us and found in
0.1 us.
"""


def namespaces(answer: Json, known: Collection[str]) -> list[str]:
    """The namespaces that an answer names, each once. In sentences only ``known`` ones are found, in the order of the
    answer; a namespace in a key that stands for itself counts even if it is unknown: it may be newer than ``known``.
    """
    found = (match[1] for text in _texts(answer) for match in _KEY.finditer(text))
    return list(dict.fromkeys([*(name for name in found if name in known), *_of_keys(answer)]))


def anybodys(answer: Json) -> set[str]:
    """Every text that reads as a namespace before a name: more than there are namespaces."""
    return {match[1] for text in _texts(answer) for match in _KEY.finditer(text)}


def _of_keys(answer: Json) -> Iterator[str]:
    if isinstance(answer, dict):
        for field, value in answer.items():
            if field in _KEYS and isinstance(value, str) and "/" in value:
                yield value.partition("/")[0]
            else:
                yield from _of_keys(value)
    elif isinstance(answer, list | tuple):
        for each in answer:
            yield from _of_keys(each)


def redacted(answer: Json, hidden: Collection[str], queue_of: Callable[[str], str | None]) -> Json:
    """``answer`` without what is in a ``hidden`` namespace. ``queue_of``: a workload's ClusterQueue by its key."""
    if not hidden:
        return answer
    if isinstance(answer, str):
        return _redacted_text(answer, hidden, queue_of)
    if isinstance(answer, dict):
        return {redacted(key, hidden, queue_of): redacted(each, hidden, queue_of) for key, each in answer.items()}
    if isinstance(answer, list | tuple):
        return [redacted(each, hidden, queue_of) for each in answer]
    return answer


def told(key: str, queue_of: Callable[[str], str | None]) -> str:
    """The words that stand for a hidden object's key."""
    queue = queue_of(key)
    return f"a workload of queue {queue}" if queue else UNKNOWN


def _redacted_text(text: str, hidden: Collection[str], queue_of: Callable[[str], str | None]) -> str:
    parts, end = [], 0
    for match in _KEY.finditer(text):
        if match.start() < end or match[1] not in hidden:
            continue
        parts += [text[end : match.start()], told(f"{match[1]}/{match[2]}", queue_of)]
        end = match.end(2)
    return "".join(parts) + text[end:] if parts else text


def _texts(answer: Json) -> Iterator[str]:
    if isinstance(answer, str):
        yield answer
    elif isinstance(answer, dict):
        for key, each in answer.items():
            yield from _texts(key)
            yield from _texts(each)
    elif isinstance(answer, list | tuple):
        for each in answer:
            yield from _texts(each)
