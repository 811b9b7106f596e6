"""What others of the manifests made counts with them, as on a cluster: an export of one holds both.

A job, a pod or a Workload whose chain of controllers leads to a job that is queued has no part of its own in a run. An
owner counts by its kind and name, and by its uid where both sides tell one: a new object under an old name owns
nothing. Where the chain ends at an object that is not there, what hangs on it is queued by itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from controller.jobframework.marks import MAX_DEPTH, prebuilt_workload
from controller.jobframework.raw import JobError, Json, labels
from controller.simulation.documents import Document

_WORKLOAD: Final = "Workload"
_REPLICA_SET: Final = ("apps", "ReplicaSet")
_TEMPLATE_HASH: Final = "pod-template-hash"

IsQueued = Callable[[Document], bool]
"""Whether it is a job, a pod or what serves, and queues by itself."""

Name = tuple[str, str, str, str]
"""Namespace, API group, kind and name of an object."""


def without_children(jobs: list[Document], others: Iterable[Document], is_queued: IsQueued) -> list[Document]:
    """The jobs that nobody who is queued made, in their order. ``others``: links of the chains beside them."""
    has_workloads = any(each.kind == _WORKLOAD for each in jobs)
    if not has_workloads and not any(each.data["metadata"].get("ownerReferences") for each in jobs):
        return jobs
    known = by_name((*others, *jobs))
    prebuilt = {name for each in jobs if has_workloads and is_queued(each) for name in _prebuilt(each)}
    return [each for each in jobs if _name_of(each) not in prebuilt and not _is_child(each, known, is_queued)]


def is_made(document: Document, known: Mapping[Name, Document]) -> bool:
    """Whether the controller of an object that is there made it."""
    return any(True for _ in _above(document, known, every=False))


def by_name(given: Iterable[Document]) -> dict[Name, Document]:
    """Of two documents for one object the later counts."""
    return {_name_of(each): each for each in given}


def _is_child(document: Document, known: Mapping[Name, Document], is_queued: IsQueued) -> bool:
    """A plain pod has its Workload, and no other pod is queued with it: what a driver makes queues by itself."""
    of_workload = document.kind == _WORKLOAD
    return any(
        owner.kind != _WORKLOAD and (of_workload or not _is_pod(owner)) and is_queued(owner)
        for owner in _above(document, known, every=of_workload)
    )


def _above(document: Document, known: Mapping[Name, Document], *, every: bool) -> Iterator[Document]:
    """All owners that are there. ``every``: a Workload's are the pods of its group too, none of which controls it."""
    at, seen = [document], set[Name]()
    for _ in range(MAX_DEPTH):
        owners = [
            owner
            for each in at
            for reference in _references(each, every=every)
            if (owner := _owner(each, reference, known)) is not None and _name_of(owner) not in seen
        ]
        yield from owners
        seen |= {_name_of(owner) for owner in owners}
        at, every = owners, False


def _references(document: Document, *, every: bool) -> Iterator[Json]:
    found = document.data["metadata"].get("ownerReferences")
    for each in found if isinstance(found, list) else ():
        if isinstance(each, dict) and (every or each.get("controller") is True):
            yield each


def _owner(document: Document, reference: Json, known: Mapping[Name, Document]) -> Document | None:
    namespace = str(document.data["metadata"].get("namespace", ""))
    group = _group(str(reference.get("apiVersion", "")))
    kind, name = str(reference.get("kind", "")), str(reference.get("name", ""))
    found = known.get((namespace, group, kind, name))
    if found is None and (group, kind) == _REPLICA_SET:
        return known.get((namespace, "apps", "Deployment", _deployment(document, name)))
    uid = None if found is None else found.data["metadata"].get("uid")
    return None if uid and reference.get("uid") and uid != reference["uid"] else found


def _deployment(pod: Document, replica_set: str) -> str:
    """The name of the Deployment that made a ReplicaSet, which calls it by the hash that its pods are labelled with."""
    try:
        return replica_set.removesuffix(f"-{labels(pod.data).get(_TEMPLATE_HASH, '')}")
    except JobError:
        return ""


def _prebuilt(job: Document) -> Iterator[Name]:
    """The Workload that was made for it beforehand."""
    try:
        name = prebuilt_workload(job.data)
    except JobError:
        return
    if name:
        yield str(job.data["metadata"].get("namespace", "")), "kueue.x-k8s.io", _WORKLOAD, name


def _is_pod(document: Document) -> bool:
    return (document.version, document.kind) == ("v1", "Pod")


def _name_of(document: Document) -> Name:
    metadata = document.data["metadata"]
    return str(metadata.get("namespace", "")), _group(document.version), document.kind, str(metadata["name"])


def _group(version: str) -> str:
    return version.rpartition("/")[0]
