"""What is wrong with a manifest, as one line: ``FILE:LINE: KIND NAME: PATH: found X, expected Y. NEXT STEP``.

One form for every command and for the page, so that an editor leads to the line and a person reads the mend.
"""

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any, Final

from controller.simulation.sources import Path_

_SHOWN: Final = 60
_LISTED: Final = 12
_PLAIN: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_-]*")
_NEAR: Final = 0.6
_EXPECTED_FIRST: Final = re.compile(r"(?P<head>(?:.*: )?)expected (?P<expected>.+), found (?P<found>.+)")
_BEHIND: Final = re.compile(r"(?P<said>.*) - at `(?P<path>[^`]*)`")
_OPTIONAL_KEY: Final = "[...]"
_STEP: Final = re.compile(r"\.?(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]|\[(?P<key>[^\]]*)\]")


def field(path: Path_) -> str:
    """As messages name it: ``spec.containers[0].resources.limits[nvidia.com/gpu]``."""
    words = (
        f"[{part}]" if isinstance(part, int) else f".{part}" if _PLAIN.fullmatch(part) else f"[{part[:_SHOWN]}]"
        for part in path
    )
    return "".join(words).removeprefix(".")


def steps(text: str) -> Path_:
    """The path that ``field`` writes, or another writes alike; empty for a text that is none."""
    found: list[str | int] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            return ()
        at = step.end()
        if step["index"] is not None:
            found.append(int(step["index"]))
        else:
            found.append(step["name"] or step["key"].strip("'\""))
    return tuple(found)


def shown(value: Any) -> str:
    """A value as a manifest writes it: texts in double quotes, objects and lists by what they are."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return json.dumps(value, ensure_ascii=False, default=str)[:_SHOWN]


def nearest(word: str, names: Iterable[str]) -> str:
    """The name that was likely meant, whatever the case of its letters; empty where none is near."""
    lowered = {name.lower(): name for name in sorted(names, reverse=True)}
    near = difflib.get_close_matches(word[:_SHOWN].lower(), lowered, n=1, cutoff=_NEAR)
    return lowered[near[0]] if near else ""


def meant(word: str, names: Iterable[str]) -> str:
    """`` Did you mean X?``, with the space before it; empty where no name is near."""
    near = nearest(word, names)
    return f" Did you mean {near}?" if near else ""


def listed(names: Iterable[str]) -> str:
    """``a, b and 3 more``."""
    every = sorted(names)
    more = len(every) - _LISTED
    return ", ".join(every[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def told_alike(text: str) -> str:
    """A sentence of another reader in the common form: the path before the sentence, and what was found first."""
    behind = _BEHIND.fullmatch(text)
    if behind is not None:
        head, _, said = behind["said"].rpartition(": ")
        where = behind["path"].removesuffix(_OPTIONAL_KEY)
        text = f"{head}: {where}: {said}" if head else f"{where}: {said}"
    turned = _EXPECTED_FIRST.fullmatch(text)
    return f"{turned['head']}found {turned['found']}, expected {turned['expected']}" if turned else text
