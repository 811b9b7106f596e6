"""The interface of a serving kind. No field of such a kind holds it back: its pods are held.

A stamp on its pod templates, written when the object is created or changed, puts the pods that are made of them behind
the gate. The pods of some kinds are then queued one by one; a grouped kind has a Workload for each of its groups of
pods, made of the object and not of the pods: all pods of a group are admitted together.

Source: Kueue's pkg/controller/reconcile/jobs/{deployment,statefulset,leaderworkerset}, and KEP 976, "Serving Workload".
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final

from controller.jobs.framework import names
from controller.jobs.framework.marks import priority_class, queue_name
from controller.jobs.framework.podsets import JobPodSet, check_requests
from controller.jobs.framework.podview import INDEX_OFFSET, SUSPENDING_PARENT
from controller.jobs.framework.raw import Json, at, labels, mapping, strings, text
from controller.jobs.framework.templated import dotted, replaced
from controller.jobs.framework.topologyrequest import GROUP_NAME as PODSET_GROUP
from controller.jobs.framework.topologyrequest import ranked, topology_request
from controller.objects.meta import Struct
from controller.scheduler.model.gangshape import GangShape
from controller.scheduler.model.gates import FeatureGates
from inventory.api.names import PREFIX

Path = tuple[str, ...]
MARKS: Final = (names.QUEUE_NAME, names.PRIORITY_CLASS)
"""Labels of an object that its pods have too."""


class Stamp(Struct, frozen=True, kw_only=True):
    """The marks of the pod template at ``path`` while the object is queued, besides ``pod-suspending-parent``.

    ``copied`` are labels of the object. ``offset_beside``: if there is a template at this path too, whose pod is number
    0, and the ranks of both are not counted through, the ranks here begin with 1.
    """

    path: Path
    labels: Mapping[str, str] = MappingProxyType({})
    copied: tuple[str, ...] = ()
    annotations: Mapping[str, str] = MappingProxyType({})
    offset_beside: Path = ()


class StampedKind:
    """A kind whose pod templates are stamped. ``framework`` is its name in ``integrations.frameworks`` and in the mark
    of its pods.

    ``waits_unnamed``: with ``manageJobsWithoutQueueName`` objects without a queue wait too.
    """

    framework: ClassVar[str]
    group: ClassVar[str]
    version: ClassVar[str]
    kind: ClassVar[str]
    plural: ClassVar[str]
    stamps: ClassVar[tuple[Stamp, ...]]
    waits_unnamed: ClassVar[bool] = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    def is_anothers(self, owner: Json) -> bool:
        """Whether another kind has stamped its templates: it makes the Workload."""
        found = (strings(owner, *each.path, "metadata", "annotations").get(SUSPENDING_PARENT) for each in self.stamps)
        return any(parent not in (None, self.framework) for parent in found)

    def stamped(self, owner: Json, gates: FeatureGates | None = None) -> Json:
        """The object with its pod templates stamped; the very same object if nothing changes."""
        if self.is_anothers(owner):
            return owner
        for stamp in self.stamps:
            if at(owner, *stamp.path) is None:
                continue
            for key, more in (
                ("labels", self._labels(owner, stamp)),
                ("annotations", self._annotations(owner, stamp, gates or FeatureGates())),
            ):
                where = (*stamp.path, "metadata", key)
                had = strings(owner, *where)
                if not more.items() <= had.items():
                    owner = replaced(owner, where, {**had, **more})
        return owner

    def _labels(self, owner: Json, stamp: Stamp) -> dict[str, str]:
        own = labels(owner)
        return {**stamp.labels, **{key: own[key] for key in stamp.copied if own.get(key)}}

    def _annotations(self, owner: Json, stamp: Stamp, gates: FeatureGates) -> dict[str, str]:
        annotations = {SUSPENDING_PARENT: self.framework, **stamp.annotations}
        counted_through = PODSET_GROUP in strings(owner, *stamp.path, "metadata", "annotations")
        placed = gates.on("TopologyAwareScheduling") and not counted_through
        if stamp.offset_beside and at(owner, *stamp.offset_beside) is not None and placed:
            annotations[INDEX_OFFSET] = "1"
        return annotations


class ServingGroup(Struct, frozen=True, kw_only=True):
    """One group of an object, which has a Workload. ``name`` is the part of the Workload's name, ``index`` its number
    among several; ``gang`` says which of its pods are to be in one domain, None for none.
    """

    name: str
    pod_sets: tuple[JobPodSet, ...]
    index: int | None = None
    gang: GangShape | None = None

    @property
    def total(self) -> int:
        return sum(pod_set.count for pod_set in self.pod_sets)


class ServingKind(StampedKind, ABC):
    """A kind with a Workload for each group of pods. ``pod_marks`` are annotations that every pod gets with its group.
    ``running_pods_follow_queue``: whether the queue's label of a running pod follows that of the object.
    """

    waits_unnamed = True
    pod_marks: ClassVar[Mapping[str, str]] = MappingProxyType({})
    running_pods_follow_queue: ClassVar[bool] = False

    @abstractmethod
    def groups(self, owner: Json) -> tuple[ServingGroup, ...]:
        """The groups that the object has now. Raises JobError."""

    def first_group(self, owner: Json) -> ServingGroup | None:
        """The first group of an object, which may claim to have billions of them; None if it has none. Raises
        JobError.
        """
        return next(iter(self.groups(owner)), None)

    @abstractmethod
    def owner_name(self, pod: Json) -> str:
        """The name of the object that a pod with the kind's mark belongs to; empty if it is not known."""

    @abstractmethod
    def group_name(self, owner: Json, pod: Json) -> str:
        """``ServingGroup.name`` of the pod's group; empty if it is in none, or it is not known yet."""

    @abstractmethod
    def role(self, owner: Json, pod: Json) -> str:
        """The name of the pod's pod set."""

    @abstractmethod
    def keeps_workload(self, owner: Json) -> bool:
        """Whether the object has no pods for now and is to queue again under the same Workload later."""

    def workload_name(self, owner: Json, group: str) -> str:
        return names.workload_name(self.kind, self.group, group, text(owner, "metadata", "uid"))


def copied_marks(owner: Json) -> dict[str, str]:
    """Labels of an object that its pods have too."""
    marks = {names.QUEUE_NAME: queue_name(owner), names.PRIORITY_CLASS: priority_class(owner)}
    return {key: value for key, value in marks.items() if value}


def pod_set(
    owner: Json, path: tuple[str, ...], name: str, count: int, *, metadata: Json, index_label: str | None
) -> JobPodSet:
    """The pod set of a template. ``metadata``: the template's labels and annotations that the Workload keeps. Raises
    JobError.
    """
    template = {"metadata": metadata, "spec": mapping(owner, *path, "spec")}
    check_requests(template, dotted(path))
    where = (*path, "metadata", "annotations")
    request = topology_request(strings(owner, *where), path=dotted(where), count=count)
    request = ranked(request, index_label, None, None)
    return JobPodSet(name=name, count=count, template=template, topology_request=request)


def own_annotations(owner: Json, path: tuple[str, ...]) -> dict[str, str]:
    """The annotations of a template by which nodes and devices are chosen."""
    found = strings(owner, *path, "metadata", "annotations")
    return {key: value for key, value in found.items() if key.startswith(PREFIX)}
