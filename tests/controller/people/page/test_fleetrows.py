"""A node's row: its GPUs, their parts and holders, and how they are linked."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.words import health as words
from controller.people.history.figures import Figures
from controller.people.page.detail import repairs, runbook
from controller.people.page.fleetrows import link_groups, node_row
from inventory.api.gpunode import LinkEntry
from tests.support.controller.gpunodes import observed

POD = {"namespace": "team-a", "pod": "train-0"}


def test_parts_of_each_mode_have_their_sizes_and_holders() -> None:
    found = observed(
        "n",
        devices=[
            {"uuid": "A", "index": 0, "mode": "whole", "offers": [{"resource": "r"}]},
            {"uuid": "B", "index": 1, "mode": "timeSlicing", "offers": [{"resource": "r", "replicas": 4}]},
            {"uuid": "C", "index": 2, "mode": "fractional", "offers": [{"resource": "p", "replicas": 100}]},
            {"uuid": "D", "index": 3, "mode": "mig", "mig": {"instances": [{"uuid": "M", "profile": "3g.40gb"}]}},
        ],
        holders=[{**POD, "device": "A"}, {**POD, "device": "B::0"}, {**POD, "device": "B::3"}, {**POD, "device": "M"}],
    )
    row = node_row("n", None, found, ("rack",), {"team-a/train-0": "team-a/job"}.get, {"A": Figures(0.5, 7.0)})
    parts = [part for gpu in row["gpus"] for part in gpu["parts"]]
    assert [(part["name"], part["uuid"], part["size"]) for part in parts] == [
        ("whole", "A", 1), ("share", "B", 4), ("percent", "C", 100), ("3g.40gb", "M", 1),
    ]  # fmt: skip
    holder = {"pod": "team-a/train-0", "workload": "team-a/job", "hidden": False}
    assert [part["holders"] for part in parts] == [
        [{**holder, "takes": 1}], [{**holder, "takes": 2}], [], [{**holder, "takes": 1}],
    ]  # fmt: skip
    assert (row["gpus"][0]["busy"], row["gpus"][1]["busy"]) == (0.5, None)
    assert (row["ready"], row["levels"], row["agent"]) == (False, [""], None)


def test_links_make_groups_the_best_first() -> None:
    pairs = [LinkEntry(a=0, b=1, nvlinks=4), LinkEntry(a=2, b=3, nvlinks=4), LinkEntry(a=1, b=2, pcie="SYS")]
    assert link_groups((0, 1, 2, 3), tuple(pairs)) == (
        {"kind": "NV4", "gpus": [0, 1]},
        {"kind": "NV4", "gpus": [2, 3]},
    )
    assert link_groups((0, 1), ()) == ()


def test_links_of_a_gpu_that_is_out_of_service_are_not_told_as_up() -> None:
    devices: list[dict[str, Any]] = [{"uuid": f"G{index}", "index": index, "mode": "whole"} for index in range(3)]
    for state in ("Unhealthy", "Probation"):
        devices[2]["health"] = {"state": state}
        links = [{"a": a, "b": b, "nvlinks": 2} for a, b in ((0, 1), (0, 2), (1, 2))]
        row = node_row("n", None, observed("n", devices=devices, links=links), (), lambda _: None, {})
        assert row["linkGroups"] == [{"kind": "NV2", "gpus": [0, 1]}]


PAIRS = st.lists(st.builds(LinkEntry, a=st.integers(0, 5), b=st.integers(0, 5), nvlinks=st.integers(0, 2)), max_size=15)


@given(PAIRS)
def test_a_gpu_is_in_one_group_and_all_of_a_group_are_linked(pairs: list[LinkEntry]) -> None:
    seen: list[int] = []
    kinds = {frozenset((each.a, each.b)): f"NV{each.nvlinks}" for each in pairs}
    for group in link_groups(tuple(range(6)), tuple(pairs)):
        seen += group["gpus"]
        for a in group["gpus"]:
            assert all(kinds[frozenset((a, b))] == group["kind"] for b in group["gpus"] if a != b)
    assert len(seen) == len(set(seen))


def test_a_repair_is_told_as_its_agent_tells_it_with_the_grant_for_what_it_asks() -> None:
    entry = {"gpu": "B", "state": "Draining", "generation": 2, "asks": "reset", "since": "1970-01-01T00:01:00Z"}
    entry |= {"attempt": 1, "reason": "Xid119", "note": "nobody has it", "next": "it is reset"}
    grant = {"gpu": "B", "generation": 2, "action": "reset", "granted": "1970-01-01T00:02:00Z"}
    old = {**grant, "generation": 1, "granted": "1970-01-01T00:00:01Z"}
    gone = {"gpu": "C", "state": "Retired", "cause": "it came too often"}
    devices = [{"uuid": "A", "index": 0}, {"uuid": "B", "index": 1}]
    found = observed("n", devices=devices, repairs=[gone, entry], remediationGrants=[old, grant])
    first, second = repairs(found.status)
    assert first == {
        "gpu": 1,
        "uuid": "B",
        "state": "Draining",
        "since": 60.0,
        "faultSince": None,
        "attempt": 1,
        "cause": "Xid119",
        "asks": "reset",
        "granted": 120.0,
        "note": "nobody has it",
        "next": "it is reset",
    }
    assert (second["gpu"], second["uuid"], second["cause"]) == (None, "C", "it came too often")
    ungranted = observed("n", devices=devices, repairs=[entry], remediationGrants=[old])
    assert [each["granted"] for each in repairs(ungranted.status)] == [None]


def test_a_fault_leads_to_its_page() -> None:
    found = runbook("XID 79: GPU has fallen off the bus")
    assert found is not None
    assert (found["title"], found["text"][:1]) == ("TesseraGpuXid", "#")
    assert runbook("something else") is None


@pytest.mark.parametrize(
    ("sentence", "page"),
    [
        (words.uncorrected(1), "TesseraGpuEccUncorrected"),
        (words.uncorrected(2), "TesseraGpuEccUncorrected"),
        (words.remap_pending(), "TesseraGpuRowRemapPending"),
        (words.remap_failed(), "TesseraGpuRowRemapFailed"),
        (words.links_down("3"), "TesseraNvLinkDown"),
        (words.switch_links_down("3, 4"), "TesseraNvLinkDown"),
        (words.xid_in_instance(94, "contained", 1), "TesseraGpuXid"),
        (words.lost(""), None),
    ],
)
def test_what_an_agent_says_leads_to_the_page_of_its_alert(sentence: str, page: str | None) -> None:
    found = runbook(sentence)
    assert (found["title"] if found is not None else None) == page


def test_one_error_is_one_error() -> None:
    assert words.uncorrected(1) == "1 uncorrected memory error since the last reset"
    assert words.uncorrected(12) == "12 uncorrected memory errors since the last reset"
