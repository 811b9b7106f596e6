"""Kubernetes' own PodGroups in the whole process: found where the API is served, followed while it is, and read anew
whenever a group comes, changes or goes.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.cluster.watching.kinds import CLUSTER_QUEUES, NAMESPACES, PODS, WORKLOADS
from controller.jobs.framework.podview import ADMISSION_GATE, GroupName
from controller.reconcile.jobshell import followed_shell
from controller.reconcile.jobshell.followed_shell import GROUP_KINDS
from controller.reconcile.pods.nativegroups_shell import COMPOSITE_KINDS
from inventory.api.names import ABOVE_MINIMUM_OF, COMPOSITE_GROUP, GANG_SCHEDULED, OUT_OF_GROUP, PODS_ABOVE
from kube.resources import EVENTS, Resource
from kube.testing import eventually
from tests.controller.foreign.podgroups.test_native import composite, group
from tests.controller.reconcile.pods.test_reconcile_shell import WITH_PODS, free, freed, pod, runs, says, seen
from tests.support.controller.stage import Stage, stage, stamp

BETA, COMPOSITES = GROUP_KINDS[0], COMPOSITE_KINDS[0]
NO_GROUP = "spec.schedulingGroup.podGroupName: no PodGroup 'g' of scheduling.k8s.io"
WORKLOAD = GroupName(None, "g").workload


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_shell, "CHECK_S", 0.05)


@asynccontextmanager
async def scene_of(*kinds: Resource, cpus: int = 9) -> AsyncIterator[Stage]:
    async with stage() as scene:
        for kind in kinds:
            scene.server.install(kind)
        scene.queue(cpus=cpus)
        async with scene.controller(WITH_PODS, core_only=False):
            yield scene


def member(scene: Stage, *names: str, of: str = "g", **more: Any) -> None:
    for name in names:
        pod(scene, name, schedulingGroup={"podGroupName": of}, **more)


def make(scene: Stage, given: dict[str, Any], kind: Resource = BETA) -> None:
    scene.server.create(kind, given["metadata"]["name"], given, namespace="team")


def counts(scene: Stage) -> dict[str, int]:
    """Pods by Workload."""
    listed = scene.server.list_all(WORKLOADS)
    return {one["metadata"]["name"]: sum(each["count"] for each in one["spec"]["podSets"]) for one in listed}


def there(scene: Stage) -> set[str]:
    """The pods that exist and are not being deleted."""
    listed = scene.server.list_all(PODS)
    return {one["metadata"]["name"] for one in listed if "deletionTimestamp" not in one["metadata"]}


def workload(scene: Stage, name: str) -> dict[str, Any]:
    return next(one for one in scene.server.list_all(WORKLOADS) if one["metadata"]["name"] == name)


def asked(scene: Stage) -> list[str]:
    """Requests about PodGroups of any version."""
    return [each.path for each in scene.server.requests if "podgroups" in each.path]


@pytest.mark.parametrize("version", GROUP_KINDS, ids=lambda kind: kind.version)
async def test_a_gang_starts_whole_and_pods_above_it_join_one_by_one(version: Resource) -> None:
    async with scene_of(version, cpus=3) as scene:
        make(scene, group("g", 2), version)
        member(scene, "a", "b", "c", "d")
        await eventually(lambda: freed(scene, "a", "b"), what="the minimum")
        await eventually(lambda: len(there(scene)) == 3, what="one above it has no quota")
        await eventually(lambda: freed(scene, *there(scene)), what="the other one joins")
        assert counts(scene)[WORKLOAD] == 2
        (joined,) = there(scene) - {"a", "b"}
        assert seen(scene, joined)["metadata"]["annotations"][ABOVE_MINIMUM_OF] == WORKLOAD


async def test_no_gate_is_lifted_while_a_pod_of_the_group_waits_for_quota_behind_its_own() -> None:
    """kube-scheduler 1.37 starts none of a group while one of it has a gate, and a deletion alone does not wake it."""
    async with scene_of(BETA, cpus=3) as scene:
        make(scene, group("g", 2))
        member(scene, "a", "b", "c", "d")
        await eventually(lambda: len(there(scene)) == 3 and freed(scene, *there(scene)))
        (gone,) = set("abcd") - there(scene)
        asked = [(each.method, each.path.rpartition("/")[2]) for each in scene.server.requests if "/pods/" in each.path]
        assert asked.index(("DELETE", gone)) < min(asked.index(("PATCH", name)) for name in "ab")
        await eventually(lambda: "kube-scheduler starts none of PodGroup g" in " ".join(every_note(scene)))


async def test_a_pod_that_comes_when_its_group_runs_waits_for_quota() -> None:
    async with scene_of(BETA, cpus=2) as scene:
        make(scene, group("g", 2))
        member(scene, "a", "b")
        await eventually(lambda: freed(scene, "a", "b"))
        runs(scene, "a", "b")
        member(scene, "c", "d")
        await eventually(
            lambda: all(ABOVE_MINIMUM_OF in seen(scene, name)["metadata"].get("annotations", {}) for name in "cd")
        )
        await eventually(lambda: len(counts(scene)) == 3)
        assert there(scene) == set("abcd")


async def test_what_preempted_pods_tell_is_written_before_they_are_let_go() -> None:
    async with scene_of(BETA) as scene:
        make(scene, group("g", 4))
        member(scene, "a", "b", "c", "d")
        await eventually(lambda: freed(scene, *"abcd"))
        runs(scene, *"abcd")
        await eventually(lambda: says(scene, "PodsReady").startswith("True"))
        before = len(scene.server.requests)
        taken = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        conditions = [{**taken, "lastTransitionTime": stamp()}]
        for name in "ab":
            ended = {"status": {"phase": "Failed", "conditions": conditions}}
            scene.server.merge(PODS, name, ended, namespace="team")
            scene.server.delete(PODS, name, namespace="team")
        await eventually(lambda: says(scene, "Evicted").endswith("PreemptedByScheduler"))
        await eventually(lambda: there(scene) == set(), what="the others go, too")
        paths = [each.path for each in scene.server.requests[before:] if each.method in ("PUT", "PATCH")]
        first = next(path for path in paths if path.endswith(("/pods/a", "/pods/b", f"/{WORKLOAD}/status")))
        assert first.endswith("/status"), "its finalizer is removed first"


async def test_a_gang_that_does_not_fit_holds_every_gate() -> None:
    async with scene_of(BETA, cpus=3) as scene:
        make(scene, group("g", 4))
        member(scene, "a", "b", "c", "d")
        await eventually(lambda: says(scene, "QuotaReserved").startswith("False"))
        assert not any(free(scene, name) for name in "abcd")


async def test_pods_wait_for_a_group_that_comes_later() -> None:
    async with scene_of(BETA) as scene:
        member(scene, "a", "b")
        await eventually(lambda: NO_GROUP in " ".join(every_note(scene)))
        assert counts(scene) == {}
        make(scene, group("g", 2))
        await eventually(lambda: freed(scene, "a", "b"))


async def test_a_group_with_another_minimum_asks_for_that_while_its_pods_wait() -> None:
    async with scene_of(BETA, cpus=1) as scene:
        make(scene, group("g", 2))
        member(scene, "a", "b", "c")
        await eventually(lambda: counts(scene) == {WORKLOAD: 2})
        scene.server.merge(BETA, "g", {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}, namespace="team")
        await eventually(lambda: counts(scene) == {WORKLOAD: 3}, what="changed")
        scene.server.delete(BETA, "g", namespace="team")
        make(scene, group("g", 1))
        await eventually(lambda: free(scene, "a"), what="made anew")
        assert counts(scene)[WORKLOAD] == 1


async def test_a_group_that_goes_while_its_pods_wait_stays_as_its_workload_was_made() -> None:
    async with scene_of(BETA, cpus=1) as scene:
        make(scene, group("g", 2))
        member(scene, "a", "b")
        await eventually(lambda: says(scene, "QuotaReserved").startswith("False"))
        scene.server.delete(BETA, "g", namespace="team")
        more = [{"name": "cpu", "nominalQuota": "9"}]
        flavors = [{"name": "default", "resources": more}]
        wider = {"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}}
        scene.server.merge(CLUSTER_QUEUES, "cq", wider)
        await eventually(lambda: freed(scene, "a", "b"))


async def test_pods_of_a_basic_group_are_queued_one_by_one_in_the_groups_queue() -> None:
    async with scene_of(BETA, cpus=2) as scene:
        given = group("g")
        given["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "lq-cq"}
        make(scene, given)
        member(scene, "a", "b", queue="")
        await eventually(lambda: freed(scene, "a", "b"))
        assert set(counts(scene).values()) == {1}
        meta = seen(scene, "b")["metadata"]
        assert meta["annotations"][OUT_OF_GROUP] == "true"
        assert meta["labels"]["kueue.x-k8s.io/queue-name"] == "lq-cq"


async def test_groups_below_a_composite_gang_are_one_workload() -> None:
    async with scene_of(BETA, COMPOSITES) as scene:
        top = GroupName(None, "top", composite=True).workload
        make(scene, composite("top", 2), COMPOSITES)
        make(scene, group("g", 1, parent="top"))
        member(scene, "a")
        await eventually(lambda: seen(scene, "a")["metadata"]["annotations"].get(COMPOSITE_GROUP) == "top")
        assert not free(scene, "a"), "a group is missing"
        make(scene, group("h", 2, parent="top"))
        member(scene, "b", "c", of="h")
        await eventually(lambda: freed(scene, "a", "b", "c"))
        assert counts(scene) == {top: 3}


async def test_a_group_of_the_same_name_in_another_namespace_is_another_gang() -> None:
    async with scene_of(BETA) as scene:
        scene.server.create(NAMESPACES, "lab", {"metadata": {"labels": {"kubernetes.io/metadata.name": "lab"}}})
        scene.server.create(BETA, "g", group("g", 9), namespace="lab")
        make(scene, group("g", 1))
        member(scene, "a")
        await eventually(lambda: free(scene, "a"))


async def test_without_the_api_nobody_asks_for_it_until_a_pod_names_a_group() -> None:
    async with scene_of() as scene:
        scene.server.unknown.add("podgroups")
        pod(scene, "plain")
        await eventually(lambda: free(scene, "plain"))
        assert asked(scene) == []
        member(scene, "a")
        await eventually(lambda: NO_GROUP in " ".join(every_note(scene)))
        gates = seen(scene, "a")["spec"]["schedulingGates"]
        assert gates == [{"name": ADMISSION_GATE}]


async def test_the_api_may_come_and_go_while_the_controller_runs() -> None:
    async with scene_of() as scene:
        scene.server.unknown.add("podgroups")
        member(scene, "a")
        await eventually(lambda: NO_GROUP in " ".join(every_note(scene)))
        scene.server.install(BETA)
        make(scene, group("g", 1))
        await eventually(lambda: free(scene, "a"), what="the API came")
        runs(scene, "a")
        scene.server.uninstall(BETA)
        member(scene, "x", of="h")
        await eventually(lambda: "no PodGroup 'h'" in " ".join(every_note(scene)), what="the API went")
        assert "deletionTimestamp" not in seen(scene, "a")["metadata"], "what runs goes on"
        scene.server.install(BETA)
        make(scene, group("h", 1))
        await eventually(lambda: free(scene, "x"), what="the API came again")


def every_note(scene: Stage) -> list[str]:
    return [one["note"] for one in scene.server.list_all(EVENTS)]


def judged(scene: Stage, status: str, message: str = "") -> None:
    """What kube-scheduler writes on the group."""
    said = {
        "type": "PodGroupInitiallyScheduled",
        "status": status,
        "reason": "Scheduled" if status == "True" else "Unschedulable",
        "message": message,
        "lastTransitionTime": stamp(),
    }
    scene.server.merge(BETA, "g", {"status": {"conditions": [said]}}, namespace="team")


def gang_says(scene: Stage) -> str:
    conditions = workload(scene, WORKLOAD)["status"].get("conditions", [])
    return next((f"{one['status']}/{one['reason']}" for one in conditions if one["type"] == GANG_SCHEDULED), "")


async def test_the_verdict_on_a_group_of_a_users_comes_back_until_its_pods_have_nodes() -> None:
    async with scene_of(BETA) as scene:
        make(scene, group("g", 2))
        member(scene, "a", "b")
        await eventually(lambda: freed(scene, "a", "b"))
        judged(scene, "False", "0/2 nodes are available")
        await eventually(lambda: gang_says(scene) == "False/Unschedulable")
        runs(scene, "a", "b")
        await eventually(lambda: gang_says(scene) == "True/Scheduled")


async def test_a_gang_of_which_kube_scheduler_has_preempted_one_pod_is_evicted_whole() -> None:
    async with scene_of(BETA) as scene:
        make(scene, group("g", 2))
        member(scene, "a", "b")
        await eventually(lambda: freed(scene, "a", "b"))
        runs(scene, "a", "b")
        taken = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        taken["lastTransitionTime"] = stamp()
        others = seen(scene, "a")["status"]["conditions"]
        scene.server.merge(PODS, "a", {"status": {"phase": "Failed", "conditions": [*others, taken]}}, namespace="team")
        await eventually(lambda: "b" not in there(scene), what="no half of it is left")
        evicted = [one for one in workload(scene, WORKLOAD)["status"]["conditions"] if one["type"] == "Evicted"]
        assert evicted[0]["reason"] == "PreemptedByScheduler"


def more_quota(scene: Stage, cpus: int) -> None:
    flavors = [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": str(cpus)}]}]
    wider = {"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}}
    scene.server.merge(CLUSTER_QUEUES, "cq", wider)


def says_of(scene: Stage, value: str | None, minimum: int = 0) -> None:
    given = group("g", minimum)
    given["metadata"]["annotations"] = {} if value is None else {PODS_ABOVE: value}
    make(scene, given)


def holding(scene: Stage) -> set[str]:
    """The Workloads that hold quota."""
    listed = scene.server.list_all(WORKLOADS)
    return {one["metadata"]["name"] for one in listed if one.get("status", {}).get("admission")}


async def test_bare_pods_of_a_basic_group_lose_nothing_and_start_when_all_have_quota() -> None:
    async with scene_of(BETA, cpus=3) as scene:
        says_of(scene, None)
        member(scene, "a", "b", "c", "d")
        await eventually(lambda: sum("there is room for" in note for note in every_note(scene)) >= 1, what="told")
        await eventually(lambda: len(counts(scene)) == 4 and not holding(scene), what="none holds quota")
        assert there(scene) == set("abcd")
        assert not any(free(scene, name) for name in "abcd")
        more_quota(scene, 4)
        await eventually(lambda: freed(scene, "a", "b", "c", "d"), what="all start")
        assert there(scene) == set("abcd")


def waiting_together(scene: Stage) -> list[str]:
    """What the Workloads say that wait for each other."""
    conditions = [
        each for one in scene.server.list_all(WORKLOADS) for each in one.get("status", {}).get("conditions", [])
    ]
    return [each["message"] for each in conditions if "pods of PodGroup g wait" in each["message"]]


def told_on_pods(scene: Stage) -> list[str]:
    told = [one for one in scene.server.list_all(EVENTS) if "pods of PodGroup g wait" in one["note"]]
    return [one["regarding"]["name"] for one in told if one["regarding"]["kind"] == "Pod"]


async def test_one_event_tells_for_all_pods_of_a_group_why_they_wait() -> None:
    async with scene_of(BETA, cpus=1) as scene:
        says_of(scene, None)
        member(scene, "a", "b", "c")
        await eventually(lambda: len(waiting_together(scene)) == 3)
        await eventually(lambda: told_on_pods(scene) == ["a"])


async def test_bare_pods_are_deleted_where_their_basic_group_says_so() -> None:
    async with scene_of(BETA, cpus=3) as scene:
        says_of(scene, "delete")
        member(scene, "a", "b", "c", "d")
        await eventually(lambda: len(there(scene)) == 3 and freed(scene, *there(scene)))


async def test_pods_that_are_kept_start_once_their_group_says_that_the_others_are_deleted() -> None:
    async with scene_of(BETA, cpus=3) as scene:
        says_of(scene, None)
        member(scene, "a", "b", "c", "d")
        await eventually(lambda: any("there is room for" in note for note in every_note(scene)))
        scene.server.merge(BETA, "g", {"metadata": {"annotations": {PODS_ABOVE: "delete"}}}, namespace="team")
        await eventually(lambda: len(there(scene)) == 3 and freed(scene, *there(scene)))


async def test_pods_of_a_controller_are_deleted_whatever_their_group_says() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}
    async with scene_of(BETA, cpus=1) as scene:
        says_of(scene, "keep")
        for name in "ab":
            pod(scene, name, owners=[owner], schedulingGroup={"podGroupName": "g"})
        await eventually(lambda: len(there(scene)) == 1 and freed(scene, *there(scene)))


async def test_a_gang_that_keeps_its_pods_asks_for_all_that_exist() -> None:
    async with scene_of(BETA, cpus=5) as scene:
        says_of(scene, "keep", minimum=4)
        member(scene, "a", "b", "c", "d", "e", "f")
        await eventually(lambda: counts(scene) == {WORKLOAD: 6})
        await eventually(
            lambda: any("All 6 pods of PodGroup g get quota at once" in note for note in every_note(scene))
        )
        assert there(scene) == set("abcdef")
        assert not any(free(scene, name) for name in "abcdef")
        more_quota(scene, 6)
        await eventually(lambda: freed(scene, *"abcdef"))


async def test_a_value_that_is_none_of_the_two_is_told_and_the_default_holds() -> None:
    told = "PodGroup g: metadata.annotations[tessera.dev/pods-above]: found 'hold', expected delete or keep"
    async with scene_of(BETA, cpus=1) as scene:
        says_of(scene, "hold")
        member(scene, "a", "b")
        await eventually(lambda: told in every_note(scene))
        await eventually(lambda: any("there is room for" in note for note in every_note(scene)))
        assert there(scene) == set("ab")
