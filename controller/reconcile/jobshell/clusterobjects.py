"""Settings and other objects of the cluster, for the reconcilers of jobs and of pods."""

from collections.abc import Callable, Collection
from typing import Any, Final

from controller.cluster.config.settings import ControllerConfig, Policy
from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.kinds import (
    CLUSTER_QUEUES,
    FLAVORS,
    LOCAL_QUEUES,
    NAMESPACES,
    POD_CLASSES,
    WORKLOAD_CLASSES,
)
from controller.jobs.framework.kind import ObjectKind
from controller.jobs.framework.offspot import off_spot
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.framework.settings import (
    ClaimDevices,
    ClusterObjects,
    DevicePlan,
    JobSettings,
    is_never_spare,
    no_claim_devices,
    no_plan,
)
from controller.objects.meta import LabelSelector, OwnerReference
from controller.objects.workload import Workload
from controller.reconcile.jobshell.watched import JobKinds, read_kinds
from controller.scheduler.flavors.spot import NEVER, never_spot, word_of
from controller.scheduler.mirror.forest import FLAVOR, UNPLACED
from kube.reading.entries import ObjectKey
from kube.resources import Resource

_MIRRORED: Final = {each.metadata.name: each for each in (FLAVOR, UNPLACED)}
"""Flavors that have no object, by name."""


def job_settings(config: ControllerConfig, own_namespace: str) -> JobSettings:
    return JobSettings(
        manage_jobs_without_queue_name=config.manage_jobs_without_queue_name,
        managed_jobs_namespace_selector=config.namespace_selector(own_namespace),
        label_keys_to_copy=config.integrations.label_keys_to_copy,
        wait_for_pods_ready=config.engine.wait_for_pods_ready is not None,
        keeps_minimum=config.policy is Policy.TESSERA,
        charges_to_the_end=config.policy is Policy.TESSERA,
        injected=config.injected,
        tiers=config.tiers,
        gates=config.engine.gates,
        off_spot=off_spot(never_spot(config.engine.extensions)),
    )


def is_selected(feeds: Feeds, selector: LabelSelector, namespace: str) -> bool:
    """Whether the namespace's labels match. A namespace that the watch does not show yet has none."""
    entry = feeds[NAMESPACES].get(ObjectKey("", namespace))
    return selector.matches({} if entry is None else entry.object.metadata.labels)


def cluster_objects(
    feeds: Feeds,
    kinds: JobKinds,
    is_admitted: Callable[[str], bool],
    device_plan: DevicePlan = no_plan,
    externals: Collection[Resource] = (),
    may_be_spare: Callable[[Json], bool] = is_never_spare,
    owned: Collection[Resource] = (),
    claim_devices: ClaimDevices = no_claim_devices,
) -> ClusterObjects:
    """The objects of the cluster for reconcilers. ``kinds``: kinds that are queued here, ``externals``: by others;
    ``owned``: kinds between a queued object and its pods. ``is_admitted``: see ``ClusterObjects``.
    """
    resources = {(one.api_version, one.kind): one for one in (*kinds, *externals)}
    owners = {(each.api_version, each.kind): each for each in owned} | resources

    def value(resource: Resource) -> Callable[[str], Any]:
        def look(name: str) -> Any:
            entry = feeds[resource].get(ObjectKey("", name))
            return None if entry is None else entry.object

        return look

    def owner(namespace: str, reference: OwnerReference) -> Json | None:
        resource = owners.get((reference.api_version, reference.kind))
        if resource is None:
            return None
        entry = feeds[resource].get(ObjectKey(namespace, reference.name))
        return entry.object.json if entry is not None and entry.uid == reference.uid else None

    by_version = {(resource.api_version, resource.kind): kind for resource, kind in kinds.items()}

    def has_ended(namespace: str, reference: OwnerReference) -> bool:
        kind, job = by_version.get((reference.api_version, reference.kind)), owner(namespace, reference)
        try:
            return kind is not None and job is not None and kind.finished(job) is not None
        except JobError:
            return False

    reads = read_kinds(kinds)

    def look(kind: ObjectKind, namespace: str, name: str) -> Json | None:
        entry = feeds[reads[kind]].get(ObjectKey(namespace, name))
        return None if entry is None else entry.object.json

    flavors, classes, pods = value(FLAVORS), value(WORKLOAD_CLASSES), value(POD_CLASSES)
    return ClusterObjects(
        flavor=lambda name: _MIRRORED.get(name) or flavors(name),
        workload_priority=lambda name: None if (found := classes(name)) is None else found.value,
        pod_priority=lambda name: None if (found := pods(name)) is None else found.value,
        global_default=lambda: _global_default(feeds),
        owner=owner,
        is_job_kind=lambda version, kind: (version, kind) in resources,
        is_admitted=is_admitted,
        has_ended=has_ended,
        may_be_spare=may_be_spare,
        device_plan=device_plan,
        claim_devices=claim_devices,
        is_off_spot=lambda workload: _is_off_spot(feeds, workload),
        look=look,
    )


def _is_off_spot(feeds: Feeds, workload: Workload) -> bool:
    key = ObjectKey(workload.metadata.namespace, workload.spec.queue_name)
    local = None if (entry := feeds[LOCAL_QUEUES].get(key)) is None else entry.object
    admission = workload.status.admission
    name = admission.cluster_queue if admission is not None else "" if local is None else local.spec.cluster_queue
    queue = None if (found := feeds[CLUSTER_QUEUES].get(ObjectKey("", name))) is None else found.object
    return word_of(workload, local, queue) == NEVER


def default_priority(feeds: Feeds) -> int:
    """The priority of a job that names no class."""
    found = _global_default(feeds)
    return 0 if found is None else found[1]


def _global_default(feeds: Feeds) -> tuple[str, int] | None:
    found = [class_ for class_ in feeds[POD_CLASSES].objects() if class_.global_default]
    # The API server takes the one of several with the lowest value.
    lowest = min(found, key=lambda class_: (class_.value, class_.metadata.name), default=None)
    return None if lowest is None else (lowest.metadata.name, lowest.value)
