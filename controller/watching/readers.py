"""Objects from the JSON that the watches bring: typed, and of Workloads the JSON itself beside the typed copy."""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import msgspec

from controller.engine.model.resources import WorkloadKey
from controller.jobframework.raw import Json
from controller.objects.decode import decode, read_custom
from controller.objects.workload import EMPTY_STATUS, NO_STATUS, Workload
from controller.watching.kinds import WORKLOADS

T = TypeVar("T")


def reader(type_: type[T]) -> Callable[[bytes], T]:
    """JSON into ``type_``: by msgspec where that works, else field by field. Raises DecodeError with the field's path.

    msgspec alone is three times as fast, and refuses some nulls that the API server reads as absent. A Workload's
    status is NO_STATUS only where all of its metadata that another may own is read too.
    """
    fast: msgspec.json.Decoder[T] = msgspec.json.Decoder(type_, dec_hook=read_custom)

    def read(raw: bytes) -> T:
        try:
            return fast.decode(raw)
        except (msgspec.MsgspecError, ValueError):
            return decode(raw, type_)

    return cast("Callable[[bytes], T]", _marking(read)) if type_ is Workload else read


def _marking(read: Callable[[bytes], Any]) -> Callable[[bytes], Workload]:
    def marked(raw: bytes) -> Workload:
        workload: Workload = read(raw)
        if workload.status is NO_STATUS and _has_more(raw):
            return msgspec.structs.replace(workload, status=EMPTY_STATUS)
        return workload

    return marked


_ANY_VERSION: Final = f'"{WORKLOADS.group}/v'.encode()
_THIS_VERSION: Final = f'"{WORKLOADS.api_version}"'.encode()


def _has_more(raw: bytes) -> bool:
    """Whether it may have a ``generateName``, or fields whose manager wrote them in another version of the API: there a
    server before Kubernetes 1.35 compares all of what is put.

    Searched in the text: decoding them would cost memory for every object, and a false yes costs a patch only.
    """
    return b'"generateName"' in raw or raw.count(_ANY_VERSION) != raw.count(_THIS_VERSION)


class _Parts(msgspec.Struct):
    """What is kept of a Workload's JSON."""

    metadata: msgspec.Raw
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class RawWorkloads:
    """A reader for the watch of Workloads that keeps their JSON; ``of`` gives the newest metadata and spec.

    Jobs are restored from it, so it must lose no field that the typed copy lacks. Only ``read`` adds, for followers
    too; the leader's ``forget`` removes what is deleted.
    """

    def __init__(self) -> None:
        self._read = reader(Workload)
        self._raw: dict[WorkloadKey, bytes] = {}

    def read(self, raw: bytes) -> Workload:
        workload = self._read(raw)
        self._raw[WorkloadKey(workload.key)] = msgspec.json.encode(msgspec.json.decode(raw, type=_Parts))
        return workload

    def of(self, key: WorkloadKey) -> Json | None:
        raw = self._raw.get(key)
        return None if raw is None else msgspec.json.decode(raw)

    def forget(self, key: WorkloadKey) -> None:
        self._raw.pop(key, None)
