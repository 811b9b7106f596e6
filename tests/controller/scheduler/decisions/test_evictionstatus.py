"""What an eviction writes of admission checks."""

from controller.objects.workload import AdmissionCheckState, Workload, WorkloadStatus
from controller.scheduler.decisions.evictionstatus import evicted


def test_checks_start_over_and_one_that_waits_goes_on_as_it_was() -> None:
    waits = AdmissionCheckState(name="waits", state="Pending", message="soon", retry_count=2)
    ready = AdmissionCheckState(name="ready", state="Ready", retry_count=1)
    before = Workload(status=WorkloadStatus(admission_checks=(waits, ready)))
    first, second = evicted(before, "Preempted", "why", now_s=0.0).status.admission_checks
    assert first is waits
    assert (second.state, second.retry_count, bool(second.message)) == ("Pending", 1, True)
