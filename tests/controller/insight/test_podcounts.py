"""What counts as running: an admitted workload with a pod that runs, by the same count on the page and in lists."""

from controller.insight.podcounts import counted, with_running_pods
from controller.jobs.framework import names
from controller.objects.core import Pod
from controller.objects.decode import decode
from controller.people.page.queuerows import holder_rows, tree_rows
from controller.scheduler.model.resources import WorkloadKey
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload


def pod(workload_name: str, phase: str) -> Pod:
    meta = {"name": "p", "namespace": "ns", "annotations": {names.WORKLOAD: workload_name}}
    return decode({"metadata": meta, "status": {"phase": phase}}, Pod)


def test_a_pod_runs_in_phase_running_alone() -> None:
    pods = [pod(phase, phase) for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown")]
    assert with_running_pods(pods) == {"ns/Running"}


def test_a_pod_of_no_workload_counts_for_none() -> None:
    assert with_running_pods([decode({"metadata": {"name": "p"}, "status": {"phase": "Running"}}, Pod)]) == frozenset()


def test_a_workload_counts_once_under_each_of_its_names() -> None:
    a, b = WorkloadKey("ns/a"), WorkloadKey("ns/b")
    found = counted([(a, ("cq", "ns/lq")), (b, ("cq", "ns/other"))], {a, WorkloadKey("ns/gone")})
    assert (found.all["cq"], found.running["cq"], found.without_pods("cq")) == (2, 1, 1)
    assert (found.running["ns/lq"], found.running["ns/other"], found.without_pods("ns/other")) == (1, 0, 1)
    assert (found.all["unknown"], found.without_pods("unknown")) == (0, 0)


def test_rows_of_the_page_say_what_runs_and_cohorts_have_the_sums() -> None:
    made = World()
    made.put(flavor(), cluster_queue("q", 4, cohort="all"), cluster_queue("p", 4, cohort="all"))
    made.put(local_queue("q"), local_queue("p"))
    made.put(workload("a", "q", 1), workload("b", "q", 1), workload("c", "p", 1), workload("waits", "p", 9))
    made.settle()

    def told(with_pods: frozenset[WorkloadKey] | None) -> dict[str, tuple[object, object, object]]:
        rows = dict(tree_rows(made.engine, with_pods)).items()
        return {key: (row["admitted"], row["running"], row["admittedWithoutPods"]) for key, row in rows}

    keys = frozenset((WorkloadKey("ns/a"), WorkloadKey("ns/c"), WorkloadKey("ns/waits")))
    assert told(keys) == {"cohort/all": (3, 2, 1), "queue/q": (2, 1, 1), "queue/p": (1, 1, 0)}
    assert told(None)["cohort/all"] == (3, None, None), "before pods are known nobody says that none runs"
    holders = made.engine.state.cluster.holders
    runs = {row["workload"]: row["running"] for row in (due.make() for due in holder_rows(holders, str, keys))}
    assert runs == {"ns/a": True, "ns/b": False, "ns/c": True}
