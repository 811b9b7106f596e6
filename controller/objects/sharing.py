"""Decodes JSON into structs, with parts that many objects share decoded and kept once: a hundred thousand workloads of
a hundred projects have a hundred pod templates, and every node of a model has the same links between its GPUs.

Parts are found by their JSON text, so that a known part costs neither memory nor decoding. They are immutable as all
structs are, and their dicts must not be changed: objects are shared between the watches, the ledger and the engine
anyway. 12,000 Workloads with their specs take 35 MiB, 62 without this, and half the CPU (decision 090).
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec

from controller.objects.core import NodeStatus, PodSpec
from controller.objects.workload import Workload, WorkloadSpec
from inventory.api.gpunode import Device, GpuNodeStatus

T = TypeVar("T")
Parts = Mapping[type, frozenset[str]]
"""The names of the shared fields, by struct."""

ALIKE: Final[Parts] = {
    Workload: frozenset({"spec"}),
    WorkloadSpec: frozenset({"pod_sets"}),
    PodSpec: frozenset({"init_containers", "containers", "tolerations"}),
    NodeStatus: frozenset({"capacity", "allocatable"}),
    GpuNodeStatus: frozenset({"links", "resources"}),
    Device: frozenset({"offers"}),
}
"""The fields that most objects of a cluster share with many others."""

_MOST_BYTES: Final = 8 << 20
"""The most bytes of the text of remembered parts: users write it, and no more of it is kept."""
_Make = Callable[[Any], Any]


class Remembered:
    """Values made of JSON texts, cached. Beyond its bytes the cache is emptied."""

    def __init__(self, make: Callable[[bytes], Any], most_bytes: int = _MOST_BYTES) -> None:
        self._make = make
        self._most_bytes = most_bytes
        self._known: dict[bytes, Any] = {}
        self._bytes = 0

    def of(self, text: bytes) -> Any:
        """The value of the text. Raises what ``make`` raises."""
        found = self._known.get(text)
        if found is not None:
            return found
        made = self._make(text)
        if self._bytes + len(text) > self._most_bytes:
            self._known.clear()
            self._bytes = 0
        if len(text) <= self._most_bytes:
            self._known[text] = made
            self._bytes += len(text)
        return made


class SharingDecoder(Generic[T]):
    """A decoder like ``msgspec.json.Decoder(type_, dec_hook=...)``, with equal results.

    For each struct from ``type_`` down to one in ``parts`` there is a twin that leaves the named fields as text. Only
    structs that are fields, or elements of a tuple that is one, are followed.
    """

    def __init__(self, type_: type[T], parts: Parts, dec_hook: Callable[[type, Any], Any]) -> None:
        self._parts = parts
        self._hook = dec_hook
        self._twins: dict[type, tuple[type, _Make]] = {}
        twin, self._whole = self._twin(type_) if self._leads_on(type_) else (type_, _as_it_is)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(twin, dec_hook=dec_hook)

    def decode(self, raw: bytes) -> T:
        """The decoded object. Raises msgspec's errors; the path of one inside a shared part begins there."""
        return cast("T", self._whole(self._decoder.decode(raw)))

    def _twin(self, type_: type) -> tuple[type, _Make]:
        """The twin that is decoded in place of the struct, and the function that makes the struct of it."""
        if type_ not in self._twins:
            hints = get_type_hints(type_, include_extras=True)
            shared = self._parts.get(type_, frozenset())
            fields: list[tuple[str, Any, Any]] = []
            makers: dict[str, _Make] = {}
            for field in msgspec.structs.fields(cast("Any", type_)):
                hint, make = hints[field.name], None
                if field.name in shared:
                    hint, make = self._as_text(hint)
                elif self._leads_on(hint):
                    hint, make = self._followed(hint)
                if make is not None:
                    makers[field.name] = make
                fields.append((field.name, hint, _default(field, made=make is not None)))
            twin = msgspec.defstruct(f"{type_.__name__}Twin", fields, kw_only=True)
            self._twins[type_] = twin, _maker(type_, tuple(name for name, _, _ in fields), makers)
        return self._twins[type_]

    def _as_text(self, hint: Any) -> tuple[Any, _Make]:
        """The type of a field that is left as text, and the function that decodes it. A part that has shared parts
        itself shares these too, even if it is not known as a whole.
        """
        twin, make = self._twin(hint) if hint in self._parts else (hint, _as_it_is)
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(twin, dec_hook=self._hook)
        known = Remembered(lambda text: make(decoder.decode(text)))
        return msgspec.Raw, lambda raw: known.of(bytes(raw))

    def _followed(self, hint: Any) -> tuple[Any, _Make]:
        if get_origin(hint) is Annotated:
            inner, make = self._followed(get_args(hint)[0])
            return Annotated[(inner, *hint.__metadata__)], make
        if get_origin(hint) is tuple:
            twin, make = self._twin(get_args(hint)[0])
            return tuple[twin, ...], lambda items: tuple(map(make, items))  # type: ignore[valid-type]
        return self._twin(hint)

    def _leads_on(self, hint: Any) -> bool:
        """Whether a type contains a shared part."""
        if get_origin(hint) is Annotated:
            return self._leads_on(get_args(hint)[0])
        if get_origin(hint) is tuple:
            arguments = get_args(hint)
            return len(arguments) == 2 and arguments[1] is Ellipsis and self._leads_on(arguments[0])  # noqa: PLR2004
        if not (isinstance(hint, type) and issubclass(hint, msgspec.Struct)):
            return False
        if hint in self._parts:
            return True
        return any(map(self._leads_on, get_type_hints(hint, include_extras=True).values()))


def _as_it_is(made: Any) -> Any:
    return made


def _default(field: Any, *, made: bool) -> Any:
    """The field of a twin. A shared field that is absent is left out when the struct is made, so that the struct's own
    default applies.
    """
    name = field.encode_name
    if made and not field.required:
        return msgspec.field(name=name, default=msgspec.UNSET)
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(name=name, default_factory=field.default_factory)
    if field.default is not msgspec.NODEFAULT:
        return msgspec.field(name=name, default=field.default)
    return msgspec.field(name=name)


def _maker(type_: type, names: tuple[str, ...], makers: Mapping[str, _Make]) -> _Make:
    plain = tuple(name for name in names if name not in makers)
    made = tuple(makers.items())
    unset = msgspec.UNSET

    def make(twin: Any) -> Any:
        arguments = {name: getattr(twin, name) for name in plain}
        for name, part in made:
            value = getattr(twin, name)
            if value is not unset:
                arguments[name] = part(value)
        return type_(**arguments)

    return make
