"""The condition PodsReady of a workload: whether, since it was admitted, all its pods were ready at one time.

Its reason is WaitForStart until they are for the first time, then Started; WaitForRecovery when one is lost, then
Recovered.
"""

from collections.abc import Callable

from controller.jobs.framework.actions import PodsReadyReason, SetPodsReady
from controller.jobs.framework.context import Context
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.settings import JobSettings
from controller.objects.meta import find_condition, is_true
from controller.scheduler.model.gangshape import patience_s

_MESSAGES: dict[PodsReadyReason, str] = {
    "WaitForStart": "Not all pods are ready or have succeeded",
    "Started": "All pods were ready or succeeded since the workload was admitted",
    "WaitForRecovery": "A pod was lost: not all pods are ready or have succeeded any more",
    "Recovered": "All pods are ready or have succeeded again",
}


def pods_ready_action(context: Context, workload: SeenWorkload) -> SetPodsReady | None:
    """The action that sets the condition of a job's workload. None if the condition is right, or is not kept.

    The condition is kept also for a foreign gang with a time below its minimum, which it tells.
    """

    def ready() -> bool:
        return not context.kind.is_suspended(context.job) and context.kind.pods_ready(context.job)

    is_kept = _is_kept(context.settings) or patience_s(workload.typed.metadata.annotations) >= 0
    return _next(workload, ready) if is_kept else None


def pods_ready(workload: SeenWorkload, settings: JobSettings, ready: Callable[[], bool]) -> SetPodsReady | None:
    """The action that sets the condition. ``ready``: whether all pods are, right now; called only while the workload
    runs.
    """
    return _next(workload, ready) if _is_kept(settings) else None


def _is_kept(settings: JobSettings) -> bool:
    return settings.wait_for_pods_ready and not settings.gates.on("DisableWaitForPodsReady")


def _next(workload: SeenWorkload, ready: Callable[[], bool]) -> SetPodsReady | None:
    conditions = workload.typed.status.conditions
    now = find_condition(conditions, "PodsReady")
    if not is_true(conditions, "Admitted") or is_true(conditions, "Evicted"):
        # Before the first admission the condition tells nothing, and a write would only cost.
        reason: PodsReadyReason | None = "WaitForStart" if now is not None else None
    else:
        reason = _reason(now is not None and now.status == "True", "" if now is None else now.reason, ready=ready())
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
