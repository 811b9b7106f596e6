"""Pod groups that are sent to nodes, and those of a Volcano PodGroup, as claims."""

import dataclasses
import json

from controller.jobs.framework.names import PREBUILT_WORKLOAD
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import (
    GROUP_NAME,
    GROUP_TOTAL,
    POD_INDEX,
    ROLE_HASH,
    SUSPENDING_PARENT,
    SeenPod,
)
from controller.jobs.framework.raw import Json
from controller.objects.meta import to_json
from controller.objects.placeencoding import Domain, encode
from controller.reconcile.pods.start import places
from controller.scheduler.model.gangshape import GangShape, gang_shape
from inventory.api.names import ABOVE_MINIMUM_OF, DEVICES
from tests.support.controller.jobmodel import cluster_objects
from tests.support.controller.podworld import LEVELS, PodWorld, group, member, pod


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
        world.cluster = cluster_objects(device_plan=lambda _key, _set, node: plan[node])
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

    def test_evicted_with_some_done_it_does_not_ask_for_the_node_on_which_these_ran(self) -> None:
        """What a pod was let go with stands in its spec for good."""
        world = group(2)
        world.admit(hosts={"h1": 1, "h2": 1})
        world.settle()
        before = world.workload["spec"]["podSets"]
        world.end("p0", "Succeeded")
        world.evict()
        for _ in range(20):
            world.step()
            assert world.workload["spec"]["podSets"] == before
        world.create(member("n1", 2))
        world.settle()
        assert world.workload["spec"]["podSets"] == before

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


def test_workers_of_a_leaderworkerset_go_to_the_places_of_workers_in_their_order() -> None:
    """Its leader has index 0, so the first place of the workers is that of index 1."""
    index = "leaderworkerset.sigs.k8s.io/worker-index"
    request = {"podIndexLabel": index, "podSetGroupName": "g", "required": "rack"}
    domains = {"leader": [Domain(("r", "h1"), 1)], "worker": [Domain(("r", host), 1) for host in ("h1", "h2", "h3")]}
    sets = [{"name": name, "count": len(of), "topologyRequest": request} for name, of in domains.items()]
    given = [
        {"name": name, "count": len(of), "topologyAssignment": to_json(encode(LEVELS, of))}
        for name, of in domains.items()
    ]
    status = {"admission": {"clusterQueue": "cq", "podSetAssignments": given}}
    workload = SeenWorkload.of({"metadata": {"name": "lws-0"}, "spec": {"podSets": sets}, "status": status})
    pods = [
        pod(
            f"p{number}",
            labels={GROUP_NAME: "lws-0", index: str(number), PREBUILT_WORKLOAD: "lws-0"},
            notes={SUSPENDING_PARENT: "leaderworkerset", ROLE_HASH: "worker" if number else "leader"},
        )
        for number in (3, 1, 0, 2)
    ]
    for number, one in enumerate(pods):
        one["metadata"]["uid"] = one["metadata"]["name"]
        one["metadata"]["creationTimestamp"] = f"2025-01-01T00:00:0{number}Z"
    found = places(workload, [SeenPod(one) for one in pods], single=False, gang=False, minimum=None)
    hosts = {place.uid: place.node_selector[LEVELS[-1]] for place in found}
    assert hosts == {"p0": "h1", "p1": "h1", "p2": "h2", "p3": "h3"}


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

    def test_is_in_the_queue_of_its_pod_group_where_its_pods_name_none(self) -> None:
        marked: Json = {"labels": {"kueue.x-k8s.io/queue-name": ""}, "notes": {"scheduling.k8s.io/group-name": "v"}}
        world = PodWorld(*(pod(f"p{i}", **marked) for i in range(2)))
        world.pod_group = {"spec": {"minMember": 2, "queue": "theirs"}}
        world.settle()
        assert world.workload["spec"]["queueName"] == "theirs"
        world.admit()
        world.settle()
        assert world.running() == {"p0", "p1"}
        assert "queue-name" not in str(world.pods["p0"]["metadata"]["labels"].values())

    def test_waits_for_the_pods_of_each_task_and_starts_with_them(self) -> None:
        def task(name: str, of: str) -> Json:
            return pod(name, notes={"scheduling.k8s.io/group-name": "v", "volcano.sh/task-spec": of})

        world = PodWorld(task("w0", "worker"), task("w1", "worker"), task("w2", "worker"))
        world.pod_group = {"spec": {"minMember": 3, "minTaskMember": {"ps": 1, "worker": 2}}}
        world.settle()
        assert (world.workloads, world.events[-1]) == ({}, ("WaitingForPods", "group v has 0 of 1 pod of ps"))
        world.create(task("ps", "ps"))
        world.settle()
        assert sorted(world.sizes()) == [1, 2], "a task is a role of its own"
        world.admit()
        world.settle()
        assert world.running() == {"w0", "w1", "ps"}
        shape = json.loads(world.workload["metadata"]["annotations"]["tessera.dev/gang"])
        assert [(each["name"], each["minimum"]) for each in shape["groups"]] == [("ps", 1), ("worker", 2)]
        assert sorted(shape["members"].values()) == ["ps", "worker"]

    def test_of_a_deployment_starts_with_as_many_as_its_pods_say(self) -> None:
        marked: Json = {
            "notes": {
                "scheduling.k8s.io/group-name": "deployment-web",
                "scheduling.volcano.sh/group-min-member": "2",
                "kueue.x-k8s.io/pod-group-serving": "true",
            }
        }
        world = PodWorld(pod("p0", **marked))
        world.settle()
        assert world.workloads == {}
        world.create(pod("p1", **marked))
        world.settle()
        assert (world.workload["metadata"]["name"], world.sizes()) == ("deployment-web", [2])
        world.admit()
        world.settle()
        world.end("p0", "Failed")
        world.create(pod("p2", **marked))
        world.settle()
        assert world.running() == {"p1", "p2"}

    def test_goes_by_the_priority_class_of_its_pod_group(self) -> None:
        world = PodWorld(pod("p", notes={"scheduling.k8s.io/group-name": "v"}, priorityClassName="low"))
        world.cluster = dataclasses.replace(world.cluster, pod_priority={"high": 9, "low": 1}.get)
        world.pod_group = {"spec": {"minMember": 1, "priorityClassName": "high"}}
        world.settle()
        assert (world.workload["spec"]["priority"], world.workload["spec"]["priorityClassRef"]["name"]) == (9, "high")
        lost = PodWorld(pod("p", notes={"scheduling.k8s.io/group-name": "v"}))
        lost.pod_group = {"spec": {"minMember": 1, "priorityClassName": "none"}}
        lost.settle()
        assert (
            lost.refusals[0] == "PodGroup v: spec.priorityClassName: found 'none', expected a PriorityClass that exists"
        )

    def test_goes_on_when_its_pod_group_is_deleted_and_ends(self) -> None:
        world = self.world(2, 2)
        world.admit()
        world.settle()
        world.pod_group = None
        for name in ("p0", "p1"):
            world.end(name, "Succeeded")
        world.settle()
        assert (world.outcome(), world.refusals) == ("Succeeded", [])

    def test_of_kai_has_its_words_about_priority_and_preemption(self) -> None:
        marked: Json = {"labels": {"kai.scheduler/queue": "q"}, "notes": {"pod-group-name": "k"}}
        world = PodWorld(*(pod(f"p{i}", **marked) for i in range(2)))
        world.pod_group = {"spec": {"minMember": 2, "priorityClassName": "build", "preemptibility": "preemptible"}}
        world.settle()
        spec, notes = world.workload["spec"], world.workload["metadata"]["annotations"]
        assert (spec["priority"], spec["priorityClassRef"]["name"]) == (100, "build")
        assert notes["kai.scheduler/preemptibility"] == "preemptible"
        assert gang_shape(notes) == GangShape(minimum=2, staleness_s=60.0)

    def test_says_anew_what_runs_together_while_it_waits(self) -> None:
        marked: Json = {"labels": {"kai.scheduler/queue": "q"}, "notes": {"pod-group-name": "k"}}
        world = PodWorld(*(pod(f"p{i}", **marked) for i in range(2)))
        world.pod_group = {"spec": {"minMember": 2, "topologyConstraint": {"requiredTopologyLevel": "zone"}}}
        world.settle()
        assert "zone" in world.workload["metadata"]["annotations"]["tessera.dev/gang"]
        world.pod_group = {"spec": {"minMember": 2}}
        world.settle()
        assert "zone" not in world.workload["metadata"]["annotations"]["tessera.dev/gang"]

    def test_of_volcano_says_nothing_where_a_number_says_it(self) -> None:
        marked: Json = {"notes": {"scheduling.k8s.io/group-name": "k", "volcano.sh/task-spec": "a"}}
        world = PodWorld(*(pod(f"p{i}", **marked) for i in range(2)))
        world.pod_group = {"spec": {"minMember": 2, "minTaskMember": {"a": 1}}}
        world.settle()
        assert "tessera.dev/gang" in world.workload["metadata"]["annotations"]
        world.pod_group = {"spec": {"minMember": 2}}
        world.settle()
        assert "tessera.dev/gang" not in world.workload["metadata"]["annotations"]

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
        assert world.above() == ["older"]


class TestAboveTheMinimum:
    """Pods beyond ``minMember``, while the minimum holds quota."""

    def world(self, pods: int, minimum: int) -> PodWorld:
        world = TestVolcanoGroup().world(pods, minimum)
        world.admit()
        world.settle()
        return world

    def test_each_is_queued_by_itself_with_a_workload_that_names_the_minimum(self) -> None:
        world = self.world(4, 2)
        assert world.above() == ["p2", "p3"]
        own = world.workload_of("p2")
        assert own["metadata"]["annotations"][ABOVE_MINIMUM_OF] == "v"
        assert own["spec"]["queueName"] == "q"
        assert [one["count"] for one in own["spec"]["podSets"]] == [1]
        assert {one["name"] for one in own["metadata"]["ownerReferences"]} == {"p2"}

    def test_they_join_and_leave_one_by_one(self) -> None:
        world = self.world(4, 2)
        world.admit(above="p3")
        world.settle()
        assert world.running() == {"p0", "p1", "p3"}
        world.admit(above="p2")
        world.settle()
        assert world.running() == {"p0", "p1", "p2", "p3"}
        world.evict(above="p2")
        world.settle()
        assert world.running() == {"p0", "p1", "p3"}
        assert "p2" not in world.pods

    def test_none_is_marked_before_the_minimum_holds_quota(self) -> None:
        assert TestVolcanoGroup().world(4, 2).above() == []

    def test_one_that_ends_ends_by_itself(self) -> None:
        world = self.world(3, 2)
        world.admit(above="p2")
        world.settle()
        world.end("p2", "Succeeded")
        world.settle()
        assert [each["type"] for each in world.workload_of("p2")["status"]["conditions"]][-1] == "Finished"
        assert world.running() == {"p0", "p1"}
        assert world.outcome() == ""

    def test_those_that_wait_are_of_the_group_again_when_the_minimum_has_lost_its_quota(self) -> None:
        world = self.world(4, 2)
        world.admit(above="p3")
        world.settle()
        world.evict()
        world.evict(above="p3")
        world.settle()
        assert world.above() == []
        assert set(world.pods) == {"p2"}, "those that ran are gone, and their owner makes new ones"
        world.create(pod("new", notes={"scheduling.k8s.io/group-name": "v"}))
        world.settle()
        world.admit()
        world.settle()
        assert world.running() == {"p2", "new"}

    def test_one_that_waits_stands_in_for_one_of_the_minimum_that_failed(self) -> None:
        world = self.world(4, 2)
        world.admit(above="p3")
        world.settle()
        world.end("p1", "Failed")
        world.settle()
        assert world.running() == {"p0", "p2", "p3"}
        assert world.above() == ["p3"]

    def test_one_of_another_shape_cannot_and_is_above_again_once_the_minimum_is_whole(self) -> None:
        world = self.world(2, 2)
        world.create(pod("other", cpu="7", notes={"scheduling.k8s.io/group-name": "v"}))
        world.settle()
        assert world.above() == ["other"]
        world.end("p1", "Failed")
        world.settle()
        assert world.above() == []
        assert world.running() == {"p0"}
        world.create(pod("same", notes={"scheduling.k8s.io/group-name": "v"}))
        world.settle()
        assert world.running() == {"p0", "same"}
        assert world.above() == ["other"]

    def test_a_group_that_names_its_total_marks_none(self) -> None:
        world = TestVolcanoGroup().world(4, 2, {GROUP_TOTAL: "4"})
        world.admit(count=2)
        world.settle()
        assert world.above() == []

    def test_one_that_waits_says_why(self) -> None:
        world = self.world(3, 2)
        name = world.workload_of("p2")["metadata"]["name"]
        world.condition(name, "QuotaReserved", "False", "Pending", "Nothing is free")
        world.settle()
        assert ("WaitsForQuota", "Nothing is free") in world.events

    def test_when_the_minimum_has_ended_those_above_it_stay_what_they_are(self) -> None:
        world = self.world(3, 2)
        for name in ("p0", "p1"):
            world.end(name, "Succeeded")
        world.settle()
        assert world.outcome() == "Succeeded"
        assert world.above() == ["p2"]
        world.admit(above="p2")
        world.settle()
        assert world.running() == {"p2"}
