"""The kind of job that a Workload is for, as a label's value: a common name, out of a bounded set."""

from collections.abc import Collection
from typing import Final

from controller.jobs.framework.podview import SUSPENDING_PARENT
from controller.jobs.kinds.table import JOB_KINDS
from controller.jobs.serving.table import SERVING_KINDS, STAMPED_KINDS
from controller.objects.workload import Workload

OTHER: Final = "other"
"""The value for owners of no kind here: of prebuilt Workloads, and of kinds that other controllers queue."""
_POD: Final = "Pod"
_KNOWN: Final = frozenset((_POD, *(kind.kind for kind in JOB_KINDS), *(kind.kind for kind in SERVING_KINDS)))
_PARENTS: Final = {kind.framework: kind.kind for kind in STAMPED_KINDS}


def job_kind(workload: Workload, declared: Collection[str] = ()) -> str:
    """The kind of a Workload's job. ``declared``: kinds that JobKinds name. The Workload of a Deployment's pod is the
    Deployment's.

    Any creator of a Workload may write its owners: unknown kinds share one series.
    """
    owners = workload.metadata.owner_references
    owner = next((owner for owner in owners if owner.controller), owners[0] if owners else None)
    if owner is None:
        return OTHER
    if owner.kind == _POD:
        marks = (pod_set.template.metadata.annotations for pod_set in workload.spec.pod_sets)
        return next((_PARENTS[parent] for mark in marks if (parent := mark.get(SUSPENDING_PARENT)) in _PARENTS), _POD)
    return owner.kind if owner.kind in _KNOWN or owner.kind in declared else OTHER
