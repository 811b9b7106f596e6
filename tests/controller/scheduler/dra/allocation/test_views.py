"""Which devices each request may get, what it takes of them, and which nodes look the same to it."""

from typing import Any

from controller.objects.deviceclaims import ResourceSlice
from controller.scheduler.dra.allocation.offers import Offer, Slices
from controller.scheduler.dra.allocation.requests import PodClaimsRequest
from controller.scheduler.dra.allocation.views import Choice, View, Views
from tests.support.engine.claimsupply import asked, offered
from tests.support.engine.deviceclaims import DRIVER, GPU_CLASS, asks, device, node_slice, slice_of, template

TYPE = f"device.attributes['{DRIVER}'].type == 'gpu'"
NANO = 10**9


def choice(request: dict[str, Any], *devices: dict[str, Any]) -> Choice:
    (matched,) = View(asked(template("t", request)), offered(node_slice("n", *devices))).each
    return matched.requests[0][0]


def of_memory(amount: int, name: str = "memory", **more: Any) -> dict[str, Any]:
    return asks(capacity={"requests": {name: str(amount)}}, **more)


def test_a_tainted_device_is_for_those_who_tolerate_it() -> None:
    sick, well = device("a", taint="sick"), device("b")
    assert choice(asks(), sick, well).devices == (1,)
    assert choice(asks(tolerations=[{"key": "sick", "operator": "Exists"}]), sick, well).devices == (0, 1)


def test_all_is_nothing_where_one_of_them_cannot_be_had() -> None:
    every: dict[str, Any] = {"allocationMode": "All"}
    assert choice(asks(**every), device("a", taint="sick"), device("b")).devices == ()
    assert (
        choice(
            of_memory(5, **every), device("a", capacity={"memory": "4"}), device("b", capacity={"memory": "5"})
        ).devices
        == ()
    )
    assert choice(
        of_memory(4, **every), device("a", capacity={"memory": "4"}), device("b", capacity={"memory": "5"})
    ).devices == (0, 1)
    unselected = asks(GPU_CLASS, 1, TYPE, **every)
    assert choice(unselected, device("a", type="mig", taint="sick"), device("b", type="gpu")).devices == (1,)


def test_a_part_is_taken_of_shared_devices_alone() -> None:
    capacities = {"memory": "10", "cores": "3"}
    found = choice(of_memory(4), device("a", shared=True, capacity=capacities), device("b", capacity=capacities))
    assert found.devices == (0, 1)
    assert found.parts == {0: (((0, "cores"), 3 * NANO), ((0, "memory"), 4 * NANO))}
    assert choice(asks(), device("a", shared=True)).parts == {0: ()}


def test_a_capacity_is_found_with_and_without_the_drivers_domain() -> None:
    qualified = {f"{DRIVER}/memory": "5"}
    assert choice(of_memory(5), device("a", capacity=qualified)).devices == (0,)
    assert choice(of_memory(5, f"{DRIVER}/memory"), device("a", capacity={"memory": "5"})).devices == (0,)
    assert choice(of_memory(6), device("a", capacity=qualified)).devices == ()
    assert choice(of_memory(5, "other.com/memory"), device("a", capacity=qualified)).devices == ()


def test_the_first_class_whose_selectors_fail_is_told() -> None:
    both = asked(template("t", asks(GPU_CLASS, 1, TYPE), asks("unknown", 1, TYPE)), template("u", asks()))
    assert View(both, offered(node_slice("n", device("a")))).failing == GPU_CLASS
    assert View(both, offered(node_slice("n", device("a", type="x")))).failing == ""


def test_values_of_an_attribute_are_numbered_as_they_appear() -> None:
    pair = asked(template("t", asks(), constraints=[{"matchAttribute": f"{DRIVER}/pair"}]))
    devices = [device("a", pair="x"), device("b"), device("c", pair="y"), device("d", pair="x")]
    (matched,) = View(pair, offered(node_slice("n", *devices))).each
    assert matched.bounds[0].values == (0, None, 1, 0)


# -- one view for many nodes -------------------------------------------------------------------------------------------

GPU = asked(template("t", asks(GPU_CLASS, 1, TYPE)))
PAIR = asked(template("t", asks(), constraints=[{"matchAttribute": f"{DRIVER}/pair"}]))
ANY = asked(template("t", asks(GPU_CLASS, 1, "device.attributes.size() > 0")))


class Nodes:
    """Of one cluster, whose contents are numbered in common."""

    def __init__(self) -> None:
        self.slices = Slices()
        self.views = Views()

    def offer(self, name: str, *devices: dict[str, Any], **more: Any) -> Offer:
        made = node_slice(name, *devices, **more)
        assert isinstance(made, ResourceSlice)
        self.slices.put(made)
        return self.slices.offer(name)

    def alike(self, ask: PodClaimsRequest, one: Offer, other: Offer) -> bool:
        assert self.views.of(ask, one) is self.views.of(ask, one)
        return self.views.of(ask, one) is self.views.of(ask, other)


def test_nodes_share_a_view_where_they_differ_in_nothing_that_is_looked_at() -> None:
    nodes = Nodes()
    one = nodes.offer("a", device("x", type="gpu", uuid="1", pair="p"), device("y", type="gpu", uuid="2", pair="p"))
    other = nodes.offer("b", device("z", type="gpu", uuid="3", pair="q"), device("y", type="gpu", uuid="4", pair="q"))
    typed = nodes.offer("c", device("x", type="mig", uuid="5", pair="p"), device("y", type="gpu", uuid="6", pair="p"))
    apart = nodes.offer("d", device("x", type="gpu", uuid="7", pair="p"), device("y", type="gpu", uuid="8", pair="q"))
    assert [nodes.alike(GPU, one, each) for each in (other, typed, apart)] == [True, False, True]
    assert [nodes.alike(PAIR, one, each) for each in (other, typed, apart)] == [True, True, False]
    assert [nodes.alike(ANY, one, each) for each in (other, typed, apart)] == [False, False, False]


def test_nodes_whose_capacities_counters_or_pools_differ_do_not_share_a_view() -> None:
    nodes = Nodes()
    plain = nodes.offer("a", device("x", type="gpu"))
    assert not nodes.alike(GPU, plain, nodes.offer("b", device("x", type="gpu", capacity={"memory": "1"})))
    assert not nodes.alike(GPU, plain, nodes.offer("c", device("x", type="gpu"), counters={"units": 1}))
    half = slice_of("half", device("y"), pool="half", node="d", count=2)
    assert isinstance(half, ResourceSlice)
    nodes.slices.put(half)
    assert not nodes.alike(GPU, plain, nodes.offer("d", device("x", type="gpu")))
