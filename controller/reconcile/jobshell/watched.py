"""Jobs and their Workloads as the watches hold them: both as JSON, because their templates must come back whole."""

import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from controller.cluster.watching.kinds import RawWorkloads
from controller.cluster.watching.ledger import Ledger
from controller.jobs.framework.kind import JobKind, ObjectKind
from controller.jobs.framework.marks import awaits_owner, controller_of, prebuilt_workload, queue_name
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.kinds.declared.kind import DeclaredKind
from controller.jobs.kinds.table import JOB_KINDS
from controller.jobs.serving.kind import ServingKind
from controller.jobs.serving.table import SERVING_KINDS, STAMPED_KINDS
from controller.scheduler.model.resources import WorkloadKey
from kube.resources import Resource

JobKinds = Mapping[Resource, JobKind]
"""Kinds of jobs by the resource of their objects."""


KNOWN_KINDS: Final = frozenset(
    {(kind.group, kind.kind) for kind in JOB_KINDS}
    | {(each.group, each.kind) for each in (*SERVING_KINDS, *STAMPED_KINDS)}
)
"""Group and kind of all objects that are queued without a JobKind."""


def resource_of(kind: JobKind) -> Resource:
    """The resource of the kind's objects: all kinds of jobs are namespaced."""
    return Resource(kind.group, kind.version, kind.plural, kind.kind, namespaced=True)


def job_kinds(frameworks: Collection[str], *, grow: bool = True) -> JobKinds:
    """The kinds of the table that the configuration names. ``grow``: see ``ControllerConfig.jobs_grow``."""
    named = (kind for kind in JOB_KINDS if kind.framework in frameworks)
    return {resource_of(kind): kind if grow else kind.whole() for kind in named}


ServingKinds = Mapping[Resource, ServingKind]
"""Serving kinds with a Workload for each group of pods, by the resource of their objects."""


def serving_kinds(frameworks: Collection[str]) -> ServingKinds:
    """The serving kinds of the table that the configuration names."""
    return {
        Resource(kind.group, kind.version, kind.plural, kind.kind, namespaced=True): kind
        for kind in SERVING_KINDS
        if kind.framework in frameworks
    }


def read_resource(kind: ObjectKind) -> Resource:
    """The resource of objects that jobs are read together with."""
    return Resource(kind.group, kind.version, kind.plural, kind.kind, namespaced=kind.namespaced)


def read_kinds(kinds: JobKinds) -> Mapping[ObjectKind, Resource]:
    """Other kinds that jobs of these kinds are read together with, and their resources."""
    return {one: read_resource(one) for kind in kinds.values() for one in kind.reads}


def owned_kinds(kinds: Iterable[DeclaredKind]) -> tuple[Resource, ...]:
    """Kinds between the objects of declared kinds and their pods: they are watched to find the owner above them."""
    found = (owned for kind in kinds for owned in kind.spec.owns)
    return tuple(
        dict.fromkeys(Resource(each.group, each.version, each.plural, each.kind, namespaced=True) for each in found)
    )


def external_kinds(names: Collection[str]) -> tuple[Resource, ...]:
    """Kinds that other controllers queue, from ``Kind.version.group``: owners whose parts are not queued here.

    Their plurals follow from their kinds as client-go guesses them (``meta.UnsafeGuessKindToResource``): the
    configuration's names do not tell more.
    """
    kinds = []
    for name in names:
        kind, version, group = name.split(".", 2)
        kinds.append(Resource(group, version, _plural(kind.lower()), kind, namespaced=True))
    return tuple(kinds)


def _plural(kind: str) -> str:
    if kind.endswith("s"):
        return f"{kind}es"
    return f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"


_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NOTHING: Final = msgspec.Raw(b"{}")
_MANAGERS: Final = "managedFields"
_ASKED: Final = ("labels", "annotations", "ownerReferences")


class KeptJob(msgspec.Struct, frozen=True):
    """A job, or an object that jobs are read with, packed while it is not used: a tenth of the memory.

    The fields that every change needs are beside it: the name of its ``queue``, the uid of its ``controller``, and its
    prebuilt Workload; empty if it has none, or none that can be read. ``awaits``: ``awaits_owner``.
    """

    packed: bytes
    queue: str = ""
    controller: str = ""
    prebuilt: str = ""
    awaits: bool = False

    @classmethod
    def of(cls, given: Json) -> "KeptJob":
        return cls._packed(given, given)

    @classmethod
    def read(cls, raw: bytes, *parts: str) -> "KeptJob":
        """An object as the API server writes it, or these ``parts`` of it, less the record of field managers."""
        parsed = _PARTS.decode(raw)
        meta = _PARTS.decode(parsed.get("metadata", _NOTHING))
        meta.pop(_MANAGERS, None)
        # The rest, most of it, is copied into the text undecoded.
        parsed["metadata"] = msgspec.Raw(msgspec.json.encode(meta))
        kept = {name: parsed[name] for name in parts} if parts else parsed
        return cls._packed(
            kept, {"metadata": {name: msgspec.json.decode(meta[name]) for name in _ASKED if name in meta}}
        )

    @classmethod
    def _packed(cls, given: Mapping[str, Any], asked: Json) -> "KeptJob":
        """The packed object. ``asked``: the marks and owners of ``given``."""
        owner = controller_of(asked)
        return cls(
            zlib.compress(msgspec.json.encode(given), 1),
            sys.intern(_readable(queue_name, asked)),
            "" if owner is None else owner.uid,
            _readable(prebuilt_workload, asked),
            bool(_readable(_awaits, asked)),
        )

    @property
    def json(self) -> Json:
        """The object's JSON, made anew each time."""
        found: Json = msgspec.json.decode(zlib.decompress(self.packed))
        return found


def _awaits(job: Json) -> str:
    return "true" if awaits_owner(job) else ""


def _readable(mark: Callable[[Json], str], job: Json) -> str:
    """The mark's value, empty if it cannot be read: the reconciler refuses such a job."""
    try:
        return mark(job)
    except JobError:
        return ""


def keep_job(raw: bytes) -> KeptJob:
    return KeptJob.read(raw)


def keep_owner(raw: bytes) -> KeptJob:
    """The metadata of an object that may own jobs: they tell whether it is queued and what owns it in turn."""
    return KeptJob.read(raw, "metadata")


def read_job(raw: bytes) -> Json:
    """A job as JSON, less the record of field managers: it is never read, and is most of a job's text."""
    job: Json = msgspec.json.decode(raw)
    job.get("metadata", {}).pop(_MANAGERS, None)
    return job


def seen_workload(ledger: Ledger, raws: RawWorkloads, key: WorkloadKey) -> SeenWorkload | None:
    """The newest known state, with the JSON of its spec; None if it is not known."""
    kept, spec = ledger.get(key), raws.of(key)
    return None if kept is None or spec is None else SeenWorkload(kept.workload, spec.json)
