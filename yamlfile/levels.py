"""The nesting depth of a YAML text, checked before it is parsed: PyYAML's C reader goes down as deep as the text does,
and ends the process with it.
"""

from typing import Final

import yaml

MOST_LEVELS: Final = 200
"""The most levels of a text; a Job has about ten."""
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def too_deep(text: str, most: int = MOST_LEVELS) -> int | None:
    """The line of the first level beyond ``most``; None where there is none. Errors of a text that does not parse are
    not reported here.

    Only texts that could be so deep are parsed for it: each level is a bracket, or a column more in some line.
    """
    if text.count("[") + text.count("{") <= most and max(map(len, text.splitlines()), default=0) <= most:
        return None
    level = 0
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if level > most:
                return event.start_mark.line + 1 if event.start_mark else 1
    except yaml.YAMLError:
        return None
    return None


def deeply_nested(most: int = MOST_LEVELS) -> str:
    return f"found more than {most} levels, expected a flatter file"
