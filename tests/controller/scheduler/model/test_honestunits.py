"""Quota in honest units: what each mode costs, and queues that cover the units beside counts or in their place."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from controller.cluster.config.load import parse
from controller.objects.decode import KUEUE, decode, decode_object
from controller.objects.quantity import parse_quantity
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.honestunits import COMPUTE_SLICES, MEMORY_GIB, HonestUnits, undeclared
from controller.scheduler.model.podrequests import RequestRules, Transformation
from controller.scheduler.model.resources import ResourceName, WorkloadKey
from tests.controller.scheduler.topology.test_topology_in_cycles import topology
from tests.support.engine.topologylab import node
from tests.support.engine.world import World, flavor, local_queue

READY = [{"type": "Ready", "status": "True"}]
A100 = HonestUnits(Fraction(80), shared_replicas=4)
GPU, PERCENT = "nvidia.com/gpu", "tessera.dev/gpu-percent"
NANO = 10**9


def charged(units: HonestUnits | None = A100, **more: Any) -> Any:
    rules = RequestRules(units=units, **more)
    return lambda **asked: rules.apply({ResourceName(name): amount * NANO for name, amount in asked.items()})


@pytest.mark.parametrize(
    ("name", "amount", "memory_gib", "slices"),
    [
        (GPU, 2, 160, 14),
        ("nvidia.com/gpu.shared", 1, 20, 2),
        ("nvidia.com/gpu.shared", 4, 80, 7),
        ("nvidia.com/mig-3g.40gb", 1, 40, 3),
        ("nvidia.com/mig-1g.10gb.me", 2, 20, 2),
        ("nvidia.com/mig-1g.10gb.shared", 4, 10, 1),
        ("nvidia.com/mig-1g.10gb.me.shared", 4, 10, 1),
        (PERCENT, 30, 24, 3),
        (PERCENT, 100, 80, 7),
    ],
)
def test_every_mode_costs_its_part_of_a_gpu(name: str, amount: int, memory_gib: int, slices: int) -> None:
    assert charged()(**{name: amount}) == {name: amount, MEMORY_GIB: memory_gib, COMPUTE_SLICES: slices}


def test_one_pods_charge_is_rounded_up_once_as_its_sum() -> None:
    assert charged()(**{PERCENT: 10})[COMPUTE_SLICES] == 1
    assert charged()(**{PERCENT: 10, "nvidia.com/gpu.shared": 1})[COMPUTE_SLICES] == 3


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8))
def test_parts_of_one_gpu_never_cost_less_than_their_sum(percents: list[int]) -> None:
    memory = [charged()(**{PERCENT: percent})[MEMORY_GIB] for percent in percents]
    assert sum(memory) * 100 >= sum(percents) * 80
    assert all(0 <= paid * 100 - percent * 80 < 100 for paid, percent in zip(memory, percents, strict=True))


def test_what_is_no_gpu_costs_no_unit_and_without_units_nothing_does() -> None:
    assert charged()(cpu=1) == {"cpu": 1000}
    assert charged(None)(**{GPU: 1}) == {GPU: 1}
    own = Transformation(input=GPU, outputs={"example.com/credits": parse_quantity("3")})
    assert charged(transformations=(own,))(**{GPU: 1}) == {GPU: 1, "example.com/credits": 3}


def test_a_queue_covers_counts_units_or_both() -> None:
    asked = [ResourceName(one) for one in (GPU, "cpu", MEMORY_GIB, COMPUTE_SLICES)]

    def lacking(*declared: str) -> tuple[str, ...]:
        return undeclared(asked, {ResourceName(one): 0 for one in declared})

    assert lacking(GPU, "cpu") == ()
    assert lacking(MEMORY_GIB, "cpu") == ()
    assert lacking(MEMORY_GIB) == ("cpu",)
    assert lacking("cpu") == (GPU,)
    assert undeclared([ResourceName(GPU)], {MEMORY_GIB: 0}) == (GPU,), "no unit is charged: the count must be covered"


def test_the_section_says_what_a_whole_gpu_has() -> None:
    head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    text = head + "tessera: {honestUnits: {gpuMemory: 96Gi, computeSlices: 8, sharedReplicas: 3}}\n"
    rules = parse(text, "config").engine.request_rules
    assert rules.apply({ResourceName(GPU): NANO}) == {GPU: 1, MEMORY_GIB: 96, COMPUTE_SLICES: 8}
    assert parse(head + "tessera: {policy: tessera}\n", "config").engine.request_rules.apply(
        {ResourceName(GPU): NANO}
    ) == {GPU: 1}


def of_memory(name: str, gib: int, *resources: str) -> Any:
    """A queue with so much quota of each of ``resources``."""
    quotas = [{"name": one, "nominalQuota": str(gib)} for one in resources]
    groups = [{"coveredResources": list(resources), "flavors": [{"name": "default", "resources": quotas}]}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    return decode_object({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec})


def asking(name: str, queue: str, **requests: int) -> Any:
    asked = {resource: str(amount) for resource, amount in requests.items()}
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": asked}}]}}
    body = {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {"queueName": queue, "podSets": [{"name": "main", "count": 1, "template": template}]},
    }
    return decode_object(body)


def test_a_queue_that_covers_memory_alone_admits_by_it_whatever_the_mode() -> None:
    world = World(EngineConfig(request_rules=RequestRules(units=A100)))
    offered = {GPU: "1", PERCENT: "100", "nvidia.com/mig-1g.10gb": "7", "pods": "110"}
    bare = node("b/r/a", 0)
    world.put(topology(), flavor(topologyName="dc"), of_memory("q", 100, MEMORY_GIB), local_queue("q"))
    world.put(structs.replace(bare, status=decode({"allocatable": offered, "conditions": READY}, type(bare.status))))
    for name, resource, amount in (("whole", GPU, 1), ("part", PERCENT, 20), ("late", "nvidia.com/mig-1g.10gb", 1)):
        world.put(asking(name, "q", **{resource: amount}))
        world.settle()
    assert world.running() == {"whole", "part"}
    admission = world.workloads[WorkloadKey("ns/part")].status.admission
    assert admission is not None
    (only,) = admission.pod_set_assignments
    assert only.flavors == {MEMORY_GIB: "default"}
    assert str(only.resource_usage[MEMORY_GIB]) == "16"
    world.finish("part")
    world.settle()
    assert world.running() == {"whole", "late"}


def test_a_queue_that_covers_counts_alone_is_as_before() -> None:
    world = World(EngineConfig(request_rules=RequestRules(units=A100)))
    world.put(flavor(), of_memory("q", 1, GPU), local_queue("q"))
    world.put(asking("a", "q", **{GPU: 1}), asking("b", "q", **{PERCENT: 20}))
    world.settle()
    assert world.running() == {"a"}
