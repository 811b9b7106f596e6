"""Why a workload may not queue: it is not active, gated, or kept back until its time comes."""

from controller.engine.conditions import reasons
from controller.engine.conditions.reasons import PendingReason
from controller.engine.model.gates import FeatureGates
from controller.engine.state.activity import Inactive
from controller.engine.state.intake import ADMISSION_GATED_BY
from controller.objects.meta import find_condition, is_true
from controller.objects.workload import Workload


def held_back(workload: Workload, gates: FeatureGates) -> Inactive | None:
    """The reason code of its condition QuotaReserved=False and the sentence; None for one that may queue."""
    conditions = workload.status.conditions
    requeued = find_condition(conditions, reasons.REQUEUED)
    if not workload.spec.active or is_true(conditions, reasons.DEACTIVATION_TARGET):
        cause = requeued.message if requeued is not None and requeued.status == "False" else ""
        return Inactive(PendingReason.DEACTIVATED, cause or "The workload is not active (spec.active is false)")
    if gated := gates_of(workload, gates):
        return Inactive(PendingReason.ADMISSION_GATED, f"Held back by {gated}")
    if requeued is not None and requeued.status == "False":
        return Inactive(PendingReason.ON_HOLD, requeued.message)
    return None


def gates_of(workload: Workload, gates: FeatureGates) -> str:
    """The gates that keep it out of the queue, as its annotation lists them; empty for none."""
    return workload.metadata.annotations.get(ADMISSION_GATED_BY, "") if gates.on("AdmissionGatedBy") else ""
