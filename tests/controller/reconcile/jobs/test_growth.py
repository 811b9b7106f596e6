"""A gang that was admitted with a part of its pods grows while it runs, whatever else happens to it."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from controller.jobs.framework import names
from controller.jobs.framework.raw import Json
from controller.jobs.framework.settings import JobSettings
from controller.scheduler.model.gates import FeatureGates
from inventory.api.names import FULL_PARALLELISM, GROWTH
from tests.controller.reconcile.jobs.test_properties import Life, tolerated
from tests.support.controller.jobmodel import World, job


def gang(least: int | None = 2, pods: int = 6, **more: Any) -> Json:
    policy: Json = {"gang": {} if least is None else {"minCount": least}}
    spec = {"parallelism": pods, "completions": 60, "scheduling": {"schedulingPolicy": policy}, **more}
    return job(**spec)


def part(body: Json | None = None, count: int = 4, **more: Any) -> World:
    """A Job that runs with ``count`` of its pods."""
    world = World(body or gang(), **more)
    world.settle()
    world.admit(world.only, count=count)
    world.settle()
    return world


def parallelism(world: World) -> int:
    assert world.job is not None
    found: int = world.job["spec"]["parallelism"]
    return found


def growths(world: World) -> list[str]:
    return [each for each in world.live() if GROWTH in world.workloads[each]["metadata"]["annotations"]]


def asked(world: World, name: str) -> tuple[int, int | None]:
    (pod_set,) = world.workloads[name]["spec"]["podSets"]
    return pod_set["count"], pod_set.get("minCount")


def test_a_gang_that_runs_with_a_part_asks_for_one_pod_more_at_the_least() -> None:
    world = part()
    (growth,) = growths(world)
    (base,) = set(world.live()) - {growth}
    assert (parallelism(world), asked(world, base), asked(world, growth)) == (4, (6, 2), (6, 5))
    notes = world.workloads[growth]["metadata"]["annotations"]
    assert notes[names.REPLACEMENT_FOR] == f"default/{base}"
    assert notes[names.SLICE_NAME] == base
    sets = [world.workloads[each]["spec"]["podSets"][0]["template"] for each in (base, growth)]
    assert sets[0] == sets[1], "the templates of the job carry what its start put there"


def test_an_admitted_growth_is_the_jobs_workload_and_the_job_runs_more_pods_without_a_stop() -> None:
    world = part()
    (growth,) = growths(world)
    (base,) = set(world.live()) - {growth}
    world.admit(growth, count=5)
    seen: list[object] = []
    while (actions := world.step()) and len(seen) < 10:
        seen += actions
        assert not world.suspended()
    assert parallelism(world) == 5
    (over,) = [one for one in world.workloads[base]["status"]["conditions"] if one["type"] == "Finished"]
    assert over["reason"] == "WorkloadSliceReplaced"
    (last,) = growths(world)
    assert set(world.live()) == {growth, last}
    assert asked(world, last) == (6, 6)
    world.admit(last)
    world.settle()
    assert (parallelism(world), world.live(), growths(world)) == (6, [last], [])


@pytest.mark.parametrize("crash_after", [1, 2, 3])
def test_an_eviction_before_the_job_has_grown_gives_it_all_its_pods_back(crash_after: int) -> None:
    world = part()
    (growth,) = growths(world)
    world.admit(growth, count=5)
    world.step(crash_after=crash_after)
    world.evict(growth)
    world.settle()
    assert world.suspended()
    assert (parallelism(world), world.live(), growths(world)) == (6, [growth], [])
    assert asked(world, growth) == (6, 2), "the gang starts anew with its own minimum"
    assert world.job is not None
    assert FULL_PARALLELISM not in world.job["metadata"].get("annotations", {})
    world.admit(growth, count=2)
    world.settle()
    assert (parallelism(world), world.suspended()) == (2, False)


def test_a_growth_of_a_gang_that_is_evicted_asks_for_nothing() -> None:
    world = part()
    (growth,) = growths(world)
    (base,) = set(world.live()) - {growth}
    world.evict(base)
    world.settle()
    assert (world.live(), parallelism(world)) == ([base], 6)


def test_a_growth_that_is_admitted_while_a_person_suspends_the_job_is_its_workload() -> None:
    world = part()
    (growth,) = growths(world)
    (base,) = set(world.live()) - {growth}
    world.edit({"spec": {"suspend": True}})
    world.admit(growth, count=5)
    world.evict(base)
    world.evict(growth)
    world.settle()
    assert (world.live(), world.suspended(), parallelism(world)) == ([growth], True, 6)
    assert "admission" not in world.workloads[growth]["status"]


def test_a_gang_whose_workload_is_deleted_after_it_has_grown_is_queued_anew() -> None:
    world = part()
    (growth,) = growths(world)
    world.admit(growth)
    world.settle()
    assert world.live() == [growth]
    world.delete_workload(growth)
    world.settle()
    assert (parallelism(world), world.suspended(), growths(world)) == (6, True, [])
    assert asked(world, world.only) == (6, 2)
    world.admit(world.only, count=4)
    world.settle()
    assert (parallelism(world), world.suspended()) == (4, False)


def test_a_person_who_changes_the_parallelism_is_obeyed() -> None:
    world = part()
    world.edit({"spec": {"parallelism": 3}})
    world.settle()
    assert world.suspended()
    assert (growths(world), parallelism(world)) == ([], 3)
    world = part()
    world.admit(growths(world)[0])
    world.settle()
    world.edit({"spec": {"parallelism": 4}})
    world.settle()
    assert (world.suspended(), parallelism(world)) == (True, 4)


def test_a_gang_that_has_fewer_completions_left_than_pods_does_not_grow() -> None:
    world = part(gang(completions=8))
    assert world.job is not None
    world.job["status"] |= {"succeeded": 3, "active": 4}
    world.settle()
    assert asked(world, growths(world)[0]) == (5, 5)
    world.job["status"] |= {"succeeded": 4, "active": 4}
    world.settle()
    assert growths(world) == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (gang(None), "the gang is all its pods"),
        (job(parallelism=6, completions=60), "it says no gang"),
        (gang(), "a limit of the run time counts for each Workload"),
    ],
)
def test_other_jobs_keep_the_counts_of_their_admission(body: Json, why: str) -> None:
    if why.startswith("a limit"):
        body["metadata"]["labels"][names.MAX_EXEC_TIME] = "60"
    elif "scheduling" not in body["spec"]:
        body["metadata"]["annotations"] = {names.MIN_PARALLELISM: "2"}
    world = part(body, count=4 if why != "the gang is all its pods" else 6)
    assert growths(world) == [], why
    assert len(world.live()) == 1


def test_with_the_gate_of_slices_off_nothing_grows() -> None:
    gates = FeatureGates({"ElasticJobsViaWorkloadSlices": False})
    world = part(settings=JobSettings(gates=gates))
    assert len(world.live()) == 1


def test_a_gang_is_ready_with_its_minimum() -> None:
    world = part()
    assert world.job is not None
    world.job["status"] |= {"active": 4, "ready": 1}
    assert not world.kind.pods_ready(world.job)
    world.job["status"] |= {"active": 4, "ready": 2}
    assert world.kind.pods_ready(world.job)


class GrowingLife(Life):
    """A gang of at least one pod among all that may happen to a Job. Quota is given as the engine gives it: to a growth
    while what it grows from holds some, which is over then.
    """

    @initialize(minor=st.sampled_from([35, 36]), pods=st.integers(2, 6), completions=st.sampled_from([3, 60]))
    def begin(self, *, minor: int, pods: int, completions: int) -> None:
        self.world = World(gang(1, pods, completions=completions), minor=minor)
        self.asked = (self.world.template(), pods)
        self.seen: Json = self.world.job or {}

    def base_of(self, name: str) -> str:
        notes = self.world.workloads[name]["metadata"]["annotations"]
        return str(notes.get(names.REPLACEMENT_FOR, "")).rpartition("/")[2]

    @rule(flavor=st.sampled_from(["a100", "h100"]), fewer=st.integers(0, 4), both=st.booleans())
    def admit(self, flavor: str, fewer: int, *, both: bool) -> None:
        for name in self.world.live():
            base = self.base_of(name) if name in growths(self.world) else ""
            held = base in self.world.live() and self.world.has(base, "Admitted")
            if "admission" in self.world.workloads[name].get("status", {}):
                continue
            if base and (not held or self.world.has(base, "Evicted")):
                continue
            (pod_set,) = self.world.workloads[name]["spec"]["podSets"]
            least = pod_set.get("minCount", pod_set["count"])
            self.world.admit(name, flavor=flavor, count=max(least, pod_set["count"] - fewer))
            if base and both:  # the engine's own write; else the reconciler's is the first
                self.world.condition(base, "Finished", "True", "WorkloadSliceReplaced")

    @rule(parallelism=st.integers(2, 6))
    def somebody_resizes(self, parallelism: int) -> None:
        assert self.world.job is not None
        taken = {self.admitted(name) for name in growths(self.world)}
        if parallelism not in {self.world.job["spec"]["parallelism"], *taken}:
            tolerated(self.world, {"spec": {"parallelism": parallelism}})
            self.asked = (self.asked[0], parallelism)

    def admitted(self, name: str) -> int:
        given = self.world.workloads[name].get("status", {}).get("admission")
        return 0 if given is None else int(given["podSetAssignments"][0]["count"])

    @invariant()
    def never_two_workloads(self) -> None:
        """One by which the job runs, beside it one by which it may grow."""
        if hasattr(self, "world"):
            assert len(set(self.world.live()) - set(growths(self.world))) <= 1
            assert len(growths(self.world)) <= 1

    @rule()
    def it_comes_to_rest(self) -> None:
        self.world.settle()
        self.look()
        assert self.world.job is not None
        assert not self.world.refusals
        if self.world.is_finished():
            assert not self.world.live()
            return
        (name,) = set(self.world.live()) - set(growths(self.world))
        runs = self.world.has(name, "Admitted") and not self.world.has(name, "Evicted")
        spec, notes = self.world.job["spec"], self.world.job["metadata"].get("annotations", {})
        assert spec["suspend"] is not runs
        if runs:
            assert min(spec["parallelism"], spec["completions"]) == self.admitted(name), "as many pods as have quota"
            left = spec["completions"] - self.world.job["status"].get("succeeded", 0)
            most = min(self.asked[1], left)
            grows = self.admitted(name) < most and FULL_PARALLELISM in notes
            for growth in growths(self.world):
                assert grows
                assert self.base_of(growth) == name
            if grows and not self.world.workloads[name]["status"].get("reclaimablePods"):
                assert [asked(self.world, each) for each in growths(self.world)] == [(most, self.admitted(name) + 1)]
            return
        assert growths(self.world) == []
        assert (self.world.template(), spec["parallelism"]) == self.asked
        assert FULL_PARALLELISM not in notes
        assert asked(self.world, name) in ((self.asked[1], 1), (min(self.asked[1], spec["completions"]), 1))


TestGrowingLife = GrowingLife.TestCase
TestGrowingLife.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, report_multiple_bugs=False)
