"""Whatever happens to pods and groups, in whatever order, with the controller cut off anywhere."""

import copy
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controller.jobs.framework.actions import Refuse
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import GROUP_TOTAL, INDEX_OFFSET, POD_INDEX, POD_INDEX_LABEL, SeenPod
from controller.jobs.framework.raw import Json
from controller.jobs.framework.settings import JobSettings
from controller.reconcile.pods.group import SeenPods, role
from controller.reconcile.pods.reconcile import reconcile_pods
from tests.controller.reconcile.jobs.test_properties import JUNK, paths
from tests.support.controller.jobmodel import cluster_objects
from tests.support.controller.podworld import PodWorld, member, pod


def whole() -> Json:
    """A pod with all that a reader may trip over."""
    body = member(
        "p",
        2,
        labels={POD_INDEX: "0", "kueue.x-k8s.io/priority-class": "high"},
        notes={POD_INDEX_LABEL: POD_INDEX, INDEX_OFFSET: "0", "kueue.x-k8s.io/podset-required-topology": "rack"},
        priorityClassName="gold",
        nodeSelector={"disk": "ssd"},
        tolerations=[{"key": "a", "operator": "Exists"}],
        nodeName="n",
    )
    owner = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": False}
    body["metadata"] |= {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [owner]}
    body["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return body


@settings(max_examples=40, deadline=None)
@given(path=st.sampled_from(paths(whole())), junk=JUNK, admitted=st.booleans(), let_go=st.booleans())
def test_nothing_that_stands_in_a_pod_throws(path: tuple[Any, ...], junk: Any, *, admitted: bool, let_go: bool) -> None:
    high = {"kueue.x-k8s.io/priority-class": "high"}
    world = PodWorld(*(member(name, 2, labels=high, cpu=cpu) for name, cpu in (("a", "1"), ("b", "2"))))
    world.settle()
    if admitted:
        world.admit(hosts={"h1": 2})
    body = whole()
    body["metadata"]["labels"]["kueue.x-k8s.io/podset"] = world.workload["spec"]["podSets"][1]["name"]
    if let_go:
        body["spec"]["schedulingGates"][0] = {"name": "mine"}
    holder: Any = {"": body}
    for key in ("", *path)[:-1]:
        holder = holder[key]
    holder[("", *path)[-1]] = junk
    other = SeenPod(copy.deepcopy(world.pods["a"]))
    seen = SeenPods(
        pods=(SeenPod(body if path and isinstance(body, dict) else {"junk": junk}), other),
        workload=SeenWorkload.of(copy.deepcopy(world.workload)),
    )
    for action in reconcile_pods(seen, JobSettings(), cluster_objects()):
        assert not isinstance(action, Refuse) or (action.sentence and "\n" not in action.sentence)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_role_says_what_its_pod_asks_for(data: st.DataObject) -> None:
    shape = st.fixed_dictionaries(
        {"cpu": st.sampled_from(["1", "2"]), "priority": st.sampled_from([0, 5]), "rack": st.booleans()}
    )
    one, other = data.draw(shape), data.draw(shape)

    def made(name: str, asked: dict[str, Any]) -> SeenPod:
        notes = {"kueue.x-k8s.io/podset-required-topology": "rack"} if asked["rack"] else {}
        return SeenPod(pod(name, cpu=asked["cpu"], notes=notes, priority=asked["priority"]))

    assert (role(made("a", one)) == role(made("b", other))) is (one == other)


class Life(RuleBasedStateMachine):
    """A group of three in two roles: a driver and two workers, each on places of its own."""

    HOSTS = ("h1", "h2", "h3")

    @initialize(ranked=st.booleans(), placed=st.booleans())
    def begin(self, *, ranked: bool, placed: bool) -> None:
        self.ranked, self.placed = ranked, placed
        self.world = PodWorld()
        self.made = 0
        self.was_whole = False

    def make(self, *, driver: bool, index: int) -> None:
        self.made += 1
        labels = {POD_INDEX: str(index)} if self.ranked and not driver else {}
        self.world.create(member(f"p{self.made}", 3, cpu="4" if driver else "1", labels=labels))

    @rule(driver=st.booleans(), index=st.integers(0, 1))
    @precondition(lambda self: len(self.world.pods) < 7)
    def somebody_creates_a_pod(self, *, driver: bool, index: int) -> None:
        self.make(driver=driver, index=index)

    @rule()
    @precondition(lambda self: not self.world.pods)
    def somebody_creates_the_group(self) -> None:
        self.make(driver=True, index=0)
        self.make(driver=False, index=0)
        self.make(driver=False, index=1)

    @rule(cut=st.one_of(st.none(), st.integers(0, 3)))
    def the_controller_looks(self, cut: int | None) -> None:
        self.world.step(crash_after=cut)

    @rule()
    def the_kubelet_works(self) -> None:
        self.world.kubelet()

    @rule(which=st.integers(0, 6))
    def somebody_deletes_a_pod(self, which: int) -> None:
        names = sorted(self.world.pods)
        if which < len(names):
            self.world.delete(names[which])
            self.world.collect()

    @rule()
    @precondition(lambda self: not self.world.pods)
    def a_group_comes_and_runs(self) -> None:
        self.somebody_creates_the_group()
        self.world.settle()
        if self.waiting():
            self.it_is_admitted()
            self.world.settle()

    @rule(which=st.integers(0, 2))
    @precondition(lambda self: len(self.world.pods) < 7)
    def somebody_replaces_a_pod_that_runs(self, which: int) -> None:
        names = sorted(self.world.running())
        if which < len(names):
            old = self.world.pods[names[which]]
            driver = old["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "4"
            index = int(old["metadata"]["labels"].get(POD_INDEX, "0"))
            self.world.delete(names[which])
            self.make(driver=driver, index=index)

    @rule(which=st.integers(0, 6), phase=st.sampled_from(["Succeeded", "Failed"]))
    def a_pod_ends(self, which: int, phase: str) -> None:
        names = sorted(self.world.running())
        if which < len(names):
            self.world.end(names[which], phase)
            self.world.collect()

    def waiting(self) -> bool:
        world = self.world
        return bool(world.workloads) and "admission" not in world.workload.get("status", {}) and not world.outcome()

    @rule()
    @precondition(lambda self: self.waiting())
    def it_is_admitted(self) -> None:
        self.world.admit(hosts=dict.fromkeys(self.HOSTS, 1) if self.placed else None)

    @rule()
    @precondition(lambda self: bool(self.world.workloads) and self.world.has("Admitted"))
    def it_is_evicted(self) -> None:
        self.world.evict()

    @rule()
    @precondition(lambda self: bool(self.world.workloads))
    def somebody_deletes_the_workload(self) -> None:
        self.world.delete_workload("g")
        self.world.collect()

    @rule()
    def it_comes_to_rest_and_nothing_is_left_to_do(self) -> None:
        self.world.settle()
        before = copy.deepcopy((self.world.pods, self.world.workloads))
        self.world.step()
        assert (self.world.pods, self.world.workloads) == before

    @rule()
    def deleted_by_a_person_nothing_lingers(self) -> None:
        for name in list(self.world.pods):
            self.world.delete(name)
        if self.world.workloads:
            self.world.delete_workload("g")
        self.world.settle()
        assert (self.world.pods, self.world.workloads) == ({}, {})

    @invariant()
    def nothing_runs_that_was_not_admitted(self) -> None:
        if self.world.running() and not self.world.outcome():
            assert "admission" in self.world.workload["status"]

    @invariant()
    def never_more_run_than_were_admitted(self) -> None:
        roles = Counter(
            self.world.pods[name]["metadata"]["labels"]["kueue.x-k8s.io/podset"] for name in self.world.free()
        )
        if self.world.workloads:
            counts = {one["name"]: one["count"] for one in self.world.workload["spec"]["podSets"]}
            assert all(number <= counts[name] for name, number in roles.items())
        else:
            assert not roles

    @invariant()
    def no_two_have_one_place(self) -> None:
        if self.placed:
            hosts = [
                self.world.pods[name]["spec"]["nodeSelector"]["kubernetes.io/hostname"] for name in self.world.free()
            ]
            assert len(set(hosts)) == len(hosts)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 5), cuts=st.lists(st.integers(0, 2), max_size=8))
def test_cut_off_anywhere_a_whole_group_still_starts(size: int, cuts: list[int]) -> None:
    world = PodWorld(*(member(f"p{i}", size, notes={GROUP_TOTAL: str(size)}) for i in range(size)))
    world.settle()
    world.admit(hosts={f"h{i}": 1 for i in range(size)})
    for cut in cuts:
        world.step(crash_after=cut)
        world.kubelet()
    world.settle()
    assert sorted(world.hosts().values()) == [f"h{i}" for i in range(size)]
