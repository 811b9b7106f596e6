"""Allocations, Lists that come late, other layouts, other hardware and pods that end, in any order: no GPU is offered
or given in a second shape while a living pod has it, and in peace the wanted layout is in force within five seconds.

The checker believes its own pods alone, and what each of them was answered.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from agent.kubelet.grants import UNLISTED_S
from agent.kubelet.holders import Claimed, Holder, holders_of, shown_of
from agent.nodestate import Choices, NodeState
from deviceplugin.answer import AllocationError, granted
from deviceplugin.strategy import NodeAccess
from deviceplugin.view import ResourceView
from inventory.devices import DeviceId, GpuUuid, NodeName, ResourceName
from inventory.layout.entries import Dra, GpuLayoutSpec, LayoutEntry, LayoutMode, WhenBusy
from inventory.layout.layout import physical_id
from inventory.layout.sharing import LayoutSpec, MigStrategy, ReplicatedResource, Replication
from kubeletapi import podresources_v1_pb2 as pb
from tests.support.inventory.builders import gpu, node, uuid
from tests.support.inventory.layouts import LARGE, SMALL, UNEVEN, fractional, layout, on, sliced

GPU = ResourceName("nvidia.com/gpu")
DRIVER = ResourceName("gpu.nvidia.com")
POLL_S = 2.5
"""While something waits the kubelet is asked so often."""


def sharing(replicas: int, name: ResourceName = GPU, *, rename: bool) -> LayoutSpec:
    entry = ReplicatedResource(name, replicas)
    return LayoutSpec(MigStrategy.MIXED, replication=Replication(rename_by_default=rename, resources=(entry,)))


def dra(*refs: int, when_busy: WhenBusy = WhenBusy.REFUSE) -> LayoutEntry:
    return LayoutEntry(on(*refs), LayoutMode.DRA, when_busy=when_busy)


LAYOUTS: list[GpuLayoutSpec] = [
    layout(),
    layout(sliced(on(0), 2, WhenBusy.WAIT)),
    layout(sliced(on(0), 2)),
    layout(sliced(on(0, 1), 3, WhenBusy.DRAIN)),
    layout(fractional(on(0), 50)),
    layout(dra(0, when_busy=WhenBusy.WAIT)),
    layout(dra(0), sliced(on(1), 2)),
    layout(LayoutEntry(on(0), LayoutMode.TIME_SLICING, replicas=2, rename=False, when_busy=WhenBusy.WAIT)),
]
SPECS = [
    LayoutSpec(),
    LayoutSpec(mig_strategy=MigStrategy.MIXED),
    LayoutSpec(mig_strategy=MigStrategy.SINGLE),
    sharing(2, rename=True),
    sharing(3, rename=False),
    sharing(2, ResourceName("nvidia.com/mig-3g.20gb"), rename=True),
]
HARDWARE = [[0, 1], [0, 1, 2], [0, 2], [1]]


@dataclass
class Pod:
    """``recorded``: the kubelet lists it, ``shown``: a List that was answered has it. By claim it has ``gpu`` whole."""

    name: str
    resource: ResourceName
    devices: tuple[DeviceId, ...]
    gpus: frozenset[GpuUuid]
    recorded: bool = False
    shown: bool = False
    claim: bool = False


@dataclass
class World:
    """A kubelet, its pods and one node state; ``lists`` are those under way, with when they began."""

    state: NodeState = field(default_factory=lambda: NodeState(NodeName("node-a"), Choices()))
    pods: list[Pod] = field(default_factory=list)
    lists: list[tuple[float, pb.ListPodResourcesResponse]] = field(default_factory=list)
    now_s: float = 0.0
    names: Iterator[int] = field(default_factory=itertools.count)
    views: tuple[ResourceView, ...] = ()
    listed: dict[DeviceId, Holder] = field(default_factory=dict)
    never_listed: set[DeviceId] = field(default_factory=set)
    """What pods had that ended before the kubelet had recorded them."""

    def serve(self) -> None:
        self.state.validate()
        self.state.grants.validate()
        self.views = self.state.views()
        for view in self.views:
            for device in view.resource.devices:
                if device.id not in view.unhealthy:
                    self.check(view.resource.name, device.id, device.gpu)
        for one in self.state.by_claim - self.state.withheld.keys():
            assert not [pod for pod in self.pods if one in pod.gpus and not pod.claim], f"{one} is offered by claim"

    def check(self, resource: ResourceName, device: DeviceId, host: GpuUuid) -> None:
        """No living pod has the same GPU, or the same instance of it, in another shape."""
        for pod in self.pods:
            if host not in pod.gpus:
                continue
            for held in pod.devices:
                beside = {physical_id(held), physical_id(device)}
                if len(beside) == 2 and not beside & {str(one) for one in pod.gpus}:
                    continue  # two instances of one GPU
                same = (pod.resource, "::" in held) == (resource, "::" in device) and len(beside) == 1
                assert same, f"{pod.name} has {held} of {pod.resource}, and {device} of {resource} is offered"

    def allocate(self, number: int) -> None:
        free = [
            (view, device)
            for view in self.views
            for device in view.resource.devices
            if device.id not in view.unhealthy
            and not any(device.id in pod.devices and pod.resource == view.resource.name for pod in self.pods)
        ]
        if free:
            view, device = free[number % len(free)]
            self.give(view, device.id, device.gpu)

    def stranger(self, number: int) -> None:
        """A pod of which the kubelet alone knows: the agent before this one answered for it as its last act."""
        before = len(self.pods)
        grants = dict(self.state.grants._open)
        self.allocate(number)
        self.state.grants._open = grants
        for pod in self.pods[before:]:
            pod.recorded = True

    def give(self, view: ResourceView, device: DeviceId, host: GpuUuid) -> None:
        asked = frozenset(range(1, 101))
        try:
            granted(view.resource, view.by_id, view.unhealthy, [device], asked)
        except AllocationError:
            return
        self.check(view.resource.name, device, host)
        self.state.grants.granted(view.resource.name, [device], self.now_s)
        self.pods.append(Pod(f"pod-{next(self.names)}", view.resource.name, (device,), frozenset({host})))

    def claim(self, number: int) -> None:
        held = {one for pod in self.pods if pod.claim for one in pod.gpus}
        free = sorted(self.state.by_claim - self.state.withheld.keys() - held)
        if free:
            one = free[number % len(free)]
            pod = Pod(f"pod-{next(self.names)}", DRIVER, (DeviceId(one),), frozenset({one}), claim=True)
            assert not [other for other in self.pods if one in other.gpus], f"{one} is given by claim"
            self.pods.append(pod)
            self.tell(None)

    def end(self, number: int) -> None:
        if self.pods:
            ended = self.pods.pop(number % len(self.pods))
            self.never_listed.update(ended.devices if not ended.shown else ())
            if ended.claim:
                self.tell(None)

    def ask(self) -> None:
        """A List begins; what it answers is what the kubelet has recorded now."""
        answer = pb.ListPodResourcesResponse(
            pod_resources=[
                pb.PodResources(
                    namespace="default",
                    name=pod.name,
                    containers=[
                        pb.ContainerResources(
                            name="main",
                            devices=[pb.ContainerDevices(resource_name=pod.resource, device_ids=pod.devices)],
                        )
                    ],
                )
                for pod in self.pods
                if pod.recorded and not pod.claim
            ]
        )
        self.lists.append((self.now_s, answer))

    def answer(self, number: int) -> None:
        """One of the Lists under way is answered, in any order; an older one is dropped, as the watch does."""
        if not self.lists:
            return
        began_s, answer = self.lists.pop(number % len(self.lists))
        self.lists = [one for one in self.lists if one[0] > began_s]
        none: Claimed = lambda *_: None  # noqa: E731
        for pod in self.pods:
            pod.shown = pod.shown or pod.name in {one.name for one in answer.pod_resources}
        self.listed = holders_of(answer, self.state.units(), none)
        self.state.grants.listed(shown_of(answer), began_s)
        self.tell(began_s)

    def tell(self, began_s: float | None) -> None:
        claims = {
            DeviceId(one): Holder("default", pod.name, "main", DRIVER)
            for pod in self.pods
            if pod.claim
            for one in pod.gpus
        }
        told = self.state.held(claims | self.listed, frozenset(claims), began_s)
        assert told or shown(self.views) == shown(self.state.views()), "the kubelet would not be told"

    def step(self, kind: str, number: int) -> None:
        self.now_s += 0.01
        self.DOES[kind](self, number)
        self.serve()

    def record(self, number: int) -> None:
        for pod in self.pods[number % 3 :]:
            pod.recorded = True

    def lay_out(self, number: int) -> None:
        found = LAYOUTS[number % len(LAYOUTS)]
        self.state.reconfigured(structs.replace(self.state.choices, gpu_layout=found), self.now_s)

    def share(self, number: int) -> None:
        spec = SPECS[number % len(SPECS)]
        self.state.reconfigured(structs.replace(self.state.choices, layout=spec), self.now_s)

    def pass_time(self, seconds: int) -> None:
        self.now_s += seconds

    def discover(self, indexes: list[int]) -> None:
        here = [gpu(index, mig=["3g.20gb", "3g.20gb"] if index == 2 else None) for index in indexes]
        self.state.discovered(node(here), NodeAccess(), self.now_s)
        self.serve()

    DOES: ClassVar[Mapping[str, Callable[["World", int], None]]] = {
        "allocate": allocate,
        "claim": claim,
        "stranger": stranger,
        "end": end,
        "record": record,
        "ask": lambda world, _: world.ask(),
        "answer": answer,
        "time": pass_time,
        "layout": lay_out,
        "sharing": share,
        "hardware": lambda world, number: world.discover(HARDWARE[number % len(HARDWARE)]),
    }

    def peace(self) -> None:
        """Every answer is recorded by the kubelet, and nothing happens but Lists."""
        for pod in self.pods:
            pod.recorded = True
        self.lists.clear()
        for _ in range(2):
            self.now_s += POLL_S / 2
            self.ask()
            self.now_s += POLL_S / 2
            self.answer(0)
            self.serve()


KINDS = ["allocate", "allocate", "allocate", "claim", "end", "record", "ask", "answer", "answer", "time", "layout"]
STEPS = st.lists(
    st.tuples(st.sampled_from([*KINDS, "layout", "sharing", "hardware", "stranger"]), st.integers(0, 80)), max_size=40
)


@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_no_gpu_is_offered_or_given_in_a_second_shape_while_a_living_pod_has_it(steps: list[tuple[str, int]]) -> None:
    world = World()
    world.discover([0, 1])
    world.ask()
    world.step("answer", 0)
    for kind, number in steps:
        world.step(kind, number)
    world.peace()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*KINDS, "layout", "stranger"]), st.integers(0, 80)), max_size=40))
def test_nothing_is_taken_from_a_container_that_runs(steps: list[tuple[str, int]]) -> None:
    world = World()
    world.discover([0, 1])
    world.ask()
    world.step("answer", 0)
    for kind, number in steps:
        world.step(kind, number)
        offered = {(view.resource.name, device) for view in world.views for device in view.by_id}
        for pod in world.pods:
            if pod.claim:
                assert pod.gpus <= world.state.by_claim, f"{pod.name} has {pod.gpus} by claim"
            else:
                taken = {device for device in pod.devices if (pod.resource, str(device)) not in offered}
                assert not taken, f"{pod.name} has {taken} of {pod.resource}"


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_in_peace_the_wanted_layout_is_in_force_within_five_seconds_of_the_last_end(
    steps: list[tuple[str, int]],
) -> None:
    world = World()
    world.discover([0, 1])
    for kind, number in steps:
        world.step(kind, number)
    world.peace()
    world.pods.clear()
    world.tell(None)
    world.peace()
    if world.state.grants.open:
        assert set(world.state.grants.open) <= world.never_listed, "a pod that was listed counts by its grant"
        world.now_s += UNLISTED_S
        world.peace()
    assert not world.state.waits
    wanted = world.state.wanted
    if not wanted.problems:
        assert {one: mode for one, mode in world.state.modes.items() if one in wanted.modes} == wanted.modes
    assert all(not view.unhealthy or unwell(world, view) for view in world.views)
    listed = {device.gpu for view in world.views for device in view.resource.devices}
    by_claim = {one for one, mode in world.state.modes.items() if isinstance(mode, Dra)}
    assert by_claim == world.state.by_claim
    if not world.state.layout.problems:
        assert {one.uuid for one in world.state.node.gpus if not one.mig_enabled} <= listed | by_claim


def shown(views: tuple[ResourceView, ...]) -> dict[str, tuple[set[str], set[str]]]:
    """The ids of each resource, and those that are Unhealthy."""
    return {view.resource.name: (set(view.by_id), {str(one) for one in view.unhealthy}) for view in views}


def unwell(world: World, view: ResourceView) -> bool:
    """Whether health alone is in the way: a GPU that came back is on probation."""
    return all(world.state.ailment(view.by_id[one].gpu, view.by_id[one].mig) for one in view.unhealthy)


def test_a_share_of_a_gpu_that_was_given_whole_a_moment_ago_is_offered_to_nobody() -> None:
    world = World()
    world.discover([0, 1])
    world.ask()
    world.step("answer", 0)
    world.step("ask", 0)
    (view,) = world.views
    world.give(view, DeviceId(uuid(0)), uuid(0))
    world.step("layout", 1)
    world.step("answer", 0)
    world.step("ask", 0)
    world.step("answer", 0)
    assert {view.resource.name: set(view.by_id) for view in world.views} == {GPU: {uuid(0), uuid(1)}}
    assert list(world.views[0].unhealthy) == [DeviceId(uuid(0))]


def test_shares_of_unequal_size_are_one_shape_though_each_size_has_a_resource() -> None:
    """Another container may have the small share beside one that has the large share."""
    world = World()
    world.discover([0, 1])
    entry = LayoutEntry(on(0), LayoutMode.MPS, clients=UNEVEN)
    world.state.reconfigured(structs.replace(world.state.choices, gpu_layout=layout(entry)), 0.5)
    world.now_s = 1.0
    world.step("ask", 0)
    world.step("answer", 0)
    for _ in range(2):
        (large,) = [view for view in world.views if view.resource.name == LARGE]
        (device,) = large.by_id
        if not world.pods:
            world.state.grants.granted(LARGE, [DeviceId(device)], world.now_s)
            world.pods.append(Pod("pod", LARGE, (DeviceId(device),), frozenset({uuid(0)}), recorded=True))
        world.views = world.state.views()
        assert {name: unhealthy for name, (_, unhealthy) in shown(world.views).items()} == {
            GPU: set(),
            LARGE: set(),
            SMALL: set(),
        }
        world.ask()
        world.now_s += 1.0
        world.answer(0)
    assert not world.state.waits
