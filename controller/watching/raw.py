"""Workloads' JSON as it came, kept beside the typed copy: what a job is restored from must lose nothing."""

import msgspec

from controller.engine.model.resources import WorkloadKey
from controller.jobframework.raw import Json
from controller.objects.workload import Workload
from controller.watching.kinds import reader


class _Parts(msgspec.Struct):
    """What of it is read again."""

    metadata: msgspec.Raw
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class RawWorkloads:
    """A reader for the watch that remembers; ``of`` gives the newest JSON of metadata and spec."""

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
