"""What an action about a Workload leaves in it."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from controller.cluster.watching.ledger import LedgerEntry
from controller.cluster.writing.workloadwrites import Result
from controller.jobs.framework.actions import ReleaseQuota
from controller.objects.decode import decode
from controller.objects.workload import Workload
from controller.reconcile.jobshell.workloadactions import WorkloadActions
from controller.scheduler.engine import Engine
from kube.testing.clocks import VirtualClock

EVICTED = {"type": "Evicted", "status": "True", "reason": "Preempted"}
RESERVED = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}


class Writes:
    """Takes each status that is written."""

    def __init__(self) -> None:
        self.workload: Workload | None = None

    def status(self, _: LedgerEntry, after: Workload, then: Callable[[Result, str], None], _failpoint: object) -> None:
        self.workload = after
        then(Result.WRITTEN, "")

    def condition(self, type_: str) -> str:
        assert self.workload is not None
        return next((one.status for one in self.workload.status.conditions if one.type == type_), "")


@pytest.mark.parametrize(("requeue", "requeued"), [(True, "True"), (False, "False")])
async def test_released_quota_is_held_no_more_and_only_what_goes_back_at_once_is_requeued(
    *, requeue: bool, requeued: str
) -> None:
    metadata = {"namespace": "ns", "name": "w", "uid": "u"}
    data = {"metadata": metadata, "spec": {"podSets": []}, "status": {"conditions": [EVICTED, RESERVED]}}
    ledger: Any = {"ns/w": LedgerEntry(decode(data, Workload))}
    writes, unused = Writes(), cast("Any", None)
    actions = WorkloadActions(Engine(), ledger, cast("Any", writes), unused, VirtualClock(), created=unused)
    action = ReleaseQuota(name="w", uid="u", reason="Preempted", message="stopped", requeue=requeue)
    await actions.carry_out(action, "ns", "Job", ())
    assert (writes.condition("QuotaReserved"), writes.condition("Requeued")) == ("False", requeued)
