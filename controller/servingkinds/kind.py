"""What a serving kind declares. Its controller makes pods at once, behind a gate, and each of its groups of pods has a
Workload that is made of the object, not of the pods: all pods of a group are admitted together.

Source: Kueue's pkg/controller/jobs/{statefulset,leaderworkerset}, and KEP 976, "Serving Workload".
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from controller.jobframework import names
from controller.jobframework.kind import api_version
from controller.jobframework.marks import priority_class, queue_name
from controller.jobframework.podsets import JobPodSet, check_requests
from controller.jobframework.podview import SUSPENDING_PARENT
from controller.jobframework.raw import Json, at, mapping, strings, text
from controller.jobframework.templated import Path, dotted, replaced
from controller.jobframework.topologyrequest import ranked, topology_request
from controller.objects.meta import Struct
from inventory.api.names import PREFIX


class ServingGroup(Struct, frozen=True, kw_only=True):
    """One Workload of an object. ``name`` is what its name is made of, ``index`` its number among several."""

    name: str
    pod_sets: tuple[JobPodSet, ...]
    index: int | None = None

    @property
    def total(self) -> int:
        return sum(pod_set.count for pod_set in self.pod_sets)


class StampedKind(ABC):
    """A kind whose pod templates are stamped when its objects are created or changed, as no field holds these back.

    ``parent`` is the value of ``pod-suspending-parent`` on its pods, ``templates`` where its pod templates lie.
    """

    framework: ClassVar[str]
    group: ClassVar[str]
    version: ClassVar[str]
    kind: ClassVar[str]
    plural: ClassVar[str]
    templates: ClassVar[tuple[tuple[str, ...], ...]]

    @property
    def parent(self) -> str:
        return self.framework

    @property
    def api_version(self) -> str:
        return api_version(self)  # type: ignore[arg-type]  # it reads group and version alone

    @abstractmethod
    def stamp(self, owner: Json, path: Path) -> tuple[dict[str, str], dict[str, str]]:
        """Labels and annotations that the pod template at ``path`` carries while the object is queued."""

    def is_anothers(self, owner: Json) -> bool:
        """Another kind has stamped its templates: it makes the Workload."""
        stamps = (strings(owner, *path, "metadata", "annotations").get(SUSPENDING_PARENT) for path in self.templates)
        return any(stamp not in (None, self.parent) for stamp in stamps)

    def stamped(self, owner: Json) -> Json:
        """The object with its pod templates as they are to be; the very object where another kind has stamped them."""
        if self.is_anothers(owner):
            return owner
        for path in self.templates:
            if at(owner, *path) is None:
                continue
            labels, annotations = self.stamp(owner, path)
            for key, more in (("labels", labels), ("annotations", annotations)):
                if more:
                    where = (*path, "metadata", key)
                    owner = replaced(owner, where, {**strings(owner, *where), **more})
        return owner


class ServingKind(StampedKind):
    """A kind whose groups of pods have a Workload each, which is made of the object."""

    pod_marks: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Annotations that every pod gets with its group."""
    running_pods_follow_queue: ClassVar[bool] = False
    """Whether the queue's label of a pod that runs follows that of the object."""

    @abstractmethod
    def groups(self, owner: Json) -> tuple[ServingGroup, ...]:
        """Those that the object has now. Raises JobError."""

    @abstractmethod
    def owner_name(self, pod: Json) -> str:
        """The object that a pod with the kind's mark belongs to; empty where that cannot be told."""

    @abstractmethod
    def group_name(self, owner: Json, pod: Json) -> str:
        """``ServingGroup.name`` of the pod's group; empty where it is in none, or not known yet."""

    @abstractmethod
    def role(self, owner: Json, pod: Json) -> str:
        """The name of its pod set."""

    @abstractmethod
    def keeps_workload(self, owner: Json) -> bool:
        """Whether it has no pods for now and is to queue again under the same Workload later."""

    def workload_name(self, owner: Json, group: str) -> str:
        return names.workload_name(self.kind, self.group, group, text(owner, "metadata", "uid"))


def copied_marks(owner: Json) -> dict[str, str]:
    """Labels of the object that its pods carry too."""
    marks = {names.QUEUE_NAME: queue_name(owner), names.PRIORITY_CLASS: priority_class(owner)}
    return {key: value for key, value in marks.items() if value}


def pod_set(
    owner: Json, path: tuple[str, ...], name: str, count: int, *, metadata: Json, index_label: str | None
) -> JobPodSet:
    """Raises JobError. ``metadata``: what the Workload keeps of the template's labels and annotations."""
    template = {"metadata": metadata, "spec": mapping(owner, *path, "spec")}
    check_requests(template, dotted(path))
    where = (*path, "metadata", "annotations")
    request = topology_request(strings(owner, *where), path=dotted(where), count=count)
    request = ranked(request, index_label, None, None)
    return JobPodSet(name=name, count=count, template=template, topology_request=request)


def own_annotations(owner: Json, path: tuple[str, ...]) -> dict[str, str]:
    """Of a template those by which nodes and devices are chosen."""
    found = strings(owner, *path, "metadata", "annotations")
    return {key: value for key, value in found.items() if key.startswith(PREFIX)}
