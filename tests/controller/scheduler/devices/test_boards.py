"""What a GpuNode says, as units and links: MIG instances, replicas, switches, and agents that know little."""

from collections import Counter
from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.scheduler.devices.board import Board
from controller.scheduler.devices.cache import DeviceCache
from controller.scheduler.devices.grants import NOBODY, Grant, Set, chosen
from controller.scheduler.devices.kinds import Free
from controller.scheduler.devices.supply import UNBOUNDED, Makeable, could_be_made
from controller.scheduler.model.devicerequest import Link, PodDeviceRequest
from controller.scheduler.model.resources import ResourceName
from controller.scheduler.model.undo import UndoLog
from tests.support.controller.gpunodes import observed

SLICE = ResourceName("mig-1g")
SHARED = ResourceName("shared")


def instance(uuid: str, memory_mib: int, health: str = "") -> dict[str, Any]:
    told = {"health": {"state": health}} if health else {}
    return {"uuid": uuid, "memoryMiB": memory_mib, "offers": [{"resource": SLICE}], **told}


def gpu(index: int, *offers: dict[str, Any], health: str = "Healthy", **told: Any) -> dict[str, Any]:
    return {
        "uuid": f"g{index}",
        "index": index,
        "product": "P",
        "memoryMiB": 40960,
        "offers": list(offers),
        "health": {"state": health},
        **told,
    }


def board_of(*devices: dict[str, Any], links: list[dict[str, Any]] | None = None) -> Board:
    return Board(observed("n", devices=list(devices), links=links or []))


def free(board: Board, resource: ResourceName, taken: dict[str, int] | None = None) -> Free:
    return board.pools[resource].free(taken or {})


def test_mig_instances_are_units_of_their_own_with_their_own_memory_and_health() -> None:
    first = gpu(0, mig={"enabled": True, "instances": [instance("m0", 10240), instance("m1", 20480, "Unhealthy")]})
    sick = gpu(1, health="Unhealthy", mig={"enabled": True, "instances": [instance("m2", 20480)]})
    well = gpu(2, mig={"enabled": True, "instances": [instance("m3", 20480)]})
    board = board_of(first, sick, well)
    pool = board.pools[SLICE]
    assert pool.uuids == ("m0", "m1", "m2", "m3")
    assert free(board, SLICE) == (1, 0, 0, 1), "one is not well itself, of another the GPU is not"
    assert board.ceilings == {SLICE: 2}
    large = pool.kind.open(free(board, SLICE), PodDeviceRequest(min_memory_mib=16384))
    assert large == (0, 0, 0, 1), "the GPU of the first would be large enough"
    assert free(board, SLICE, {"m3": 1}) == (1, 0, 0, 0)


def test_what_a_gpu_could_be_cut_into_is_no_room_only_what_it_is_cut_into() -> None:
    """The layout cuts GPUs, not the queue: a slice that nobody has made is given to nobody."""
    possible = [{"profile": "1g.5gb", "size": 1, "starts": [0, 1, 2, 3], "free": [0, 1, 2, 3]}]
    uncut = gpu(0, mig={"enabled": True, "placements": possible, "instances": []})
    cut = gpu(1, mig={"enabled": True, "placements": possible, "instances": [instance("m0", 4864)]})
    assert board_of(uncut, cut).ceilings == {SLICE: 1}
    assert SLICE not in board_of(uncut).pools


def test_where_a_slice_could_be_made_is_known_though_nobody_makes_it() -> None:
    profile = ResourceName("nvidia.com/mig-2g.10gb.me")

    def possible(*free: int) -> list[dict[str, Any]]:
        return [
            {"profile": "1g.5gb", "size": 1, "starts": [0, 1], "free": [0, 1]},
            {"profile": "2g.10gb+me", "size": 2, "starts": [0, 2, 4], "free": list(free)},
        ]

    gpus = [
        gpu(0, mig={"enabled": True, "placements": possible(2, 4), "instances": [instance("m0", 4864)]}),
        gpu(1, mig={"enabled": True, "placements": possible(), "instances": []}),
        gpu(2, {"resource": "gpu"}, mig={"enabled": False, "placements": possible(0), "instances": []}),
        gpu(3, {"resource": "gpu"}, mig={"enabled": False, "placements": possible(0), "instances": []}),
        gpu(4, health="Unhealthy", mig={"enabled": True, "placements": possible(0), "instances": []}),
        gpu(5, {"resource": "gpu"}),
    ]
    cache = DeviceCache(UndoLog())
    holders = [{"device": "g2", "namespace": "ns", "pod": "p", "container": "c"}]
    cache.set_gpu_node(observed("n", devices=gpus, holders=holders))
    assert list(could_be_made(cache, profile)) == [Makeable("n", 0, (2, 4), True), Makeable("n", 3, (0,), False)]
    assert list(could_be_made(cache, ResourceName("nvidia.com/gpu"))) == []


def test_linked_instances_are_of_one_gpu_or_of_gpus_that_are_linked() -> None:
    two = gpu(0, mig={"enabled": True, "instances": [instance("m0", 1), instance("m1", 1)]})
    one = gpu(1, mig={"enabled": True, "instances": [instance("m2", 1)]})
    apart = board_of(two, one).pools[SLICE].kind
    assert (apart.fitting_pods((1, 1, 1), 2, Link.NVLINK), apart.fitting_pods((1, 1, 1), 3, Link.NVLINK)) == (1, 0)
    assert apart.choose((1, 1, 1), 2, Link.NVLINK) == (0, 1)
    joined = board_of(two, one, links=[{"a": 0, "b": 1, "nvlinks": 2}]).pools[SLICE].kind
    assert joined.fitting_pods((1, 1, 1), 3, Link.NVLINK) == 1


def test_replicas_are_taken_off_the_gpu_that_has_fewest_left_and_the_tightest_group() -> None:
    shares = [gpu(index, {"resource": SHARED, "replicas": 4}, numaNode=index // 2) for index in range(4)]
    kind = board_of(*shares).pools[SHARED].kind
    assert kind.choose((4, 2, 4, 4), 2, None) == (1, 1)
    assert kind.choose((4, 2, 4, 4), 3, None) == (0, 1, 1)
    assert kind.choose((4, 4, 4, 2), 5, Link.NUMA) == (2, 2, 2, 3, 3)


def test_a_device_that_is_offered_twice_under_one_name_counts_once() -> None:
    board = board_of(gpu(0, {"resource": SHARED, "replicas": 4}, {"resource": SHARED, "replicas": 2}))
    assert (free(board, SHARED), board.ceilings) == ((2,), {SHARED: 2})


def test_a_switch_joins_as_direct_links_do_and_pcie_ends_at_the_host_bridge() -> None:
    devices = [gpu(index, {"resource": SHARED}) for index in range(4)]
    links = [{"a": 0, "b": 1, "nvswitch": 1, "pcie": "SYS"}, {"a": 1, "b": 2, "pcie": "NODE"}]
    found = board_of(*devices, links=[*links, {"a": 2, "b": 3, "pcie": "PHB"}]).links
    assert [found.joined(0b0011, link) for link in Link] == [True, False, False]
    assert [found.joined(0b0110, link) for link in Link] == [False, False, True], "no agent said which NUMA nodes"
    assert [found.joined(0b1100, link) for link in Link] == [False, True, True]
    assert [found.joined(0b1001, link) for link in Link] == [False, False, False], "a pair that nobody told of"


PAIRS = [{"a": 0, "b": 1, "nvlinks": 4}, {"a": 2, "b": 3, "nvlinks": 4}]


def of_two_kinds(kinds: str, links: list[dict[str, Any]]) -> DeviceCache:
    """By GPU ``w`` for a whole one, ``m`` for one that is a MIG instance."""
    gpus = [
        gpu(at, {"resource": "gpu"})
        if kind == "w"
        else gpu(at, mig={"enabled": True, "instances": [instance(f"m{at}", 1)]})
        for at, kind in enumerate(kinds)
    ]
    cache = DeviceCache(UndoLog())
    cache.set_gpu_node(observed("n", devices=gpus, links=links))
    return cache


def test_a_link_holds_between_gpus_of_different_resources_too() -> None:
    one_of_each = {ResourceName("gpu"): 1, SLICE: 1}
    linked, wished = PodDeviceRequest(link=Link.NVLINK), PodDeviceRequest(link=Link.NVLINK, wished=True)
    apart, beside = of_two_kinds("wwmm", PAIRS), of_two_kinds("wmmw", PAIRS)
    assert [cache.fitting_pods("n", one_of_each, linked, empty=False) for cache in (apart, beside)] == [0, 2]
    assert [cache.fitting_pods("n", one_of_each, wished, empty=False) for cache in (apart, beside)] == [2, 2]

    def taken(cache: DeviceCache, ask: PodDeviceRequest) -> list[Set]:
        board = cache.nodes["n"].board
        return chosen(board, Grant(NOBODY, 2, one_of_each, ask, (), assumed=True), Counter(), 2)

    assert taken(apart, linked) == []
    assert taken(apart, wished) == [("g0", "m2"), ("g1", "m3")]
    assert taken(beside, linked) == taken(beside, wished) == [("g0", "m1"), ("m2", "g3")]


def test_a_node_without_the_resource_has_no_room_for_who_needs_certain_gpus_and_counts_for_all_others() -> None:
    other = {ResourceName("other.com/gpu"): 1}
    cache = of_two_kinds("ww", [])
    assert cache.fitting_pods("n", other, PodDeviceRequest(product="A100"), empty=False) == 0
    assert cache.fitting_pods("n", other, PodDeviceRequest(link=Link.NVLINK, wished=True), empty=False) == UNBOUNDED


@given(
    st.text("wm", min_size=2, max_size=5).filter(lambda kinds: len(set(kinds)) > 1),
    st.sets(st.sampled_from([(a, b) for b in range(5) for a in range(b)])),
    st.integers(1, 2),
    st.integers(1, 2),
)
def test_linked_devices_of_two_resources_are_found_where_there_are_any(
    kinds: str, joined: set[tuple[int, int]], whole: int, slices: int
) -> None:
    links = [{"a": a, "b": b, "nvlinks": 1} for a, b in joined if b < len(kinds)]
    cache = of_two_kinds(kinds, links)
    single_pod = {ResourceName("gpu"): whole, SLICE: slices}
    ask = PodDeviceRequest(link=Link.NVLINK)
    fitting = cache.fitting_pods("n", single_pod, ask, empty=False)
    sets = chosen(cache.nodes["n"].board, Grant(NOBODY, 9, single_pod, ask, (), assumed=True), Counter(), 9)
    assert len(sets) == fitting, "what is counted can be chosen"
    for one in sets:
        places = sorted(int(uuid[1:]) for uuid in one)
        assert all((a, b) in joined for a, b in combinations(places, 2))
    if whole == slices == 1:
        edges = [(a, b) for a, b in joined if b < len(kinds) and kinds[a] != kinds[b]]
        assert bool(fitting) == bool(edges)


def test_clients_of_one_gpu_that_have_names_of_their_own_do_not_stand_in_each_others_way() -> None:
    board = board_of(gpu(0, {"resource": "large"}, {"resource": "small"}), gpu(1, {"resource": "large"}))
    large, small = ResourceName("large"), ResourceName("small")
    assert (free(board, large, {"g0": 1}), free(board, small, {"g0": 1})) == ((1, 1), (1,))
    assert (free(board, large, {"g0": 2}), free(board, small, {"g0": 2})) == ((0, 1), (0,))
    assert free(board, large, {"g1": 1}) == (1, 0)
    assert board.ceilings == {large: 2, small: 1}
