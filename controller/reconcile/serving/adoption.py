"""Adoption of serving objects' pods into their group: a pod gets the name of the Workload that it waits for, and its
role in it.

A pod is created behind the gate without these marks, as its name does not tell the Workload's. From then on it is a pod
of a group like any other (``controller.pods``), except that its Workload is not made of it.
"""

from controller.jobs.framework import names
from controller.jobs.framework.marks import queue_name
from controller.jobs.framework.podsets import typed_template
from controller.jobs.framework.podview import GROUP_NAME, GROUP_TOTAL, MANAGED, ROLE_HASH, SeenPod
from controller.jobs.framework.raw import JobError, Json, shown
from controller.jobs.serving.kind import ServingGroup, ServingKind, copied_marks
from controller.objects.core import PodSpec, ResourceRequirements
from controller.reconcile.pods.start import tied
from controller.scheduler.model.gates import FeatureGates
from inventory.api.names import JOINING


def adoption(
    kind: ServingKind, owner: Json, group: ServingGroup, pod: SeenPod, *, workload: str, gates: FeatureGates
) -> Json:
    """The merge patch that makes ``pod`` one of the group's. Raises JobError for a pod with other requests than the
    group's.
    """
    role = kind.role(owner, pod.raw)
    check_shape(group, role, pod)
    labels: dict[str, str | None] = {MANAGED: "true", **copied_marks(owner)}
    annotations: dict[str, str | None] = {GROUP_TOTAL: str(group.total), ROLE_HASH: role, **kind.pod_marks}
    # A Workload's name may be longer than a label's value.
    named = annotations if gates.on("WorkloadIdentifierAnnotations") else labels
    named |= {GROUP_NAME: workload, names.PREBUILT_WORKLOAD: workload}
    if JOINING in pod.labels:
        labels[JOINING] = None
    return {"metadata": {**tied(pod), "labels": labels, "annotations": annotations}}


def queue_patch(owner: Json, pod: SeenPod) -> Json | None:
    """The merge patch that gives an adopted pod the queue of its object; None if it has it."""
    queue = queue_name(owner)
    if not queue or queue_name(pod.raw) == queue:
        return None
    return {"metadata": {**tied(pod), "labels": {names.QUEUE_NAME: queue}}}


def check_shape(group: ServingGroup, role: str, pod: SeenPod) -> None:
    """Checks the requests of a pod. Raises JobError if it requests more or less than its pod set is charged for.

    Additions to a pod by others (containers, defaults of a LimitRange) are ignored: Workloads are charged with them.
    """
    template = next((each.template for each in group.pod_sets if each.name == role), None)
    if template is None:
        raise JobError(f"pod {pod.name}: its group has no pod set {shown(role)}")
    wanted, found = typed_template(template, role).spec, typed_template({"spec": pod.raw.get("spec") or {}}, "").spec
    for asked, has in zip(_requests(wanted), _requests(found, like=wanted), strict=True):
        differing = sorted(key for key, amount in asked.items() if has.get(key) != amount)
        # A LimitRange adds no defaults of devices.
        differing += sorted(key for key in has if "/" in key and key not in asked)
        if differing:
            key = differing[0]
            raise JobError(
                f"pod {pod.name}: expected requests of {key} as its Workload has them, "
                f"{asked.get(key, 'none')}, found {has.get(key, 'none')}"
            )


def _requests(spec: PodSpec, like: PodSpec | None = None) -> list[dict[str, str]]:
    """Requests of the pod's containers that ``like`` has too, in its order; the limit for a resource that is only
    limited.
    """
    own = {container.name: container.resources for container in (*spec.init_containers, *spec.containers)}
    named = like or spec
    requests = [
        own.get(container.name, ResourceRequirements()) for container in (*named.init_containers, *named.containers)
    ]
    return [
        {key: str(quantity.nanos) for key, quantity in {**resources.limits, **resources.requests}.items()}
        for resources in requests
    ]
