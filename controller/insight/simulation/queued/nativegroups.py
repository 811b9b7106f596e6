"""Kubernetes' own groups of the manifests: Workloads, PodGroups and CompositePodGroups of ``scheduling.k8s.io``.

A Workload's template is what the Job says that it is for: the API server's Job controller makes the PodGroup of it.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from controller.foreign.podgroups.group import SHARED, as_member
from controller.foreign.podgroups.native import OwnerOf, levels_named, marks_of, read, tree_of
from controller.foreign.podgroups.podsabove import BEGINS_WITH, beginning_together, is_kept, problem_of
from controller.insight.simulation.documents import Document, InputError, group_of
from controller.insight.simulation.owners import Name
from controller.insight.simulation.problems import expected_one, meant, shown
from controller.jobs.framework.kind import JobKind, api_version
from controller.jobs.framework.names import PRIORITY_CLASS, QUEUE_NAME, is_label_key
from controller.jobs.framework.podview import GroupName, SeenPod
from controller.jobs.framework.raw import JobError, Json, annotations, at, labels, mapping
from controller.jobs.kinds.table import JOB_KINDS
from controller.objects.core import PriorityClass
from controller.objects.decode import DecodeError, decode
from controller.objects.deviceclaims import ResourceClaim, ResourceClaimTemplate
from controller.objects.meta import KubernetesObject, ObjectMeta, OwnerReference
from controller.objects.nativegroups import (
    COMPOSITE_VERSION,
    NATIVE,
    NATIVE_VERSIONS,
    NativeGroup,
    NativeWorkload,
    group_problems,
    workload_problems,
)
from controller.objects.queues import Topology
from controller.reconcile.jobs.theirgroups import check_named, groups_named

GROUP: Final = "PodGroup"
COMPOSITE: Final = "CompositePodGroup"
WORKLOAD: Final = "Workload"
NATIVE_KINDS: Final = (
    *((f"{NATIVE}/{version}", kind) for version in NATIVE_VERSIONS for kind in (GROUP, WORKLOAD)),
    (f"{NATIVE}/{COMPOSITE_VERSION}", COMPOSITE),
)
"""``apiVersion`` and ``kind`` of all that is read here."""
_JOB: Final = ("batch/v1", "Job")
_KINDS: Final[Mapping[tuple[str, str], JobKind]] = {(api_version(kind), kind.kind): kind for kind in JOB_KINDS}
_KEY: Final = "spec.schedulingConstraints.topology[0].key"
_FROM_TEMPLATE: Final = ("schedulingPolicy", "schedulingConstraints", "resourceClaims")


class NativeGroups:
    """The groups of the manifests. Of two documents for one object the later counts."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], Document] = {}

    def take(self, document: Document) -> bool:
        """Keeps the document if it is one of these kinds, and returns whether it is. Raises InputError for one that the
        API server refuses.
        """
        if document.group != NATIVE or document.kind not in (GROUP, COMPOSITE, WORKLOAD):
            return False
        versions = [version for version, kind in NATIVE_KINDS if kind == document.kind]
        if document.version not in versions:
            expected = " or ".join(versions)
            raise InputError(document.told(("apiVersion",), f"found {document.version[:63]}, expected {expected}"))
        try:
            problem = next(_problems(document), "")
        except DecodeError as error:
            raise document.error(re.sub("^Native(Group|Workload)", document.kind, str(error))) from None
        if problem:
            raise document.error(f"{document.kind} {document.data['metadata']['name']}: {problem}")
        metadata = document.data["metadata"]
        key = (document.kind, metadata["namespace"], metadata["name"])
        if key in self._found and self._found[key].version != document.version:
            found = f"found it in {self._found[key].version} too, expected one version"
            raise document.error(f"{document.kind} {metadata['name']}: apiVersion: {found}")
        self._found[key] = document
        return True

    def claims(self, objects: Iterable[KubernetesObject]) -> Iterator[ResourceClaim]:
        """The claims that Kubernetes makes for PodGroups from templates: one for each group. The groups name them from
        now on.
        """
        templates = {(each.metadata.namespace, each.metadata.name): each for each in objects if _is_template(each)}
        for key, document in list(self._found.items()):
            if key[0] != GROUP or not (asked := decode(document.data, NativeGroup).spec.resource_claims):
                continue
            made = []
            for claim in asked:
                template = templates.get((key[1], claim.resource_claim_template_name))
                if isinstance(template, ResourceClaimTemplate):
                    name = f"{key[2]}-{claim.name}"
                    made.append({"name": claim.name, "resourceClaimName": name})
                    yield ResourceClaim(metadata=ObjectMeta(name=name, namespace=key[1]), spec=template.spec.spec)
            self._found[key] = document.having({**document.data, "status": {"resourceClaimStatuses": made}})

    def wrong_levels(self, jobs: Iterable[Document], objects: Iterable[KubernetesObject]) -> Iterator[str]:
        """A line for each level that is named and that no Topology of the manifests has; none without a Topology."""
        topologies = [each for each in objects if isinstance(each, Topology)]
        levels = sorted({level.node_label for each in topologies for level in each.spec.levels})
        named = [*self._found.values(), *(job for job in jobs if (job.version, job.kind) == _JOB)]
        for document in named if topologies else ():
            for path, level in levels_named(document.data):
                if level not in levels:
                    expected = expected_one("level of a Topology", levels)
                    sentence = f"{path}: found {shown(level)}, expected {expected}.{meant(level, levels)}"
                    what = f"{document.kind} {document.data['metadata']['name']}"
                    yield str(document.error(f"{what}: {sentence.removesuffix('.')}"))

    def wrong_priorities(self, jobs: Iterable[Document], objects: Iterable[KubernetesObject]) -> Iterator[str]:
        """A line for each pod whose PodGroup has another priority, and for each group that names a number without its
        class: the API server computes the number from the class.
        """
        classes = {each.metadata.name: each for each in objects if isinstance(each, PriorityClass)}
        default = max((each.value for each in classes.values() if each.global_default), default=0)

        def number(spec: Json) -> int | None:
            name = spec.get("priorityClassName") or ""
            found = classes.get(name)
            return default if not name else None if found is None else found.value

        for (kind, _, name), document in self._found.items():
            said = document.data["spec"].get("priority") if kind != WORKLOAD else None
            expected = number(document.data["spec"]) if kind != WORKLOAD else None
            if said is not None and expected is not None and said != expected:
                sentence = f"spec.priority: expected {expected}, that of its priorityClassName, found {said}"
                yield str(document.error(f"{kind} {name}: {sentence}"))
        for pod in jobs:
            spec = pod.data.get("spec") if (pod.version, pod.kind) == ("v1", "Pod") else None
            within = spec.get("schedulingGroup") if isinstance(spec, dict) else None
            of = within.get("podGroupName") if isinstance(within, dict) else None
            group = self._data(GROUP, pod.data["metadata"]["namespace"], of) if isinstance(of, str) else None
            if group is None or not isinstance(spec, dict):
                continue
            wanted, own = number(group["spec"]), spec.get("priority", number(spec))
            if wanted is not None and own is not None and wanted != own:
                sentence = f"spec.priorityClassName: expected priority {wanted}, that of PodGroup {of}, found {own}"
                yield str(pod.error(f"Pod {pod.data['metadata']['name']}: {sentence}"))

    def surplus(self, jobs: Iterable[Document]) -> Iterator[str]:
        """A line for each PodGroup that may start without some of its pods: what becomes of those on a cluster; and one
        for each wrong word about them.
        """
        by_group: dict[tuple[str, str], list[SeenPod]] = {}
        for pod in jobs:
            if (pod.version, pod.kind) == ("v1", "Pod") and isinstance(pod.data.get("spec"), dict):
                of = at(pod.data, "spec", "schedulingGroup", "podGroupName")
                if isinstance(of, str):
                    by_group.setdefault((pod.data["metadata"]["namespace"], of), []).append(SeenPod(pod.data))
        for (namespace, name), pods in by_group.items():
            document = self._found.get((GROUP, namespace, name))
            spec = None if document is None else decode(document.data, NativeGroup).spec
            if document is None or spec is None or spec.parent_composite_pod_group_name:
                continue
            if wrong := problem_of(pods[0], document.data):
                yield f"{document.place()}: {wrong}"
            gang = spec.scheduling_policy.gang
            if len(pods) > (1 if gang is None else gang.min_count or 1):
                why = "kube-scheduler starts none of a group while one of its pods waits"
                told = f"a cluster deletes those of its pods that get no quota when others start, as {why}"
                if all(is_kept(pod, document.data) for pod in pods):
                    told = f"those of its pods that wait get quota all at once or not at all, as {why}"
                yield f"{document.place()}: PodGroup {name}: {told}"

    def pod_groups(self) -> dict[tuple[str, GroupName], Json]:
        """The groups by namespace and name, trees as ``native.read`` takes them."""
        groups: dict[tuple[str, GroupName], Json] = {}
        for (kind, namespace, name), document in self._found.items():
            if kind == GROUP:
                groups[namespace, GroupName(None, name)] = document.data
            elif kind == COMPOSITE:
                below = [
                    [other.data for (of, where, _), other in self._found.items() if (of, where) == (wanted, namespace)]
                    for wanted in (GROUP, COMPOSITE)
                ]
                tree = tree_of(name, *below)
                if tree is not None:
                    groups[namespace, GroupName(None, name, composite=True)] = tree
        return groups

    def joined(self, document: Document, known: Mapping[Name, Document]) -> Document:
        """A pod as it is queued by its PodGroup, a Job as the Workload that is for it says; any other document as it
        is. ``known``: all documents by name. Raises InputError.
        """
        if (kind := _KINDS.get((document.version, document.kind))) is not None:
            self._check_named(kind, document)
        if (document.version, document.kind) == _JOB:
            return self._scheduled(document)
        if (document.version, document.kind) != ("v1", "Pod"):
            return document
        try:
            return self._of_group(document, known)
        except JobError as error:
            raise document.error(f"Pod {document.data['metadata']['name']}: {error}") from None

    def _check_named(self, kind: JobKind, job: Document) -> None:
        """Checks the PodGroups that the templates of a job name. Raises InputError."""
        namespace = job.data["metadata"]["namespace"]
        found = {name: self._data(GROUP, namespace, name) for name in groups_named(kind, job.data)}
        known = {name: None if each is None else decode(each, NativeGroup) for name, each in found.items()}
        try:
            check_named(kind, job.data, known)
        except JobError as error:
            raise job.error(f"{job.kind} {job.data['metadata']['name']}: {error}") from None

    def _of_group(self, document: Document, known: Mapping[Name, Document]) -> Document:
        """A pod with its marks, and the queue that it has from its group. Raises JobError."""
        pod, metadata = SeenPod(document.data), document.data["metadata"]
        name, namespace = pod.foreign_group, metadata["namespace"]
        if mapping(document.data, "spec").get("schedulingGroup") is not None and not pod.native_group:
            raise JobError("spec.schedulingGroup.podGroupName: expected the name of a PodGroup, found none")
        if name is None or name.system is not None:
            return document
        marks = marks_of(pod, lambda name, composite: self._data(COMPOSITE if composite else GROUP, namespace, name))
        marked = {**document.data, "metadata": {**metadata, "annotations": {**annotations(document.data), **marks}}}
        pod = SeenPod(marked)
        of = pod.foreign_group or name
        given = self.pod_groups().get((namespace, of)) if of.composite else self._data(GROUP, namespace, of.name)
        joined = as_member(pod, read(of, given, owner_of=_owners(namespace, known)))
        said = {key: joined.labels[key] for key in (QUEUE_NAME, PRIORITY_CLASS) if joined.labels.get(key)}
        own = {**marked["metadata"], "labels": {**labels(marked), **said}}
        joined = beginning_together(joined, lambda name, _: self._data(GROUP, namespace, name))
        told: Json = {key: joined.raw[key] for key in (SHARED, BEGINS_WITH) if key in joined.raw}
        return document.having({**marked, "metadata": own, **told})

    def _scheduled(self, job: Document) -> Document:
        """The Job with the template of the one Workload that is for it, unless it says ``spec.scheduling`` itself."""
        spec, metadata = job.data.get("spec"), job.data["metadata"]
        if not isinstance(spec, dict) or spec.get("scheduling") is not None:
            return job
        wanted = ("batch", "Job", metadata["name"])
        matching = [
            templates
            for (kind, namespace, _), each in self._found.items()
            if (kind, namespace) == (WORKLOAD, metadata["namespace"]) and _is_for(each.data) == wanted
            for templates in (each.data["spec"].get("podGroupTemplates") or [],)
        ]
        if len(matching) != 1 or len(matching[0]) != 1:
            return job
        # The disruption mode has no meaning for quota, and a Job alone may not have each mode beside each policy.
        taken = {key: matching[0][0][key] for key in _FROM_TEMPLATE if key in matching[0][0]}
        return job.having({**job.data, "spec": {**spec, "scheduling": taken}})

    def unread(self, jobs: Collection[Document]) -> Iterator[str]:
        """A line for each Workload that is for an object whose kind is not read by it."""
        known = {
            (group_of(job.version), job.kind, job.data["metadata"]["name"], job.data["metadata"]["namespace"])
            for job in jobs
        }
        for (kind, namespace, _), document in self._found.items():
            of = _is_for(document.data) if kind == WORKLOAD else None
            if of is not None and of[:2] != ("batch", "Job") and (*of, namespace) in known:
                note = (
                    f"Workload {document.key}: its templates are not read for {of[1]} {of[2]}, which starts as a whole"
                )
                yield f"{document.place()}: {note}"

    def _data(self, kind: str, namespace: str, name: str) -> Json | None:
        found = self._found.get((kind, namespace, name))
        return None if found is None else found.data


def _is_template(given: KubernetesObject) -> bool:
    return isinstance(given, ResourceClaimTemplate)


def _problems(document: Document) -> Iterator[str]:
    """The reasons why the API server refuses the document. Raises DecodeError."""
    if document.kind == WORKLOAD:
        yield from workload_problems(decode(document.data, NativeWorkload))
    else:
        group = decode(document.data, NativeGroup)
        yield from group_problems(group, composite=document.kind == COMPOSITE)
        if group.spec.level and not is_label_key(group.spec.level):
            yield f"{_KEY}: found {shown(group.spec.level)}, expected a label of nodes"


def _is_for(workload: Json) -> tuple[str, str, str] | None:
    """API group, kind and name of the object that a Workload is for."""
    found = at(workload, "spec", "controllerRef")
    return None if found is None else (found.get("apiGroup", ""), found["kind"], found["name"])


def _owners(namespace: str, known: Mapping[Name, Document]) -> OwnerOf:
    def owner(reference: OwnerReference) -> Json | None:
        found = known.get((namespace, group_of(reference.api_version), reference.kind, reference.name))
        return None if found is None else found.data

    return owner
