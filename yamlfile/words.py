"""Why a text is not YAML, in words for its author: with line and column, and what to change.

The parser's own words speak of tokens and block mappings. The commonest mistakes are told apart here: a tab, a key that
is indented otherwise than its neighbours, a colon in a text, a bracket or a quote that nobody closes.
"""

import re
from typing import Any, Final, NamedTuple

import yaml

from yamlfile.tree import ConfigError

_TOKEN: Final = re.compile(r"\S+")
_INDENTED: Final = re.compile(r"[ \t]*")
_ALIAS: Final = re.compile(r"\*([^\s,\[\]{}]+)")
_LONGEST: Final = 40
_KINDS: Final = {
    "could not find expected ':'": ("no colon behind the key", "KEY: VALUE", "Write the colon and a space"),
    "mapping values are not allowed in this context": (
        "a colon within a value",
        "one key a line, or the value in quotes",
        "Correct the indentation, or put the value in quotes",
    ),
}


class Why(NamedTuple):
    """The reason why a text is not YAML. ``line`` and ``column`` are counted from 1; ``hint`` is what to do."""

    line: int
    column: int
    found: str
    expected: str
    hint: str
    is_yaml: bool = False
    """Whether the text is YAML, but of another shape than is read."""

    def told(self, file: str) -> str:
        """The line ``FILE:LINE: column N: not valid YAML: found X, expected Y. NEXT STEP``."""
        return str(self.mistake(file))

    def mistake(self, file: str) -> ConfigError:
        """The line of ``told`` as the error of a configuration file."""
        if self.is_yaml:
            return ConfigError(f"{file}:{self.line}", "", self.found, self.expected, hint=self.hint)
        place = f"{file}:{self.line}: column {self.column}"
        return ConfigError(place, "not valid YAML", self.found, self.expected, hint=self.hint)


class Placed:
    """A base class that stands before a loader of PyYAML: a value that Python cannot hold (a number of 5,000 digits)
    raises an error with its place, which the loader's own ValueError lacks.
    """

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)  # type: ignore[misc]
        except ValueError as wrong:
            raise unreadable_value(node, wrong) from None


def unreadable_value(node: yaml.Node, wrong: ValueError) -> yaml.MarkedYAMLError:
    problem = " ".join(str(wrong).split())[:_LONGEST]
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def unknown_alias(name: str, line: int, column: int) -> Why:
    return Why(line, column, f"the alias *{name}", "an anchor before it", "Write the value in its place")


def not_yaml(text: str, wrong: yaml.YAMLError) -> Why:
    mark = getattr(wrong, "problem_mark", None) or getattr(wrong, "context_mark", None)
    if mark is None:
        return _unreadable(text, wrong)
    lines = text.splitlines() or [""]
    at_end = mark.line >= len(lines)
    line, column = (len(lines) - 1, len(lines[-1])) if at_end else (mark.line, mark.column)
    indent = _INDENTED.match(lines[line])
    if indent is not None and "\t" in indent[0]:
        column = indent[0].index("\t")
        return Why(line + 1, column + 1, "a tab before the text", "spaces", "Indent with spaces")
    problem = str(getattr(wrong, "problem", None) or getattr(wrong, "context", None) or "")
    if problem.startswith("found undefined alias") and (alias := _ALIAS.match(lines[line], column)):
        return unknown_alias(alias[1], line + 1, column + 1)
    if problem in _KINDS:
        return Why(line + 1, column + 1, *_KINDS[problem])
    if problem.startswith("but found another document"):
        return Why(line + 1, column + 1, "a second document", "one document", "Take it out", is_yaml=True)
    return Why(line + 1, column + 1, *_by_context(wrong, problem, lines, line, column))


def _by_context(wrong: yaml.YAMLError, problem: str, lines: list[str], line: int, column: int) -> tuple[str, str, str]:
    """The text found, the text expected, and what to do."""
    begun: Any = getattr(wrong, "context_mark", None)
    context = str(getattr(wrong, "context", None) or "")
    token = _TOKEN.search(lines[line], min(column, len(lines[line])))
    shown = f'"{token[0][:_LONGEST]}"' if token is not None else "the end of the line"
    if token is None and line == len(lines) - 1:
        shown = "the end of the text"
    if begun is not None and "block" in context:
        what = "item" if "collection" in context or "sequence" in context else "key"
        where = f"the {what}s that begin in line {begun.line + 1}, column {begun.column + 1}"
        return shown, f"{what} of {where}" if what == "item" else f"a key of {where}", "Indent it as they are"
    if begun is not None and "flow" in context:
        if "node" in context:
            return shown, "a value, or the closing ] or }", "Correct it"
        bracket = "]" if "sequence" in context else "}"
        where = f"line {begun.line + 1}, column {begun.column + 1}"
        return shown, f"a comma, or {bracket} for what begins in {where}", "Correct it"
    if begun is not None and "quoted" in context:
        return shown, f"the closing quote of the text in line {begun.line + 1}, column {begun.column + 1}", "Close it"
    return f"{shown} ({problem})" if problem else shown, "valid YAML or JSON", "Correct it"


def _unreadable(text: str, wrong: yaml.YAMLError) -> Why:
    """The reason for a character that YAML forbids: the parser tells its place alone."""
    position = getattr(wrong, "position", None)
    before = text[: position if isinstance(position, int) else 0]
    found = f"the character {getattr(wrong, 'character', 0):#x}" if isinstance(position, int) else str(wrong)[:80]
    column = len(before) - (before.rfind("\n") + 1)
    return Why(before.count("\n") + 1, column + 1, found, "text", "Take it out")
