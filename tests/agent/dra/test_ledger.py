"""Claims and their devices: whatever is asked in whatever order, no GPU, and no part of one, is in two hands."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from agent.dra.claim import ClaimError, MpsClient, Ref, Result, Taken
from agent.dra.ledger import Ledger, Stage
from agent.dra.publishing.devices import offered
from agent.dra.publishing.shares import Share
from tests.support.agent.claims import NODE, divided
from tests.support.inventory.builders import gpu, node, uuid

SHARED = offered(node([gpu(3), gpu(4), gpu(5)]), map(uuid, (3, 4, 5)), {uuid(3): 10, uuid(4): 10})
OFFERED = {device.name: device for device in offered(node([gpu(0), gpu(1), divided(2)]), map(uuid, range(3))).devices}
PARTS = ["gpu-2-mig-4g20gb-5-0", "gpu-2-mig-3g20gb-9-4", "gpu-2-mig-1g5gb-19-3", "gpu-2-mig-1g5gb-19-4"]


def overlapping(one: str, other: str) -> bool:
    """As the scheduler sees it: the two would take more of a memory slice's counter than there is."""
    left, right = ({} if (c := OFFERED[name].consumes) is None else c.counters for name in (one, other))
    return one == other or bool({name for name in left if name.startswith("memory-slice")} & right.keys())


def taken(uid: str, *devices: str, admin: bool = False, pool: str = NODE, request: str = "gpu") -> Taken:
    results = tuple(Result(request, "gpu.nvidia.com", pool, device, admin_access=admin) for device in devices)
    return Taken(Ref("team", f"claim-{uid}", uid), ("pod",), results, tuple(() for _ in results))


def begin(ledger: Ledger, part: Taken, refused: dict[str, str] | None = None) -> None:
    ledger.begin(part, OFFERED, NODE, refused or {})


def given_out(ledger: Ledger, uid: str, *devices: str, admin: bool = False) -> None:
    begin(ledger, taken(uid, *devices, admin=admin))
    ledger.complete(uid)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "complete", "end", "restart"]),
        st.sampled_from(["a", "b", "c"]),
        st.lists(st.sampled_from(["gpu-0", "gpu-1", "gpu-2", *PARTS]), min_size=1, max_size=2, unique=True),
        st.booleans(),
    ),
    max_size=12,
)


@given(STEPS)
def test_no_gpu_is_in_two_hands_whatever_happens(steps: list[tuple[str, str, list[str], bool]]) -> None:
    ledger = Ledger()
    for step, uid, devices, admin in steps:
        known = {claim.uid: claim for claim in ledger.entries}
        if step == "begin" and ledger.answered(uid) is None:
            held = [d.device for claim in ledger.entries if claim.uid != uid for d in claim.devices if not d.admin]
            rivals = [(each, other) for each in devices for other in held] + [(devices[0], one) for one in devices[1:]]
            free = admin or not any(overlapping(*pair) for pair in rivals)
            try:
                begin(ledger, taken(uid, *devices, admin=admin))
                assert free
            except ClaimError:
                assert not free
                assert {claim.uid: claim for claim in ledger.entries} == known
        if step == "complete" and uid in known:
            assert ledger.complete(uid) == ledger.answered(uid)
        if step == "end":
            assert ledger.end(uid) == known.get(uid)
        if step == "restart":
            answered = {claim for claim in ledger.entries if claim.stage is Stage.COMPLETED}
            ledger = Ledger(ledger.entries)
            assert set(ledger.entries) == answered
        ledger.validate()


def test_a_device_in_anothers_hand_is_refused_by_its_name() -> None:
    ledger = Ledger()
    given_out(ledger, "a", "gpu-0")
    with pytest.raises(ClaimError, match=r"^Device gpu-0 is held by ResourceClaim team/claim-a \(a\)\. End"):
        begin(ledger, taken("b", "gpu-1", "gpu-0"))
    assert [claim.uid for claim in ledger.entries] == ["a"]


def test_admin_access_watches_a_device_and_holds_none() -> None:
    ledger = Ledger()
    given_out(ledger, "a", "gpu-0")
    given_out(ledger, "watcher", "gpu-0", "gpu-1", admin=True)
    given_out(ledger, "b", "gpu-1")
    assert [claim.uid for claim in ledger.entries] == ["a", "watcher", "b"]


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (
            taken("a", "gpu-9"),
            "Device gpu-9 of pool node-1: found none that is given out by claim, expected one of this node",
        ),
        (
            taken("a", "gpu-0", pool="node-2"),
            "Device gpu-0 of pool node-2: found none that is given out by claim, expected one of this node",
        ),
        (taken("a", "gpu-1"), "Device gpu-1: fallen off the bus. See the GpuNode of the node"),
    ],
)
def test_what_is_not_there_or_unfit_is_refused(part: Taken, why: str) -> None:
    ledger = Ledger()
    with pytest.raises(ClaimError) as refused:
        begin(ledger, part, {"gpu-1": "fallen off the bus"})
    assert str(refused.value) == why
    assert not len(ledger)


def test_an_unfit_device_may_be_watched_with_admin_access() -> None:
    ledger = Ledger()
    begin(ledger, taken("a", "gpu-1", admin=True), {"gpu-1": "fallen off the bus"})
    assert ledger.entries[0].devices[0].admin


def test_only_a_completed_claim_has_an_answer_and_it_names_main_requests() -> None:
    ledger = Ledger()
    begin(ledger, taken("a", "gpu-0", request="big/first"))
    assert ledger.answered("a") is None
    answer = ledger.complete("a")
    assert ledger.answered("a") == answer
    assert [(device.request, device.pool, device.device, device.gpu) for device in answer.devices] == [
        ("big", NODE, "gpu-0", uuid(0))
    ]


def test_what_could_not_be_written_down_is_held_again() -> None:
    ledger = Ledger()
    given_out(ledger, "a", "gpu-0")
    ended = ledger.end("a")
    assert ended is not None
    assert not ledger.entries
    ledger.restore(ended)
    assert ledger.answered("a") == ended


def test_the_whole_gpu_and_its_parts_exclude_each_other() -> None:
    ledger = Ledger()
    given_out(ledger, "a", PARTS[0], "gpu-2-mig-1g5gb-19-4")
    for device in ("gpu-2", "gpu-2-mig-1g5gb-19-3", "gpu-2-mig-3g20gb-9-4"):
        with pytest.raises(ClaimError, match=r"is held by ResourceClaim team/claim-a \(a\)"):
            begin(ledger, taken("b", device))
    given_out(ledger, "b", "gpu-2-mig-1g5gb-19-5")
    ledger.end("a")
    with pytest.raises(ClaimError, match="is held by ResourceClaim team/claim-b"):
        begin(ledger, taken("a", "gpu-2"))
    ledger.end("b")
    given_out(ledger, "a", "gpu-2")
    with pytest.raises(ClaimError, match="is held by ResourceClaim team/claim-a"):
        begin(ledger, taken("b", PARTS[2]))


def test_a_claim_whose_own_devices_overlap_is_refused() -> None:
    ledger = Ledger()
    with pytest.raises(ClaimError, match=f"found {PARTS[0]} and gpu-2, expected no overlap of the two"):
        begin(ledger, taken("a", PARTS[0], "gpu-2"))
    assert not ledger.entries


def share(uid: str, memory: str, percent: int, device: str = "gpu-3-shares", more: str = "", **given: Any) -> Taken:
    capacity = {"memory": memory, "tessera.dev/computePercent": str(percent)}
    names = [name for name in (device, more) if name]
    results = tuple(
        Result("gpu", "gpu.nvidia.com", NODE, name, share_id=f"{uid}-{name}", consumed_capacity=capacity, **given)
        for name in names
    )
    return Taken(Ref("team", f"claim-{uid}", uid), ("pod",), results, tuple(() for _ in results))


SHARES = {device.name: device for device in SHARED.devices}


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcde"),
            st.integers(1, 44),
            st.integers(1, 11).map(lambda tenth: tenth * 10),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_claims_have_shares_of_one_gpu_and_never_more_than_it_is(steps: list[tuple[str, int, int, bool]]) -> None:
    ledger = Ledger()
    had: dict[str, tuple[int, int]] = {}
    for uid, gib, percent, ends in steps:
        if ends:
            ledger.end(uid)
            had.pop(uid, None)
        others = [size for holder, size in had.items() if holder != uid]
        fits = sum(size[0] for size in others) + gib <= 40 and sum(size[1] for size in others) + percent <= 100
        if ledger.answered(uid) is None:
            try:
                ledger.begin(share(uid, f"{gib}Gi", percent), SHARES, NODE, {})
                assert fits
                ledger.complete(uid)
                had[uid] = (gib, percent)
            except ClaimError:
                assert not fits
        ledger = Ledger(ledger.entries)
        ledger.validate()
        total = ledger.shared(uuid(3))
        assert (total.memory_mib, total.percent) == (
            1024 * sum(size[0] for size in had.values()),
            sum(size[1] for size in had.values()),
        )


def test_shares_that_a_container_cannot_use_or_the_gpu_does_not_have_are_refused() -> None:
    ledger = Ledger()
    ledger.begin(share("a", "30Gi", 60), SHARES, NODE, {})
    with pytest.raises(ClaimError, match=r"found 30721 MiB and 110 % of GPU .* expected 40960 MiB and 100 % at most"):
        ledger.begin(share("b", "1Mi", 50), SHARES, NODE, {})
    with pytest.raises(ClaimError, match=r"found 41984 MiB and 70 % of GPU"):
        ledger.begin(share("b", "11Gi", 10), SHARES, NODE, {})
    for more in ("gpu-4-shares", "gpu-5"):
        with pytest.raises(ClaimError, match="found a share and 2 GPUs, expected one: a process is a client of one"):
            ledger.begin(share("b", "1Gi", 10, more=more), SHARES, NODE, {})
    assert [claim.uid for claim in ledger.entries] == ["a"]
    ledger.begin(share("b", "1Gi", 10, admin_access=True), SHARES, NODE, {})
    assert ledger.shared(uuid(3)) == Share(30720, 60), "who watches has no share"
    ledger.validate()


def test_a_share_that_is_watched_says_nothing_of_the_size_of_the_gpu_that_is_held() -> None:
    small = structs.replace(SHARES["gpu-4-shares"], shares=Share(1024, 100))
    mine = share("a", "30Gi", 60)
    watched = share("w", "1Gi", 10, device="gpu-4-shares", admin_access=True)
    both = structs.replace(mine, results=(*watched.results, *mine.results), configs=((), ()))
    ledger = Ledger()
    ledger.begin(both, SHARES | {small.name: small}, NODE, {})
    assert ledger.shared(uuid(3)) == Share(30720, 60)
    ledger.validate()


def test_what_no_daemon_can_serve_is_refused() -> None:
    ledger = Ledger()
    under = structs.replace(share("a", "1Gi", 10), mps=(MpsClient(0),))
    with pytest.raises(ClaimError, match="found MPS, expected none: a share of a GPU is under MPS already"):
        ledger.begin(under, SHARES, NODE, {})
    parts = taken("a", PARTS[2], PARTS[3])
    with pytest.raises(ClaimError, match="found 2 MIG instances under one MPS daemon, expected one"):
        begin(ledger, structs.replace(parts, mps=(MpsClient(0), MpsClient(0))))
    begin(ledger, structs.replace(parts, mps=(MpsClient(0), MpsClient(1))))
    (claim,) = ledger.entries
    assert [device.mps for device in claim.devices] == [MpsClient(0), MpsClient(1)]
    begin(ledger, structs.replace(taken("b", "gpu-0", admin=True), mps=(MpsClient(0),)))
    assert [device.mps for claim in ledger.entries if claim.uid == "b" for device in claim.devices] == [None]
