"""StatefulSets and LeaderWorkerSets of the manifests as the groups of pods that they have: a document for each.

A LeaderWorkerSet's are called ``<name>-<index>``, a StatefulSet's as the set.
"""

from collections.abc import Collection
from typing import Final

from controller.insight.simulation.documents import Document
from controller.jobs.framework.names import QUEUE_NAME
from controller.jobs.framework.raw import JobError, Json, labels
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.jobs.serving.kind import ServingKind
from controller.jobs.serving.table import SERVING_KINDS
from controller.reconcile.serving import compose

KINDS_OF_GROUPS: Final = {(kind.api_version, kind.kind): kind for kind in SERVING_KINDS}
"""Kinds of groups by ``apiVersion`` and ``kind`` of their objects."""
DEFAULT_QUEUE: Final = "default"
_GROUP: Final = "$group"
"""The key of a group's document that says which group it is: the object's own name, and the group's."""


def groups(document: Document, default_queues: Collection[str]) -> list[Document]:
    """One document for each group of a serving object; any other document as it is. Raises InputError."""
    kind = KINDS_OF_GROUPS.get((document.version, document.kind))
    if kind is None:
        return [document]
    owner = document.data
    meta = owner["metadata"]
    try:
        if not labels(owner).get(QUEUE_NAME) and meta["namespace"] in default_queues:
            owner = {**owner, "metadata": {**meta, "labels": {**labels(owner), QUEUE_NAME: DEFAULT_QUEUE}}}
        serving_groups = kind.groups(_running(owner))
    except JobError as error:
        raise document.error(f"{document.kind} {meta['name']}: {error}") from None
    bodies = [
        {**owner, "metadata": {**owner["metadata"], "name": group.name}, _GROUP: [meta["name"], group.name]}
        for group in serving_groups
    ]
    return [document.having(body) for body in bodies]


def workload_body(kind: ServingKind, given: Json, settings: JobSettings, cluster: ClusterObjects) -> Json:
    """The Workload of a group's document. Raises JobError."""
    name, wanted = given[_GROUP]
    owner = _running({**given, "metadata": {**given["metadata"], "name": name}})
    group = next(group for group in kind.groups(owner) if group.name == wanted)
    body = compose.workload_body(kind, owner, group, settings, cluster)
    body["metadata"]["name"] = wanted
    del body["metadata"]["finalizers"]
    return body


def _running(owner: Json) -> Json:
    """The object as it was written: the rollout of its source cluster has no part in a run."""
    return {key: value for key, value in owner.items() if key != "status"}
