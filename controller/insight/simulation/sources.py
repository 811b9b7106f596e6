"""The line of a value in the text that it was read from: plain data has no lines."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import yaml

from yamlfile.levels import LOADER

Path_ = tuple[str | int, ...]

_MERGE: Final = "tag:yaml.org,2002:merge"


class Source:
    """A YAML text. It is parsed for lines when a line is first asked for, and not again."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._roots: list[Any] | None = None

    def line(self, number: int, path: Sequence[str | int]) -> int:
        """The line of the key or item at the end of ``path`` in document ``number``, counted from 1.

        A value that is not in the text, such as a default or a missing field, has the line of its parent.
        """
        node = self._root(number)
        if node is None:
            return 1
        line = node.start_mark.line
        for step in path:
            if isinstance(step, int):
                if not isinstance(node, yaml.SequenceNode) or step >= len(node.value):
                    break
                node = node.value[step]
                line = node.start_mark.line
                continue
            if not isinstance(node, yaml.MappingNode):
                break
            pairs = {key.value: (key, value) for key, value in _merged(node)}
            if step not in pairs:
                break
            key, node = pairs[step]
            line = key.start_mark.line
        return int(line) + 1

    def text_of_line(self, number: int) -> str:
        """One line of the text, counted from 1; empty behind its end."""
        return next(itertools.islice(self._text.splitlines(), number - 1, None), "")

    def _root(self, number: int) -> Any:
        if self._roots is None:
            self._roots = []
            with suppress(yaml.YAMLError):  # what does not parse further below is told by who reads the documents
                self._roots.extend(yaml.compose_all(self._text, Loader=LOADER))
        return next(itertools.islice(self._roots, number - 1, None), None)


def _merged(node: Any) -> Iterator[tuple[Any, Any]]:
    """A mapping's keys and values. The keys of its merge keys come first, because its own keys override them."""
    for key, value in node.value:
        if key.tag == _MERGE:
            for child in reversed(value.value) if isinstance(value, yaml.SequenceNode) else [value]:
                yield from _merged(child)
    yield from (pair for pair in node.value if pair[0].tag != _MERGE)
