"""What happens in a cluster while its controller is killed: jobs, priorities, failures of hardware, of nodes."""

import time
from typing import Any, Final

from cli.playground.cluster import GPU, stamp
from controller.cluster.watching.kinds import (
    CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NODES,
    PODS,
    WORKLOAD_CLASSES,
    WORKLOADS,
)
from failpoints.names import Failpoint
from kube.errors import NotFoundError
from tests.support.controller.podworld import pod as marked
from tests.support.failpoints.cluster import QUEUE, TEAM, Act, Json, KilledCluster, Stage

PRIORITY: Final = "kueue.x-k8s.io/priority-class"


# -- what is done ------------------------------------------------------------------------------------------------------


def job(  # noqa: PLR0913
    here: KilledCluster,
    name: str,
    pods: int = 1,
    *,
    runs_s: float | None = 0,
    queue: str = "lq",
    labels: dict[str, str] | None = None,
    notes: dict[str, str] | None = None,
    pod_notes: dict[str, str] | None = None,
    claims: str | None = None,
) -> None:
    """A Job of so many pods with one GPU each; it ends by itself after ``runs_s``. ``claims``: the template of a claim
    that each has beside it.
    """
    resources: dict[str, Any] = {"limits": {GPU: "1"}}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "i", "resources": resources}],
    }
    if claims is not None:
        resources["claims"] = [{"name": "devices"}]
        spec["resourceClaims"] = [{"name": "devices", "resourceClaimTemplateName": claims}]
    template = {"metadata": {"annotations": pod_notes or {}}, "spec": spec}
    kept = {"tessera.dev/runtime": f"{runs_s}s"} if runs_s is not None else {}
    meta = {"labels": {QUEUE: queue, **(labels or {})}, "annotations": {**kept, **(notes or {})}, "generation": 1}
    here.make(
        JOBS,
        name,
        TEAM,
        meta=meta,
        spec={"suspend": True, "parallelism": pods, "completions": pods, "template": template},
    )


def delete(here: KilledCluster, *names: str) -> None:
    for name in names:
        here.server.delete(JOBS, name, namespace=TEAM)


def edit(here: KilledCluster, name: str, **spec: Any) -> None:
    generation = here.server.get(JOBS, name, namespace=TEAM)["metadata"]["generation"] + 1
    here.server.merge(JOBS, name, {"metadata": {"generation": generation}, "spec": spec}, namespace=TEAM)


# -- what has become of it ---------------------------------------------------------------------------------------------


def workload(here: KilledCluster, owner: str) -> Json:
    """The newest Workload that the object of that name owns; empty where there is none."""
    found = [
        each
        for each in here.server.list_all(WORKLOADS)
        if any(one["name"] == owner for one in each["metadata"].get("ownerReferences", []))
    ]
    return max(found, key=lambda each: int(each["metadata"]["uid"].rpartition("-")[2]), default={})


def says(here: KilledCluster, owner: str, type_: str) -> str:
    """``True/Reason``; empty where there is no such condition."""
    conditions = workload(here, owner).get("status", {}).get("conditions", [])
    return next((f"{each['status']}/{each['reason']}" for each in conditions if each["type"] == type_), "")


def over(here: KilledCluster, name: str) -> bool:
    """The job has ended, and its Workload says so."""
    ended = [
        each["type"] for each in here.server.get(JOBS, name, namespace=TEAM).get("status", {}).get("conditions", [])
    ]
    return "Complete" in ended and says(here, name, "Finished").startswith("True")


def gone(here: KilledCluster, *owners: str) -> bool:
    return not any(workload(here, owner) for owner in owners)


def running(here: KilledCluster, name: str) -> list[Json]:
    """Pods of the job that run."""
    return [
        each
        for each in here.server.list_all(PODS)
        if each["metadata"]["labels"].get("job-name") == name and each["status"].get("phase") == "Running"
    ]


def runs(here: KilledCluster, name: str, pods: int) -> bool:
    return len(running(here, name)) == pods and says(here, name, "PodsReady").startswith("True")


def ends(here: KilledCluster, *names: str) -> Stage:
    return Stage(lambda: delete(here, *names), lambda: gone(here, *names), "the jobs and their Workloads are gone")


# -- acts --------------------------------------------------------------------------------------------------------------


def a_job_runs(here: KilledCluster, n: str) -> list[Stage]:
    return [Stage(lambda: job(here, n, 2), lambda: over(here, n), "the job has run"), ends(here, n)]


def a_job_is_preempted(here: KilledCluster, n: str) -> list[Stage]:
    low, high = f"low-{n}", f"high-{n}"
    return [
        Stage(lambda: job(here, low, 4, runs_s=None), lambda: runs(here, low, 4), "the first job runs"),
        Stage(
            lambda: job(here, high, 3, labels={PRIORITY: "urgent"}), lambda: over(here, high), "the urgent job has run"
        ),
        Stage(lambda: None, lambda: runs(here, low, 4), "the first job runs again"),
        ends(here, low, high),
    ]


def a_queue_says_how_it_is(here: KilledCluster, n: str) -> list[Stage]:
    def says_so(admitted: int) -> bool:
        status = here.server.get(CLUSTER_QUEUES, "cq").get("status", {})
        return bool(status.get("admittedWorkloads", 0) == admitted)

    return [
        Stage(lambda: job(here, n, runs_s=None), lambda: says_so(1), "the queue has one workload"),
        Stage(lambda: delete(here, n), lambda: gone(here, n) and says_so(0), "the queue has none"),
    ]


def a_class_changes(here: KilledCluster, n: str) -> list[Stage]:
    name = f"class-{n}"

    def begun() -> None:
        here.make(WORKLOAD_CLASSES, name, value=1)
        job(here, n, runs_s=None, labels={PRIORITY: name})

    return [
        Stage(begun, lambda: runs(here, n, 1), "the job runs"),
        Stage(
            lambda: here.server.merge(WORKLOAD_CLASSES, name, {"value": 5}),
            lambda: workload(here, n)["spec"]["priority"] == 5,
            "its priority is that of its class",
        ),
        ends(here, n),
    ]


def a_waiting_job_is_edited(here: KilledCluster, n: str) -> list[Stage]:
    return [
        Stage(lambda: job(here, n, 9), lambda: says(here, n, "QuotaReserved").startswith("False"), "it is too large"),
        Stage(lambda: edit(here, n, parallelism=2, completions=2), lambda: over(here, n), "it has run as it is now"),
        ends(here, n),
    ]


def some_pods_are_done(here: KilledCluster, n: str) -> list[Stage]:
    return [
        Stage(lambda: job(here, n, 3, runs_s=None), lambda: runs(here, n, 3), "the job runs"),
        Stage(
            lambda: here.server.merge(JOBS, n, {"status": {"succeeded": 1}}, namespace=TEAM),
            lambda: bool(workload(here, n)["status"].get("reclaimablePods")),
            "their quota is free",
        ),
        ends(here, n),
    ]


def a_check_rejects(here: KilledCluster, n: str) -> list[Stage]:
    def begun() -> None:
        if not here.server.list_all(CHECKS):
            active = {
                "type": "Active",
                "status": "True",
                "reason": "Active",
                "message": "",
                "lastTransitionTime": stamp(0),
            }
            here.make(CHECKS, "approval", spec={"controllerName": "somebody"}, status={"conditions": [active]})
            flavors = [{"name": "gpu", "resources": [{"name": GPU, "nominalQuota": "1"}]}]
            groups = [{"coveredResources": [GPU], "flavors": flavors}]
            checks = {"admissionChecks": [{"name": "approval"}]}
            spec = {"namespaceSelector": {}, "resourceGroups": groups, "admissionChecksStrategy": checks}
            here.make(CLUSTER_QUEUES, "checked", spec=spec)
            here.make(LOCAL_QUEUES, "lq-checked", TEAM, spec={"clusterQueue": "checked"})
        job(here, n, queue="lq-checked")

    def rejected() -> None:
        found = workload(here, n)
        checks = [{**found["status"]["admissionChecks"][0], "state": "Rejected", "message": "no"}]
        here.server.merge(WORKLOADS, found["metadata"]["name"], {"status": {"admissionChecks": checks}}, namespace=TEAM)

    return [
        Stage(
            begun,
            lambda: (
                says(here, n, "QuotaReserved").startswith("True")
                and bool(workload(here, n)["status"].get("admissionChecks"))
            ),
            "it waits for the check",
        ),
        Stage(
            rejected,
            lambda: (
                workload(here, n)["spec"].get("active") is False and says(here, n, "QuotaReserved").startswith("False")
            ),
            "it is deactivated",
        ),
        ends(here, n),
    ]


def a_gpu_fails(here: KilledCluster, n: str, *, notes: dict[str, str] | None = None) -> list[Stage]:
    before: list[str] = []

    def failed() -> None:
        (pod,) = running(here, n)
        before.append(pod["metadata"]["uid"])
        here.fail_gpu(here.gpus_of(pod["metadata"]["name"])[0], pod["metadata"]["name"])

    def moved() -> bool:
        return runs(here, n, 1) and running(here, n)[0]["metadata"]["uid"] not in before

    return [
        Stage(lambda: job(here, n, runs_s=None, pod_notes=notes), lambda: runs(here, n, 1), "the job runs"),
        Stage(failed, moved, "another pod runs on another GPU"),
        Stage(here.mend_gpus, lambda: True, "the GPU is well"),
        ends(here, n),
    ]


def a_gpu_fails_and_its_pod_goes(here: KilledCluster, n: str) -> list[Stage]:
    return a_gpu_fails(here, n, notes={"tessera.dev/on-gpu-failure": "evict"})


def ready(here: KilledCluster, node: str, status: str) -> None:
    since = stamp(time.time() - 3600)
    conditions = [{"type": "Ready", "status": status, "lastTransitionTime": since}]
    here.server.merge(NODES, node, {"status": {"conditions": conditions}})


def a_node_is_lost(here: KilledCluster, n: str) -> list[Stage]:
    """Before the pod that was meant for it is bound: it waits for a node that is gone."""
    lost: list[str] = []

    def placed() -> bool:
        pods = [each for each in here.server.list_all(PODS) if each["metadata"]["labels"].get("job-name") == n]
        return bool(pods) and not pods[0]["spec"].get("schedulingGates") and bool(pods[0]["spec"].get("nodeSelector"))

    def begun() -> None:
        here.schedules = False
        job(here, n, runs_s=None)

    def loses() -> None:
        (pod,) = [each for each in here.server.list_all(PODS) if each["metadata"]["labels"].get("job-name") == n]
        lost.append(pod["spec"]["nodeSelector"]["kubernetes.io/hostname"])
        ready(here, lost[0], "Unknown")
        here.schedules = True
        here.lose(lost[0])

    def elsewhere() -> bool:
        return bool(here.find(n, "Running")) and here.find(n, "Running")[0]["spec"]["nodeName"] != lost[0]

    def back() -> None:
        ready(here, lost[0], "True")
        here.lose("")

    return [
        Stage(begun, placed, "the pod has its place"),
        Stage(loses, elsewhere, "it runs on another node"),
        Stage(back, lambda: True, "the node is back"),
        ends(here, n),
    ]


def a_pod_is_queued(here: KilledCluster, n: str) -> list[Stage]:
    def made() -> None:
        body = marked(n, labels={QUEUE: "lq"})
        body["spec"]["containers"][0]["resources"] = {"limits": {GPU: "1"}, "requests": {GPU: "1"}}
        body["metadata"] |= {"namespace": TEAM, "creationTimestamp": stamp(time.time())}
        here.server.create(PODS, n, body, namespace=TEAM)

    def phase(wanted: str) -> bool:
        return bool(here.server.get(PODS, n, namespace=TEAM)["status"].get("phase") == wanted)

    def done() -> None:
        here.server.merge(PODS, n, {"status": {"phase": "Succeeded"}}, namespace=TEAM)

    def removed() -> bool:
        try:
            here.server.get(PODS, n, namespace=TEAM)
        except NotFoundError:
            return True
        return False

    return [
        Stage(made, lambda: phase("Running"), "the pod runs"),
        Stage(done, lambda: says(here, n, "Finished").startswith("True"), "its Workload is finished"),
        Stage(lambda: here.server.delete(PODS, n, namespace=TEAM), removed, "the pod is gone"),
    ]


ACTS: Final = (
    Act(
        "a job runs",
        (
            Failpoint.WORKLOAD,
            Failpoint.ADMITTED,
            Failpoint.JOB_STARTED,
            Failpoint.POD_PLACED,
            Failpoint.PODS_READY,
            Failpoint.FINISHED,
            Failpoint.WORKLOAD_FINALIZER,
            Failpoint.EVENT,
        ),
        a_job_runs,
    ),
    Act(
        "a job is preempted",
        (Failpoint.EVICTED, Failpoint.JOB_STOPPED, Failpoint.RELEASED, Failpoint.PENDING),
        a_job_is_preempted,
    ),
    Act("a queue says how it is", (Failpoint.QUEUE_STATUS,), a_queue_says_how_it_is),
    Act("a class changes", (Failpoint.PRIORITY,), a_class_changes),
    Act("a waiting job is edited", (Failpoint.WORKLOAD_CHANGED,), a_waiting_job_is_edited),
    Act("some pods are done", (Failpoint.RECLAIMABLE,), some_pods_are_done),
    Act("a check rejects", (Failpoint.LIFECYCLE, Failpoint.DEACTIVATED), a_check_rejects),
    Act("a GPU fails", (Failpoint.GPU_FAILURE_RECORD, Failpoint.GPU_FAILURE_REQUEUED), a_gpu_fails),
    Act(
        "a GPU fails and its pod goes",
        (Failpoint.POD_GPU_FAILURE,),
        a_gpu_fails_and_its_pod_goes,
    ),
    Act("a node is lost", (Failpoint.NODE_FAILURE, Failpoint.POD_NODE_FAILURE), a_node_is_lost),
    Act("a pod is queued", (Failpoint.POD_PATCHED,), a_pod_is_queued),
)
