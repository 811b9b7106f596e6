"""Devices of nodes that can come: claims count on them as on those that drivers publish, and each counts once."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.objects.core import Node, Pod
from controller.objects.deviceclaims import ResourceSlice
from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from controller.scheduler.kueue.comingnodes import ComingPlace, coming_places
from controller.scheduler.model.config import EngineConfig, Extensions
from controller.scheduler.model.deviceclaims import ClaimRules
from controller.scheduler.model.resources import FlavorName, WorkloadKey
from inventory.api.names import NODE_TEMPLATE, PLACEHOLDER_CLASS, PLACEHOLDER_OF
from tests.controller.scheduler.topology.test_topology_in_cycles import places, topology
from tests.support.engine.claimsupply import TYPE, asking, gang, gpus, made_by_scheduler, made_for, said, supply_of
from tests.support.engine.deviceclaims import DRIVER, GPU_CLASS, asks, claim, device_class, node_slice, rules, template
from tests.support.engine.topologylab import GPU, RACK, node, pod
from tests.support.engine.world import World, cluster_queue, flavor, local_queue

DEVICES: dict[str, Any] = {"driver": DRIVER, "count": 4, "attributes": {"type": "gpu"}, "capacity": {"memory": "80Gi"}}
TEMPLATE: dict[str, Any] = {"devices": [DEVICES], "max": 4, "after": "4m"}


def templated(given_: Mapping[str, Any]) -> KubernetesObject:
    made = flavor("default", topologyName="dc")
    notes = {NODE_TEMPLATE: json.dumps(given_)}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=notes))


def world_of(
    hosts: Mapping[str, int], *objects: KubernetesObject, counted: ClaimRules | None = None, **said_: Any
) -> World:
    """``hosts``: by block/rack/host the GPUs that its driver publishes. ``said_``: keys of the template."""
    on = Extensions(requests_withdrawn=True, coming_nodes=True)
    world = World(EngineConfig(extensions=on, claim_rules=rules() if counted is None else counted))
    world.put(
        topology(),
        templated(TEMPLATE | said_),
        cluster_queue("q", 100),
        local_queue("q"),
        device_class(GPU_CLASS, TYPE),
        template("one", asks()),
        template("two", asks(count=2)),
        template("four", asks(count=4)),
        *(node(path, 0) for path in hosts),
        *(node_slice(_host(path), *gpus(_host(path), number)) for path, number in hosts.items()),
        *objects,
    )
    return world


def _host(path: str) -> str:
    return path.rpartition("/")[2]


def comes(world: World, path: str, number: int = 4) -> None:
    """A node joins, and its driver publishes so many GPUs."""
    world.put(node(path, 0), node_slice(_host(path), *gpus(_host(path), number)))
    ahead(world)


def ahead(world: World, seconds: float = 60.0) -> None:
    world.now_s += seconds
    world.settle()


def put(world: World, made: Workload) -> None:
    world.put(made)
    world.settle()
    world.engine.validate()


def counts_on(world: World, name: str) -> Sequence[ComingPlace]:
    return coming_places(world.engine.state.cluster).get(WorkloadKey(f"ns/{name}"), ())


def nodes_of(world: World, name: str) -> tuple[int, int]:
    """The nodes that a workload counts on, and how many of them are to come."""
    found = counts_on(world, name)
    return sum(len(each.nodes) for each in found), sum(len(each.nodes_to_come) for each in found)


def holds(world: World, name: str) -> bool:
    return world.workloads[WorkloadKey(f"ns/{name}")].status.admission is not None


def placed(world: World, name: str) -> bool:
    admission = world.workloads[WorkloadKey(f"ns/{name}")].status.admission
    return admission is not None and all(each.topology_assignment is not None for each in admission.pod_set_assignments)


def test_claims_that_lack_devices_on_present_nodes_count_on_those_of_nodes_to_come() -> None:
    world = world_of({"b/r/a": 4})
    put(world, gang("w", 3, templates=["four"]))
    assert holds(world, "w")
    assert world.condition("w", "Admitted").startswith("False")
    assert nodes_of(world, "w") == (3, 2), "devices that are there come first"


def test_devices_that_are_published_take_over_from_those_that_were_to_come() -> None:
    world = world_of({"b/r/a": 4})
    put(world, gang("w", 3, templates=["four"]))
    comes(world, "b/r/n1")
    assert nodes_of(world, "w") == (3, 1)
    assert not placed(world, "w")
    comes(world, "b/s/n2")
    assert places(world, "w") == {"a": 1, "n1": 1, "n2": 1}
    assert world.condition("w", "Admitted").startswith("True")
    assert not counts_on(world, "w")
    world.engine.validate()


def test_a_node_has_come_once_its_driver_has_published_devices() -> None:
    """It joins first: until then the node that was to come stands for it, and no further one is counted on."""
    world = world_of({}, max=1)
    put(world, gang("w", 1, templates=["four"]))
    world.put(node("b/r/n1", 0))
    ahead(world)
    assert nodes_of(world, "w") == (1, 1)
    placement = world.engine.state.cluster.placement
    assert placement.awaits_devices(FlavorName("default"), "n1")
    world.put(node_slice("n1", *gpus("n1", 4)))
    ahead(world)
    assert not placement.awaits_devices(FlavorName("default"), "n1")
    assert places(world, "w") == {"n1": 1}


def test_claims_that_not_even_the_devices_to_come_serve_get_no_quota() -> None:
    world = world_of({"b/r/a": 4}, max=3)
    put(world, gang("w", 4, templates=["four"]))
    assert not holds(world, "w")
    assert "no room for 4 pods" in said(world, "w")
    put(world, gang("less", 3, templates=["four"]))
    assert nodes_of(world, "less") == (3, 2)


def test_a_template_without_devices_brings_none() -> None:
    world = world_of({}, devices=None, allocatable={GPU: "4"})
    put(world, gang("w", 1, templates=["one"]))
    assert not holds(world, "w")


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        (f"device.capacity['{DRIVER}'].memory.compareTo(quantity('80Gi')) >= 0", True),
        (f"device.capacity['{DRIVER}'].memory.compareTo(quantity('81Gi')) >= 0", False),
        (f"device.attributes['{DRIVER}'].type == 'mig'", False),
    ],
)
def test_selectors_of_claims_choose_among_the_devices_that_the_template_describes(selector: str, fits: bool) -> None:
    world = world_of({}, template("chosen", asks(GPU_CLASS, 1, selector)))
    put(world, gang("w", 2, templates=["chosen"]))
    assert holds(world, "w") == fits


def test_devices_to_come_are_promised_to_one_claim_each() -> None:
    world = world_of({}, max=1)
    put(world, gang("first", 1, templates=["two"]))
    put(world, gang("second", 1, templates=["one"]))
    put(world, gang("third", 1, templates=["two"]))
    assert [holds(world, name) for name in ("first", "second", "third")] == [True, True, False]
    assert nodes_of(world, "second") == (1, 1), "it shares the node of the first"


def test_a_gang_in_one_rack_gets_devices_to_come_only_where_the_template_says_the_rack() -> None:
    alone = world_of({})
    put(alone, gang("w", 2, level=RACK, templates=["four"]))
    assert not holds(alone, "w")
    known = world_of({}, labels={RACK: "r", "dc/block": "b"})
    put(known, gang("w", 2, level=RACK, templates=["four"]))
    assert nodes_of(known, "w") == (2, 2)


def by_class() -> KubernetesObject:
    return device_class("ext.example.com", TYPE, extended=GPU)


def test_pods_that_ask_by_the_old_name_get_devices_to_come_by_claim() -> None:
    world = world_of({}, by_class(), max=1)
    put(world, asking("w", 1, 3))
    assert nodes_of(world, "w") == (1, 1)
    put(world, asking("more", 1, 2))
    assert not holds(world, "more"), "one device is left"


def test_a_class_begins_and_ends_to_stand_for_a_resource_while_workloads_wait() -> None:
    plain = device_class("ext.example.com", TYPE)
    world = world_of({"b/r/a": 4}, plain)
    put(world, asking("w", 1, 3))
    assert not holds(world, "w")
    world.put(by_class())
    ahead(world)
    assert placed(world, "w")
    world.put(plain)
    ahead(world)
    put(world, asking("more", 1, 1))
    assert not holds(world, "more")
    world.put(by_class())
    ahead(world)
    assert placed(world, "more")
    world.engine.validate()


def test_where_the_node_to_come_offers_the_resource_itself_no_claim_is_made() -> None:
    world = world_of({}, by_class(), max=1, devices=None, allocatable={GPU: "4"})
    put(world, asking("w", 1, 3))
    assert nodes_of(world, "w") == (1, 1)
    put(world, asking("more", 1, 2))
    assert not holds(world, "more")


@pytest.mark.parametrize("priority_class", [PLACEHOLDER_CLASS, "high"])
def test_devices_that_a_placeholder_got_by_the_old_name_are_free_for_whom_it_stands(priority_class: str) -> None:
    """The scheduler makes it a claim for its extended resource, as for any pod."""
    world = world_of({"b/r/a": 4}, by_class())
    world.put(placeholder("placeholder", "a", priority_class))
    devices = [f"gpu-{at}" for at in range(4)]
    made = {"given": ["r0"] * 4, "at": "a", "devices": devices, **made_by_scheduler("placeholder")}
    world.put(claim("placeholder-extended", asks(count=4), **made))
    put(world, asking("w", 1, 4))
    assert placed(world, "w") == (priority_class == PLACEHOLDER_CLASS), "a stranger's pod with the label counts"


def placeholder(name: str, host: str, priority_class: str = PLACEHOLDER_CLASS) -> Pod:
    stands = pod(name, host, 0, namespace="ns", labels={PLACEHOLDER_OF: "uid"})
    spec = msgspec.structs.replace(stands.spec, priority_class_name=priority_class)
    return msgspec.structs.replace(stands, spec=spec)


@pytest.mark.parametrize("priority_class", [PLACEHOLDER_CLASS, "high"])
def test_devices_of_a_placeholders_claim_are_charged_to_nobody(priority_class: str) -> None:
    world = world_of({"b/r/a": 4}, max=1)
    world.put(placeholder("stands", "a", priority_class))
    devices = [f"gpu-{at}" for at in range(4)]
    world.put(claim("stands-gpus-x7", asks(count=4), given=["r0"] * 4, at="a", devices=devices, **made_for("stands")))
    put(world, gang("w", 1, templates=["four"]))
    assert placed(world, "w") == (priority_class == PLACEHOLDER_CLASS), "a stranger's pod with the label counts"


def test_devices_of_a_placeholders_claim_are_free_before_it_is_bound_and_after_it_is_gone() -> None:
    """kube-scheduler allocates the claim first, and the claim of a pod that is gone is deallocated later."""
    world = world_of({"b/r/a": 4}, max=1)
    devices = [f"gpu-{at}" for at in range(4)]
    stands = placeholder("stands", "")
    world.put(stands)
    world.put(claim("stands-gpus-x7", asks(count=4), given=["r0"] * 4, at="a", devices=devices, **made_for("stands")))
    put(world, gang("w", 1, templates=["four"]))
    assert placed(world, "w")
    world.finish("w")
    world.drop(Pod, "ns/stands")
    world.engine.validate()
    put(world, gang("later", 1, templates=["four"]))
    assert placed(world, "later")


def test_pods_that_share_a_claim_wait_for_one_node_to_come() -> None:
    world = world_of({}, claim_by_name())
    put(world, gang("w", 3, claims=["shared"]))
    assert nodes_of(world, "w") == (1, 1)


def claim_by_name() -> KubernetesObject:
    return claim("shared", asks(count=4))


def test_where_claims_do_not_count_devices_of_the_template_are_not_waited_for() -> None:
    world = world_of({}, counted=ClaimRules(on=False), max=1, allocatable={GPU: "4"})
    put(world, asking("w", 1, 4))
    assert nodes_of(world, "w") == (1, 1)
    world.put(node("b/r/n1", 4))
    ahead(world)
    assert places(world, "w") == {"n1": 1}


def test_devices_of_a_template_that_is_gone_are_gone() -> None:
    world = world_of({"b/r/a": 4})
    assert len({*supply_of(world).slices.nodes}) == 4, "one that is there and three to come"
    world.put(templated(TEMPLATE | {"max": 2}))
    assert len({*supply_of(world).slices.nodes}) == 2
    world.put(flavor("default", topologyName="dc"))
    assert {*supply_of(world).slices.nodes} == {"a"}
    world.engine.validate()


def test_an_engine_made_anew_counts_on_the_same_devices() -> None:
    world = world_of({"b/r/a": 4})
    put(world, gang("w", 3, templates=["four"]))
    before = counts_on(world, "w")
    world.engine.rebuild([*world.others.values(), *world.workloads.values()], world.now_s)
    world.engine.cycle(world.now_s)
    assert counts_on(world, "w") == before


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "node", "joined", "publish", "lose", "finish", "template", "shared"]), st.integers(0, 5)
    ),
    max_size=20,
)


@settings(max_examples=120, deadline=None)
@given(STEPS)
def test_no_device_of_a_node_to_come_is_ever_promised_twice(steps: list[tuple[str, int]]) -> None:
    """What pods ask that count on a node never exceeds its devices, beside what is planned there already."""
    world, most = world_of({"b/r/old": 4}, claim_by_name()), 4
    for number, (what, at) in enumerate(steps):
        most = _do(world, what, at, number, most)
        world.now_s += 1.0
        world.settle()
        world.engine.validate()
        promised = _promised(world)
        there = _publishing(world)
        coming = {host for host in promised if "/" in host}
        assert len(coming) <= max(0, most - len(there)), f"{sorted(coming)} of {most}, there {sorted(there)}"
        over = {host: asked for host, asked in promised.items() if asked > 4 and "/" in host}
        assert not over


def _promised(world: World) -> dict[str, int]:
    """The devices that are counted on, by node: those of a claim that pods share count once."""
    asked: dict[str, int] = {}
    for key, found in coming_places(world.engine.state.cluster).items():
        each = _each(world.workloads[key])
        for place in found:
            for domain in place.usage.domains:
                asked[domain.values[-1]] = asked.get(domain.values[-1], 0) + domain.pods * each
    return asked


def _each(made: Workload) -> int:
    claims = made.spec.pod_sets[0].template.spec.resource_claims
    names = [str(each.resource_claim_template_name) for each in claims if each.resource_claim_template_name]
    return sum({"one": 1, "two": 2, "four": 4}[name] for name in names)


def _publishing(world: World) -> set[str]:
    nodes = {each.metadata.name for each in world.others.values() if isinstance(each, Node)}
    return {
        each.spec.node_name
        for each in world.others.values()
        if isinstance(each, ResourceSlice) and each.spec.node_name in nodes
    }


def _do(world: World, what: str, at: int, number: int, most: int) -> int:
    running = sorted(world.running())
    nodes = sorted(key for kind, key in world.others if kind is Node)
    match what:
        case "ask":
            name = ("one", "two", "four")[at % 3]
            world.put(gang(f"w{number}", 1 + at % 3, templates=[name], created_s=number))
        case "shared":
            world.put(gang(f"w{number}", 1 + at % 3, claims=["shared"], created_s=number))
        case "node":
            comes(world, f"b/r{at % 2}/n{number}")
        case "joined":
            world.put(node(f"b/r{at % 2}/n{number}", 0))
        case "publish" if nodes:
            host = nodes[at % len(nodes)].rpartition("/")[2]
            world.put(node_slice(host, *gpus(host, 4)))
        case "lose" if nodes:
            world.drop(Node, nodes[at % len(nodes)])
        case "finish" if running:
            world.finish(running[at % len(running)])
        case "template":
            most = 1 + at
            world.put(templated(TEMPLATE | {"max": most}))
    return most
