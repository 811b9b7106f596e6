"""Plain pods and pod groups through the whole process. The marks that the admission policy puts on are in the pods."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from controller.cluster.process.process import Process
from controller.cluster.watching.kinds import JOBS, NAMESPACES, POD_GROUPS, PODS, QUEUED_PODS, WORKLOADS
from controller.jobs.framework.podview import GROUP_NAME, GROUP_TOTAL, MANAGED
from controller.reconcile.jobshell import followed_shell
from controller.reconcile.pods.reconcile_shell import read_pod
from kube.errors import NotFoundError
from kube.resources import EVENTS
from kube.testing import eventually
from tests.controller.cluster.process.test_jobs import job, workload_of
from tests.controller.reconcile.placing.test_ungating_shell import hosts
from tests.support.controller.podworld import pod as marked
from tests.support.controller.stage import CONFIG, Stage, config, stage, stamp
from tests.support.controller.told import page

WITH_PODS = config(CONFIG + "integrations: {frameworks: [batch/job, pod]}\n")
INDEX = "kueue.x-k8s.io/pod-group-pod-index"
HOST = "kubernetes.io/hostname"
PLACED = {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}


def pod(
    scene: Stage, name: str, *, cpu: int = 1, queue: str = "lq-cq", owners: Sequence[Any] = (), **more: Any
) -> None:
    labels = {"kueue.x-k8s.io/queue-name": queue, **more.pop("labels", {})}
    body = marked(name, cpu=str(cpu), labels=labels, **more)
    body["metadata"] |= {"namespace": "team", "creationTimestamp": stamp(), "ownerReferences": list(owners)}
    scene.server.store.finalizers = True
    scene.server.create(PODS, name, body, namespace="team")


def member(scene: Stage, name: str, total: int, *, rank: int | None = None, **more: Any) -> None:
    labels = {GROUP_NAME: "g", **({} if rank is None else {INDEX: str(rank)})}
    notes = {GROUP_TOTAL: str(total), **more.pop("notes", {})}
    pod(scene, name, labels=labels, notes=notes, **more)


def seen(scene: Stage, name: str) -> dict[str, Any]:
    """Empty for one that is gone."""
    with suppress(NotFoundError):
        found: dict[str, Any] = scene.server.get(PODS, name, namespace="team")
        return found
    return {}


def free(scene: Stage, name: str) -> bool:
    found = seen(scene, name)
    return bool(found) and not found["spec"].get("schedulingGates")


def freed(scene: Stage, *names: str) -> bool:
    return all(free(scene, name) for name in names)


def runs(scene: Stage, *names: str, phase: str = "Running") -> None:
    """The kubelet's word."""
    for name in names:
        others = [one for one in seen(scene, name)["status"].get("conditions", []) if one["type"] != "Ready"]
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        patch = {"spec": {"nodeName": "n"}, "status": {"phase": phase, "conditions": [*others, ready]}}
        scene.server.merge(PODS, name, patch, namespace="team")


def workload(scene: Stage, name: str = "") -> dict[str, Any]:
    """The one of that name, or the only one; empty for none."""
    found = [one for one in scene.server.list_all(WORKLOADS) if not name or one["metadata"]["name"] == name]
    return found[0] if found else {}


def says(scene: Stage, type_: str, name: str = "") -> str:
    conditions = workload(scene, name).get("status", {}).get("conditions", [])
    return next((f"{one['status']}/{one['reason']}" for one in conditions if one["type"] == type_), "")


def let_go(process: Process, gate: str, *, grouped: bool) -> float:
    """How many pods' gates were seen to go."""
    labels = f'cluster_queue="cq",is_group="{str(grouped).lower()}",name="kueue.x-k8s.io/{gate}"'
    start = f"kueue_pod_scheduling_gate_removal_seconds_count{{{labels},"
    found = [line for line in page(process).splitlines() if line.startswith(start)]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def told(scene: Stage, reason: str) -> list[str]:
    return [one["note"] for one in scene.server.list_all(EVENTS) if one["reason"] == reason]


def told_of(scene: Stage, reason: str) -> set[str]:
    """The names of the objects that have an Event of the reason."""
    return {one["regarding"]["name"] for one in scene.server.list_all(EVENTS) if one["reason"] == reason}


def test_what_is_kept_of_a_pod_is_what_decisions_are_made_by() -> None:
    given = marked("p")
    given["metadata"] |= {"managedFields": [{"manager": "kubectl"}], "uid": "u"}
    given["status"] = {"phase": "Running", "conditions": [], "podIP": "10.0.0.1", "containerStatuses": [{}]}
    kept = msgspec.json.decode(read_pod(msgspec.json.encode(given)).raw)
    assert kept["status"] == {"phase": "Running", "conditions": []}
    assert kept["metadata"] == {key: value for key, value in given["metadata"].items() if key != "managedFields"}
    assert kept["spec"] == given["spec"]


async def test_a_pod_waits_for_quota_is_let_go_and_its_end_is_its_workloads() -> None:
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller(WITH_PODS, core_only=False) as process:
            pod(scene, "a")
            await eventually(lambda: free(scene, "a"))
            await eventually(lambda: let_go(process, "admission", grouped=False) == 1)
            pod(scene, "b")
            await eventually(
                lambda: says(scene, "QuotaReserved", _name(scene, "b")) == "False/WaitingForQuota", what="b waits"
            )
            assert not free(scene, "b")
            runs(scene, "a", phase="Succeeded")
            await eventually(lambda: free(scene, "b"))
            await eventually(lambda: not seen(scene, "a")["metadata"].get("finalizers"))
            assert says(scene, "Finished", _name(scene, "a")) == "True/Succeeded"


def _name(scene: Stage, owner: str) -> str:
    for one in scene.server.list_all(WORKLOADS):
        if any(each["name"] == owner for each in one["metadata"].get("ownerReferences", [])):
            return str(one["metadata"]["name"])
    return "none yet"


async def test_a_group_goes_when_all_are_there_by_rank_and_a_replacement_to_its_own_place() -> None:
    async with stage() as scene:
        hosts(scene, "n1", "n2", "n3", cpus=1)
        async with scene.controller(WITH_PODS, core_only=False) as process:
            for rank in (2, 0):
                member(scene, f"p{rank}", 3, rank=rank, notes=PLACED)
            await eventually(lambda: bool(told(scene, "WaitingForPods")))
            assert not workload(scene)
            member(scene, "p1", 3, rank=1, notes=PLACED)
            await eventually(lambda: freed(scene, "p0", "p1", "p2"))
            await eventually(lambda: let_go(process, "admission", grouped=True) == 3)
            at = [seen(scene, f"p{rank}")["spec"]["nodeSelector"][HOST] for rank in range(3)]
            assert sorted(at) == ["n1", "n2", "n3"]
            runs(scene, "p0", "p1", "p2")
            await eventually(lambda: says(scene, "PodsReady") == "True/Started")
            runs(scene, "p1", phase="Failed")
            await eventually(lambda: says(scene, "WaitingForReplacementPods") == "True/PodsFailed")
            member(scene, "again", 3, rank=1, notes=PLACED)
            await eventually(lambda: free(scene, "again"))
            assert seen(scene, "again")["spec"]["nodeSelector"][HOST] == at[1]
            await eventually(lambda: says(scene, "WaitingForReplacementPods") == "False/PodsReady")


async def test_one_too_many_is_told_why_and_deleted() -> None:
    async with stage() as scene:
        scene.queue(cpus=9)
        async with scene.controller(WITH_PODS, core_only=False):
            member(scene, "p0", 2)
            member(scene, "p1", 2)
            await eventually(lambda: freed(scene, "p0", "p1"))
            member(scene, "p2", 2)
            await eventually(lambda: not seen(scene, "p2"))
            conditions = [one.body["status"].get("conditions", []) for one in _changes(scene, "p2")]
            assert conditions[-1][0]["type"] == "TerminationTarget"
            assert conditions[-1][0]["reason"] == "ExcessPodDeleted"
            assert freed(scene, "p0", "p1")


def _changes(scene: Stage, name: str) -> list[Any]:
    return [one for one in scene.server.store.changes if one.body["metadata"]["name"] == name and "spec" in one.body]


async def test_an_evicted_group_is_deleted_its_quota_free_when_it_has_ended_and_comes_again() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller(WITH_PODS, core_only=False):
            for name in ("p0", "p1"):
                member(scene, name, 2)
            await eventually(lambda: freed(scene, "p0", "p1"))
            runs(scene, "p0", "p1")
            scene.server.merge(WORKLOADS, "g", {"spec": {"active": False}}, namespace="team")
            await eventually(lambda: all("deletionTimestamp" in seen(scene, n)["metadata"] for n in ("p0", "p1")))
            assert workload(scene)["status"].get("admission"), "they still run"
            runs(scene, "p0", "p1", phase="Failed")
            await eventually(lambda: not workload(scene)["status"].get("admission"))
            scene.server.merge(WORKLOADS, "g", {"spec": {"active": True}}, namespace="team")
            for name in ("p2", "p3"):
                member(scene, name, 2)
            await eventually(lambda: freed(scene, "p2", "p3"))
            await eventually(lambda: not seen(scene, "p0") and not seen(scene, "p1"))


async def test_a_deleted_workload_stays_until_its_pods_have_ended() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller(WITH_PODS, core_only=False):
            for name in ("p0", "p1"):
                member(scene, name, 2)
            await eventually(lambda: freed(scene, "p0", "p1"))
            runs(scene, "p0", "p1")
            scene.server.delete(WORKLOADS, "g", namespace="team")
            await eventually(lambda: all("deletionTimestamp" in seen(scene, n)["metadata"] for n in ("p0", "p1")))
            assert workload(scene)
            runs(scene, "p0", "p1", phase="Failed")
            await eventually(lambda: not workload(scene) and not seen(scene, "p0") and not seen(scene, "p1"))


async def test_nothing_is_done_twice_by_who_leads_next_and_what_was_lost_meanwhile_is_made_up_for() -> None:
    async with stage() as scene:
        scene.queue(cpus=9)
        async with scene.controller(WITH_PODS, core_only=False):
            for name in ("p0", "p1"):
                member(scene, name, 2)
            pod(scene, "single")
            await eventually(lambda: freed(scene, "p0", "p1", "single"))
            runs(scene, "p0", "p1", "single")
            await eventually(lambda: says(scene, "PodsReady", "g") == "True/Started")
            await eventually(lambda: says(scene, "PodsReady", _name(scene, "single")) == "True/Started")
        scene.server.merge(PODS, "single", {"metadata": {"finalizers": None}}, namespace="team")
        scene.server.delete(PODS, "single", namespace="team")
        runs(scene, "p1", phase="Failed")
        before = len(scene.server.seen("PATCH", "pods/p0"))
        async with scene.controller(WITH_PODS, core_only=False):
            member(scene, "p2", 2)
            await eventually(lambda: free(scene, "p2"))
            await eventually(lambda: says(scene, "Finished", _name(scene, "single")) == "True/OwnerNotFound")
        assert len(scene.server.seen("PATCH", "pods/p0")) == before


async def test_a_queued_jobs_own_pod_is_free_when_the_job_is_admitted_and_has_no_workload() -> None:
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller(WITH_PODS, core_only=False):
            scene.workload("before", 2)
            await scene.until_admitted("before")
            job(scene, "j")
            await eventually(lambda: bool(workload_of(scene, "j")))
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "controller": True}
            owners = [{**owner, "uid": scene.server.get(JOBS, "j", namespace="team")["metadata"]["uid"]}]
            pod(scene, "a", owners=owners, labels={"batch.kubernetes.io/job-name": "j"})
            pod(scene, "b")
            await eventually(lambda: _name(scene, "b") != "none yet", what="its own pod is looked at")
            assert _name(scene, "a") == "none yet"
            assert not free(scene, "a")
            scene.finish("before")
            await eventually(lambda: free(scene, "a"))
            assert _name(scene, "a") == "none yet"


async def test_one_leader_after_another_takes_a_gang_through_and_sends_nobody_twice() -> None:
    async with stage() as scene:
        hosts(scene, "n1", "n2", "n3", cpus=2)
        names = [f"p{rank}" for rank in range(6)]
        for number in range(5):
            async with scene.controller(WITH_PODS, core_only=False):
                if number == 0:
                    for rank, name in enumerate(names):
                        member(scene, name, 6, rank=rank, notes=PLACED)
                await asyncio.sleep(0.02 * number)
                scene.server.cut()  # from here on nothing of it is heard
            scene.server.down = False
        async with scene.controller(WITH_PODS, core_only=False):
            await eventually(lambda: freed(scene, *names))
        at = [seen(scene, name)["spec"]["nodeSelector"][HOST] for name in names]
        assert at == sorted(at)
        assert all(at.count(host) == 2 for host in ("n1", "n2", "n3"))
        freeings = [_gates(one) for one in scene.server.store.changes if one.body["metadata"]["name"] in names]
        assert freeings.count((True, False)) == len(names)


def _gates(change: Any) -> tuple[bool, bool]:
    """Whether it was held before the change, and after."""
    before, after = change.before or {}, change.body
    return tuple(bool(one.get("spec", {}).get("schedulingGates")) for one in (before, after))  # type: ignore[return-value]


async def test_pods_whose_patches_are_refused_are_tried_again_and_people_are_told() -> None:
    async with stage() as scene:
        scene.queue(cpus=9)
        refuse = 2

        def refused(method: str, path: str) -> int | None:
            nonlocal refuse
            if method == "PATCH" and path.endswith("/pods/a") and refuse:
                refuse -= 1
                return 422
            return None

        scene.server.refuse = refused
        async with scene.controller(WITH_PODS, core_only=False):
            pod(scene, "a")
            await eventually(lambda: free(scene, "a"))
            await eventually(lambda: bool(told(scene, "PodNotChanged")))


async def test_a_volcano_group_needs_its_pod_group_and_as_many_as_that_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_shell, "CHECK_S", 0.05)
    async with stage() as scene:
        scene.queue(cpus=9)
        async with scene.controller(WITH_PODS, core_only=False):
            for name in ("v0", "v1", "v2"):
                pod(scene, name, notes={"scheduling.k8s.io/group-name": "v"})
            await eventually(
                lambda: told_of(scene, "ErrWorkloadCompose") == {"v0", "v1", "v2"}, what="each pod is told"
            )
            assert "no PodGroup 'v'" in told(scene, "ErrWorkloadCompose")[0]
            body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {}}
            spec = {"minMember": 2, "queue": "somebody-elses"}
            scene.server.create(POD_GROUPS, "v", {**body, "spec": spec}, namespace="team")
            await eventually(lambda: freed(scene, "v0", "v1", "v2"))
            assert [one["count"] for one in workload(scene, "v")["spec"]["podSets"]] == [2]


async def test_pods_above_a_minimum_join_and_leave_by_themselves_and_go_with_it() -> None:
    names_ = [f"v{at}" for at in range(5)]
    group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {}}

    def free_now() -> int:
        return sum(free(scene, name) and "deletionTimestamp" not in seen(scene, name)["metadata"] for name in names_)

    async with stage() as scene:
        scene.queue(cpus=4, preemption={"withinClusterQueue": "LowerPriority"})
        scene.server.create(POD_GROUPS, "v", {**group, "spec": {"minMember": 2}}, namespace="team")
        async with scene.controller(WITH_PODS, core_only=False):
            for name in names_:
                pod(scene, name, notes={"scheduling.k8s.io/group-name": "v"})
            await eventually(lambda: free_now() == 4)
            # A pod without a node would be gone as soon as it is deleted.
            runs(scene, *(name for name in names_ if free(scene, name)))
        # Another leader reads from the pods which are above the minimum.
        async with scene.controller(WITH_PODS, core_only=False):
            pod(scene, "other")
            await eventually(lambda: free_now() == 3, what="one leaves for it")
            for name in names_:
                if "deletionTimestamp" in seen(scene, name)["metadata"]:
                    runs(scene, name, phase="Failed")
            await eventually(lambda: free(scene, "other"))
            scene.server.merge(WORKLOADS, "v", {"spec": {"active": False}}, namespace="team")
            await eventually(lambda: free_now() == 0, what="all of the gang leave")
            assert free(scene, "other")


async def test_without_volcanos_crd_its_groups_are_refused_and_nothing_else_waits_for_it() -> None:
    async with stage() as scene:
        scene.queue(cpus=9)
        scene.server.unknown.add("podgroups")
        async with scene.controller(WITH_PODS, core_only=False):
            pod(scene, "v0", notes={"scheduling.k8s.io/group-name": "v"})
            pod(scene, "a")
            await eventually(lambda: free(scene, "a"))
            await eventually(lambda: bool(told(scene, "ErrWorkloadCompose")))


async def test_in_a_namespace_that_is_not_managed_any_more_pods_are_left_alone() -> None:
    selector = "managedJobsNamespaceSelector: {matchLabels: {queued: 'yes'}}\n"
    given = config(CONFIG + selector + "integrations: {frameworks: [batch/job, pod]}\n")
    async with stage() as scene:
        scene.queue(cpus=1)
        scene.server.merge(NAMESPACES, "team", {"metadata": {"labels": {"queued": "yes"}}})
        async with scene.controller(given, core_only=False):
            pod(scene, "a", cpu=5)
            await eventually(lambda: bool(workload(scene)))
            scene.server.merge(NAMESPACES, "team", {"metadata": {"labels": {"queued": None}}})
            await eventually(lambda: free(scene, "a"))
            assert MANAGED not in seen(scene, "a")["metadata"].get("labels", {})


@pytest.mark.parametrize("frameworks", ["[batch/job]", "[pod]"])
async def test_pods_are_followed_only_where_they_are_queued(frameworks: str) -> None:
    given = config(CONFIG + f"integrations: {{frameworks: {frameworks}}}\n")
    async with stage() as scene:
        scene.queue(cpus=1)
        async with scene.controller(given, core_only=False) as process:
            pod(scene, "a")
            scene.workload("known")
            await scene.until_admitted("known")
            assert process._feeds is not None
            assert (QUEUED_PODS in process._feeds, PODS in process._feeds) == ("pod" in frameworks, True)
            assert not process._feeds[PODS].synced, "all pods are followed where a Topology places them"


async def test_a_workload_ends_with_pods_that_vanish_without_being_told_to_go() -> None:
    """Their finalizers were taken off by hand: the watch tells of their end and of nothing before."""
    async with stage() as scene:
        scene.queue(cpus=2)
        async with scene.controller(WITH_PODS, core_only=False):
            for name in ("p0", "p1"):
                member(scene, name, 2)
            await eventually(lambda: freed(scene, "p0", "p1"))
            runs(scene, "p0", "p1")
            await eventually(lambda: says(scene, "PodsReady").startswith("True/"))
            scene.server.store.finalizers = False
            for name in ("p0", "p1"):
                scene.server.delete(PODS, name, namespace="team")
            await eventually(lambda: says(scene, "Finished") == "True/OwnerNotFound")
