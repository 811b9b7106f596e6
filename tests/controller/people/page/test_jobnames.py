"""A job's name stands beside its Workload's, for those alone who may see the Workload."""

from controller.people.page.queuerows import job_of
from tests.support.page.objects import workload
from tests.support.page.state import HIDDEN, made


def test_what_is_hidden_has_no_job_and_what_is_shown_has_its_own() -> None:
    state = made(nodes=2, workloads=60)
    owned = [{"apiVersion": "batch/v1", "kind": "Job", "name": "secret", "uid": "u", "controller": True}]
    for team in ("robotics", "research"):
        state.take(workload(f"job-of-{team}", team, 64, owners=owned))
    rows = {row["workload"]: row for row in state.rows("pending")}
    assert rows["team-research/job-of-research"]["job"] == "secret"
    hidden = [row for row in rows.values() if row["hidden"]]
    assert hidden
    assert all(row["job"] is None for row in hidden)
    assert not any(HIDDEN in str(row) or "secret" in str(row) for row in hidden)


def test_a_workload_of_a_group_of_pods_is_no_job_s() -> None:
    assert job_of(workload("group", "research", 1)) is None
