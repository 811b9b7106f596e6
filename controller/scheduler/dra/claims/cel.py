"""Selectors of devices: the part of CEL in which they are written, compiled once and evaluated for many devices.

    compiled("device.attributes['gpu.nvidia.com'].type == 'gpu'").matches(device)

Correct CEL that is not supported here (regular expressions, optional values) matches: at worst a claim is then charged
too much. An expression that fails for a device does not match it. Work is bounded, because anybody may write
expressions. Source: KEP 4381, the CEL environment of ``k8s.io/dynamic-resource-allocation/cel``.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from controller.scheduler.dra.claims import celnodes
from controller.scheduler.dra.claims.celnodes import Node, UnknownCelError, constant
from controller.scheduler.dra.claims.celvalues import FUNCTIONS, METHODS, CelError

STEPS: Final = 10_000
"""Steps for a whole question; ``STEPS_EACH`` more are allowed for each device."""
STEPS_EACH: Final = 100
_DEEPEST: Final = 40
_LONGEST: Final = 10_240
_TOKEN: Final = re.compile(
    r"(?:\s|//[^\n]*)*(?:(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]{1,3})?)"
    r"|(?P<int>0x[0-9a-fA-F]{1,16}|[0-9]{1,19})[uU]?"
    r"|(?P<raw>[rR]?)(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>\|\||&&|[=!<>]=|\.\?|\[\?|[-+*/%<>!?:.,()\[\]])|(?P<end>\Z))",
    re.ASCII,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?"}
_BINARY: Final = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">=", "in"), ("+", "-"), ("*", "/", "%"))
_DECISIVE: Final = {"exists": True, "all": False}
_IN_DEVICE: Final = 3
"""The number of tokens from ``in`` to the name after ``device.``."""


class CelSyntaxError(ValueError):
    """The text is no CEL; the message is one line."""


class Selector:
    """One expression. ``unknown``: the parts of it that are not supported here, empty where all are. ``attributes``:
    the names, without domains, of all attributes that it may look at; None where it may look at any.
    """

    def __init__(self, expression: str) -> None:
        """Compile the expression. Raises CelSyntaxError."""
        parser = _Parser(expression)
        self._node = parser.whole()
        self.unknown = tuple(parser.unknown)
        self.attributes = _attributes(_tokens(expression))

    def matches(self, device: Mapping[str, Any], steps: list[int] | None = None) -> bool:
        """Whether the expression selects the device. ``device``: driver, attributes and capacity by domain,
        allowMultipleAllocations. ``steps``: the number of steps left, in a list of one; when it runs out the rest
        matches.
        """
        try:
            return self._node({"device": device, celnodes.STEPS: [STEPS] if steps is None else steps}) is True
        except (UnknownCelError, RecursionError):
            return True
        except CelError:
            return False

    def decides(self, device: Mapping[str, Any]) -> bool:
        """Whether the scheduler would select the device. Raises CelError where the expression fails for the device,
        which fails its pod, and where it takes too long.
        """
        try:
            return self._node({"device": device, celnodes.STEPS: [STEPS]}) is True
        except (UnknownCelError, RecursionError):
            raise CelError("not known here") from None


@lru_cache(maxsize=128)
def compiled(expression: str) -> Selector:
    """The compiled selector, cached: one of two conditions is compiled in 85 us and found in 0.1 us. Raises
    CelSyntaxError.
    """
    return Selector(expression)


class ByDomain(dict[str, Mapping[str, Any]]):
    """Attributes or capacity by domain: an unknown domain is an empty map."""

    def __missing__(self, domain: str) -> Mapping[str, Any]:
        return {}


def _tokens(expression: str) -> list[tuple[str, Any]]:
    """The tokens, each with its kind (``value``, ``name``, ``sign``, ``end``) and content. Raises CelSyntaxError."""
    tokens: list[tuple[str, Any]] = []
    at = 0
    while not tokens or tokens[-1][0] != "end":
        token = _TOKEN.match(expression, at)
        if token is None:
            raise CelSyntaxError(f"unexpected {expression[at : at + 20].strip()!r}")
        at = token.end()
        if token["string"] is not None:
            tokens.append(("value", _string(token["string"][1:-1], raw=bool(token["raw"]))))
        elif token["int"] is not None:
            tokens.append(("value", int(token["int"], 16 if token["int"].startswith("0x") else 10)))
        elif token["float"] is not None:
            tokens.append(("value", float(token["float"])))
        else:
            kind = "name" if token["name"] is not None else "sign" if token["sign"] is not None else "end"
            tokens.append((kind, token[kind]))
    return tokens


def _attributes(tokens: list[tuple[str, Any]]) -> frozenset[str] | None:
    """All names in the expression; None where it may read a map as a whole, or a name that is computed."""
    signs = [content if kind == "sign" else None for kind, content in tokens]
    if "+" in signs:
        return None
    names = set[str]()
    for at, (kind, content) in enumerate(tokens):
        if kind == "name" and content == "device" and signs[at + 1] != ".":
            return None
        if kind == "name" and content in ("attributes", "capacity") and at and signs[at - 1] == ".":
            closed = at + 3
            is_domain = signs[at + 1] == "[" and tokens[at + 2][0] == "value" and signs[closed : closed + 1] == ["]"]
            asked = at >= _IN_DEVICE and tokens[at - _IN_DEVICE] == ("name", "in")
            if not is_domain or (not asked and signs[closed + 1] not in (".", "[")):
                return None
            called = signs[closed + 1] == "." and signs[closed + 3] == "("
            computed = signs[closed + 1] == "[" and (tokens[closed + 2][0] != "value" or signs[closed + 3] != "]")
            if called or computed:
                return None
        if kind == "name" or (kind == "value" and isinstance(content, str)):
            names.add(content)
    return frozenset(names)


def _string(inside: str, *, raw: bool) -> str:
    if raw or "\\" not in inside:
        return inside
    parts, at = [], 0
    while at < len(inside):
        if inside[at] != "\\":
            parts.append(inside[at])
            at += 1
            continue
        if inside[at + 1] not in _ESCAPES:
            raise CelSyntaxError(f"unknown escape {inside[at : at + 2]!r}")
        parts.append(_ESCAPES[inside[at + 1]])
        at += 2
    return "".join(parts)


class _Parser:
    """A recursive-descent parser of one expression; operators by precedence, the loosest first."""

    def __init__(self, expression: str) -> None:
        if len(expression) > _LONGEST:
            raise CelSyntaxError(f"longer than {_LONGEST} characters")
        self._tokens = _tokens(expression)
        self._at = 0
        self._depth = 0
        self.unknown: list[str] = []

    def whole(self) -> Node:
        node = self._expression()
        if self._tokens[self._at][0] != "end":
            raise self._unexpected("an operator or the end")
        return node

    def _unexpected(self, wanted: str) -> CelSyntaxError:
        kind, content = self._tokens[self._at]
        return CelSyntaxError(f"expected {wanted}, found {'the end' if kind == 'end' else repr(str(content)[:40])}")

    def _take(self, *signs: str) -> str:
        """Consume and return the next sign if it is one of these; else return an empty string."""
        kind, content = self._tokens[self._at]
        if (kind == "sign" or (kind == "name" and content == "in")) and content in signs:
            self._at += 1
            return str(content)
        return ""

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self._unexpected(repr(sign))

    def _name(self) -> str:
        kind, content = self._tokens[self._at]
        if kind != "name":
            raise self._unexpected("a name")
        self._at += 1
        return str(content)

    def _not_known(self, what: str) -> Node:
        self.unknown.append(what)
        return celnodes.unknown

    def _expression(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise CelSyntaxError(f"nested deeper than {_DEEPEST} levels")
        node = self._binary(0)
        if self._take("?"):
            then = self._expression()
            self._expect(":")
            node = celnodes.choice(node, then, self._expression())
        self._depth -= 1
        return node

    def _binary(self, level: int) -> Node:
        if level == len(_BINARY):
            return self._unary()
        node = self._binary(level + 1)
        while sign := self._take(*_BINARY[level]):
            node = celnodes.operation(sign, node, self._binary(level + 1))
        return node

    def _unary(self) -> Node:
        signs = []
        while sign := self._take("!", "-"):
            signs.append(sign)
        node = self._member()
        for sign in reversed(signs):
            node = celnodes.negation(node) if sign == "!" else celnodes.operation("-", constant(0), node)
        return node

    def _member(self) -> Node:
        node = self._primary()
        while sign := self._take(".", "[", ".?", "[?"):
            node = self._step(node, sign) if sign in (".", "[") else self._optional(sign)
        return node

    def _optional(self, sign: str) -> Node:
        if sign == "[?":
            self._expression()
            self._expect("]")
        else:
            self._name()
        return self._not_known("optional values")

    def _step(self, node: Node, sign: str) -> Node:
        if sign == "[":
            at = self._expression()
            self._expect("]")
            return celnodes.index(node, at)
        name = self._name()
        if not self._take("("):
            return celnodes.index(node, constant(name))
        if name in _DECISIVE:
            variable = self._name()
            self._expect(",")
            test = self._expression()
            self._expect(")")
            return celnodes.each(node, variable, test, decisive=_DECISIVE[name])
        arguments = self._arguments(")")
        found = METHODS.get((name, len(arguments)))
        return self._not_known(f"{name}()") if found is None else celnodes.call(found, (node, *arguments))

    def _arguments(self, end: str) -> list[Node]:
        """Parse arguments after the opening bracket, up to and including the closing one."""
        arguments: list[Node] = []
        while not self._take(end):
            if arguments:
                self._expect(",")
            arguments.append(self._expression())
        return arguments

    def _primary(self) -> Node:
        kind, content = self._tokens[self._at]
        if kind == "value":
            self._at += 1
            return constant(content)
        if kind == "name" and content != "in":
            return self._named(self._name())
        if self._take("("):
            node = self._expression()
            self._expect(")")
            return node
        if self._take("["):
            return celnodes.listing(self._arguments("]"))
        raise self._unexpected("a value")

    def _named(self, word: str) -> Node:
        if word in ("true", "false"):
            return constant(word == "true")
        if word == "cel" and self._take("."):
            return self._bind()
        if not self._take("("):
            return celnodes.variable(word)
        arguments = self._arguments(")")
        if word == "has" and len(arguments) == 1:
            return celnodes.has(arguments[0])
        found = FUNCTIONS.get((word, len(arguments)))
        return self._not_known(f"{word}()") if found is None else celnodes.call(found, arguments)

    def _bind(self) -> Node:
        """Parse ``cel.bind(name, value, within)`` after the first dot."""
        if self._name() != "bind":
            raise CelSyntaxError("expected cel.bind")
        self._expect("(")
        name = self._name()
        self._expect(",")
        value = self._expression()
        self._expect(",")
        within = self._expression()
        self._expect(")")
        return celnodes.bound(name, value, within)
