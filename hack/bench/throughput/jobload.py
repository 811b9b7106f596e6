"""Drives the benchmark of job kinds: creates jobs, and writes the statuses that their own controllers would write.

No pods are made: what is compared is what a job costs Tessera, from its creation to the end of its Workload.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from hack.bench.throughput.drainload import WORKLOADS, Load, Status
from hack.bench.throughput.drainshape import Arrival
from hack.bench.throughput.jobshape import Json, Played, job
from kube.client import Client
from kube.clock import Clock
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Added, Change, Changed, Reflector, Undecodable
from kube.resources import Resource
from kube.writing.writes import Verb


class _Policy(Struct, frozen=True):
    suspend: bool = False


class _Spec(Struct, frozen=True, rename="camel"):
    suspend: bool = False
    run_policy: _Policy = _Policy()


class _Job(Struct, frozen=True):
    spec: _Spec


class _Owner(Struct, frozen=True):
    name: str


class _Metadata(Struct, frozen=True, rename="camel"):
    owner_references: list[_Owner] = []


class _Workload(Struct, frozen=True):
    metadata: _Metadata
    status: Status = Status()


class JobLoad(Load):
    """One run of a shape, as jobs of these kinds in turn. It is over when all their Workloads are finished."""

    def __init__(self, client: Client, kinds: Sequence[Played], clock: Clock | None = None) -> None:
        self._kinds = tuple(kinds)
        self._turn = 0
        super().__init__(client, clock)

    def _watched(self, client: Client) -> tuple[Reflector[Any], ...]:
        jobs, workloads = msgspec.json.Decoder(_Job).decode, msgspec.json.Decoder(_Workload).decode
        return (
            self._mirror(client, WORKLOADS, workloads, self._hear_workload),
            *(self._mirror(client, kind.resource, jobs, partial(self._hear_job, kind)) for kind in self._kinds),
        )

    def _born(self, arrival: Arrival) -> tuple[Resource, Json]:
        kind = self._kinds[self._turn % len(self._kinds)]
        self._turn += 1
        return kind.resource, job(kind, arrival)

    def _hear_workload(self, change: Change[_Workload]) -> None:
        match change:
            case Added(key=key, new=new) | Changed(key=key, new=new) if new.object.status.holds("Finished"):
                for owner in new.object.metadata.owner_references:
                    if (story := self._stories.get(ObjectKey(key.namespace, owner.name))) is not None:
                        self._see_off(story)
            case Undecodable():
                self.tally.refuse(str(change))

    def _hear_job(self, kind: Played, change: Change[_Job]) -> None:
        match change:
            case Added(key=key, new=new) | Changed(key=key, new=new):
                spec = new.object.spec
                self._play(kind, key, suspended=spec.suspend or spec.run_policy.suspend)
            case Undecodable():
                self.tally.refuse(str(change))

    def _play(self, kind: Played, key: ObjectKey, *, suspended: bool) -> None:
        story = self._stories.get(key)
        if story is None or story.ended:
            return
        if suspended and story.ending is not None:
            self._stopped(story)
            self._say(kind, key, kind.stopped)
        elif not suspended and story.ending is None:
            self._say(kind, key, kind.running)
            self._started(story, lambda: self._say(kind, key, kind.ended))

    def _say(self, kind: Played, key: ObjectKey, status: Json) -> None:
        self._put(Verb.MERGE_PATCH, kind.resource, key, {"status": status})
