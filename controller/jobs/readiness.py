"""The condition PodsReady of a workload: whether, since it was admitted, all its pods were ready at one time.

WaitForStart until they are for the first time, then Started; WaitForRecovery when one is lost, then Recovered.
"""

from controller.jobs.actions import PodsReadyReason, SetPodsReady
from controller.jobs.context import Context
from controller.jobs.podsets import SeenWorkload
from controller.objects.meta import find_condition, is_true

_MESSAGES: dict[PodsReadyReason, str] = {
    "WaitForStart": "Not all pods are ready or have succeeded",
    "Started": "All pods were ready or succeeded since the workload was admitted",
    "WaitForRecovery": "A pod was lost: not all pods are ready or have succeeded any more",
    "Recovered": "All pods are ready or have succeeded again",
}


def pods_ready_action(context: Context, workload: SeenWorkload) -> SetPodsReady | None:
    """None where the condition is as it should be, or is not kept."""
    if not context.settings.wait_for_pods_ready or context.settings.gates.on("DisableWaitForPodsReady"):
        return None
    conditions = workload.typed.status.conditions
    now = find_condition(conditions, "PodsReady")
    runs = is_true(conditions, "Admitted") and not is_true(conditions, "Evicted")
    if not runs:
        # Before the first admission there is nothing to say, and a write would only cost.
        reason: PodsReadyReason | None = "WaitForStart" if now is not None else None
    else:
        ready = not context.kind.is_suspended(context.job) and context.kind.pods_ready(context.job)
        lost_before = now is not None and now.reason in ("WaitForRecovery", "Recovered")
        was_ready = now is not None and now.status == "True"
        if ready:
            reason = "Recovered" if lost_before else "Started"
        else:
            reason = "WaitForRecovery" if lost_before or was_ready else "WaitForStart"
    if reason is None or (now is not None and now.reason == reason):
        return None
    return SetPodsReady(
        name=workload.name,
        uid=workload.typed.metadata.uid,
        status="True" if reason in ("Started", "Recovered") else "False",
        reason=reason,
        message=_MESSAGES[reason],
    )
