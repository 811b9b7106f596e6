"""go-gpuallocator's and the NVIDIA device plugin's own cases: each binding one is answered as well or better.

Judged as the corpus says: an answer holds ``required``, has the size, and belongs to a partition that reaches the best
score; where partitions tie, any is right. The cases that do not bind check the oracle the tests themselves use.
"""

import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from inventory.devices import DeviceId, GpuUuid
from inventory.layout.layout import LogicalDevice
from inventory.layout.sharing import ReplicaPolicy
from inventory.preference.linktable import LinkTable
from inventory.preference.preference import Chooser, UnsatisfiableError, prefer
from tests.conformance import corpus
from tests.support.inventory import oracle

pytestmark = pytest.mark.conformance

Case = dict[str, Any]


def load(file: str) -> Any:
    return corpus.load("gpuallocator", file)


@cache
def topologies() -> dict[str, list[list[int]]]:
    return {name: topology["pair_score"] for name, topology in load("topologies.json").items()}


def gpu_id(index: int) -> DeviceId:
    return DeviceId(f"GPU-{index}")


@cache
def chooser(topology: str, *, filled: bool) -> Chooser:
    """The resource of all GPUs of a topology, on tables that are filled, or still empty as at the agent's start."""
    scores = topologies()[topology]
    uuids = [GpuUuid(gpu_id(i)) for i in range(len(scores))]
    table = LinkTable(uuids, tuple(map(tuple, scores)))
    for _ in table.fill() if filled else ():
        pass
    return Chooser([LogicalDevice(id=DeviceId(uuid), gpu=uuid) for uuid in uuids], table)


def answer(topology: str, available: Sequence[int], required: Sequence[int], size: int, *, filled: bool) -> list[int]:
    """The GPUs chosen, as indexes; empty where go-gpuallocator returns none."""
    try:
        pending = chooser(topology, filled=filled).start(
            available=[gpu_id(i) for i in available], required=[gpu_id(i) for i in required], size=size
        )
    except UnsatisfiableError:
        return []
    while not pending.step():
        pass
    assert pending.best.exact
    return [int(device.removeprefix("GPU-")) for device in pending.best.devices]


def judge(case: Case, chosen: Sequence[int]) -> tuple[int, int]:
    """Check what every answer must be; return the best partition score it belongs to, and its own score."""
    scores = topologies()[case["topology"]]
    assert len(set(chosen)) == case["size"]
    assert set(case["required"]) <= set(chosen) <= set(case["available"])
    return oracle.reached(scores, case["available"], chosen), oracle.set_score(scores, chosen)


@pytest.fixture(params=[True, False], ids=["filled", "cold"])
def filled(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_one_shot_cases(filled: bool) -> None:
    cases = [case for case in load("policy_cases.json") if case["policy"] == "best_effort"]
    assert len(cases) == 11
    for case in cases:
        chosen = answer(case["topology"], case["available"], case["required"], case["size"], filled=filled)
        if not case["expected"]:
            assert chosen == [], case["name"]
        else:
            scores = topologies()[case["topology"]]
            reached, own = judge(case, chosen)
            assert reached >= oracle.reached(scores, case["available"], case["expected"]), case["name"]
            assert own >= oracle.set_score(scores, case["expected"]), case["name"]


def test_sequences(filled: bool) -> None:
    sequences = [case for case in load("sequence_cases.json") if case["policy"] == "best_effort"]
    assert sequences
    for sequence in sequences:
        scores = topologies()[sequence["topology"]]
        free = list(range(len(scores)))
        for step in sequence["steps"]:
            chosen = answer(sequence["topology"], free, [], step["size"], filled=filled)
            if not step["expected"]:
                assert chosen == [], sequence["name"]
                continue
            case = {"topology": sequence["topology"], "available": free, "required": [], "size": step["size"]}
            reached, _ = judge(case, chosen)
            assert reached >= oracle.reached(scores, free, step["expected"]), sequence["name"]
            free = [gpu for gpu in free if gpu not in step["expected"]]


def test_all_oracle_cases(filled: bool) -> None:
    cases = load("oracle_best_effort.json")
    assert len(cases) == 2000
    worse = []
    for case in cases:
        chosen = answer(case["topology"], case["available"], case["required"], case["size"], filled=filled)
        reached, own = judge(case, chosen)
        if reached != case["partition_score"] or own < case["set_score"]:
            worse.append((case, chosen))
    assert worse == []


def replica_devices(case: Case) -> list[LogicalDevice]:
    return [
        LogicalDevice(id=DeviceId(f"{name}::{n}"), gpu=GpuUuid(name), replica=n)
        for name, count in case["gpus"].items()
        for n in range(count)
    ]


@pytest.mark.parametrize("index", range(12))
def test_replica_cases(index: int) -> None:
    cases = load("replica_cases.json")["cases"]
    assert len(cases) == 12
    case = cases[index]
    devices = replica_devices(case)
    names = list(case["gpus"])
    table = LinkTable([GpuUuid(name) for name in names], tuple((0,) * len(names) for _ in names))
    available = [device.id for device in devices] if case["available"] == "all" else case["available"]

    def ask() -> tuple[DeviceId, ...]:
        policy = ReplicaPolicy(case["policy"])
        required = case["required"]
        return prefer(devices, table, available=available, required=required, size=case["size"], policy=policy).devices

    expect = case["expect"]
    if expect.get("error"):
        with pytest.raises(UnsatisfiableError):
            ask()
        return
    chosen = ask()
    assert len(set(chosen)) == case["size"] == expect.get("total", case["size"])
    per_gpu = Counter(device.partition("::")[0] for device in chosen)
    assert per_gpu == expect.get("per_gpu", per_gpu)
    assert len(per_gpu) == expect.get("distinct_gpus", len(per_gpu))
    assert max(per_gpu.values()) <= expect.get("max_per_gpu", case["size"])
    assert min(per_gpu.values()) >= expect.get("min_per_gpu", 1)


def test_the_oracle_lists_the_partitions_that_the_peer_lists() -> None:
    """Reference data: padding is the remainder here, so sets are compared without it."""
    for case in load("enumeration_cases.json")["partitions"]:
        if not 2 <= case["size"] <= len(case["input"]):
            continue  # go-gpuallocator lists single GPUs as partitions of their own, and nothing beyond the input
        listed = {
            frozenset(frozenset(gpu for gpu in part if gpu is not None) for part in partition)
            for partition in case["expected"]
        }
        found = {frozenset(map(frozenset, partition)) for partition in oracle.partitions(case["input"], case["size"])}
        assert found == listed, case["name"]


def test_the_oracle_agrees_with_the_recorded_scores() -> None:
    """Reference check on every 20th case, whole definition by brute force."""
    for case in load("oracle_best_effort.json")[::20]:
        if case["size"] > 1:
            best, own, _ = oracle.best(
                topologies()[case["topology"]], case["available"], case["required"], case["size"]
            )
            assert best == case["partition_score"]
            assert own >= case["set_score"]


def test_missing_data_fails_and_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("TESSERA_SHARED", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="set TESSERA_SHARED"):
        load("scores.json")
    (tmp_path / "corpus" / "gpuallocator").mkdir(parents=True)
    (tmp_path / "corpus" / "gpuallocator" / "scores.json").write_text(json.dumps({}), encoding="utf-8")
    assert load("scores.json") == {}
