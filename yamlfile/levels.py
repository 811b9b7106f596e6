"""The shape of a YAML text, checked before it is parsed: PyYAML's C reader goes down as deep as the text does, and ends
the process with it; and a few aliases of aliases stand for more values than there is memory.
"""

from typing import Final, NamedTuple

import yaml

MOST_LEVELS: Final = 200
"""The most levels of a text; a Job has about ten."""
LOADER: Final[type] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's safe reader, in C where it was built with it."""


def too_deep(text: str, most: int = MOST_LEVELS) -> int | None:
    """The line of the first level beyond ``most``; None where there is none. Errors of a text that does not parse are
    not reported here.

    Only texts that could be so deep are parsed for it: each level is a bracket, or a column more in some line.
    """
    if text.count("[") + text.count("{") <= most and max(map(len, text.splitlines()), default=0) <= most:
        return None
    found = _first(text, most, aliases=True)
    return None if found is None else found.line


class Misshapen(NamedTuple):
    """The first place of a text that is an alias, or too deep. ``line`` counts from 1."""

    line: int
    is_alias: bool


def misshapen(text: str, most: int) -> Misshapen | None:
    """The first alias, or the first level beyond ``most``; None where there is neither. For texts of strangers. Errors
    of a text that does not parse are not reported here.
    """
    return _first(text, most, aliases=False)


def _first(text: str, most: int, *, aliases: bool) -> Misshapen | None:
    """``aliases``: they are allowed."""
    level = 0
    try:
        for event in yaml.parse(text, Loader=LOADER):
            level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            is_alias = not aliases and isinstance(event, yaml.AliasEvent)
            if is_alias or level > most:
                return Misshapen(event.start_mark.line + 1 if event.start_mark else 1, is_alias)
    except yaml.YAMLError:
        return None
    return None


def deeply_nested(most: int = MOST_LEVELS) -> str:
    return f"found more than {most} levels, expected a flatter file"
