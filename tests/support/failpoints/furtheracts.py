"""More of what happens while the controller is killed: pods of groups, elastic jobs, Volcano's Jobs, queues, kinds."""

import copy
import time
from typing import Any, Final

from cli.playground.cluster import GPU, stamp
from controller.cluster.watching.kinds import (
    CLUSTER_QUEUES,
    DECLARATIONS,
    JOBS,
    KAI_QUEUES,
    NODES,
    POD_GROUPS,
    PODS,
    VOLCANO_COMMANDS,
    VOLCANO_QUEUES,
    WORKLOADS,
)
from controller.foreign.jobs.reconcile_shell import JOBS as VOLCANO_JOBS
from controller.jobs.framework.podview import GROUP_NAME, GROUP_TOTAL
from failpoints.names import Failpoint
from kube.errors import NotFoundError
from kube.resources import Resource
from tests.support.controller.declarations import SWEEP
from tests.support.controller.podworld import pod as marked
from tests.support.failpoints.acts import edit, ends, gone, job, runs, says
from tests.support.failpoints.cluster import CONFIG, QUEUE, TEAM, Act, Json, KilledCluster, Stage

VOLCANO: Final = CONFIG.replace("[batch/job, pod]", "[batch/job, pod, batch.volcano.sh/job]")
VOLCANO_QUEUED: Final = VOLCANO + "  volcano: {enabled: true}\n"
KAI_QUEUED: Final = (
    CONFIG.replace("policy: kueue", "policy: tessera") + "  kai: {enabled: true, usage: {enabled: true}}\n"
)
RECOVERING: Final = CONFIG.replace("tessera:", "featureGates: {FailureRecoveryPolicy: true}\ntessera:")
EXPIRING: Final = CONFIG.replace("tessera:", "objectRetentionPolicies: {workloads: {afterFinished: 0s}}\ntessera:")


def there(here: KilledCluster, resource: Resource, name: str, namespace: str = "") -> Json:
    """Empty where it is gone."""
    try:
        found: Json = here.server.get(resource, name, namespace=namespace)
    except NotFoundError:
        return {}
    return found


def drop(here: KilledCluster, resource: Resource, name: str) -> None:
    """A person deletes it, if it is there."""
    if there(here, resource, name, TEAM):
        here.server.delete(resource, name, namespace=TEAM)


# -- jobs --------------------------------------------------------------------------------------------------------------


def a_running_job_is_edited(here: KilledCluster, n: str) -> list[Stage]:
    return [
        Stage(lambda: job(here, n, runs_s=None), lambda: runs(here, n, 1), "the job runs"),
        Stage(lambda: edit(here, n, parallelism=2, completions=2), lambda: runs(here, n, 2), "it runs as it is now"),
        ends(here, n),
    ]


def a_workload_expires(here: KilledCluster, n: str) -> list[Stage]:
    def ran() -> bool:
        status = here.server.get(JOBS, n, namespace=TEAM).get("status", {})
        return any(each["type"] == "Complete" for each in status.get("conditions", [])) and gone(here, n)

    return [Stage(lambda: job(here, n), ran, "the job has run and its Workload is gone"), ends(here, n)]


def an_elastic_job_grows(here: KilledCluster, n: str) -> list[Stage]:
    """In a queue with a topology: each of its pods gets a node of the slice that holds quota by then."""
    notes = {"kueue.x-k8s.io/elastic-job": "true"}

    def grown(pods: int) -> bool:
        return runs(here, n, pods) and len(live(here, n)) == 1

    return [
        Stage(lambda: job(here, n, runs_s=None, notes=notes), lambda: runs(here, n, 1), "the job runs"),
        Stage(lambda: edit(here, n, parallelism=2, completions=2), lambda: grown(2), "it runs with two pods"),
        Stage(lambda: edit(here, n, parallelism=4, completions=4), lambda: grown(4), "it runs with four pods"),
        ends(here, n),
    ]


def live(here: KilledCluster, owner: str) -> list[Json]:
    """Workloads of the job that are not finished."""
    return [
        each
        for each in here.server.list_all(WORKLOADS)
        if any(one["name"] == owner for one in each["metadata"].get("ownerReferences", []))
        and not any(one["type"] == "Finished" for one in each.get("status", {}).get("conditions", []))
    ]


# -- pods --------------------------------------------------------------------------------------------------------------


def member(here: KilledCluster, name: str, group: str, total: int, **more: Any) -> None:
    labels, notes = {QUEUE: "lq", GROUP_NAME: group}, {GROUP_TOTAL: str(total)}
    body = marked(name, labels=labels, notes=notes, **more)
    body["spec"]["containers"][0]["resources"] = {"limits": {GPU: "1"}, "requests": {GPU: "1"}}
    body["metadata"] |= {"namespace": TEAM, "creationTimestamp": stamp(time.time())}
    here.server.create(PODS, name, body, namespace=TEAM)


def phase(here: KilledCluster, *names: str) -> set[str]:
    return {there(here, PODS, name, TEAM).get("status", {}).get("phase", "") for name in names}


def ended(here: KilledCluster, *names: str) -> None:
    for name in names:
        if there(here, PODS, name, TEAM):
            here.server.merge(PODS, name, {"status": {"phase": "Succeeded"}}, namespace=TEAM)


def a_group_has_one_too_many(here: KilledCluster, n: str) -> list[Stage]:
    group, p0, p1, p2 = f"g-{n}", f"a-{n}", f"b-{n}", f"c-{n}"

    def begun() -> None:
        for name in (p0, p1):
            member(here, name, group, 2)

    def removed() -> None:
        ended(here, p0, p1)
        for name in (p0, p1):
            here.server.delete(PODS, name, namespace=TEAM)

    return [
        Stage(begun, lambda: phase(here, p0, p1) == {"Running"}, "the group runs"),
        Stage(lambda: member(here, p2, group, 2), lambda: not there(here, PODS, p2, TEAM), "the third is deleted"),
        Stage(removed, lambda: not there(here, PODS, p0, TEAM) and not there(here, PODS, p1, TEAM), "all are gone"),
        Stage(
            lambda: drop(here, WORKLOADS, group),
            lambda: not there(here, WORKLOADS, group, TEAM),
            "its Workload is gone",
        ),
    ]


def a_pod_of_a_group_is_replaced(here: KilledCluster, n: str) -> list[Stage]:
    group, p0, p1, p2 = f"g-{n}", f"a-{n}", f"b-{n}", f"c-{n}"

    def begun() -> None:
        for name in (p0, p1):
            member(here, name, group, 2)

    def waits() -> str:
        conditions = there(here, WORKLOADS, group, TEAM).get("status", {}).get("conditions", [])
        return next((one["status"] for one in conditions if one["type"] == "WaitingForReplacementPods"), "")

    def removed() -> None:
        ended(here, p0, p2)
        for name in (p0, p1, p2):
            if there(here, PODS, name, TEAM):
                here.server.delete(PODS, name, namespace=TEAM)

    return [
        Stage(begun, lambda: phase(here, p0, p1) == {"Running"}, "the group runs"),
        Stage(
            lambda: here.server.merge(PODS, p1, {"status": {"phase": "Failed"}}, namespace=TEAM),
            lambda: waits() == "True",
            "another pod is awaited",
        ),
        Stage(
            lambda: member(here, p2, group, 2),
            lambda: waits() == "False" and phase(here, p0, p2) == {"Running"},
            "the other runs",
        ),
        Stage(removed, lambda: not any(there(here, PODS, name, TEAM) for name in (p0, p1, p2)), "all are gone"),
        Stage(
            lambda: drop(here, WORKLOADS, group),
            lambda: not there(here, WORKLOADS, group, TEAM),
            "its Workload is gone",
        ),
    ]


def a_pod_hangs_on_a_node_that_is_gone(here: KilledCluster, n: str) -> list[Stage]:
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}

    def begun() -> None:
        meta = {
            "annotations": {"kueue.x-k8s.io/safe-to-forcefully-delete": "true"},
            "labels": {},
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["example.com/hangs"],
        }
        spec = {"nodeName": f"far-{n}", "containers": [{"name": "main", "image": "i"}]}
        here.make(NODES, f"far-{n}", meta={"labels": {}}, spec={"taints": [taint]}, status={})
        here.make(PODS, n, TEAM, meta=meta, spec=spec, status={"phase": "Running"})
        here.server.merge(NODES, f"far-{n}", {"metadata": {"labels": {"seen": "again"}}})

    return [
        Stage(begun, lambda: phase(here, n) == {"Failed"}, "it counts as failed"),
        Stage(
            lambda: here.server.merge(PODS, n, {"metadata": {"finalizers": None}}, namespace=TEAM),
            lambda: not there(here, PODS, n, TEAM),
            "it is gone",
        ),
    ]


# -- Volcano -----------------------------------------------------------------------------------------------------------


def vcjob(here: KilledCluster, name: str, *, workers: int = 2, queue: str = "lq", **spec: Any) -> None:
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}}}
    template = {"spec": {"containers": [container]}}
    tasks = [{"name": "worker", "replicas": workers, "template": template}]
    here.make(VOLCANO_JOBS, name, TEAM, spec={"queue": queue, "tasks": tasks, **spec})


def pods_of(here: KilledCluster, name: str) -> list[Json]:
    owned = [pod for pod in here.server.list_all(PODS) if pod["metadata"].get("ownerReferences")]
    return [pod for pod in owned if pod["metadata"]["ownerReferences"][0]["name"] == name]


def runs_now(pod: Json) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Running")


def state(here: KilledCluster, name: str) -> str:
    status = there(here, VOLCANO_JOBS, name, TEAM).get("status", {})
    return str(status.get("state", {}).get("phase", ""))


def becomes(here: KilledCluster, phase_: str, *names: str) -> None:
    for name in names:
        here.server.merge(PODS, name, {"status": {"phase": phase_}}, namespace=TEAM)


def command(here: KilledCluster, name: str, action: str, target: Json) -> None:
    here.make(VOLCANO_COMMANDS, name, TEAM, action=action, target=target)


def removed(here: KilledCluster, name: str) -> Stage:
    return Stage(
        lambda: here.server.delete(VOLCANO_JOBS, name, namespace=TEAM),
        lambda: gone(here, name) and not pods_of(here, name),
        "the job and its Workload are gone",
    )


def a_volcano_job_runs(here: KilledCluster, n: str) -> list[Stage]:
    name = f"v{n}"
    return [
        Stage(
            lambda: vcjob(here, name, plugins={"svc": [], "env": []}),
            lambda: state(here, name) == "Running" and len(pods_of(here, name)) == 2,
            "the job runs",
        ),
        Stage(
            lambda: becomes(here, "Succeeded", *(pod["metadata"]["name"] for pod in pods_of(here, name))),
            lambda: state(here, name) == "Completed" and says(here, name, "Finished").startswith("True"),
            "it is completed",
        ),
        removed(here, name),
    ]


def a_volcano_job_runs_in_its_own_queue(here: KilledCluster, n: str) -> list[Stage]:
    name, queue = f"v{n}", f"q{n}"

    def begun() -> None:
        here.make(VOLCANO_QUEUES, queue, spec={"weight": 1, "capability": {GPU: "4"}})
        vcjob(here, name, queue=queue)

    def group() -> str:
        found = [each for each in here.server.list_all(POD_GROUPS) if each["metadata"]["name"].startswith(f"{name}-")]
        return str(found[0].get("status", {}).get("phase")) if found else ""

    return [
        Stage(begun, lambda: state(here, name) == group() == "Running", "the job runs, and its group says so"),
        Stage(
            lambda: becomes(here, "Succeeded", *(pod["metadata"]["name"] for pod in pods_of(here, name))),
            lambda: state(here, name) == group() == "Completed",
            "it is completed",
        ),
        removed(here, name),
    ]


def a_volcano_job_restarts(here: KilledCluster, n: str) -> list[Stage]:
    name, first = f"v{n}", list[str]()
    policies = [{"event": "PodFailed", "action": "RestartTask"}]

    def fails() -> None:
        pods = pods_of(here, name)
        first.extend(pod["metadata"]["uid"] for pod in pods)
        becomes(here, "Failed", pods[0]["metadata"]["name"])

    def again() -> bool:
        now = {pod["metadata"]["uid"] for pod in pods_of(here, name) if runs_now(pod)}
        return state(here, name) == "Running" and len(now) == 2 and not now & set(first)

    return [
        Stage(
            lambda: vcjob(here, name, policies=policies),
            lambda: state(here, name) == "Running" and len(pods_of(here, name)) == 2,
            "the job runs",
        ),
        Stage(fails, again, "its task runs again"),
        removed(here, name),
    ]


def a_volcano_job_is_aborted(here: KilledCluster, n: str) -> list[Stage]:
    name = f"v{n}"

    def order(action: str) -> None:
        uid = there(here, VOLCANO_JOBS, name, TEAM)["metadata"]["uid"]
        target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": name, "uid": uid}
        command(here, f"{action.lower()}-{n}", action, target)

    return [
        Stage(lambda: vcjob(here, name), lambda: state(here, name) == "Running", "the job runs"),
        Stage(
            lambda: order("AbortJob"),
            lambda: state(here, name) == "Aborted" and says(here, name, "Requeued") == "False/OnHold",
            "it is aborted and on hold",
        ),
        Stage(
            lambda: order("ResumeJob"),
            lambda: state(here, name) == "Running" and len(pods_of(here, name)) == 2,
            "it runs again",
        ),
        removed(here, name),
    ]


def a_volcano_queue_is_closed(here: KilledCluster, n: str) -> list[Stage]:
    top, leaf = f"top-{n}", f"leaf-{n}"

    def begun() -> None:
        here.make(VOLCANO_QUEUES, top, spec={"weight": 1})
        here.make(VOLCANO_QUEUES, leaf, spec={"weight": 1, "parent": top})

    def is_(name: str) -> str:
        return str(there(here, VOLCANO_QUEUES, name).get("status", {}).get("state"))

    def order(action: str) -> None:
        target = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": top, "uid": "any"}
        command(here, f"{action.lower()}-{n}", action, target)

    def settled(wanted: str) -> bool:
        return is_(top) == is_(leaf) == wanted and not here.server.list_all(VOLCANO_COMMANDS)

    def leave() -> None:
        for name in (leaf, top):
            here.server.delete(VOLCANO_QUEUES, name)

    return [
        Stage(begun, lambda: settled("Open"), "both queues are open"),
        Stage(lambda: order("CloseQueue"), lambda: settled("Closed"), "both are closed"),
        Stage(lambda: order("OpenQueue"), lambda: settled("Open"), "both are open again"),
        Stage(leave, lambda: True, "they are gone"),
    ]


# -- queues and kinds --------------------------------------------------------------------------------------------------


def a_queue_is_deleted(here: KilledCluster, n: str) -> list[Stage]:
    name = f"cq-{n}"

    def begun() -> None:
        flavors = [{"name": "gpu", "resources": [{"name": GPU, "nominalQuota": "0"}]}]
        groups = [{"coveredResources": [GPU], "flavors": flavors}]
        finalizers = ["kueue.x-k8s.io/resource-in-use"]
        spec = {"namespaceSelector": {}, "resourceGroups": groups}
        here.make(CLUSTER_QUEUES, name, meta={"finalizers": finalizers}, spec=spec)

    def active() -> bool:
        return bool(there(here, CLUSTER_QUEUES, name).get("status", {}).get("conditions"))

    return [
        Stage(begun, active, "the queue is there"),
        Stage(
            lambda: here.server.delete(CLUSTER_QUEUES, name),
            lambda: not there(here, CLUSTER_QUEUES, name),
            "it is gone",
        ),
    ]


def leaves(here: KilledCluster, resource: Resource, name: str) -> Stage:
    return Stage(lambda: here.server.delete(resource, name), lambda: not there(here, resource, name), "it is gone")


def past_use_is_kept(here: KilledCluster, n: str) -> list[Stage]:
    name = f"kai-{n}"

    def begun() -> None:
        kai_queue(here, n)
        job(here, n, runs_s=None, queue=name)

    def kept() -> bool:
        return "tessera.dev/queue-usage" in there(here, KAI_QUEUES, name)["metadata"].get("annotations", {})

    return [
        Stage(begun, lambda: runs(here, n, 1) and kept(), "the job runs and its queue's past use is kept"),
        ends(here, n),
        Stage(lambda: delete_kai(here, n), lambda: True, "the queues are gone"),
    ]


def a_pod_leaves_its_job(here: KilledCluster, n: str) -> list[Stage]:
    """One above the minimum of a job that grows: its own Workload is stopped, and its Job does not count it."""
    before: list[str] = []

    def begun() -> None:
        kai_queue(here, n)
        labels = {"kai.scheduler/queue": f"kai-{n}"}
        notes = {"tessera.dev/scheduler-name": "kai-scheduler"}
        job(here, n, 2, runs_s=None, queue=f"kai-{n}", labels=labels, notes=notes)

    def stopped() -> None:
        (own,) = [each for each in here.server.list_all(WORKLOADS) if above(each)]
        before.append(own["metadata"]["uid"])
        here.server.merge(WORKLOADS, own["metadata"]["name"], {"spec": {"active": False}}, namespace=TEAM)

    def above(given: Json) -> bool:
        return "tessera.dev/above-minimum-of" in given["metadata"].get("annotations", {})

    def again() -> bool:
        own = [each["metadata"]["uid"] for each in here.server.list_all(WORKLOADS) if above(each)]
        return len(here.find(n, "Running")) == 2 and bool(own) and not set(own) & set(before)

    return [
        Stage(begun, lambda: len(here.find(n, "Running")) == 2, "both pods run"),
        Stage(stopped, again, "another pod has taken its place"),
        ends(here, n),
        Stage(lambda: delete_kai(here, n), lambda: True, "the queues are gone"),
    ]


def kai_queue(here: KilledCluster, n: str) -> None:
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = dict.fromkeys(("cpu", "memory", "gpu"), unlimited)
    here.make(KAI_QUEUES, f"top-{n}", spec={"resources": resources})
    here.make(KAI_QUEUES, f"kai-{n}", spec={"resources": resources, "parentQueue": f"top-{n}"})


def delete_kai(here: KilledCluster, n: str) -> None:
    for each in (f"kai-{n}", f"top-{n}"):
        here.server.delete(KAI_QUEUES, each)


def a_pod_group_says_how_it_is(here: KilledCluster, n: str) -> list[Stage]:
    names, group, queue = (f"a-{n}", f"b-{n}"), f"g-{n}", f"q{n}"

    def begun() -> None:
        here.make(VOLCANO_QUEUES, queue, spec={"weight": 1})
        here.make(POD_GROUPS, group, TEAM, spec={"minMember": 2, "queue": queue})
        for name in names:
            body = marked(name, notes={"scheduling.k8s.io/group-name": group})
            body["metadata"]["labels"][QUEUE] = ""
            body["spec"]["containers"][0]["resources"] = {"limits": {GPU: "1"}, "requests": {GPU: "1"}}
            body["metadata"] |= {"namespace": TEAM, "creationTimestamp": stamp(time.time())}
            here.server.create(PODS, name, body, namespace=TEAM)

    def says_(phase_: str) -> bool:
        return bool(there(here, POD_GROUPS, group, TEAM).get("status", {}).get("phase") == phase_)

    def leave() -> None:
        for name in names:
            here.server.delete(PODS, name, namespace=TEAM)
        here.server.delete(POD_GROUPS, group, namespace=TEAM)
        here.server.delete(WORKLOADS, group, namespace=TEAM)

    return [
        Stage(begun, lambda: says_("Running") and phase(here, *names) == {"Running"}, "the group runs"),
        Stage(lambda: ended(here, *names), lambda: says_("Completed"), "it is completed"),
        Stage(leave, lambda: not any(there(here, PODS, name, TEAM) for name in names), "all are gone"),
    ]


def a_kind_is_declared(here: KilledCluster, n: str) -> list[Stage]:
    del n
    name = SWEEP["metadata"]["name"]

    def begun() -> None:
        here.server.create(DECLARATIONS, name, copy.deepcopy({**SWEEP, "metadata": {"generation": 1}}))

    def accepted() -> bool:
        found = there(here, DECLARATIONS, name)
        conditions = {each["type"]: each["status"] for each in found.get("status", {}).get("conditions", [])}
        return conditions.get("Accepted") == conditions.get("Active") == "True"

    return [
        Stage(begun, accepted, "the kind is queued"),
        Stage(
            lambda: here.server.delete(DECLARATIONS, name), lambda: not there(here, DECLARATIONS, name), "it is gone"
        ),
    ]


SWEEPS: Final = Resource("lab.example", "v1", "sweeps", "Sweep", namespaced=True)
_VOLCANO: Final = (VOLCANO_JOBS, VOLCANO_COMMANDS, POD_GROUPS)
FURTHER: Final = (
    Act("a running job is edited", (Failpoint.WORKLOAD_REMOVED,), a_running_job_is_edited),
    Act("a Workload expires", (Failpoint.WORKLOAD_EXPIRED,), a_workload_expires, EXPIRING),
    Act("an elastic job grows", (Failpoint.JOB_PODS_UNGATED, Failpoint.SLICE_REPLACED), an_elastic_job_grows),
    Act("a group has one too many", (Failpoint.POD_MARKED, Failpoint.POD_DELETED), a_group_has_one_too_many),
    Act("a pod of a group is replaced", (Failpoint.WAITING_FOR_PODS,), a_pod_of_a_group_is_replaced),
    Act("a pod hangs", (Failpoint.POD_STUCK,), a_pod_hangs_on_a_node_that_is_gone, RECOVERING),
    Act(
        "a Volcano Job runs",
        (Failpoint.VOLCANO_JOB, Failpoint.VOLCANO_POD, Failpoint.VOLCANO_KEPT),
        a_volcano_job_runs,
        VOLCANO,
        _VOLCANO,
    ),
    Act(
        "a Volcano Job runs in a Volcano Queue",
        (Failpoint.VOLCANO_GROUP,),
        a_volcano_job_runs_in_its_own_queue,
        VOLCANO_QUEUED,
        (*_VOLCANO, VOLCANO_QUEUES),
    ),
    Act(
        "a Volcano Job restarts",
        (Failpoint.VOLCANO_POD_MARKED, Failpoint.VOLCANO_REMOVED),
        a_volcano_job_restarts,
        VOLCANO,
        _VOLCANO,
    ),
    Act("a Volcano Job is aborted", (Failpoint.HELD,), a_volcano_job_is_aborted, VOLCANO, _VOLCANO),
    Act(
        "a Volcano Queue is closed",
        (Failpoint.VOLCANO_COMMAND, Failpoint.VOLCANO_QUEUE, Failpoint.QUEUE_CLOSED),
        a_volcano_queue_is_closed,
        VOLCANO_QUEUED,
        (*_VOLCANO, VOLCANO_QUEUES),
    ),
    Act("a queue is deleted", (Failpoint.QUEUE_FINALIZER,), a_queue_is_deleted),
    Act("past use is kept", (Failpoint.QUEUE_USAGE,), past_use_is_kept, KAI_QUEUED, (KAI_QUEUES,)),
    Act("a pod leaves its job", (Failpoint.POD_LEFT_JOB,), a_pod_leaves_its_job, KAI_QUEUED, (KAI_QUEUES,)),
    Act(
        "a PodGroup says how it is",
        (Failpoint.POD_GROUP_STATUS,),
        a_pod_group_says_how_it_is,
        VOLCANO_QUEUED,
        (*_VOLCANO, VOLCANO_QUEUES),
    ),
    Act("a kind is declared", (Failpoint.JOB_KIND,), a_kind_is_declared, kinds=(DECLARATIONS, SWEEPS)),
)
