"""Slices: whatever lies on the server, one sync brings the pool in line, and a second finds nothing to do."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agent.dra.devices import DraDevice, Taint
from agent.dra.slices import MAX_DEVICES, MAX_NAME, FoundSlice, Pool, Sync, contents, dropped, sync
from inventory.devices import GpuUuid

POOL = Pool("gpu.nvidia.com", "node-1", {"kind": "Node", "name": "node-1", "uid": "u", "apiVersion": "v1"})
XID = Taint("gpu.nvidia.com/xid", "79", "NoSchedule")


def device(number: int, *taints: Taint) -> DraDevice:
    return DraDevice(f"gpu-{number}", GpuUuid(f"GPU-{number}"), {"type": "gpu"}, {"memory": "1Gi"}, taints)


def devices(count: int, *tainted: int) -> tuple[DraDevice, ...]:
    return tuple(device(number, *([XID] if number in tainted else [])) for number in range(count))


class Server:
    """Takes the writes as the API server does: a taint gets its time, an update needs the version it was made from."""

    def __init__(self) -> None:
        self.slices: dict[str, dict[str, Any]] = {}
        self.clock = 0

    @property
    def found(self) -> tuple[FoundSlice, ...]:
        return tuple(msgspec.convert(body, FoundSlice) for body in self.slices.values())

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
        for each in kept["spec"]["devices"]:
            for taint in each.get("taints", ()):
                taint.setdefault("timeAdded", f"t{self.clock}")
        self.slices[kept["metadata"]["name"]] = kept

    def sync(self, wanted: Sequence[DraDevice]) -> Sync:
        todo = sync(POOL, self.found, contents(wanted))
        self.take(todo)
        return todo

    @property
    def generations(self) -> set[int]:
        return {each.spec.generation for each in self.found}

    def validate(self, wanted: Sequence[DraDevice]) -> None:
        """The pool is complete, and readers, who go by name, find the devices in order."""
        found = sorted(self.found, key=lambda each: each.metadata.name)
        assert len(self.generations) == 1
        assert {each.spec.count for each in found} == {len(found)}
        assert [each["name"] for one in found for each in one.spec.devices] == [each.name for each in wanted]
        assert all(len(each.spec.devices) <= MAX_DEVICES for each in found)


HISTORIES = st.lists(
    st.tuples(
        st.builds(devices, st.sampled_from([0, 1, 2, 64, 65, 129]), st.integers(0, 3)),
        st.sampled_from(["", "lost", "all lost", "foreign", "older"]),
    ),
    min_size=1,
    max_size=5,
)


@given(HISTORIES)
def test_one_sync_brings_the_pool_in_line_and_a_second_finds_nothing_to_do(
    history: list[tuple[tuple[DraDevice, ...], str]],
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
    assert contents(()) == ((),)
    assert [len(part) for part in contents(devices(65))] == [64, 1]


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
    (only,) = server.found
    assert [each["taints"][0]["timeAdded"] for each in only.spec.devices] == ["t1", "t2"]


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
