"""``apps/v1`` Deployment and StatefulSet: each pod of a Deployment is queued by itself, with a Workload of its own; a
StatefulSet has one Workload, all replicas or none.

Facts of StatefulSets (their controller):
- Pods are made one after the other, each once the one before is Ready, unless ``podManagementPolicy`` says Parallel: so
  a set is admitted by its declared number of pods, and ungates them as they come.
- A pod has the name of its number, so a replacement comes when the pod before has gone.
- Scaled to 0, it has no pods; its Workload waits without quota until it is scaled up.
"""

from types import MappingProxyType

from controller.jobs.framework.marks import controller_of
from controller.jobs.framework.podview import FAST_ADMISSION, MANAGED, POD_INDEX_LABEL, SERVING
from controller.jobs.framework.raw import Json, integer, text
from controller.jobs.serving.kind import MARKS, ServingGroup, ServingKind, Stamp, StampedKind, own_annotations, pod_set

_TEMPLATE = ("spec", "template")
_INDEX_LABEL = "apps.kubernetes.io/pod-index"
_MAIN = "main"


class Deployment(StampedKind):
    """Deployments, see ``kind.StampedKind``. Their pods are watched as queued pods from their creation on."""

    framework = "deployment"
    group = "apps"
    version = "v1"
    kind = "Deployment"
    plural = "deployments"
    stamps = (Stamp(path=("spec", "template"), labels=MappingProxyType({MANAGED: "true"}), copied=MARKS),)


class StatefulSet(ServingKind):
    """StatefulSets, see ``kind.ServingKind``."""

    framework = "statefulset"
    group = "apps"
    version = "v1"
    kind = "StatefulSet"
    plural = "statefulsets"
    stamps = (Stamp(path=_TEMPLATE),)
    pod_marks = MappingProxyType({FAST_ADMISSION: "true", SERVING: "true", POD_INDEX_LABEL: _INDEX_LABEL})
    running_pods_follow_queue = True

    def groups(self, owner: Json) -> tuple[ServingGroup, ...]:
        replicas = integer(owner, "spec", "replicas", default=1)
        if replicas == 0:
            return ()
        annotations = own_annotations(owner, _TEMPLATE)
        main = pod_set(
            owner,
            _TEMPLATE,
            _MAIN,
            replicas,
            metadata={"annotations": annotations} if annotations else {},
            index_label=_INDEX_LABEL,
        )
        return (ServingGroup(name=text(owner, "metadata", "name"), pod_sets=(main,)),)

    def owner_name(self, pod: Json) -> str:
        owner = controller_of(pod)
        is_set = owner is not None and (owner.api_version, owner.kind) == (self.api_version, self.kind)
        return owner.name if owner is not None and is_set else ""

    def group_name(self, owner: Json, pod: Json) -> str:
        controller = controller_of(pod)
        # A new set of an old name adopts no pod of the old one's Workload.
        own = controller is not None and controller.uid == text(owner, "metadata", "uid")
        return text(owner, "metadata", "name") if own else ""

    def role(self, _owner: Json, _pod: Json) -> str:
        return _MAIN

    def keeps_workload(self, owner: Json) -> bool:
        return integer(owner, "spec", "replicas", default=1) == 0
