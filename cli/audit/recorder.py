"""The recorder turns lists and watches of many kinds into the lines of one record. It does no I/O but the sink's; the
time is passed in.

The record's own clock begins with 0, at which all existing objects are written. A later list is written as its
differences from the known objects.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from cli.printing.console import Json
from history.settings import Settings
from kube.resources import Resource

Sink = Callable[[bytes], object]
Name = tuple[str, str]


class Recorder:
    """Writes one record. ``_known`` has, by kind, the last version of each object in the record; ``_blind`` the kinds
    that cannot be seen now; ``_lost`` those that the record has declared as lost.
    """

    def __init__(self, sink: Sink, began_s: float) -> None:
        self._sink = sink
        self._began_s = began_s
        self._last_s = 0.0
        self._known: dict[Resource, dict[Name, Json]] = {}
        self._blind: set[Resource] = set()
        self._lost: set[Resource] = set()

    def begin(self, listed: Mapping[Resource, Iterable[Json]], settings: Settings, unseen: Iterable[str]) -> None:
        """Write the settings and all objects that exist at first."""
        self._line(0.0, source="recorder", type="SETTINGS", settings=msgspec.to_builtins(settings))
        for what in unseen:
            self._line(0.0, source="recorder", type="UNSEEN", what=what)
        for resource, items in listed.items():
            self._known[resource] = {}
            for item in items:
                self._put(0.0, resource, _whole(resource, item))

    def relisted(self, resource: Resource, items: Iterable[Json], now_s: float) -> None:
        """Write the differences between a new list of the kind and the known objects: the kind is seen again."""
        at_s, known = self._at(now_s), self._known.setdefault(resource, {})
        there = {_name(each): _whole(resource, each) for each in items}
        for name in known.keys() - there.keys():
            self._line(at_s, source="api", type="DELETED", object=known.pop(name))
        for name, item in there.items():
            if name not in known or _version(known[name]) != _version(item):
                self._put(at_s, resource, item)
        self._sighted(resource, at_s)

    def changed(self, resource: Resource, type_: str, item: Json, now_s: float) -> None:
        """Write an event of a watch."""
        at_s, whole = self._at(now_s), _whole(resource, item)
        if type_ == "DELETED":
            self._known.setdefault(resource, {}).pop(_name(whole), None)
            self._line(at_s, source="api", type="DELETED", object=whole)
        else:
            self._put(at_s, resource, whole)

    def blinded(self, resource: Resource, now_s: float) -> None:
        """Write that a watch or list of the kind failed."""
        if resource not in self._blind:
            self._blind.add(resource)
            self._line(self._at(now_s), source="recorder", type="BLIND", what=resource.plural)

    def lost(self, resource: Resource, now_s: float) -> None:
        """Write that the kind may not be followed any more, or is not served: its objects stay as they were known."""
        at_s = self._at(now_s)
        if resource not in self._lost:
            self._lost.add(resource)
            what = f"{resource.plural}: may not be followed from {at_s:.0f} s on"
            self._line(at_s, source="recorder", type="UNSEEN", what=what)
        self._sighted(resource, at_s)

    def _sighted(self, resource: Resource, at_s: float) -> None:
        if resource in self._blind:
            self._blind.discard(resource)
            self._line(at_s, source="recorder", type="SIGHT", what=resource.plural)

    def end(self, now_s: float) -> None:
        self._line(self._at(now_s), source="recorder", type="END")

    def _put(self, at_s: float, resource: Resource, item: Json) -> None:
        known = self._known.setdefault(resource, {})
        type_ = "MODIFIED" if _name(item) in known else "ADDED"
        known[_name(item)] = item
        self._line(at_s, source="api", type=type_, object=item)

    def _at(self, now_s: float) -> float:
        """The time on the record's clock: later than the first lines, and never back."""
        self._last_s = max(self._last_s, 0.001, round(now_s - self._began_s, 3))
        return self._last_s

    def _line(self, at_s: float, **fields: object) -> None:
        self._sink(msgspec.json.encode({"t": at_s, **fields}) + b"\n")


def _whole(resource: Resource, item: Json) -> Json:
    """The object with its kind, which lists leave out. Managed fields are left out: they take more room than the
    object, and the judge does not read them.
    """
    meta = {key: value for key, value in item.get("metadata", {}).items() if key != "managedFields"}
    return {**item, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}


def _name(item: Json) -> Name:
    meta = item["metadata"]
    return str(meta.get("namespace") or ""), str(meta["name"])


def _version(item: Json) -> tuple[object, object]:
    meta = item["metadata"]
    return meta.get("uid"), meta.get("resourceVersion")
