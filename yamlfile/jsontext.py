"""JSON with line numbers, so that a JSON config costs no YAML parser. The parser is strict: a text that is not JSON may
still be YAML.
"""

import json
import re
from bisect import bisect_right

from yamlfile.tree import Builder, YamlKind, YamlNode

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,30})(\.\d{1,30})?([eE][+-]?\d{1,3})?")
_DECODER = json.JSONDecoder()
_WORDS = {"true": YamlKind.BOOL, "false": YamlKind.BOOL, "null": YamlKind.NULL}


class NotJson(Exception):  # noqa: N818 - an answer, not a mistake: the text may be YAML
    """The text is not JSON."""


def looks_like_json(text: str) -> bool:
    """Whether the text may be JSON: a JSON config is an object."""
    return text.lstrip(" \t\r\n").startswith("{")


def parse_json(text: str, file: str, *, forgiving: bool = False) -> YamlNode:
    """The tree of a JSON document. Raises NotJson, or ConfigError for JSON that breaks a limit."""
    scanner = _Scanner(text, Builder(file, forgiving=forgiving))
    position = scanner.space(0)
    node, position = scanner.value(position, 0)
    if scanner.space(position) != len(text):
        raise NotJson
    return node


class _Scanner:
    def __init__(self, text: str, build: Builder) -> None:
        self.text = text
        self.build = build
        self._newlines = [match.start() for match in re.finditer("\n", text)]

    def line(self, position: int) -> int:
        return bisect_right(self._newlines, position - 1) + 1

    def space(self, position: int) -> int:
        match = _SPACE.match(self.text, position)
        return match.end() if match else position

    def value(self, position: int, depth: int) -> tuple[YamlNode, int]:
        line = self.line(position)
        self.build.check_depth(depth, line)
        first = self.text[position : position + 1]
        if first == "{":
            return self._map(position, line, depth)
        if first == "[":
            return self._list(position, line, depth)
        if first == '"':
            return self._string(position, line)
        for word, kind in _WORDS.items():
            if self.text.startswith(word, position):
                return YamlNode(kind=kind, line=line, text=word), position + len(word)
        match = _NUMBER.match(self.text, position)
        if match is None:
            raise NotJson
        kind = YamlKind.FLOAT if match[1] or match[2] else YamlKind.INT
        return YamlNode(kind=kind, line=line, text=match[0]), match.end()

    def _string(self, position: int, line: int) -> tuple[YamlNode, int]:
        try:
            text, end = _DECODER.raw_decode(self.text, position)
        except json.JSONDecodeError:
            raise NotJson from None
        return YamlNode(kind=YamlKind.STRING, line=line, text=text), end

    def _list(self, position: int, line: int, depth: int) -> tuple[YamlNode, int]:
        items: list[YamlNode] = []
        position = self.space(position + 1)
        if self.text.startswith("]", position):
            return self.build.sequence(items, line), position + 1
        while True:
            item, position = self.value(position, depth + 1)
            items.append(item)
            position, more = self._next(position, "]")
            if not more:
                return self.build.sequence(items, line), position

    def _map(self, position: int, line: int, depth: int) -> tuple[YamlNode, int]:
        pairs: list[tuple[YamlNode, YamlNode]] = []
        position = self.space(position + 1)
        if self.text.startswith("}", position):
            return self.build.mapping(pairs, line), position + 1
        while True:
            if not self.text.startswith('"', position):
                raise NotJson
            key, position = self._string(position, self.line(position))
            position = self.space(position)
            if not self.text.startswith(":", position):
                raise NotJson
            item, position = self.value(self.space(position + 1), depth + 1)
            pairs.append((key, item))
            position, more = self._next(position, "}")
            if not more:
                return self.build.mapping(pairs, line), position

    def _next(self, position: int, close: str) -> tuple[int, bool]:
        """Read the text after a value: the position to go on at, and whether another value follows."""
        position = self.space(position)
        if self.text.startswith(close, position):
            return position + 1, False
        if not self.text.startswith(",", position):
            raise NotJson
        return self.space(position + 1), True
