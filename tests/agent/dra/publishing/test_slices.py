"""Slices: whatever lies on the server, one sync brings the pool in line, and a second finds nothing to do."""

from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from agent.dra.publishing.devices import DraDevice, Offer, Taint
from agent.dra.publishing.partitions import CounterSet
from agent.dra.publishing.shares import Share
from agent.dra.publishing.slices import (
    COUNTERS,
    DEVICES,
    MAX_COUNTER_SETS,
    MAX_DEVICES,
    MAX_NAME,
    Content,
    FoundSlice,
    Pool,
    Sync,
    contents,
    counted,
    dropped,
    fields,
    sync,
)
from inventory.devices import GpuUuid

POOL = Pool("gpu.nvidia.com", "node-1", {"kind": "Node", "name": "node-1", "uid": "u", "apiVersion": "v1"})
XID = Taint("gpu.nvidia.com/xid", "79", "NoSchedule")


def device(number: int, *taints: Taint) -> DraDevice:
    return DraDevice(f"gpu-{number}", GpuUuid(f"GPU-{number}"), {"type": "gpu"}, {"memory": "1Gi"}, taints=taints)


def devices(count: int, *tainted: int) -> Offer:
    return Offer(tuple(device(number, *([XID] if number in tainted else [])) for number in range(count)))


def divided(gpus: int, parts: int, *tainted: int) -> Offer:
    """Each GPU with so many parts that consume its counters."""
    counters = tuple(CounterSet(f"gpu-{number}-counter-set", {"memory-slice-0": "1"}) for number in range(gpus))
    found = []
    for number in range(gpus):
        for part in range(parts + 1):
            plain = device(number, *([XID] if number in tainted else []))
            found.append(structs.replace(plain, name=f"gpu-{number}-{part}", consumes=counters[number]))
    return Offer(tuple(found), counters)


class Server:
    """Takes the writes as the API server does: a taint gets its time, an update needs the version it was made from.
    Fields of devices and of their capacities in ``gated`` are dropped. ``unkept`` is what the writer knows of that.
    """

    def __init__(self, *gated: str) -> None:
        self.slices: dict[str, dict[str, Any]] = {}
        self.clock = 0
        self.gated = set(gated)
        self.unkept: frozenset[str] = frozenset()

    @property
    def found(self) -> tuple[FoundSlice, ...]:
        return tuple(msgspec.json.decode(msgspec.json.encode(body), type=FoundSlice) for body in self.slices.values())

    def take(self, todo: Sync) -> None:
        for gone in todo.deletes:
            del self.slices[gone.metadata.name]
        for body in todo.updates:
            there = self.slices[body["metadata"]["name"]]
            assert body["metadata"]["resourceVersion"] == there["metadata"]["resourceVersion"]
            self.put(body)
        for body in todo.creates:
            assert body["metadata"]["name"] not in self.slices
            self.put(body)

    def put(self, body: Mapping[str, Any]) -> None:
        self.clock += 1
        kept: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(body))
        kept["metadata"] |= {"uid": f"uid-{self.clock}", "resourceVersion": str(self.clock)}
        for each in kept["spec"].get("devices", ()):
            for part in (each, *each.get("capacity", {}).values()):
                for field in self.gated & set(part):
                    del part[field]
            for taint in each.get("taints", ()):
                taint.setdefault("timeAdded", f"t{self.clock}")
        self.slices[kept["metadata"]["name"]] = kept

    def sync(self, wanted: Offer) -> Sync:
        todo = sync(POOL, self.found, contents(wanted), self.unkept)
        self.take(todo)
        for body in (*todo.updates, *todo.creates):
            (kept,) = (each for each in self.found if each.metadata.name == body["metadata"]["name"])
            self.unkept = (self.unkept - fields(body)) | set(dropped(body, kept))
        return todo

    @property
    def generations(self) -> set[int]:
        return {each.spec.generation for each in self.found}

    def validate(self, wanted: Offer) -> None:
        """The pool is complete, and readers, who go by name, find the devices in order, behind their counters."""
        found = sorted(self.found, key=lambda each: each.metadata.name)
        specs = [self.slices[each.metadata.name]["spec"] for each in found]
        assert len(self.generations) == 1
        assert {each.spec.count for each in found} == {len(found)}
        assert [each["name"] for one in specs for each in one.get(DEVICES, ())] == [
            each.name for each in wanted.devices
        ]
        assert all(len(each.get(DEVICES, ())) <= MAX_DEVICES for each in specs)
        assert all(len(each.get(COUNTERS, ())) <= MAX_COUNTER_SETS for each in specs)
        assert not any(DEVICES in each and COUNTERS in each for each in specs)
        sets = [each["name"] for one in specs for each in one.get(COUNTERS, ())]
        assert sets == [each.name for each in wanted.counters]


HISTORIES = st.lists(
    st.tuples(
        st.one_of(
            st.builds(devices, st.sampled_from([0, 1, 2, 64, 65, 129]), st.integers(0, 3)),
            st.builds(divided, st.sampled_from([1, 8, 9]), st.sampled_from([1, 64]), st.integers(0, 3)),
        ),
        st.sampled_from(["", "lost", "all lost", "foreign", "older"]),
    ),
    min_size=1,
    max_size=5,
)


@given(HISTORIES)
def test_one_sync_brings_the_pool_in_line_and_a_second_finds_nothing_to_do(
    history: list[tuple[Offer, str]],
) -> None:
    server = Server()
    for wanted, mishap in history:
        if mishap == "lost" and server.slices:
            server.slices.popitem()
        if mishap == "all lost":
            server.slices.clear()
        if mishap == "foreign":
            server.put({"metadata": {"name": "x"}, "spec": {"driver": "", "pool": {"generation": 7}, "devices": []}})
        if mishap == "older" and server.slices:
            next(iter(server.slices.values()))["spec"]["pool"]["generation"] = 0
        server.sync(wanted)
        server.validate(wanted)
        assert not sync(POOL, server.found, contents(wanted))


def test_a_pool_without_devices_is_one_empty_slice() -> None:
    assert contents(Offer()) == (Content(),)
    (body,) = sync(POOL, (), contents(Offer())).creates
    assert body["spec"][DEVICES] == msgspec.Raw(b"[]")
    assert [len(part.devices) for part in contents(devices(65))] == [64, 1]


def test_counters_come_first_eight_sets_a_slice_and_each_gpu_has_slices_of_its_own() -> None:
    found = contents(divided(9, 64))
    assert [len(part.counters) for part in found] == [8, 1, *[0] * 18]
    assert [len(part.devices) for part in found] == [0, 0, *[64, 1] * 9]
    mixed = contents(Offer((*divided(1, 2).devices, device(5)), divided(1, 2).counters))
    assert [[each.name for each in part.devices] for part in mixed] == [
        [],
        ["gpu-5"],
        ["gpu-0-0", "gpu-0-1", "gpu-0-2"],
    ]


def test_a_taint_of_a_divided_gpu_rewrites_its_slice_alone() -> None:
    server = Server()
    server.sync(divided(8, 25))
    todo = server.sync(divided(8, 25, 3))
    assert (len(todo.updates), server.generations) == (1, {1})
    (body,) = todo.updates
    assert body["metadata"]["name"] == "00004-gpu.nvidia.com-node-1"
    assert {each["taints"][0]["key"] for each in msgspec.json.decode(body["spec"]["devices"])} == {"gpu.nvidia.com/xid"}


def test_counters_that_the_server_did_not_keep_are_named() -> None:
    first, second = sync(POOL, (), contents(divided(1, 1))).creates
    server = Server()
    for body in (first, second):
        server.put(body)
        assert counted(body)
        assert dropped(body, server.found[-1]) == ()
    for body in server.slices.values():
        body["spec"].pop("sharedCounters", None)
        for each in body["spec"].get("devices", ()):
            del each["consumesCounters"]
    assert [dropped(body, there) for body, there in zip((first, second), server.found, strict=True)] == [
        ("sharedCounters",),
        ("consumesCounters",),
    ]
    assert not counted(sync(POOL, (), contents(divided(1, 1).undivided())).creates[0])


def test_a_change_of_one_slice_keeps_the_generation_and_of_two_raises_it_on_all() -> None:
    server = Server()
    server.sync(devices(130))
    assert server.generations == {1}
    todo = server.sync(devices(130, 3))
    assert (len(todo.updates), server.generations) == (1, {1})
    todo = server.sync(devices(130, 70, 3, 129))
    assert (len(todo.updates), server.generations) == (3, {2})
    server.sync(devices(64))
    assert server.generations == {3}


def test_an_update_leaves_the_time_of_a_taint_that_stays_and_gives_a_new_one_none() -> None:
    server = Server()
    server.sync(devices(2, 0))
    server.sync(devices(2, 0, 1))
    (only,) = server.slices.values()
    assert [each["taints"][0]["timeAdded"] for each in only["spec"]["devices"]] == ["t1", "t2"]


def test_slices_belong_to_the_node_and_name_the_driver_and_the_pool() -> None:
    (body,) = sync(POOL, (), contents(devices(1))).creates
    assert body["metadata"] == {"name": "00000-gpu.nvidia.com-node-1", "ownerReferences": [POOL.owner]}
    assert body["spec"]["nodeName"] == "node-1"
    assert body["spec"]["driver"] == "gpu.nvidia.com"
    assert body["spec"]["pool"] == {"name": "node-1", "generation": 1, "resourceSliceCount": 1}


def test_names_too_long_for_the_api_are_cut_and_stay_apart() -> None:
    pools = [Pool("gpu.nvidia.com", "n" * 240 + end, {}) for end in ("a", "b")]
    names = {pool.slice_name(index) for pool in pools for index in range(2)}
    assert len(names) == 4
    assert all(len(name) <= MAX_NAME for name in names)
    fits = "n" * (MAX_NAME - len("00000-gpu.nvidia.com-"))
    assert Pool("gpu.nvidia.com", fits, {}).slice_name(0) == f"00000-gpu.nvidia.com-{fits}"


def test_a_field_that_the_server_did_not_keep_is_named() -> None:
    (body,) = sync(POOL, (), contents(devices(2, 1))).creates
    server = Server()
    server.put(body)
    (kept,) = server.found
    assert dropped(body, kept) == ()
    for each in next(iter(server.slices.values()))["spec"]["devices"]:
        each.pop("taints", None)
    (without,) = server.found
    assert dropped(body, without) == ("taints",)


def test_fields_that_the_server_drops_are_written_once_in_whatever_slices_they_stand() -> None:
    server = Server("taints")
    both = divided(2, 1, 0, 1)
    server.sync(divided(2, 1))
    assert (server.unkept, len(server.sync(both).updates), server.generations) == (frozenset(), 3, {2})
    assert server.unkept == {"taints"}
    assert not server.sync(both)
    assert not server.sync(divided(2, 1, 1)), "nothing of it would be kept"
    assert len(server.sync(devices(1)).deletes) == 2
    assert server.unkept == {"taints"}, "nothing was sent that tells more"
    server.gated.clear()
    server.sync(devices(2, 0))
    assert server.unkept == frozenset(), "the gate is on now"
    assert len(server.sync(devices(2, 0, 1)).updates) == 1


def test_a_dropped_field_that_a_slice_has_from_before_is_kept_as_it_is_to_be() -> None:
    server = Server()
    server.sync(devices(1, 0))
    server.unkept = frozenset({"taints"})
    assert not server.sync(devices(1, 0))
    assert len(server.sync(devices(1)).updates) == 1
    assert "taints" not in server.slices["00000-gpu.nvidia.com-node-1"]["spec"]["devices"][0]


def test_shares_without_their_gate_are_written_once() -> None:
    one = structs.replace(device(0), shares=Share(1024, 100), policies={"memory": {"default": "1Gi"}})
    offer = Offer((one, *divided(2, 1, 0).devices))
    server = Server("taints", "allowMultipleAllocations", "requestPolicy")
    server.sync(offer)
    assert server.unkept == server.gated
    assert not server.sync(offer)
    more = Offer((structs.replace(one, capacity={"memory": "2Gi"}), *offer.devices[1:]))
    assert len(server.sync(more).updates) == 1
    assert server.slices["00000-gpu.nvidia.com-node-1"]["spec"]["devices"][0]["capacity"] == {
        "memory": {"value": "2Gi"}
    }
