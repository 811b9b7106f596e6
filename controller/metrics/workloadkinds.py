"""The kind of job that a Workload is for, as a label's value: a name of the field's own, out of a bounded set."""

from collections.abc import Collection
from typing import Final

from controller.jobframework.podview import SUSPENDING_PARENT
from controller.jobkinds.table import JOB_KINDS
from controller.objects.workload import Workload
from controller.servingkinds.table import SERVING_KINDS, STAMPED_KINDS

OTHER: Final = "other"
"""What no kind here owns: prebuilt Workloads, and those of kinds that are queued from outside."""
_POD: Final = "Pod"
_KNOWN: Final = frozenset((_POD, *(kind.kind for kind in JOB_KINDS), *(kind.kind for kind in SERVING_KINDS)))
_PARENTS: Final = {kind.framework: kind.kind for kind in STAMPED_KINDS}


def job_kind(workload: Workload, declared: Collection[str] = ()) -> str:
    """``declared``: kinds that JobKinds name. The Workload of a Deployment's pod is the Deployment's.

    Owners are written by whoever creates a Workload: kinds that nobody queues share one series.
    """
    owners = workload.metadata.owner_references
    owner = next((owner for owner in owners if owner.controller), owners[0] if owners else None)
    if owner is None:
        return OTHER
    if owner.kind == _POD:
        marks = (pod_set.template.metadata.annotations for pod_set in workload.spec.pod_sets)
        return next((_PARENTS[parent] for mark in marks if (parent := mark.get(SUSPENDING_PARENT)) in _PARENTS), _POD)
    return owner.kind if owner.kind in _KNOWN or owner.kind in declared else OTHER
