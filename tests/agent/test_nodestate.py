"""Whatever happens in whatever order: the node state stays whole, and what the kubelet is served agrees with health."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from agent.health.events import BootChanged, Event, ProbeFailed, ProbeOk, ProbeReason, ResetObserved, Tick, XidSeen
from agent.health.settings import HealthSettings
from agent.health.states import HealthState
from agent.nodestate import Choices, NodeState
from deviceplugin.strategy import NodeAccess
from deviceplugin.view import ResourceView
from inventory.devices import DeviceId, MigUuid, NodeInventory, NodeName, ResourceName
from inventory.layout.layout import physical_id
from inventory.layout.sharing import DeviceSelector, LayoutSpec, MigStrategy, ReplicatedResource, Replication
from tests.support.inventory.builders import gpu, node, uuid

GPU = ResourceName("nvidia.com/gpu")
SLICE = ResourceName("nvidia.com/mig-3g.20gb")
MIGS = [MigUuid(f"MIG-{index:02d}-{n}") for index in range(3) for n in range(2)]


def replicated(name: ResourceName, count: int, devices: DeviceSelector | None = None) -> LayoutSpec:
    entry = ReplicatedResource(name, count, devices=devices or DeviceSelector())
    return LayoutSpec(mig_strategy=MigStrategy.MIXED, replication=Replication(resources=(entry,)))


LAYOUTS = [
    LayoutSpec(),
    LayoutSpec(mig_strategy=MigStrategy.MIXED),
    LayoutSpec(mig_strategy=MigStrategy.SINGLE),
    replicated(GPU, 3),
    replicated(SLICE, 2, DeviceSelector(refs=("0:1",))),
]
SETTINGS = [HealthSettings(), HealthSettings(enabled=False), HealthSettings(probation_s=0, clean_probes=1)]
ONE = st.tuples(st.sampled_from([None, [], ["3g.20gb"], ["3g.20gb", "3g.20gb"], ["1g.5gb"]]), st.booleans())


@st.composite
def nodes(draw: st.DrawFn) -> NodeInventory:
    """Up to three GPUs, some missing, cut and readable as it comes."""
    here = draw(st.lists(st.integers(0, 2), unique=True))
    found = []
    for index in sorted(here):
        mig, readable = draw(ONE)
        found.append(structs.replace(gpu(index, mig=mig), readable=readable))
    return structs.replace(node(found), driver_version=draw(st.sampled_from(["1", "2"])))


EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        XidSeen,
        st.integers(0, 3).map(uuid),
        st.sampled_from([13, 31, 48, 64, 79, 94, 999]),
        st.sampled_from([None, 1, 2]),
        st.sampled_from([None, 0]),
    ),
    st.builds(ProbeOk, st.integers(0, 2).map(uuid), st.sampled_from([None, *MIGS])),
    st.builds(
        ProbeFailed, st.integers(0, 2).map(uuid), st.sampled_from([None, *MIGS]), st.sampled_from(list(ProbeReason))
    ),
    st.builds(ResetObserved, st.integers(0, 2).map(uuid)),
    st.just(BootChanged()),
    st.just(Tick()),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("event"), EVENTS),
        st.tuples(st.just("node"), nodes()),
        st.tuples(
            st.just("choices"), st.builds(Choices, layout=st.sampled_from(LAYOUTS), health=st.sampled_from(SETTINGS))
        ),
    ),
    max_size=25,
)


def take(node_state: NodeState, kind: str, what: Any, now_s: float) -> None:
    match kind:
        case "event":
            node_state.apply(what, now_s)
        case "node":
            node_state.discovered(what, NodeAccess(), now_s)
        case _:
            node_state.reconfigured(what, now_s)


def check(node_state: NodeState, view: ResourceView) -> None:
    """A view lists the plan's devices, and calls those unhealthy whose device is, with a reason."""
    assert view.resource == node_state.layout.resource(view.resource.name)
    assert set(view.unhealthy) <= set(view.by_id)
    for device in view.resource.devices:
        health = node_state.health.state(device.gpu, device.mig)
        assert (device.id in view.unhealthy) is not health.advertised_healthy
        assert view.unhealthy.get(device.id, "why") != ""
    by_physical: dict[str, set[bool]] = {}
    for one in view.by_id:
        by_physical.setdefault(physical_id(one), set()).add(DeviceId(one) in view.unhealthy)
    assert all(len(verdicts) == 1 for verdicts in by_physical.values()), "replicas of one device differ in health"


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_after_every_step_the_node_state_is_whole_and_views_agree_with_health(steps: list[tuple[str, Any]]) -> None:
    node_state = NodeState(NodeName("node-a"), Choices())
    for number, (kind, what) in enumerate(steps):
        take(node_state, kind, what, float(number * 3))
        node_state.validate()
        for view in node_state.views():
            check(node_state, view)
        listed = [device for view in node_state.views() for device in view.by_id]
        assert len(listed) == len(set(listed))
        assert {physical_id(one) for one in listed} <= node_state.units()


def served(node_state: NodeState) -> dict[str, set[str]]:
    """Healthy devices by resource."""
    return {view.resource.name: set(view.by_id) - set(view.unhealthy) for view in node_state.views()}


def state_of(*gpus: Any, choices: Choices | None = None) -> NodeState:
    node_state = NodeState(NodeName("node-a"), choices or Choices())
    node_state.discovered(node(gpus), NodeAccess(), 0.0)
    return node_state


def test_choices_that_touch_nothing_leave_every_resource_the_same_object() -> None:
    node_state = state_of(gpu(0), gpu(1))
    before = node_state.layout
    node_state.reconfigured(Choices(health=HealthSettings(probation_s=1)), 1.0)
    assert node_state.layout is before


def test_links_that_stay_keep_their_table_and_links_that_change_get_another() -> None:
    node_state = state_of(gpu(0), gpu(1), gpu(2))
    table = node_state.links
    node_state.apply(XidSeen(uuid(0), 79), 1.0)
    node_state.discovered(structs.replace(node_state.node, driver_version="2"), NodeAccess(), 2.0)
    assert node_state.links is table
    node_state.discovered(node([gpu(0), gpu(1)]), NodeAccess(), 3.0)
    assert node_state.links is not table


def test_a_gpu_that_is_gone_is_unlisted_and_remembered() -> None:
    node_state = state_of(gpu(0), gpu(1))
    (gone,) = node_state.discovered(node([gpu(1)]), NodeAccess(), 1.0)
    assert (gone.gpu, gone.new) == (uuid(0), HealthState.UNHEALTHY)
    assert served(node_state) == {GPU: {uuid(1)}}
    (back,) = node_state.discovered(node([gpu(0), gpu(1)]), NodeAccess(), 2.0)
    assert back.new is HealthState.PROBATION
    assert served(node_state) == {GPU: {uuid(1)}}


def test_a_gpu_that_cannot_be_read_keeps_its_place_and_is_not_given() -> None:
    node_state = state_of(gpu(0), structs.replace(gpu(1), readable=False))
    assert served(node_state) == {GPU: {uuid(0)}}
    (view,) = node_state.views()
    assert list(view.by_id) == [uuid(0), uuid(1)]


def test_a_fault_in_an_instance_takes_only_its_own_replicas() -> None:
    node_state = state_of(gpu(0, mig=["3g.20gb", "3g.20gb"]), choices=Choices(layout=replicated(SLICE, 2)))
    node_state.apply(XidSeen(uuid(0), 48, gi=1, ci=0), 1.0)
    assert served(node_state) == {SLICE: {f"{MIGS[1]}::0", f"{MIGS[1]}::1"}}
