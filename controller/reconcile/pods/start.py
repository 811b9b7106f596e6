"""How pods start: they lose their gates and get what flavors, admission checks and the topology assignment require.

What the API server allows on a pod (pkg/apis/core/validation, ValidatePodUpdate): gates are only removed; while one is
on, keys may be added to ``nodeSelector``, and expressions to the required node affinity; tolerations may be added;
labels and annotations change freely. A gate cannot be put back, so a pod that was ungated can only be deleted.
"""

from collections.abc import Mapping, Sequence

import msgspec

from controller.jobs.framework.offspot import kept_off
from controller.jobs.framework.podsets import PodSetInfo, SeenWorkload, infos, started_template, template_patch
from controller.jobs.framework.podview import ADMISSION_GATE, MANAGED, OWN_GATES, SeenPod
from controller.jobs.framework.raw import JobError, Json, mapping, sequence, text
from controller.jobs.framework.settings import ClusterObjects
from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.reconcile.placing.ungating import (
    PlacedPod,
    PodPlace,
    PodSetPlaces,
    Ranks,
    before,
    pod_set_places,
    ungated,
)
from controller.reconcile.pods.group import MAIN, index_label, offset, role
from controller.scheduler.model.gates import FeatureGates
from inventory.api.names import DEVICES


def role_in(pod: SeenPod, *, single: bool) -> str:
    return MAIN if single else role(pod)


def places(
    workload: SeenWorkload, pods: Sequence[SeenPod], *, single: bool, gang: bool, minimum: int | None
) -> tuple[PodPlace, ...]:
    """The pods to ungate now, with their places. ``pods``: pods that stay, and pods that still have their place.

    ``minimum``: pods with which a group of one role may start. Raises JobError and TopologyEncodingError.
    """
    admission = workload.typed.status.admission
    if admission is None:
        return ()
    own: dict[str, list[SeenPod]] = {}
    for pod in pods:
        own.setdefault(role_in(pod, single=single), []).append(pod)
    spec = {pod_set.name: pod_set for pod_set in workload.typed.spec.pod_sets}
    first = before(workload.typed)
    sets: list[PodSetPlaces] = []
    for assignment in admission.pod_set_assignments:
        if assignment.name not in spec:
            raise JobError(f"workload {workload.name}: an assignment of pod set {assignment.name}, which is not there")
        oldest = min(own.get(assignment.name, []), key=lambda pod: pod.age_key, default=None)
        places = pod_set_places(
            spec[assignment.name],
            assignment,
            offset=0 if oldest is None else offset(oldest),
            needed=minimum if len(spec) == 1 else None,
            before=first.get(assignment.name, 0),
        )
        sets.append(_ranked(places, oldest, own.get(assignment.name, []), first.get(assignment.name, 0)))
    unhealthy = frozenset(node.name for node in workload.typed.status.unhealthy_nodes)
    listed = [_placed(pod, role_in(pod, single=single)) for pod in pods]
    return ungated(sets, listed, unhealthy, gang=gang)


def _placed(pod: SeenPod, name: str) -> PlacedPod:
    return PlacedPod(
        uid=pod.uid,
        pod_set=name,
        age=pod.age_key,
        waits=pod.is_gated,
        ended=pod.is_over,
        labels=pod.labels,
        node_selector=pod.node_selector,
    )


def _ranked(places: PodSetPlaces, oldest: SeenPod | None, pods: Sequence[SeenPod], before: int) -> PodSetPlaces:
    """The places with ranks by the pods' own label; without ranks if two pods share one: of two gated pods the second
    would wait for ever.
    """
    if places.ranks is None and oldest is not None:
        ranks = Ranks(index_label=index_label(oldest), offset=offset(oldest), before=before)
        places = msgspec.structs.replace(places, ranks=ranks)
    if places.ranks is None:
        return places
    said = [pod.labels.get(places.ranks.index_label) for pod in pods if pod.stays or pod.has_succeeded]
    return places if len(set(said)) == len(said) else msgspec.structs.replace(places, ranks=None)


def start_patch(pod: SeenPod, info: PodSetInfo, place: Mapping[str, str], devices: str = "") -> Json:
    """The merge patch that starts the pod. ``devices``: the annotation that names the devices planned for it.

    Raises StartConflictError if the pod can never start.
    """
    whole = msgspec.structs.replace(
        info, scheduling_gates=(), node_selector={**place, **_agreeing(info.node_selector, place)}
    )
    now = {"metadata": pod.raw.get("metadata") or {}, "spec": pod.raw.get("spec") or {}}
    wanted = started_template(now, whole)
    gates = sequence(wanted, "spec", "schedulingGates")
    wanted["spec"]["schedulingGates"] = [
        gate for gate in gates if not (isinstance(gate, dict) and gate.get("name") in OWN_GATES)
    ]
    patch = template_patch(now, wanted)
    if info.off and HOSTNAME_LABEL not in place:
        patch["spec"] = {**patch["spec"], "affinity": kept_off(mapping(now, "spec", "affinity"), info.off)}
    metadata: Json = {**patch.get("metadata", {}), **tied(pod)}
    if devices:
        metadata["annotations"] = {**metadata.get("annotations", {}), DEVICES: devices}
    return {**patch, "metadata": metadata}


def _agreeing(selector: Mapping[str, str], place: Mapping[str, str]) -> dict[str, str]:
    """The flavor's node selector without the labels of the pod's place. The flavor's labels hold for every node of its
    topology: if both name one, the place is the narrower.
    """
    return {key: value for key, value in selector.items() if key not in place}


def infos_by_set(
    workload: SeenWorkload, cluster: ClusterObjects, gates: FeatureGates, off: tuple[Json, ...] = ()
) -> dict[str, PodSetInfo]:
    """What a start writes into pods, by pod set. ``off``: see ``PodSetInfo``. Raises FlavorMissingError and
    StartConflictError.
    """
    return {info.name: info for info in infos(workload.typed, cluster.flavor, elastic=False, gates=gates, off=off)}


def tied(pod: SeenPod) -> Json:
    """Metadata that tie a patch to the pod as it was seen."""
    return {"uid": pod.uid, "resourceVersion": text(pod.raw, "metadata", "resourceVersion")}


def unfinalized(pod: SeenPod) -> Json:
    """The merge patch that removes the finalizer."""
    kept = [finalizer for finalizer in sequence(pod.raw, "metadata", "finalizers") if finalizer != MANAGED]
    return {"metadata": {**tied(pod), "finalizers": kept}}


def released(pod: SeenPod) -> Json:
    """The merge patch that ends the queue's hold: it removes admission gate, finalizer and label.

    The gate of a queued job's placed pods stays: they have it until they get their nodes.
    """
    gates = [
        gate
        for gate in sequence(pod.raw, "spec", "schedulingGates")
        if not (isinstance(gate, dict) and gate.get("name") == ADMISSION_GATE)
    ]
    patch = unfinalized(pod)
    patch["metadata"]["labels"] = {MANAGED: None}
    return {**patch, "spec": {"schedulingGates": gates}} if pod.is_gated else patch
