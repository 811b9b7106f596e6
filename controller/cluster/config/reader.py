"""Walks a configuration file by the table of keys: values by path, with their places; anything else is an error."""

from collections.abc import Iterable
from typing import Any

from controller.cluster.config.key import Key
from controller.cluster.config.settings import WithoutEffect
from yamlfile import Place


class _Spec:
    """One level of the table: a key, or the levels below it. ``item``: each of a list; ``value``: each of a map."""

    def __init__(self) -> None:
        self.key: Key | None = None
        self.children: dict[str, _Spec] = {}
        self.item: _Spec | None = None
        self.value: _Spec | None = None

    def older(self) -> bool:
        """Whether the older version alone has the key."""
        if self.key is not None:
            return bool(self.key.instead)
        below = [*self.children.values(), *(spec for spec in (self.item, self.value) if spec is not None)]
        return bool(below) and all(spec.older() for spec in below)

    def below(self, part: str) -> "_Spec":
        name = part.removesuffix("[]")
        if name == "*":
            self.value = child = self.value or _Spec()
        else:
            child = self.children.setdefault(name, _Spec())
        if name != part:
            child.item = child = child.item or _Spec()
        return child


def spec_of(keys: Iterable[Key]) -> _Spec:
    root = _Spec()
    for key in keys:
        spec = root
        for part in key.path.split("."):
            spec = spec.below(part)
        spec.key = key
    return root


class Found:
    """The values in a file, by concrete path (``resources.transformations[0].input``)."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.without_effect: list[WithoutEffect] = []
        self._values: dict[str, Any] = {}
        self._below: dict[str, list[tuple[str, str]]] = {}
        self._noted: set[str] = set()

    def __contains__(self, path: str) -> bool:
        return path in self.places

    def get(self, path: str, default: Any = None) -> Any:
        """The value at ``path``, else ``default``."""
        return self._values.get(path, default)

    def required(self, section: str, key: str) -> Any:
        """The value of a key that a section requires. Raises ConfigError."""
        value = self.get(f"{section}.{key}")
        if value is None:
            raise self.places[section].error(f"the key {key}", "none")
        return value

    def items(self, path: str) -> list[str]:
        """The paths of a list's values; empty if there is no list."""
        return [below for _, below in self._below.get(path, ())]

    def values(self, path: str) -> tuple[Any, ...]:
        """A list's values."""
        return tuple(self._values[item] for item in self.items(path))

    def entries(self, path: str) -> dict[str, Any]:
        """A map's values by key."""
        return {key: self._values[below] for key, below in self._below.get(path, ())}

    def note(self, place: Place, why: str) -> None:
        """Notes that the value at ``place`` has no effect."""
        self.without_effect.append(WithoutEffect(where=place.where, key=place.path, why=why))

    def take(self, place: Place, key: Key) -> None:
        self._values[place.path] = key.read(place)
        if key.without_effect and key.path not in self._noted:
            self._noted.add(key.path)
            self.note(place, key.without_effect)

    def hold(self, place: Place, below: list[tuple[str, Place]]) -> None:
        self._below[place.path] = [(key, child.path) for key, child in below]


def read(root: Place, keys: Iterable[Key], *, newest: bool) -> Found:
    """Everything in the file. ``newest`` refuses the keys that only the older version has. Raises ConfigError."""
    found = Found()
    _walk(root, spec_of(keys), found, newest=newest)
    return found


def _walk(place: Place, spec: _Spec, found: Found, *, newest: bool) -> None:
    found.places[place.path] = place
    if spec.key is not None:
        if newest and spec.key.instead:
            raise place.error(f"{spec.key.instead} (v1beta2 has no such key)", "a key of v1beta1")
        found.take(place, spec.key)
    elif spec.item is not None:
        items = [("", item) for item in place.items()]
        found.hold(place, items)
        for _, item in items:
            _walk(item, spec.item, found, newest=newest)
    elif spec.value is not None:
        children = list(place.children())
        found.hold(place, children)
        for _, child in children:
            _walk(child, spec.value, found, newest=newest)
    else:
        for key, child in place.children():
            if key not in spec.children:
                child.unknown(key, [name for name, below in spec.children.items() if not (newest and below.older())])
            elif not child.is_null:
                _walk(child, spec.children[key], found, newest=newest)
