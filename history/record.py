"""The record: JSON lines in order of time, each what one source said. Read as hostile input.

    {"t": 12.3, "source": "api", "type": "ADDED|MODIFIED|DELETED", "object": {...}}
    {"t": 12.3, "source": "kubelet", "node": "n1", "call": "Allocate", "pod": "team/p" or null,
     "resource": "nvidia.com/gpu", "devices": ["GPU-..."]}
                                                   NodePrepareResources, NodeUnprepareResources with "claim": "team/c"
    {"t": 12.3, "source": "kubelet", "node": "n1", "call": "PodResources", "pods": [{"namespace", "name", "containers":
     [{"name", "devices": [{"resource", "ids": []}]}]}]}
    {"t": 12.3, "source": "hardware", "node": "n1", "gpus": [{"uuid", "mig": [{"uuid", "profile"}], "replicas": 1,
     "resets": 0}]}
    {"t": 12.3, "source": "recorder", "type": "BLIND|SIGHT|UNSEEN|SETTINGS|END", "what": "pods", "settings": {}}

``t`` is in seconds, on the recorder's clock. ADDED at the ``t`` of the first line: it was there before. BLIND: from
here to its SIGHT the recorder hears nothing of ``what``. UNSEEN: it never hears of it. END: it stopped. Unknown fields
are passed over.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import msgspec

from history.settings import Settings

MAX_LINE_BYTES: Final = 8 << 20
"""Above the 1.5 MiB that an API server takes for an object."""
_CALLS: Final = ("Allocate", "PodResources", "NodePrepareResources", "NodeUnprepareResources")
_TYPES: Final = ("ADDED", "MODIFIED", "DELETED")
_NOTES: Final = ("BLIND", "SIGHT", "UNSEEN", "SETTINGS", "END")
_SHOWN: Final = 60
_DEPTH: Final = 200
"""The levels of a line: comparing deeper ones is beyond Python's stack. Kubernetes' own objects have about 20."""

Json = dict[str, Any]


class RecordError(Exception):
    """One line: the number of the line, the field, what was found and what was expected."""


class ApiFact(msgspec.Struct, frozen=True):
    """``object`` has a kind and a name; all else of it is as the API server's users wrote it."""

    t: float
    type: str
    object: Json


class KubeletFact(msgspec.Struct, frozen=True):
    """``hands``: of PodResources, by NAMESPACE/NAME the ids of all its containers."""

    t: float
    node: str
    call: str
    pod: str | None = None
    claim: str = ""
    devices: tuple[str, ...] = ()
    hands: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Gpu(msgspec.Struct, frozen=True):
    """``replicas``: how many hands one device of it takes. ``mig``: UUIDs of its instances. ``resets``: how often a
    program has had it reset.
    """

    uuid: str
    mig: tuple[str, ...] = ()
    replicas: int = 1
    resets: int = 0


class HardwareFact(msgspec.Struct, frozen=True):
    t: float
    node: str
    gpus: tuple[Gpu, ...]


class Note(msgspec.Struct, frozen=True):
    """A line of the recorder about itself."""

    t: float
    type: str
    what: str = ""
    settings: Settings | None = None


Fact = ApiFact | KubeletFact | HardwareFact | Note


def read(stream: BinaryIO) -> Iterator[Fact]:
    """All facts of a record. Raises RecordError."""
    number, last_s = 0, float("-inf")
    while raw := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(raw) > MAX_LINE_BYTES:
            raise RecordError(f"line {number}: found more than {MAX_LINE_BYTES} bytes, expected a shorter line")
        try:
            fact = _fact(_Fields("", _decoded(raw)), last_s)
        except _Wrong as wrong:
            raise RecordError(f"line {number}: {wrong}") from None
        last_s = fact.t
        yield fact


class _Wrong(Exception):  # noqa: N818 - becomes a RecordError
    def __init__(self, field: str, found: object, expected: str) -> None:
        shown = repr(found) if isinstance(found, str) else "nothing" if found is _ABSENT else _json(found)
        cut = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        super().__init__(f"{field and f'{field}: '}found {cut}, expected {expected}")


_ABSENT: Final = object()


def _json(found: object) -> str:
    try:
        return msgspec.json.encode(found).decode()
    except (msgspec.MsgspecError, RecursionError):
        return type(found).__name__


def _decoded(raw: bytes) -> object:
    try:
        decoded: object = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _Wrong("", raw[:_SHOWN].decode(errors="replace").strip(), f"a JSON object ({error})") from None
    level: list[Any] = [decoded] if raw.count(b"{") + raw.count(b"[") > _DEPTH else []
    for _ in range(_DEPTH if level else 0):
        inner = [each for body in level for each in (body.values() if isinstance(body, dict) else body)]
        level = [each for each in inner if isinstance(each, dict | list)]
    if level:
        raise _Wrong("", raw[:_SHOWN].decode(errors="replace"), f"a JSON object of at most {_DEPTH} levels")
    return decoded


class _Fields:
    """A JSON object whose fields are asked for one by one; ``path`` goes before their names in messages."""

    def __init__(self, path: str, found: object) -> None:
        if not isinstance(found, dict):
            raise _Wrong(path.removesuffix("."), found, "a JSON object")
        self._path, self.given = path, found

    def wrong(self, name: str, expected: str) -> _Wrong:
        return _Wrong(self._path + name, self.given.get(name, _ABSENT), expected)

    def text(self, name: str, words: tuple[str, ...] = (), *, empty: bool = False) -> str:
        """``words``: it has to be one of them."""
        found = self.given.get(name)
        if not isinstance(found, str) or not (found or empty) or (words and found not in words):
            raise self.wrong(name, f"one of {', '.join(words)}" if words else "a text")
        return found

    def number(self, name: str) -> float:
        found = self.given.get(name)
        if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) <= 1e12:  # noqa: PLR2004
            raise self.wrong(name, "a number of seconds")
        return float(found)

    def count(self, name: str, least: int) -> int:
        """``least`` where there is none."""
        found = self.given.get(name, least)
        if isinstance(found, bool) or not isinstance(found, int) or found < least:
            raise self.wrong(name, f"a whole number from {least}")
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        found = self.given.get(name)
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise self.wrong(name, "a list of texts")
        return tuple(found)

    def inner(self, name: str) -> "_Fields":
        if name not in self.given:
            raise self.wrong(name, "a JSON object")
        return _Fields(f"{self._path}{name}.", self.given[name])

    def rows(self, name: str, *, may_lack: bool = False) -> "list[_Fields]":
        found = self.given.get(name, [] if may_lack else None)
        if not isinstance(found, list):
            raise self.wrong(name, "a list")
        return [_Fields(f"{self._path}{name}[{at}].", each) for at, each in enumerate(found)]


def _fact(line: _Fields, last_s: float) -> Fact:
    t = line.number("t")
    if t < last_s:
        raise _Wrong("t", t, f"a number not below {last_s:g}, the time of the line before")
    match line.text("source", ("api", "kubelet", "hardware", "recorder")):
        case "api":
            body = line.inner("object")
            if not body.text("kind").isidentifier():
                raise body.wrong("kind", "the kind of an object")
            meta = body.inner("metadata")
            meta.text("name")
            for name in ("namespace", "uid"):
                if name in meta.given:
                    meta.text(name, empty=True)
            return ApiFact(t, line.text("type", _TYPES), body.given)
        case "kubelet":
            return _kubelet(t, line)
        case "hardware":
            return HardwareFact(t, line.text("node"), tuple(map(_gpu, line.rows("gpus"))))
        case _:
            return _note(t, line)


def _kubelet(t: float, line: _Fields) -> KubeletFact:
    node, call = line.text("node"), line.text("call", _CALLS)
    if call == "PodResources":
        return KubeletFact(t, node, call, hands=tuple(map(_hand, line.rows("pods"))))
    if call == "Allocate":
        pod = None if line.given.get("pod") is None else line.text("pod")
        line.text("resource")
        return KubeletFact(t, node, call, pod=pod, devices=line.texts("devices"))
    claim = line.text("claim")
    return KubeletFact(t, node, call, claim=claim, devices=line.texts("devices") if "devices" in line.given else ())


def _hand(pod: _Fields) -> tuple[str, tuple[str, ...]]:
    containers = pod.rows("containers", may_lack=True)
    devices = [device for each in containers for device in each.rows("devices", may_lack=True)]
    ids = tuple(id_ for each in devices for id_ in each.texts("ids"))
    return f"{pod.text('namespace')}/{pod.text('name')}", ids


def _gpu(gpu: _Fields) -> Gpu:
    mig = tuple(each.text("uuid") for each in gpu.rows("mig", may_lack=True))
    return Gpu(gpu.text("uuid"), mig, gpu.count("replicas", 1), gpu.count("resets", 0))


def _note(t: float, line: _Fields) -> Note:
    type_ = line.text("type", _NOTES)
    if type_ != "SETTINGS":
        return Note(t, type_, "" if type_ == "END" else line.text("what"))
    settings = line.inner("settings").given
    try:
        return Note(t, type_, settings=msgspec.convert(settings, Settings))
    except (msgspec.ValidationError, RecursionError) as error:
        raise _Wrong("settings", settings, f"the judge's settings ({error})") from None
