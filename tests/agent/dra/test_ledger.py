"""Claims and their devices: whatever is asked in whatever order, no GPU is in two claims' hands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.dra.claim import ClaimError, Ref, Result, Taken
from agent.dra.ledger import Ledger, Stage
from inventory.devices import GpuUuid
from tests.support.inventory.builders import uuid

NODE = "node-1"
GPUS = {f"gpu-{index}": uuid(index) for index in range(3)}


def taken(uid: str, *devices: str, admin: bool = False, pool: str = NODE, request: str = "gpu") -> Taken:
    results = tuple(Result(request, "gpu.nvidia.com", pool, device, admin_access=admin) for device in devices)
    return Taken(Ref("team", f"claim-{uid}", uid), ("pod",), results, tuple(() for _ in results))


def begin(ledger: Ledger, part: Taken, refused: dict[GpuUuid, str] | None = None) -> None:
    ledger.begin(part, GPUS, NODE, refused or {})


def given_out(ledger: Ledger, uid: str, *devices: str, admin: bool = False) -> None:
    begin(ledger, taken(uid, *devices, admin=admin))
    ledger.complete(uid)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "complete", "end", "restart"]),
        st.sampled_from(["a", "b", "c"]),
        st.lists(st.sampled_from(sorted(GPUS)), min_size=1, max_size=2, unique=True),
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
            held = {gpu for gpu, claim in ledger.held().items() if claim.uid != uid}
            free = admin or held.isdisjoint(GPUS[device] for device in devices)
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
    with pytest.raises(ClaimError, match=r"^device gpu-0 is held by ResourceClaim team/claim-a \(a\)$"):
        begin(ledger, taken("b", "gpu-1", "gpu-0"))
    assert [claim.uid for claim in ledger.entries] == ["a"]


def test_admin_access_watches_a_device_and_holds_none() -> None:
    ledger = Ledger()
    given_out(ledger, "a", "gpu-0")
    given_out(ledger, "watcher", "gpu-0", "gpu-1", admin=True)
    given_out(ledger, "b", "gpu-1")
    assert {gpu: claim.uid for gpu, claim in ledger.held().items()} == {uuid(0): "a", uuid(1): "b"}


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (taken("a", "gpu-9"), "device gpu-9 of pool node-1: this node offers no such device by claim"),
        (taken("a", "gpu-0", pool="node-2"), "device gpu-0 of pool node-2: this node offers no such device by claim"),
        (taken("a", "gpu-1"), "device gpu-1: fallen off the bus"),
    ],
)
def test_what_is_not_there_or_unfit_is_refused(part: Taken, why: str) -> None:
    ledger = Ledger()
    with pytest.raises(ClaimError) as refused:
        begin(ledger, part, {uuid(1): "fallen off the bus"})
    assert str(refused.value) == why
    assert not len(ledger)


def test_an_unfit_device_may_be_watched_with_admin_access() -> None:
    ledger = Ledger()
    begin(ledger, taken("a", "gpu-1", admin=True), {uuid(1): "fallen off the bus"})
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
    assert ledger.held() == {}
    ledger.restore(ended)
    assert ledger.answered("a") == ended
