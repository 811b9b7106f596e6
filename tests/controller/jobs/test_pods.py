"""Plain pods and pod groups: what happens to them, as claims."""

import pytest

from controller.engine.gates import FeatureGates
from controller.jobs import names
from controller.jobs.deviceplan import DEVICES
from controller.jobs.podactions import RefusePod
from controller.jobs.podgroup import Group, excess
from controller.jobs.podview import (
    ADMISSION_GATE,
    FAST_ADMISSION,
    GROUP_TOTAL,
    MANAGED,
    POD_INDEX,
    RETRIABLE,
    SERVING,
    SeenPod,
)
from controller.jobs.raw import Json
from controller.jobs.settings import JobSettings
from controller.objects.meta import LabelSelector
from tests.controller.jobs.model import lookups
from tests.controller.jobs.podworld import PodWorld, member, pod


def group(size: int, *, notes: dict[str, str] | None = None) -> PodWorld:
    world = PodWorld(*(member(f"p{i}", size, notes=notes) for i in range(size)))
    world.settle()
    return world


def running_group(size: int, *, notes: dict[str, str] | None = None) -> PodWorld:
    world = group(size, notes=notes)
    world.admit()
    world.settle()
    assert len(world.running()) == size
    return world


class TestPodOnItsOwn:
    def test_waits_with_a_workload_of_its_own_that_it_controls(self) -> None:
        world = PodWorld(pod("a", cpu="3"))
        world.settle()
        meta, spec = world.workload["metadata"], world.workload["spec"]
        assert meta["name"].startswith("pod-a-")
        assert [(one["kind"], one["controller"]) for one in meta["ownerReferences"]] == [("Pod", True)]
        assert spec["queueName"] == "q"
        (one,) = spec["podSets"]
        assert (one["name"], one["count"]) == ("main", 1)
        assert one["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "3"}
        assert "schedulingGates" not in one["template"]["spec"]
        assert world.free() == set()

    def test_is_let_go_with_its_flavor_and_its_queue_in_one_patch(self) -> None:
        world = PodWorld(pod("a", schedulingGates=[{"name": "mine"}, {"name": ADMISSION_GATE}]))
        world.settle()
        world.admit()
        world.step()
        raw = world.pods["a"]
        assert raw["spec"]["schedulingGates"] == [{"name": "mine"}]
        assert raw["spec"]["nodeSelector"] == {"gpu": "a100"}
        assert raw["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
        assert raw["metadata"]["labels"][names.POD_SET] == "main"
        assert raw["metadata"]["annotations"][names.WORKLOAD] == world.workload["metadata"]["name"]

    @pytest.mark.parametrize(("phase", "reason"), [("Succeeded", "Succeeded"), ("Failed", "Failed")])
    def test_ends_its_workload_as_it_ends(self, phase: str, reason: str) -> None:
        world = PodWorld(pod("a"))
        world.settle()
        world.admit()
        world.settle()
        assert world.has("PodsReady")
        world.end("a", phase)
        world.settle()
        assert world.outcome() == reason
        assert world.pods["a"]["metadata"]["finalizers"] == []

    def test_evicted_is_deleted_and_keeps_its_quota_until_it_has_ended(self) -> None:
        world = PodWorld(pod("a"))
        world.settle()
        world.admit()
        world.settle()
        world.evict()
        world.step()
        assert "deletionTimestamp" in world.pods["a"]["metadata"]
        world.step()
        assert "admission" in world.workload["status"]
        world.settle()
        assert world.pods == {}
        assert world.workloads == {}

    @pytest.mark.parametrize(("grace_s", "over"), [(0, True), (30, False)])
    def test_deleted_by_force_it_is_over_though_nobody_saw_it_end(self, grace_s: int, *, over: bool) -> None:
        raw = pod("a", nodeName="n", schedulingGates=[])
        raw["metadata"] |= {"deletionTimestamp": "2026-01-01T01:00:00Z", "deletionGracePeriodSeconds": grace_s}
        assert SeenPod(raw).is_over is over

    def test_evicted_before_it_was_let_go_it_waits_on(self) -> None:
        world = PodWorld(pod("a"))
        world.settle()
        world.admit()
        world.evict()
        world.settle()
        assert "admission" not in world.workload["status"]
        assert list(world.pods) == ["a"]
        world.admit()
        world.settle()
        assert world.running() == {"a"}

    def test_changed_while_it_waits_its_workload_follows(self) -> None:
        world = PodWorld(pod("a"))
        world.settle()
        world.pods["a"]["spec"]["nodeSelector"] = {"disk": "ssd"}
        world.settle()
        (one,) = world.workload["spec"]["podSets"]
        assert one["template"]["spec"]["nodeSelector"] == {"disk": "ssd"}

    def test_deleted_while_it_waits_it_goes_at_once_and_so_does_its_workload(self) -> None:
        world = PodWorld(pod("a"))
        world.settle()
        world.delete("a")
        world.settle()
        assert (world.pods, world.workloads) == ({}, {})

    def test_let_go_by_somebody_else_it_is_deleted(self) -> None:
        world = PodWorld(pod("a"))
        world.settle()
        world.pods["a"]["spec"]["schedulingGates"] = []
        world.settle()
        assert world.pods == {}

    @pytest.mark.parametrize(
        ("labels", "spec", "expected"),
        [
            ({names.PRIORITY_CLASS: "high"}, {"priorityClassName": "gold"}, ("high", 1000)),
            ({}, {"priorityClassName": "gold"}, ("gold", 77)),
        ],
    )
    def test_has_the_priority_of_its_label_else_of_its_class(
        self, labels: dict[str, str], spec: Json, expected: tuple[str, int]
    ) -> None:
        world = PodWorld(pod("a", labels=labels, **spec))
        world.settle()
        found = world.workload["spec"]
        assert (found["priorityClassRef"]["name"], found["priority"]) == expected

    def test_of_a_deployment_is_queued_by_itself(self) -> None:
        raw = pod("a")
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
        raw["metadata"]["ownerReferences"] = [owner]
        world = PodWorld(raw)
        world.lookups = lookups(owner=lambda _ns, _ref: {"metadata": {"uid": "u"}})
        world.settle()
        assert len(world.workloads) == 1

    @pytest.mark.parametrize("admitted", [True, False])
    def test_of_a_queued_job_is_left_to_the_job_and_free_once_that_is_admitted(self, *, admitted: bool) -> None:
        raw = pod("a")
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
        raw["metadata"]["ownerReferences"] = [owner]
        world = PodWorld(raw)
        job = {"metadata": {"uid": "u", "labels": {names.QUEUE_NAME: "q"}}}
        world.lookups = lookups(owner=lambda _ns, _ref: job, is_admitted=lambda uid: admitted and uid == "u")
        world.settle()
        assert world.workloads == {}
        assert world.running() == ({"a"} if admitted else set())
        assert (MANAGED in world.pods["a"]["metadata"]["labels"]) is not admitted

    def test_of_an_admitted_placed_job_still_waits_to_be_told_its_node(self) -> None:
        raw = pod("a", schedulingGates=[{"name": ADMISSION_GATE}, {"name": names.TOPOLOGY_GATE}])
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
        raw["metadata"]["ownerReferences"] = [owner]
        world = PodWorld(raw)
        job = {"metadata": {"uid": "u", "labels": {names.QUEUE_NAME: "q"}}}
        world.lookups = lookups(owner=lambda _ns, _ref: job, is_admitted=lambda _uid: True)
        world.settle()
        assert world.pods["a"]["spec"]["schedulingGates"] == [{"name": names.TOPOLOGY_GATE}]
        assert MANAGED not in world.pods["a"]["metadata"]["labels"]

    def test_in_a_namespace_that_is_not_managed_is_released(self) -> None:
        selector = LabelSelector(match_labels={"batch": "yes"})
        world = PodWorld(pod("a"), settings=JobSettings(managed_jobs_namespace_selector=selector))
        world.settle()
        assert world.running() == {"a"}
        assert world.pods["a"]["metadata"]["finalizers"] == []

    def test_without_its_queue_is_refused_and_not_let_go(self) -> None:
        world = PodWorld(pod("a"))
        del world.pods["a"]["metadata"]["labels"][names.QUEUE_NAME]
        world.settle()
        assert world.free() == set()
        assert world.refusals[0].startswith("metadata.labels[kueue.x-k8s.io/queue-name]: expected the queue")

    def test_that_nobody_can_charge_is_refused_in_a_sentence(self) -> None:
        world = PodWorld(pod("a", cpu="-1"))
        world.settle()
        assert world.workloads == {}
        assert "expected an amount of at least 0, found -1" in world.refusals[0]

    def test_whose_selector_contradicts_its_flavor_never_starts(self) -> None:
        world = PodWorld(pod("a", nodeSelector={"gpu": "h100"}))
        world.settle()
        world.admit(flavor="a100")
        world.settle()
        assert world.outcome() == "FailedToStart"
        assert world.free() == set()


class TestGroup:
    def test_waits_until_all_its_pods_are_there(self) -> None:
        world = PodWorld(member("a", 3), member("b", 3))
        world.settle()
        assert world.workloads == {}
        assert ("WaitingForPods", "group g has 2 of 3 pods") in world.events
        world.create(member("c", 3))
        world.settle()
        assert world.workload["metadata"]["name"] == "g"
        assert {one["name"] for one in world.workload["metadata"]["ownerReferences"]} == {"a", "b", "c"}
        assert not any("controller" in one for one in world.workload["metadata"]["ownerReferences"])

    def test_has_a_pod_set_for_each_shape(self) -> None:
        world = PodWorld(member("driver", 3, cpu="4"), member("w0", 3), member("w1", 3))
        world.settle()
        assert world.sizes() == [1, 2]
        assert all(len(one["name"]) == 8 for one in world.workload["spec"]["podSets"])

    def test_what_does_not_concern_a_scheduler_makes_no_shape(self) -> None:
        other = member("b", 2, labels={"app": "x"}, notes={"note": "y"})
        other["spec"]["containers"][0] |= {"image": "another", "env": [{"name": "A", "value": "1"}]}
        world = PodWorld(member("a", 2), other)
        world.settle()
        assert world.sizes() == [2]

    def test_a_role_that_somebody_wrote_on_a_waiting_pod_is_not_believed(self) -> None:
        big = member("b", 2, cpu="64", labels={names.POD_SET: "small"})
        world = PodWorld(member("a", 2, labels={names.POD_SET: "small"}), big)
        world.settle()
        assert world.sizes() == [1, 1]

    def test_is_admitted_with_its_first_pod_where_it_asks_for_that(self) -> None:
        world = PodWorld(member("a", 3, notes={FAST_ADMISSION: "true"}))
        world.settle()
        assert world.sizes() == [3]
        world.admit()
        world.settle()
        assert world.running() == {"a"}
        assert not world.has("WaitingForReplacementPods")
        world.create(member("b", 3, notes={FAST_ADMISSION: "true"}))
        world.settle()
        assert world.running() == {"a", "b"}

    def test_pods_too_many_go_before_admission_the_newest_first(self) -> None:
        world = PodWorld(*(member(f"p{i}", 2) for i in range(4)))
        world.settle()
        assert set(world.pods) == {"p0", "p1"}

    def test_pods_too_many_go_while_it_runs_and_never_one_that_runs(self) -> None:
        world = running_group(2)
        world.create(member("late", 2))
        world.settle()
        assert world.running() == {"p0", "p1"}
        assert "late" not in world.pods

    def test_of_pods_too_many_one_that_waits_goes_before_a_newer_one_that_runs(self) -> None:
        waits, runs = pod("old"), pod("new", schedulingGates=[])
        for second, raw in enumerate((waits, runs)):
            raw["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{second}Z"
        found = excess(Group(name="g", total=1, minimum=1), [SeenPod(runs), SeenPod(waits)], None)
        assert [one.name for one in found] == ["old"]

    def test_a_pod_of_another_shape_is_too_many_once_quota_is_reserved(self) -> None:
        world = running_group(2)
        world.end("p0", "Failed")
        world.create(member("bigger", 2, cpu="8"))
        world.settle()
        assert "bigger" not in world.pods
        world.create(member("same", 2))
        world.settle()
        assert world.running() == {"p1", "same"}

    def test_none_is_let_go_while_one_is_missing(self) -> None:
        world = group(3)
        world.delete("p1")
        world.settle()
        world.admit()
        world.settle()
        assert world.free() == set()
        assert world.has("WaitingForReplacementPods")
        world.create(member("again", 3))
        world.settle()
        assert world.running() == {"p0", "p2", "again"}
        assert not world.has("WaitingForReplacementPods")

    def test_waits_for_a_replacement_of_a_failed_pod_and_takes_it(self) -> None:
        world = running_group(3)
        world.end("p1", "Failed")
        world.settle()
        assert world.has("WaitingForReplacementPods")
        assert not world.has("PodsReady")
        assert world.outcome() == ""
        assert world.pods["p1"]["metadata"]["finalizers"] == []
        world.create(member("again", 3))
        world.settle()
        assert world.running() == {"p0", "p2", "again"}
        assert world.has("PodsReady")
        assert {one["name"] for one in world.workload["metadata"]["ownerReferences"]} == {"p0", "p2", "again"}

    def test_finishes_when_all_have_succeeded_and_gives_back_what_ended_before(self) -> None:
        world = running_group(2)
        world.end("p0", "Succeeded")
        world.settle()
        assert [one["count"] for one in world.workload["status"]["reclaimablePods"]] == [1]
        assert world.pods["p0"]["metadata"]["finalizers"] == [MANAGED]
        gone = world.pods.pop("p0")
        world.settle()
        assert [one["count"] for one in world.workload["status"]["reclaimablePods"]] == [1]
        world.pods["p0"] = gone
        world.end("p1", "Succeeded")
        world.settle()
        assert world.outcome() == "Succeeded"
        assert all(raw["metadata"]["finalizers"] == [] for raw in world.pods.values())

    def test_fails_when_nothing_runs_and_one_says_it_is_not_to_be_retried(self) -> None:
        world = PodWorld(member("a", 2, notes={RETRIABLE: "false"}), member("b", 2))
        world.settle()
        world.admit()
        world.settle()
        world.end("a", "Failed")
        world.settle()
        assert world.outcome() == ""
        assert world.pods["a"]["metadata"]["finalizers"] == [MANAGED]
        world.end("b", "Succeeded")
        world.settle()
        assert world.outcome() == "Failed"

    def test_serving_never_counts_an_ended_pod_as_done(self) -> None:
        world = running_group(2, notes={SERVING: "true"})
        world.end("p0", "Succeeded")
        world.settle()
        assert "reclaimablePods" not in world.workload["status"]
        world.create(member("again", 2, notes={SERVING: "true"}))
        world.settle()
        assert world.running() == {"p1", "again"}

    def test_evicted_loses_its_pods_and_keeps_its_workload_for_those_that_come(self) -> None:
        world = running_group(2)
        uid = world.workload["metadata"]["uid"]
        world.evict()
        world.settle()
        assert world.running() == set()
        assert "admission" not in world.workload["status"]
        assert len(world.pods) == 1
        for name in ("n0", "n1"):
            world.create(member(name, 2))
        world.settle()
        assert world.free() == set()
        world.admit()
        world.settle()
        assert world.running() == {"n0", "n1"}
        assert set(world.pods) == {"n0", "n1"}
        assert world.workload["metadata"]["uid"] == uid

    def test_has_the_highest_priority_of_its_pods(self) -> None:
        world = PodWorld(member("a", 2, priorityClassName="silver"), member("b", 2, priorityClassName="gold"))
        world.lookups = lookups(pod_priority={"silver": 5, "gold": 77}.get)
        world.settle()
        assert world.workload["spec"]["priority"] == 77

    @pytest.mark.parametrize("admitted", [False, True])
    def test_moved_to_another_queue_it_queues_there(self, *, admitted: bool) -> None:
        world = PodWorld(pod("a"))
        world.settle()
        if admitted:
            world.condition(world.workload["metadata"]["name"], "QuotaReserved", "True", "QuotaReserved")
        world.pods["a"]["metadata"]["labels"][names.QUEUE_NAME] = "r"
        world.settle()
        world.settle()
        assert world.workload["spec"]["queueName"] == "r"
        assert not world.has("QuotaReserved")

    def test_evicted_with_some_done_the_others_start_together_again(self) -> None:
        world = running_group(3)
        world.end("p0", "Succeeded")
        world.evict()
        world.settle()
        world.admit()
        world.create(member("n1", 3))
        world.settle()
        assert world.free() == set()
        world.create(member("n2", 3))
        world.settle()
        assert world.running() == {"n1", "n2"}

    def test_quota_is_released_while_pods_end_only_where_that_is_asked_for(self) -> None:
        fast = JobSettings(gates=FeatureGates({"FastQuotaReleaseInPodIntegration": True}))
        for settings, released in ((JobSettings(), False), (fast, True)):
            world = PodWorld(pod("a"), settings=settings)
            world.settle()
            world.admit()
            world.settle()
            world.evict()
            world.step()
            world.step()
            assert ("admission" not in world.workload["status"]) is released

    def test_all_deleted_by_a_person_it_is_over_and_nothing_lingers(self) -> None:
        world = running_group(3)
        for name in list(world.pods):
            world.delete(name)
        world.settle()
        assert (world.pods, world.workloads) == ({}, {})

    def test_nothing_lingers_in_a_namespace_that_goes(self) -> None:
        world = running_group(2)
        world.evict()
        world.settle()
        world.namespace_going = True
        for name in list(world.pods):
            world.delete(name)
        world.settle()
        assert world.pods == {}

    def test_deleting_its_workload_ends_what_runs_and_frees_the_rest(self) -> None:
        world = running_group(2)
        world.delete_workload("g")
        world.step()
        assert "g" in world.workloads
        world.settle()
        assert (world.pods, world.workloads) == ({}, {})

    def test_after_its_end_the_name_is_taken_until_its_pods_are_gone(self) -> None:
        world = running_group(1)
        world.end("p0", "Succeeded")
        world.settle()
        world.create(member("new", 1))
        world.settle()
        assert world.free() == set()
        assert "group g has finished: delete its pods before its name is used again" in world.refusals
        world.delete("p0")
        world.settle()
        world.settle()
        assert world.sizes() == [1]
        assert world.outcome() == ""

    @pytest.mark.parametrize(
        ("first", "second", "told"),
        [
            (member("a", 2), member("b", 3), "must agree, found '2' on a and '3' on b"),
            (member("a", 2), member("b", 2, labels={names.QUEUE_NAME: "r"}), "must agree, found 'q' on a and 'r' on b"),
            (member("a", 0), member("b", 0), f"metadata.annotations[{GROUP_TOTAL}]: expected at least 1, found 0"),
            (member("a", 2, notes={GROUP_TOTAL: "x"}), member("b", 2, notes={GROUP_TOTAL: "x"}), "expected an integer"),
        ],
    )
    def test_that_contradicts_itself_is_refused(
        self, first: dict[str, object], second: dict[str, object], told: str
    ) -> None:
        world = PodWorld(first, second)
        world.settle()
        assert world.workloads == {}
        assert told in world.refusals[0]

    def test_whose_name_a_job_took_is_refused_and_touches_nothing_of_it(self) -> None:
        world = PodWorld(member("a", 1))
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
        raw = {
            "metadata": {"name": "g", "uid": "w", "resourceVersion": "1", "ownerReferences": [owner]},
            "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]},
        }
        world.workloads["g"] = raw
        (refused,) = world.next_actions()
        assert isinstance(refused, RefusePod)
        assert refused.sentence == "group 'g': workload g belongs to a job"


def devices(world: PodWorld) -> dict[str, str]:
    return {name: world.pods[name]["metadata"]["annotations"].get(DEVICES, "") for name in sorted(world.running())}


class TestPlacedGroup:
    def ranked(self, size: int) -> PodWorld:
        world = PodWorld(*(member(f"p{i}", size, labels={POD_INDEX: str(size - 1 - i)}) for i in range(size)))
        world.settle()
        return world

    def test_goes_by_rank_to_its_places(self) -> None:
        world = self.ranked(4)
        world.admit(hosts={"h1": 1, "h2": 2, "h3": 1})
        world.settle()
        assert world.hosts() == {"p3": "h1", "p2": "h2", "p1": "h2", "p0": "h3"}

    def test_each_pod_is_told_its_planned_devices_and_a_replacement_those_that_are_left(self) -> None:
        world = PodWorld(*(member(f"p{i}", 3, labels={POD_INDEX: str(i)}) for i in range(3)))
        plan = {"n1": [("g1", "g2"), ("g3", "g4")], "n2": [("g5",)]}
        world.lookups = lookups(device_plan=lambda _key, _set, node: plan[node])
        world.settle()
        world.admit(hosts={"n1": 2, "n2": 1})
        world.settle()
        assert devices(world) == {"p0": "g1,g2", "p1": "g3,g4", "p2": "g5"}
        world.end("p0", "Failed")
        world.create(member("again", 3, labels={POD_INDEX: "0"}, notes={DEVICES: "invented"}))
        world.settle()
        assert devices(world) == {"again": "g1,g2", "p1": "g3,g4", "p2": "g5"}

    def test_a_replacement_goes_where_the_failed_one_was(self) -> None:
        for labels in ({}, {POD_INDEX: "1"}):
            world = self.ranked(3) if labels else group(3)
            world.admit(hosts={"h1": 1, "h2": 1, "h3": 1})
            world.settle()
            failed = next(name for name, host in world.hosts().items() if host == "h2")
            succeeded = next(name for name, host in world.hosts().items() if host == "h1")
            world.end(succeeded, "Succeeded")
            world.end(failed, "Failed")
            world.create(member("again", 3, labels=labels))
            world.settle()
            assert world.hosts()["again"] == "h2"

    def test_a_replacement_waits_until_the_place_is_left(self) -> None:
        world = group(2)
        world.admit(hosts={"h1": 1, "h2": 1})
        world.settle()
        world.delete("p0")
        world.create(member("again", 2))
        world.step()
        world.step()
        assert world.free() == {"p0", "p1"}
        world.settle()
        assert world.hosts() == {"again": "h1", "p1": "h2"}

    def test_two_of_one_rank_do_not_wait_for_ever(self) -> None:
        world = PodWorld(*(member(f"p{i}", 2, labels={POD_INDEX: "0"}) for i in range(2)))
        world.settle()
        world.admit(hosts={"h1": 1, "h2": 1})
        world.settle()
        assert world.hosts() == {"p0": "h1", "p1": "h2"}

    def test_none_goes_while_one_would_have_an_unhealthy_node(self) -> None:
        world = group(2)
        world.admit(hosts={"h1": 1, "h2": 1})
        world.workload["status"]["unhealthyNodes"] = [{"name": "h2"}]
        world.settle()
        assert world.free() == set()
        world.workload["status"]["unhealthyNodes"] = []
        world.settle()
        assert set(world.hosts().values()) == {"h1", "h2"}


class TestVolcanoGroup:
    def world(self, pods: int, min_member: int | None, notes: dict[str, str] | None = None) -> PodWorld:
        world = PodWorld(
            *(pod(f"p{i}", notes={"scheduling.k8s.io/group-name": "v", **(notes or {})}) for i in range(pods))
        )
        world.pod_group = None if min_member is None else {"spec": {"minMember": min_member}}
        world.settle()
        return world

    def test_is_as_many_pods_as_its_pod_group_takes_at_least(self) -> None:
        assert self.world(2, 3).workloads == {}
        world = self.world(3, 3)
        assert (world.workload["metadata"]["name"], world.sizes()) == ("v", [3])

    def test_without_its_pod_group_is_refused(self) -> None:
        assert "no PodGroup 'v'" in self.world(1, None).refusals[0]

    def test_further_pods_are_kept_and_wait(self) -> None:
        world = self.world(4, 3)
        world.admit()
        world.settle()
        assert world.running() == {"p0", "p1", "p2"}
        assert set(world.pods) == {"p0", "p1", "p2", "p3"}
        world.end("p0", "Failed")
        world.settle()
        assert world.running() == {"p1", "p2", "p3"}

    def test_with_a_total_it_may_run_with_fewer_down_to_min_member(self) -> None:
        world = self.world(4, 2, {GROUP_TOTAL: "4"})
        (one,) = world.workload["spec"]["podSets"]
        assert (one["count"], one["minCount"]) == (4, 2)
        world.admit(count=3)
        world.settle()
        assert world.running() == {"p0", "p1", "p2"}
        assert world.has("PodsReady")
        assert not world.has("WaitingForReplacementPods")

    def test_a_pod_of_another_shape_is_not_deleted_either(self) -> None:
        world = self.world(2, 2)
        world.admit()
        world.settle()
        world.end("p0", "Failed")
        world.create(pod("other", cpu="7", notes={"scheduling.k8s.io/group-name": "v"}))
        world.settle()
        assert world.running() == {"p1"}
        assert "other" in world.pods
        world.create(pod("same", notes={"scheduling.k8s.io/group-name": "v"}))
        world.settle()
        assert world.running() == {"p1", "same"}

    def test_those_that_run_are_the_group_whoever_is_older(self) -> None:
        world = self.world(2, 2)
        world.admit()
        world.settle()
        world.create(pod("older", notes={"scheduling.k8s.io/group-name": "v"}))
        world.pods["older"]["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z"
        world.settle()
        assert world.running() == {"p0", "p1"}
