"""Plain pods of the manifests as the workloads that the controller would make of them: single ones, and groups.

A group of pods arrives with its last pod, and runs as long as the pod that runs longest.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from controller.jobframework.podview import SeenPod, key_of
from controller.jobframework.raw import JobError, Json, annotations
from controller.jobframework.settings import ClusterObjects, JobSettings
from controller.pods import compose as podcompose
from controller.pods import group as podgroup
from controller.simulation.documents import Document
from inventory.api.names import ARRIVAL, RUNTIME
from yamlfile.parsers import Unfit, go_duration

POD: Final = ("v1", "Pod")
PodGroups = Mapping[tuple[str, str], Json]
"""Volcano's PodGroups by namespace and name."""


def is_pod_group(document: Document) -> bool:
    return document.kind == "PodGroup" and document.version.partition("/")[0] == podgroup.VOLCANO


def gathered(jobs: Iterable[Document]) -> list[list[Document]]:
    """The jobs, each by itself, and pods of one group together, in the order of each one's first."""
    found: dict[object, list[Document]] = {}
    for at, document in enumerate(jobs):
        key: object = at
        if (document.version, document.kind) == POD:
            try:
                namespace, group = key_of(SeenPod(document.data))
                key = (namespace, group) if group else at
            except JobError as error:
                raise document.error(f"Pod {document.data['metadata']['name']}: {error}") from None
        found.setdefault(key, []).append(document)
    return list(found.values())


def workload_of(pods: Sequence[Json], pod_groups: PodGroups, settings: JobSettings, cluster: ClusterObjects) -> Json:
    """The complete Workload. ``pods``: one, or all of a group, the oldest first. Raises JobError."""
    runtime = _longest(pods)
    seen = [SeenPod(_told(pod, age, runtime)) for age, pod in enumerate(pods)]
    namespace, _ = key_of(seen[0])
    group = podgroup.group_of(seen, pod_groups.get((namespace, seen[0].volcano_group)))
    if group.declared and group.name:
        seen = seen[: group.total]
    sets = podgroup.pod_sets(group, seen)
    if not sets:
        raise JobError(f"group {group.name} has {len(seen)} of {group.total} pods")
    body = podcompose.workload_body(group, seen, sets, settings, cluster)
    body["metadata"]["name"] = group.name or seen[0].name
    del body["metadata"]["finalizers"], body["metadata"]["ownerReferences"]
    return body


def _longest(pods: Sequence[Json]) -> str | None:
    """The runtime of the pod that runs longest; None where one of them runs for ever. Raises JobError."""
    said = [annotations(pod).get(RUNTIME) for pod in pods]
    known = [statement for statement in said if statement is not None]
    return max(known, key=_seconds) if known and len(known) == len(said) else None


def _seconds(text: str) -> float:
    """0 for a text that is no duration: its reader reports it."""
    try:
        return 0.0 if text == "0" else go_duration(text)
    except Unfit:
        return 0.0


def _told(pod: Json, age: int, runtime: str | None) -> Json:
    """Without what may differ between pods of one group: the times of arrival, and the runtimes, which become one."""
    kept = {key: value for key, value in annotations(pod).items() if key not in (ARRIVAL, RUNTIME)}
    if runtime is not None:
        kept[RUNTIME] = runtime
    created = datetime.fromtimestamp(age, UTC).isoformat()
    return {**pod, "metadata": {**pod["metadata"], "annotations": kept, "creationTimestamp": created}}
