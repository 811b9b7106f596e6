"""What becomes of the penalty of a reservation in usage-based admission, by what its workload does next."""

from typing import Any

import pytest

from controller.objects.decode import decode
from controller.objects.queues import ClusterQueue, LocalQueue, ResourceFlavor
from controller.objects.workload import Workload
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import AdmissionFairSharing, EngineConfig
from controller.scheduler.model.resources import LocalQueueKey, ResourceName, WorkloadKey

LQ, KEY = LocalQueueKey("ns/lq"), WorkloadKey("ns/w")


def job(*conditions: str, active: bool = True) -> Workload:
    """``conditions`` are True; one with quota is admitted with one GPU."""
    given = {"name": "main", "count": 1, "flavors": {"gpu": "f"}, "resourceUsage": {"gpu": "1"}}
    admission = {"clusterQueue": "cq", "podSetAssignments": [given]}
    listed = [{"type": one, "status": "True", "reason": "Test"} for one in conditions]
    status: dict[str, Any] = {"conditions": listed, **({"admission": admission} if conditions else {})}
    container = {"name": "c", "resources": {"requests": {"gpu": "1"}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"queueName": "lq", "active": active, "podSets": [pod_set]}
    return decode({"metadata": {"name": "w", "namespace": "ns"}, "spec": spec, "status": status}, Workload)


@pytest.fixture
def engine() -> Engine:
    """With a penalty for the workload, which has quota."""
    made = Engine(EngineConfig(admission_fair_sharing=AdmissionFairSharing(half_life_s=60.0)))
    group = {
        "coveredResources": ["gpu"],
        "flavors": [{"name": "f", "resources": [{"name": "gpu", "nominalQuota": "9"}]}],
    }
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    made.put(decode({"metadata": {"name": "f"}}, ResourceFlavor), 0.0)
    made.put(
        decode(
            {"metadata": {"name": "cq"}, "spec": {"resourceGroups": [group], "admissionScope": scope}}, ClusterQueue
        ),
        0.0,
    )
    made.put(decode({"metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}, LocalQueue), 0.0)
    made.put(job("QuotaReserved"), 0.0)
    made.state.usage.penalise(LQ, KEY, {ResourceName("gpu"): 1})
    return made


@pytest.mark.parametrize(
    ("after", "stays", "counts"),
    [
        (job("QuotaReserved", "Admitted"), False, True),
        (job("QuotaReserved", "Admitted", active=False), True, True),
        (job(), True, True),
        (job(active=False), False, False),
        (job("Finished"), False, False),
    ],
)
def test_it_is_folded_at_admission_kept_in_the_queue_and_dropped_at_the_end(
    engine: Engine, after: Workload, stays: bool, counts: bool
) -> None:
    engine.put(after, 0.0)
    assert engine.state.usage.penalised(LQ, KEY) is stays
    assert (engine.state.usage.usage(LQ) > 0) is counts


def test_it_is_dropped_with_a_workload_that_waits(engine: Engine) -> None:
    engine.put(job(), 0.0)
    engine.drop(Workload, "ns", "w", 0.0)
    assert not engine.state.usage.penalised(LQ, KEY)
