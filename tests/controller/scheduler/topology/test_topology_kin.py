"""Workloads that differ only in the places they ask for: what quota alone refuses is tried once for all of them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.objects.quantity import parse_quantity
from controller.objects.workload import PodSetTopologyRequest, Workload
from controller.scheduler.decisions.records import Rule
from controller.scheduler.state.intake import shape_of
from tests.controller.scheduler.topology.test_topology_in_cycles import LOWER, quotas, world_of
from tests.support.engine.topologylab import BLOCK, HOST, RACK, node
from tests.support.engine.world import World, requesting, workload

RACKS = {f"b{block}/r{rack}/h{host}": 4 for block in range(2) for rack in range(2) for host in range(2)}
ASKS: dict[str, dict[str, Any]] = {
    "required": {"required": RACK},
    "preferred": {"preferred": RACK},
    "slices": {"pod_set_slice_required_topology": RACK, "pod_set_slice_size": 2},
}
SIZES: dict[str, dict[str, Any]] = {"preferred": {}, "required": {}, "slices": {"pod_set_slice_size": 8}}


def asking(name: str, count: int, asked: dict[str, Any] | None, **given_: Any) -> Workload:
    made = workload(name, "q", 1, count=count, **given_)
    request = PodSetTopologyRequest(**asked) if asked is not None else None
    annotations = {f"kueue.x-k8s.io/podset-{key}-topology": str(value) for key, value in (asked or {}).items()}
    pod_set = made.spec.pod_sets[0]
    metadata = msgspec.structs.replace(pod_set.template.metadata, annotations=annotations)
    template = msgspec.structs.replace(pod_set.template, metadata=metadata)
    sets = (msgspec.structs.replace(pod_set, topology_request=request, template=template),)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=sets))


def kin(count: int = 4, asked: dict[str, Any] | None = None) -> str:
    return shape_of(asking("w", count, asked or ASKS["required"]), 0).partition(".")[0]


def test_kin_are_those_of_equal_pods_who_name_the_same_levels() -> None:
    assert len({kin(asked=asked) for asked in ASKS.values()}) == 1
    assert len({kin(), kin(count=2), kin(asked={"required": BLOCK}), kin(asked={"unconstrained": True})}) == 4
    assert "." not in shape_of(asking("w", 4, None), 0)


@pytest.mark.parametrize(("quota", "tried"), [(4, {"preferred"}), (16, {"preferred", "required", "slices"})])
def test_one_is_tried_for_all_where_quota_refuses_and_each_where_there_is_no_place(quota: int, tried: set[str]) -> None:
    """Of 8 free GPUs no more than 4 are in one rack: who asks for them does so in vain, and speaks for itself only."""
    world = world_of({"b/r/g": 4, "b/s/h": 4}, quota=quota)
    world.put(asking("preferred", 8, ASKS["preferred"]), asking("required", 8, ASKS["required"]))
    world.put(asking("slices", 8, ASKS["slices"] | {"pod_set_slice_size": 8}))
    found: list[str] = []
    while not world.engine.settled(world.now_s):
        found += [one.key.removeprefix("ns/") for one in world.cycle().made]
    assert (len(found), set(found)) == (len(tried), tried)
    assert world.running() == ({"preferred"} if quota == 16 else set())


def test_one_is_tried_for_all_where_one_of_two_resources_is_short() -> None:
    """All that placed pods ask for is contested then, and yet no node could help."""
    world = world_of({}, resourceGroups=quotas(8, 100))
    host = node("b/r/g", 40)
    amounts = {**host.status.allocatable, "cpu": parse_quantity("100")}
    world.put(msgspec.structs.replace(host, status=msgspec.structs.replace(host.status, allocatable=amounts)))
    each = {"gpu": "1", "cpu": "1"}
    world.put(requesting(asking("first", 4, ASKS["preferred"]), each))
    world.settle()
    world.put(*(requesting(asking(name, 8, ASKS[name] | sized), each) for name, sized in SIZES.items()))
    found: list[str] = []
    while not world.engine.settled(world.now_s):
        found += [one.key.removeprefix("ns/") for one in world.cycle().made]
    assert (found, world.running()) == (["preferred"], {"first"})


def test_one_that_finds_no_place_speaks_for_itself_also_where_nothing_but_its_request_says_so() -> None:
    """Workloads of other integrations have the request alone, and no annotation of their pods that says the same."""

    def without_annotations(name: str, **asked: Any) -> Workload:
        made = asking(name, 2, asked)
        pod_set = made.spec.pod_sets[0]
        template = msgspec.structs.replace(
            pod_set.template, metadata=msgspec.structs.replace(pod_set.template.metadata, annotations={})
        )
        sets = (msgspec.structs.replace(pod_set, template=template),)
        return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=sets))

    world = world_of({"b/r/g": 1, "b/s/h": 1}, quota=4)
    world.put(without_annotations("a-tight", required=RACK), without_annotations("b-wide", preferred=RACK))
    world.settle()
    assert world.running() == {"b-wide"}


def rest(world: World) -> None:
    """Until all is decided and all victims have gone: nobody sleeps then who would be admitted, or make others go."""
    assert world.rest()
    for one in world.engine.state.queues:
        told = world.engine.explain(one.key, world.now_s)
        assert told is not None
        assert told.record.rule not in (Rule.FITS, Rule.PREEMPTS), f"{one.key} sleeps and {told.record}"


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*ASKS, "nothing"]), st.sampled_from([2, 4, 6, 8, 12]), st.integers(0, 2), st.booleans()
        ),
        max_size=14,
    ),
    st.integers(6, 34),
    st.booleans(),
)
def test_nobody_sleeps_who_could_be_admitted(
    arrivals: list[tuple[str, int, int, bool]], quota: int, preempts: bool
) -> None:
    queue: dict[str, Any] = {"preemption": LOWER} if preempts else {}
    world = world_of(RACKS, quota=quota, **queue)
    for number, (ask, count, priority, ends) in enumerate(arrivals):
        world.put(
            asking(f"w{number}", count, ASKS.get(ask, {"required": HOST} if priority else None), priority=priority)
        )
        rest(world)
        running = sorted(world.running())
        if ends and running:
            world.finish(running[0])
            rest(world)
