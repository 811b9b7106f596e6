"""The condition PodsReady of a workload of plain pods; the reasons are those of ``controller.jobs.readiness``."""

from typing import Final

from controller.jobs.actions import PodsReadyReason, SetPodsReady
from controller.jobs.podsets import SeenWorkload
from controller.jobs.settings import JobSettings
from controller.objects.meta import find_condition, is_true

_MESSAGES: Final[dict[PodsReadyReason, str]] = {
    "WaitForStart": "Not all pods are ready or have succeeded",
    "Started": "All pods were ready or succeeded since the workload was admitted",
    "WaitForRecovery": "A pod was lost: not all pods are ready or have succeeded any more",
    "Recovered": "All pods are ready or have succeeded again",
}


def pods_ready(workload: SeenWorkload, settings: JobSettings, *, ready: bool) -> SetPodsReady | None:
    """None where the condition is as it should be, or is not kept. ``ready``: all pods are, right now."""
    if not settings.wait_for_pods_ready or settings.gates.on("DisableWaitForPodsReady"):
        return None
    conditions = workload.typed.status.conditions
    now = find_condition(conditions, "PodsReady")
    if not is_true(conditions, "Admitted") or is_true(conditions, "Evicted"):
        reason: PodsReadyReason | None = "WaitForStart" if now is not None else None
    else:
        reason = _reason(now is not None and now.status == "True", "" if now is None else now.reason, ready=ready)
    if reason is None or (now is not None and now.reason == reason):
        return None
    return SetPodsReady(
        name=workload.name,
        uid=workload.typed.metadata.uid,
        status="True" if reason in ("Started", "Recovered") else "False",
        reason=reason,
        message=_MESSAGES[reason],
    )


def _reason(was_ready: bool, before: str, *, ready: bool) -> PodsReadyReason:
    lost = before in ("WaitForRecovery", "Recovered")
    if ready:
        return "Recovered" if lost else "Started"
    return "WaitForRecovery" if lost or was_ready else "WaitForStart"
