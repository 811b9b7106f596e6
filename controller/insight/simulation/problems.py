"""A problem of a manifest, as one line: ``FILE:LINE: KIND NAME: PATH: found X, expected Y. NEXT STEP``.

Every command and the page use this one form, so that an editor can jump to the line and a person reads how to mend it.
"""

import difflib
import json
import re
from collections.abc import Collection, Iterable
from typing import Any, Final

from controller.insight.simulation.sources import Path_

_SHOWN: Final = 60
_LISTED: Final = 12
_PLAIN: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_-]*")
_NEAR: Final = 0.6
_EXPECTED_FIRST: Final = re.compile(r"(?P<head>(?:.*: )?)expected (?P<expected>.+), found (?P<found>.+)")
_BEHIND: Final = re.compile(r"(?P<said>.*) - at `(?P<path>[^`]*)`")
_EXPECTED_GOT: Final = re.compile(r"Expected `(?P<expected>[^`]*)`, got `(?P<found>[^`]*)`")
_QUOTED: Final = re.compile(r"^(\w+) '([^']*)': ")
_MISSING: Final = re.compile(r"Object missing required field `([^`]*)`")
_BOUND: Final = re.compile(r"Expected `int` ([<>]=) (-?[0-9]+)")
_BOUNDS: Final = {"<=": "at most", ">=": "at least"}
_ENUM: Final = re.compile(r"Invalid enum value ('[^']*'|[0-9]+)")
_TYPES: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "nothing",
    "object": "an object",
    "str": "a string",
}
_OPTIONAL_KEY: Final = "[...]"
_NUMBER: Final = re.compile(r"\d+")
_STEP: Final = re.compile(r"\.?(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]|\[(?P<key>[^\]]*)\]")


def field(path: Path_) -> str:
    """A path as messages name it: ``spec.containers[0].resources.limits[nvidia.com/gpu]``."""
    words = (
        f"[{part}]" if isinstance(part, int) else f".{part}" if _PLAIN.fullmatch(part) else f"[{part[:_SHOWN]}]"
        for part in path
    )
    return "".join(words).removeprefix(".")


def steps(text: str) -> Path_:
    """The path in a text as ``field`` writes it; empty for a text that is no path."""
    path: list[str | int] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            return ()
        at = step.end()
        if step["index"] is not None:
            path.append(int(step["index"]))
        else:
            path.append(step["name"] or step["key"].strip("'\""))
    return tuple(path)


def shown(value: Any) -> str:
    """A value as a manifest writes it: texts in double quotes, objects and lists by what they are."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return json.dumps(value, ensure_ascii=False, default=str)[:_SHOWN]


def nearest(word: str, names: Iterable[str], least: float = _NEAR) -> str:
    """The name that was likely meant, whatever the case of its letters; empty if none is near."""
    lowered = {name.lower(): name for name in sorted(names, reverse=True)}
    near = difflib.get_close_matches(word[:_SHOWN].lower(), lowered, n=1, cutoff=least)
    return lowered[near[0]] if near else ""


def meant(word: str, names: Iterable[str]) -> str:
    """`` Did you mean X?``, with the space before it; empty if no name is near."""
    near = nearest(word, names)
    return f" Did you mean {near}?" if near else ""


def with_its_numbers(word: str, names: Iterable[str]) -> set[str]:
    """The names with the same numbers as ``word``: another model of GPU or another MIG profile was not meant by it."""
    numbers = _NUMBER.findall(word)
    return {name for name in names if _NUMBER.findall(name) == numbers}


def listed(names: Iterable[str]) -> str:
    """The names in a sentence: ``a, b and 3 more``."""
    every = sorted(names)
    more = len(every) - _LISTED
    return ", ".join(every[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def expected_one(kind: str, names: Collection[str], none: str = "there is none") -> str:
    """What was expected: ``a LocalQueue of lab: nightly, weekly``; if there are no names, ``none`` follows the kind."""
    return f"a {kind}: {listed(names)}" if names else f"a {kind} ({none})"


def path_first(text: str) -> str:
    """A decoder's sentence, reordered so that the path comes first: ``KIND NAME: PATH: SENTENCE``."""
    text = _QUOTED.sub(r"\1 \2: ", text)
    text = _EXPECTED_GOT.sub(lambda each: f"found {_typed(each['found'])}, expected {_typed(each['expected'])}", text)
    text = _BOUND.sub(lambda each: f"found a number out of range, expected {_BOUNDS[each[1]]} {each[2]}", text)
    text = _ENUM.sub(r"found \1, expected a word that the API has here", text)
    behind = _BEHIND.fullmatch(text)
    if behind is None:
        return _MISSING.sub(r"\1: found nothing, expected a value. Write it", text)
    head, _, sentence = behind["said"].rpartition(": ")
    where = behind["path"].removesuffix(_OPTIONAL_KEY)
    if missing := _MISSING.fullmatch(sentence):
        where, sentence = f"{where}.{missing[1]}", "found nothing, expected a value. Write it"
    return f"{head}: {where}: {sentence}" if head else f"{where}: {sentence}"


def _typed(words: str) -> str:
    return " or ".join(_TYPES.get(each, each) for each in words.split(" | ") if each != "null" or words == "null")


def found_first(line: str) -> str:
    """The line with what was found before what was expected: the API server's rules have them in the other order."""
    turned = _EXPECTED_FIRST.fullmatch(line)
    return f"{turned['head']}found {turned['found']}, expected {turned['expected']}" if turned else line
