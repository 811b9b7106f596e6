"""Children of other documents count with their owners, as on a cluster: an export of one holds both.

A job, a pod or a Workload whose chain of controllers leads to a job that is queued has no part of its own in a run. An
owner is matched by its kind and name, and by its uid if both sides have one: a new object under an old name owns
nothing. If a link of the chain is not among the documents (``kubectl get deploy,pods``), its name or labels tell whose
it was. If they do not, the child is queued by itself; so is, with a warning, each of those that own each other.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from controller.insight.simulation.documents import Document, group_of
from controller.jobs.framework.marks import prebuilt_workload
from controller.jobs.framework.raw import JobError, Json, labels

_WORKLOAD: Final = "Workload"
_REPLICA_SET: Final = ("apps", "ReplicaSet")
_TEMPLATE_HASH: Final = "pod-template-hash"
_RAY: Final = "ray.io"
_OF_RAY: Final = re.compile(r"(.+?)(?:-raycluster)?-[bcdfghjklmnpqrstvwxz2456789]{5}")
"""The name that a RayJob or a RayService gives its RayCluster: five characters of those in names that Kubernetes makes
up."""
_MARKS: Final = (
    ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
    ("jobset.sigs.k8s.io/jobset-name", "jobset.x-k8s.io", "JobSet"),
    ("jobset.sigs.k8s.io/jobset-name", "trainer.kubeflow.org", "TrainJob"),
    ("training.kubeflow.org/job-name", "kubeflow.org", "MPIJob"),
    ("workload.codeflare.dev/appwrapper", "workload.codeflare.dev", "AppWrapper"),
)
"""Labels by which controllers mark their pods with their object's name, though other controllers made the pods. A
TrainJob's JobSet has its name. The nearest owner stands first."""

IsQueued = Callable[[Document], bool]
"""Whether the document is a job, a pod or a serving object, and queues by itself."""

Name = tuple[str, str, str, str]
"""Namespace, API group, kind and name of an object."""


def without_children(
    jobs: list[Document], others: Iterable[Document], is_queued: IsQueued, notes: list[str]
) -> list[Document]:
    """The jobs that no queued object made, in their order. ``others``: links of the chains beside them.

    ``notes`` gets a line for each job that is its own owner.
    """
    has_workloads = any(each.kind == _WORKLOAD for each in jobs)
    if not has_workloads and not any(each.data["metadata"].get("ownerReferences") for each in jobs):
        return jobs
    known = by_name((*others, *jobs))
    prebuilt = {name for each in jobs if has_workloads and is_queued(each) for name in _prebuilt(each)}
    found = [each for each in jobs if _name_of(each) not in prebuilt and not _is_child(each, known, is_queued)]
    notes += [_circle(each) for each in found if _is_its_own(each, _above(each, known, every=False))]
    return found


def is_made(document: Document, known: Mapping[Name, Document]) -> bool:
    """Whether the controller of another of these objects made it."""
    owners = _above(document, known, every=False)
    return bool(owners) and not _is_its_own(document, owners)


def by_name(given: Iterable[Document]) -> dict[Name, Document]:
    """The documents by their names. Of two documents for one object the later counts."""
    return {_name_of(each): each for each in given}


def _is_child(document: Document, known: Mapping[Name, Document], is_queued: IsQueued) -> bool:
    """Whether an owner of the document queues. A pod counts as an owner only for its Workload: a pod that a driver
    makes queues by itself.
    """
    of_workload = document.kind == _WORKLOAD
    owners = _above(document, known, every=of_workload)
    if not of_workload and _is_its_own(document, owners):
        return False
    return any(owner.kind != _WORKLOAD and (of_workload or not _is_pod(owner)) and is_queued(owner) for owner in owners)


def _is_its_own(document: Document, owners: Iterable[Document]) -> bool:
    """Whether the chain of its owners leads back to it. An owner above it is then its product rather than its maker."""
    return _name_of(document) in map(_name_of, owners)


def _circle(document: Document) -> str:
    sentence = "found owners that lead back to it, expected one that it did not make itself. It is queued by itself"
    return document.told(("metadata", "ownerReferences"), sentence)


def _above(document: Document, known: Mapping[Name, Document], *, every: bool) -> list[Document]:
    """All owners among the documents; the document itself too if they lead back to it.

    ``every``: follow each owner, because a Workload's are the pods of its group too, none of which controls it.
    """
    at, seen = [document], dict[Name, Document]()
    while at:
        owners = {
            _name_of(owner): owner
            for each in at
            for reference in _references(each, every=every)
            if (owner := _owner(each, reference, known)) is not None and _name_of(owner) not in seen
        }
        seen |= owners
        at, every = list(owners.values()), False
    return list(seen.values())


def _references(document: Document, *, every: bool) -> Iterator[Json]:
    found = document.data["metadata"].get("ownerReferences")
    for each in found if isinstance(found, list) else ():
        if isinstance(each, dict) and (every or each.get("controller") is True):
            yield each


def _owner(document: Document, reference: Json, known: Mapping[Name, Document]) -> Document | None:
    namespace = str(document.data["metadata"].get("namespace", ""))
    group = group_of(str(reference.get("apiVersion", "")))
    kind, name = str(reference.get("kind", "")), str(reference.get("name", ""))
    owner = known.get((namespace, group, kind, name))
    if owner is None:
        return _beyond(document, (namespace, group, kind, name), known)
    uid = owner.data["metadata"].get("uid")
    return None if uid and reference.get("uid") and uid != reference["uid"] else owner


def _beyond(document: Document, missing: Name, known: Mapping[Name, Document]) -> Document | None:
    """The document that made the missing owner; None if there is none."""
    return next(
        (known[each] for each in _makers(document, missing) if each in known and each != _name_of(document)), None
    )


def _makers(document: Document, missing: Name) -> Iterator[Name]:
    """Names of objects that may have made the missing owner, by its name and the document's labels.

    A Deployment's ReplicaSets are called DEPLOYMENT-HASH, where the hash has no dash, and their pods are labelled with
    it. Pods of a ReplicaSet that a user wrote have no such label, whatever its name is.
    """
    namespace, group, kind, name = missing
    try:
        marks = labels(document.data)
    except JobError:
        return
    if (group, kind) == _REPLICA_SET and _TEMPLATE_HASH in marks:
        yield namespace, "apps", "Deployment", name.rpartition("-")[0]
    if (group, kind) == (_RAY, "RayCluster") and (of_ray := _OF_RAY.fullmatch(name)):
        yield from ((namespace, _RAY, made, of_ray[1]) for made in ("RayJob", "RayService"))
    yield from ((namespace, of, made, marks[label]) for label, of, made in _MARKS if label in marks)


def _prebuilt(job: Document) -> Iterator[Name]:
    """The Workload that the job names as made beforehand."""
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
    return str(metadata.get("namespace", "")), document.group, document.kind, str(metadata["name"])
