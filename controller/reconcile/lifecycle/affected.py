"""Which workloads an object that has changed may affect."""

from collections.abc import Collection, Iterator

from controller.cluster.watching.kinds import FOREIGN_QUEUES
from controller.cluster.watching.ledger import Ledger
from controller.foreign.rules.queuestatus import is_open
from controller.objects.deviceclaims import CLAIM_TYPES, ResourceClaim
from controller.objects.meta import KubernetesObject, is_true
from controller.objects.queues import AdmissionCheck, ClusterQueue, LocalQueue, ResourceFlavor, Topology
from controller.objects.workload import Workload
from controller.scheduler.decisions import reasons
from controller.scheduler.dra.claims.book import is_of_one_pod
from controller.scheduler.model.resources import WorkloadKey


def affected_by(given: KubernetesObject, ledger: Ledger, uncounted: Collection[WorkloadKey]) -> Iterator[WorkloadKey]:
    """Workloads whose next step may depend on the object. ``uncounted``: those whose claims could not be counted."""
    match given:
        case _ if isinstance(given, (ClusterQueue, *FOREIGN_QUEUES.values())):
            name = given.metadata.name
            for entry in ledger.values():
                admission = entry.workload.status.admission
                if (admission is not None and admission.cluster_queue == name) or _on_hold(entry.workload):
                    yield WorkloadKey(entry.workload.key)
        case LocalQueue():
            where = (given.metadata.namespace, given.metadata.name)
            for entry in ledger.values():
                if (entry.workload.metadata.namespace, entry.workload.spec.queue_name) == where:
                    yield WorkloadKey(entry.workload.key)
        case _ if isinstance(given, CLAIM_TYPES):
            if not isinstance(given, ResourceClaim) or not is_of_one_pod(given):
                yield from sorted(uncounted)
        case ResourceFlavor() | AdmissionCheck() | Topology():
            for entry in ledger.values():
                if _waits_for_checks(entry.workload):
                    yield WorkloadKey(entry.workload.key)


def asks(given: KubernetesObject) -> tuple[object, bool, bool]:
    """The parts of an object that are no report on it. The status of a foreign queue may tell whether it admits
    jobs, and counts then.
    """
    if isinstance(given, ResourceClaim):
        return given, False, False  # what it was given counts as well
    return getattr(given, "spec", None), given.metadata.deletion_timestamp is not None, is_open(given)


def _waits_for_checks(workload: Workload) -> bool:
    """Whether the workload holds quota and is not admitted yet: it loses the quota if its ClusterQueue becomes
    inactive.
    """
    conditions = workload.status.conditions
    return is_true(conditions, reasons.QUOTA_RESERVED) and not is_true(conditions, reasons.ADMITTED)


def _on_hold(workload: Workload) -> bool:
    """Whether the Workload has the condition Requeued=False: it may wait for its queue to be started again."""
    return any(
        condition.type == reasons.REQUEUED and condition.status == "False" for condition in workload.status.conditions
    )
