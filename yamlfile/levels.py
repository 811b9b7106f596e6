"""The shape of a YAML text, checked before it is parsed: PyYAML's C reader goes down as deep as the text does, and ends
the process with it; and a few aliases of aliases stand for more values than there is memory.
"""

from typing import Final, NamedTuple, TypeVar

import yaml

MOST_LEVELS: Final = 200
"""The most levels of a text; a Job has about ten."""
LOADER: Final[type] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's safe reader, in C where it was built with it."""
_SHOWN: Final = 120

T = TypeVar("T")


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


class UnreadError(ValueError):
    """A text of a stranger's cannot be read. The message is one line with what was expected and what was found."""


def strangers_value(text: str, kind: type[T], expected: str, *, longest: int, most_levels: int) -> T:
    """The value of a short JSON or YAML text that anybody may have written, such as an annotation; it is of type
    ``kind``. ``longest`` is in characters. Raises UnreadError, which says ``expected``.
    """
    if len(text) > longest:
        raise UnreadError(f"expected at most {longest} characters, found {len(text)}")
    if (wrong := misshapen(text, most_levels)) is not None:
        what = "an alias" if wrong.is_alias else f"more than {most_levels} levels"
        raise UnreadError(f"expected {expected}, found {what} in line {wrong.line}")
    try:
        value = yaml.load(text, LOADER)  # noqa: S506  a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        said = str(error).split("\n")[0]
        raise UnreadError(f"expected {expected}, found {text[:_SHOWN]!r} ({said})") from None
    if not isinstance(value, kind):
        raise UnreadError(f"expected {expected}, found {text[:_SHOWN]!r}")
    return value


def repeated_keys(text: str) -> dict[int, str]:
    """The first key that stands twice in a map of an item of a list, by the item's index from 0; readers keep the last
    value. ``text`` is one that ``strangers_value`` has read.
    """
    root = yaml.compose(text, LOADER)
    items = root.value if isinstance(root, yaml.SequenceNode) else []
    return {at: key for at, item in enumerate(items) if (key := _repeated(item)) is not None}


def _repeated(node: yaml.Node) -> str | None:
    if isinstance(node, yaml.MappingNode):
        seen = set[str]()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                return str(key.value)
            seen.add(str(key.value))
            if (found := _repeated(value)) is not None:
                return found
    elif isinstance(node, yaml.SequenceNode):
        return next((found for each in node.value if (found := _repeated(each)) is not None), None)
    return None


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
