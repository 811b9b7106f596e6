"""Pods of a queued job that its own controller did not make: they start within the charge of its Workload."""

import msgspec

from controller.jobs.framework.actions import AwaitOwner
from controller.jobs.framework.charge import Beyond, Charge, asked, deal, group_kind, makes
from controller.jobs.framework.marks import controller_of
from controller.jobs.framework.names import POD_SET
from controller.jobs.framework.offspot import kept_off
from controller.jobs.framework.podsets import (
    FlavorMissingError,
    PodSetInfo,
    StartConflictError,
    started_template,
    template_patch,
    typed_template,
)
from controller.jobs.framework.podview import SeenPod
from controller.jobs.framework.raw import Json, mapping
from controller.jobs.framework.settings import ClusterObjects, JobSettings, kept_off_spot
from controller.messages import jobs as words
from controller.reconcile.pods.actions import PatchPod, PodAction
from controller.reconcile.pods.start import infos_by_set, released


def within_the_charge(
    pods: tuple[SeenPod, ...], charge: Charge, cluster: ClusterObjects, settings: JobSettings
) -> list[PodAction]:
    """Actions that ungate waiting pods from the oldest on, as far as they are charged for. Raises JobError."""
    actions: list[PodAction] = []
    for pod in pods:
        if not pod.is_gated or not pod.stays:
            actions.append(PatchPod(name=pod.name, body=released(pod)))
            continue
        own = asked(typed_template({"spec": pod.raw.get("spec") or {}}, "pod").spec, 1, pod.labels.get(POD_SET, ""))
        dealt, owner = deal(charge, (own,)), controller_of(pod.raw)
        if owner is not None and not makes(group_kind(owner.api_version, owner.kind), ("", "Pod")):
            return [*actions, AwaitOwner(message=words.no_such_child(owner.kind, "Pod"))]
        if isinstance(dealt, Beyond):
            return [*actions, AwaitOwner(message=dealt.sentence)]
        (name,) = dealt.pod_sets
        try:
            off = kept_off_spot(settings, cluster, charge.workload.typed)
            body = _started(pod, infos_by_set(charge.workload, cluster, settings.gates, off)[name])
        except StartConflictError as conflict:
            return [*actions, AwaitOwner(message=f"The pod cannot start: {conflict}")]
        except FlavorMissingError as missing:
            return [*actions, AwaitOwner(message=f"The pod cannot start yet: {missing}")]
        actions.append(PatchPod(name=pod.name, body=body))
        charge = msgspec.structs.replace(charge, taken=(*charge.taken, msgspec.structs.replace(own, pod_set=name)))
    return actions


def _started(pod: SeenPod, info: PodSetInfo) -> Json:
    """The merge patch that starts the pod with what its pod set has: flavors' node selector and tolerations, and
    labels.

    No gate can be put on an existing pod, so places of a topology are not waited for.
    """
    now = {"metadata": pod.raw.get("metadata") or {}, "spec": pod.raw.get("spec") or {}}
    wanted = started_template(now, msgspec.structs.replace(info, scheduling_gates=()))
    patch, freed = template_patch(now, wanted), released(pod)
    metadata = {**patch.get("metadata", {}), **freed["metadata"]}
    metadata["labels"] = {**patch.get("metadata", {}).get("labels", {}), **freed["metadata"]["labels"]}
    spec = {**patch.get("spec", {}), **freed.get("spec", {})}
    if info.off:
        spec["affinity"] = kept_off(mapping(now, "spec", "affinity"), info.off)
    return {"metadata": metadata, "spec": spec}
