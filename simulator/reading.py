"""Reads a user's data strictly: every mistake becomes one line that says where, what was found, what was expected.

The fleet file and the orders of the control socket go through the same readers: a ``Reader`` is a plain value with the
path that led to it, and, for a file, the line of each path.
"""

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

PathKey = str | int
KeyPath = tuple[PathKey, ...]

FOUND_LIMIT = 60
"""The longest quotation of a wrong value in a message, in characters."""


class InputError(ValueError):
    """A value that a person or a program gave is wrong; the text is one line, fit to be shown as it is."""


class ValueSource:
    """The source of values: a name for messages, and the line of each path where the source is a file."""

    def __init__(self, name: str, lines: dict[KeyPath, int] | None = None) -> None:
        self.name = name
        self.lines = lines or {}

    def place(self, path: KeyPath) -> str:
        """``file:line`` of a path, or the bare name; a missing key is placed at its parent."""
        while path and path not in self.lines:
            path = path[:-1]
        line = self.lines.get(path)
        return self.name if line is None else f"{self.name}:{line}"


class Reader:
    """One value on its way from a source into a struct."""

    def __init__(self, value: Any, source: ValueSource, path: KeyPath = ()) -> None:
        self.value = value
        self.source = source
        self.path = path

    def where(self) -> str:
        """The key path as people write it: ``nodes[0].gpus``."""
        text = ""
        for key in self.path:
            shown = key if isinstance(key, int) or key.isprintable() else repr(key)
            text += f"[{key}]" if isinstance(key, int) else f".{shown}" if text else str(shown)
        return text or "the whole document"

    def fail(self, expected: str) -> NoReturn:
        """Raise InputError: this value is not what it should be."""
        found = "nothing" if self.value is None else repr(self.value)
        if len(found) > FOUND_LIMIT:
            found = found[: FOUND_LIMIT - 3] + "..."
        raise InputError(f"{self.source.place(self.path)}: {self.where()}: found {found}, expected {expected}")

    def mapping(self, keys: Collection[str]) -> "Reader":
        """Check that this is a mapping with no keys but these."""
        if not isinstance(self.value, dict):
            self.fail(f"a mapping with {', '.join(keys)}")
        for key in self.value:
            if key not in keys:
                unknown = Reader(self.value[key], self.source, (*self.path, str(key)))
                place, shown = self.source.place(unknown.path), repr(key)[:FOUND_LIMIT]
                near = get_close_matches(str(key), keys, n=1)
                expected = f"{near[0]}. Correct it" if near else f"one of {', '.join(keys)}"
                raise InputError(f"{place}: {unknown.where()}: found the key {shown}, expected {expected}")
        return self

    def get(self, key: str) -> "Reader | None":
        """The value under a key; None where it is absent or null."""
        value = self.value.get(key)
        return None if value is None else Reader(value, self.source, (*self.path, key))

    def need(self, key: str, expected: str) -> "Reader":
        """The value under a key that must be there."""
        found = self.get(key)
        if found is None:
            Reader(None, self.source, (*self.path, key)).fail(expected)
        return found

    def items(self, expected: str) -> list["Reader"]:
        """The elements of a list."""
        if not isinstance(self.value, list):
            self.fail(expected)
        return [Reader(value, self.source, (*self.path, i)) for i, value in enumerate(self.value)]

    def entries(self, expected: str) -> Iterator[tuple[Any, "Reader"]]:
        """The keys and values of a mapping with free keys."""
        if not isinstance(self.value, dict):
            self.fail(expected)
        for key, value in self.value.items():
            yield key, Reader(value, self.source, (*self.path, key if isinstance(key, int) else str(key)))

    def integer(self, least: int, most: int, expected: str | None = None) -> int:
        """A whole number within bounds (both inclusive)."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not least <= self.value <= most:
            self.fail(expected or f"a whole number from {least} to {most}")
        return self.value

    def number(self, least: float, most: float) -> float:
        """A number within bounds (both inclusive)."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float) or not least <= self.value <= most:
            self.fail(f"a number from {least:g} to {most:g}")
        return float(self.value)

    def text(self, expected: str = "a text", most: int = 253) -> str:
        """A non-empty text of bounded length."""
        if not isinstance(self.value, str) or not 0 < len(self.value) <= most or "\0" in self.value:
            self.fail(expected)
        return self.value

    def word(self, words: Collection[str]) -> str:
        """A word that is one of ``words``."""
        if not isinstance(self.value, str) or self.value not in words:
            self.fail("one of " + ", ".join(words))
        return self.value

    def truth(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            self.fail("true or false")
        return self.value


def read_yaml(path: Path) -> Reader:
    """The document of a YAML (or JSON) file, as plain values with their lines.

    Raises InputError for a file that cannot be read, is not valid YAML, or repeats a key.
    """
    import yaml

    from yamlfile.levels import deeply_nested, too_deep
    from yamlfile.tree import no_utf8

    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: found {str(error.strerror).lower()}, expected a readable file") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(str(no_utf8(path, content, error.start))) from error
    if (line := too_deep(text)) is not None:
        raise InputError(f"{path}:{line}: {deeply_nested()}")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    lines: dict[KeyPath, int] = {}
    try:
        node = yaml.compose(text, Loader=loader)
        value = None if node is None else _Plainer(lines, path).plain(node, ())
    except InputError:
        raise
    except RecursionError as error:
        raise InputError(f"{path}:1: found an anchor that contains itself, expected values") from error
    except yaml.YAMLError as error:
        from yamlfile.words import not_yaml  # imported for mistakes alone

        why = not_yaml(text, error)
        if why.is_yaml and _is_manifest(text):
            found = "a manifest of several documents"
            raise InputError(f"{path}:{why.line}: found {found}, expected one document, which has nodes") from error
        raise InputError(why.told(str(path))) from error
    return Reader(value, ValueSource(str(path), lines))


def _is_manifest(text: str) -> bool:
    """Whether the first of several documents is an object of Kubernetes."""
    import yaml

    first = next(yaml.compose_all(text))
    return isinstance(first, yaml.MappingNode) and any(key.value == "apiVersion" for key, _ in first.value)


class _Plainer:
    """Turns YAML nodes into plain values and notes the line of every path."""

    def __init__(self, lines: dict[KeyPath, int], file: Path) -> None:
        import yaml
        from yaml.constructor import SafeConstructor

        self._lines = lines
        self._file = file
        self._constructor = SafeConstructor()
        self._scalar, self._sequence, self._mapping = yaml.ScalarNode, yaml.SequenceNode, yaml.MappingNode

    def plain(self, node: Any, path: KeyPath) -> Any:
        self._lines[path] = node.start_mark.line + 1
        if isinstance(node, self._sequence):
            return [self.plain(child, (*path, i)) for i, child in enumerate(node.value)]
        if isinstance(node, self._mapping):
            return self._plain_mapping(node, path)
        return self._construct(node)

    def _construct(self, node: Any) -> Any:
        if node.tag == "tag:yaml.org,2002:str":
            return str(node.value)
        try:
            return self._constructor.construct_object(node)
        except ValueError as wrong:
            from yamlfile.words import unreadable_value  # imported for mistakes alone

            raise unreadable_value(node, wrong) from None

    def _plain_mapping(self, node: Any, path: KeyPath) -> dict[Any, Any]:
        own = [self._construct(key) for key, _ in node.value if isinstance(key, self._scalar)]
        for i, key in enumerate(own):
            if key in own[:i]:
                line = node.value[i][0].start_mark.line + 1
                raise InputError(f"{self._file}:{line}: {key}: found the key twice, expected it once")
        self._constructor.flatten_mapping(node)  # merge keys: merged pairs come first, so own ones win
        result = {}
        for key_node, child in node.value:
            key = self._construct(key_node) if isinstance(key_node, self._scalar) else str(key_node.value)
            step = key if isinstance(key, int | str) else str(key)
            result[key] = self.plain(child, (*path, step))
            self._lines[*path, step] = key_node.start_mark.line + 1
        return result
