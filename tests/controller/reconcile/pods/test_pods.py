"""Pods on their own: what happens to them, as claims."""

import pytest

from controller.jobs.framework import names
from controller.jobs.framework.podview import ADMISSION_GATE, MANAGED, SeenPod
from controller.jobs.framework.raw import Json
from controller.jobs.framework.settings import JobSettings
from controller.objects.meta import LabelSelector
from tests.support.controller.jobmodel import cluster_objects
from tests.support.controller.podworld import PodWorld, pod


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
        assert one["template"]["spec"]["schedulingGates"] == [{"name": ADMISSION_GATE}]
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

    def test_is_let_go_with_the_affinity_that_keeps_it_off_spot_nodes(self) -> None:
        off = {"key": "kind", "operator": "NotIn", "values": ["spot"]}
        zone = {"key": "zone", "operator": "In", "values": ["a"]}
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        own = {"nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}, "podAffinity": {}}
        given: tuple[tuple[Json, list[Json]], ...] = (({}, [off]), ({"affinity": own}, [zone, off]))
        for more, wanted in given:
            world = PodWorld(pod("a", **more), settings=JobSettings(off_spot=(off,)))
            world.cluster = cluster_objects(is_off_spot=lambda _: True)
            world.settle()
            world.admit()
            world.step()
            spec = world.pods["a"]["spec"]
            assert spec["affinity"]["nodeAffinity"][required] == {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
            assert ("podAffinity" in spec["affinity"]) is bool(more)
            assert not spec.get("schedulingGates")

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
        world.cluster = cluster_objects(owner=lambda _ns, _ref: {"metadata": {"uid": "u"}})
        world.settle()
        assert len(world.workloads) == 1

    @pytest.mark.parametrize("admitted", [True, False])
    def test_of_a_queued_job_is_left_to_the_job_and_free_once_that_is_admitted(self, *, admitted: bool) -> None:
        raw = pod("a")
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
        raw["metadata"]["ownerReferences"] = [owner]
        world = PodWorld(raw)
        job = {"metadata": {"uid": "u", "labels": {names.QUEUE_NAME: "q"}}}
        world.cluster = cluster_objects(owner=lambda _ns, _ref: job, is_admitted=lambda uid: admitted and uid == "u")
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
        world.cluster = cluster_objects(owner=lambda _ns, _ref: job, is_admitted=lambda _uid: True)
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
