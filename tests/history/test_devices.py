"""Devices: each in as many hands as it has shares, of the pods that are there, and none destroyed under a hand."""

from tests.history.test_rules import end, words
from tests.support.history.told import GPU, Told, ended, meta, pod


def test_a_device_is_in_one_hand() -> None:
    told = Told()
    told.put(pod("a"), pod("b"))
    told.pods("n1", a=["GPU-1"], b=["GPU-1"])
    assert end(told, 4) == []
    assert end(told, 2) == [("one-device-two-hands", "GPU-1 is in 2 hands")]


def test_what_is_allocated_counts_before_the_next_list() -> None:
    told = Told()
    told.put(pod("a"), pod("b"))
    told.pods("n1", a=["GPU-1"])
    told.line("kubelet", node="n1", call="Allocate", pod="team/b", resource=GPU, devices=["GPU-1"])
    assert end(told, 6) == [("one-device-two-hands", "GPU-1 is in 2 hands")]


def test_a_pod_that_has_ended_has_nothing_whatever_the_kubelet_lists() -> None:
    told = Told()
    told.put(ended(pod("a")), pod("b"))
    told.pods("n1", a=["GPU-1"], b=["GPU-1"])
    assert end(told) == []


def test_shares_are_counted_by_the_hardware() -> None:
    told = Told()
    told.put(pod("a"), pod("b"), pod("c"))
    told.hardware("n1", {"uuid": "GPU-1", "replicas": 3})
    told.pods("n1", a=["GPU-1::0"], b=["GPU-1::1"], c=["GPU-1::2"])
    assert end(told) == []
    told.hardware("n1", {"uuid": "GPU-1", "replicas": 2})
    assert end(told, 6) == [("one-device-two-hands", "3 shares of GPU-1 are held, it has 2")]


def test_a_whole_gpu_leaves_nothing_for_shares_or_instances() -> None:
    told = Told()
    told.put(pod("a"), pod("b"))
    told.put(pod("c", node="n2"), pod("d", node="n2"))
    told.pods("n1", a=["GPU-1"], b=["GPU-1::1"])
    told.hardware("n2", {"uuid": "GPU-2", "mig": [{"uuid": "MIG-1", "profile": "1g.10gb"}]})
    told.pods("n2", c=["GPU-2"], d=["MIG-1"])
    assert end(told, 6) == [
        ("one-device-two-hands", "GPU-1 is held as a whole and in shares"),
        ("one-device-two-hands", "GPU-2 is held as a whole, and its instance MIG-1"),
    ]


def test_claims_have_a_share_each_and_end_when_they_are_unprepared() -> None:
    told = Told()
    told.hardware("n1", {"uuid": "GPU-1", "replicas": 2})
    for name in ("a", "b"):
        told.line("kubelet", node="n1", call="NodePrepareResources", claim=f"team/{name}", devices=["GPU-1"])
    assert end(told) == []
    told.line("kubelet", node="n1", call="NodePrepareResources", claim="team/c", devices=["GPU-1"])
    told.later(6)
    told.line("kubelet", node="n1", call="NodeUnprepareResources", claim="team/c")
    assert words(told.found()) == [("one-device-two-hands", "3 shares of GPU-1 are held, it has 2")]


def test_two_claims_are_not_allocated_the_same_device() -> None:
    told = Told()
    result = {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"}
    shared = {**result, "device": "gpu-1", "shareID": "s"}
    for name in ("a", "b"):
        status = {"allocation": {"devices": {"results": [result, shared]}}}
        told.put({"kind": "ResourceClaim", "metadata": meta(name), "status": status})
    assert end(told, 6) == [
        ("one-device-two-hands", "gpu-0 of pool n1 of gpu.nvidia.com is allocated to 2 claims"),
    ]


def test_an_instance_stays_while_it_is_held() -> None:
    told = Told()
    told.put(pod("a"))
    told.hardware("n1", {"uuid": "GPU-1", "mig": [{"uuid": "MIG-1", "profile": "1g.10gb"}]})
    told.pods("n1", a=["MIG-1"])
    told.later(1)
    told.hardware("n1", {"uuid": "GPU-1", "mig": [{"uuid": "MIG-2", "profile": "1g.10gb"}]})
    assert end(told, 4) == []
    assert end(told, 2) == [("destroyed-while-held", "the instance MIG-1 of GPU-1 is destroyed, and held")]


def test_an_instance_goes_once_its_pod_is_gone_and_with_a_gpu_that_falls_off() -> None:
    told = Told()
    told.put(pod("a"), pod("b", node="n2"))
    cut = {"uuid": "GPU-1", "mig": [{"uuid": "MIG-1", "profile": "1g.10gb"}]}
    told.hardware("n1", cut)
    told.hardware("n2", {**cut, "uuid": "GPU-2", "mig": [{"uuid": "MIG-3", "profile": "1g.10gb"}]})
    told.pods("n1", a=["MIG-1"])
    told.pods("n2", b=["MIG-3"])
    told.later(1)
    told.hardware("n1", {"uuid": "GPU-1"})
    told.hardware("n2")
    told.later(2)
    told.drop(pod("a"))
    assert end(told) == []


def given(told: Told, name: str, device: str, node: str = "n1") -> None:
    told.line("kubelet", node=node, call="Allocate", pod=f"team/{name}", resource=GPU, devices=[device])


def test_a_pod_that_is_deleted_before_any_list_has_nothing() -> None:
    told = Told()
    told.put(pod("a"), pod("b"))
    given(told, "a", "GPU-1")
    told.later(8)
    given(told, "b", "GPU-1")
    told.later(0.2)
    told.drop(pod("a"))
    assert end(told, 20) == []


def test_the_last_pod_of_a_record_ends_like_any() -> None:
    told = Told()
    told.put(pod("a"))
    told.hardware("n1", {"uuid": "GPU-1", "mig": [{"uuid": "MIG-1", "profile": "1g.10gb"}]})
    told.pods("n1", a=["MIG-1"])
    told.later(4)
    told.drop(pod("a"))
    told.later(3)
    told.hardware("n1", {"uuid": "GPU-1"})
    assert end(told) == []


def reborn(node: str) -> Told:
    """``a`` is deleted and another pod of its name runs on ``node``; ``b`` gets what the first had."""
    told = Told()
    told.put(pod("a"), pod("b"))
    told.pods("n1", a=["GPU-1"])
    told.later(2)
    told.drop(pod("a"))
    second = pod("a", node=node)
    second["metadata"]["uid"] = "second"
    told.put(second)
    given(told, "a", "GPU-2", node)
    given(told, "b", "GPU-1")
    return told


def test_a_pod_of_the_same_name_does_not_have_what_the_one_before_had() -> None:
    assert end(reborn("n1")) == []
    assert end(reborn("n2")) == []
    told = reborn("n1")
    given(told, "b", "GPU-2")
    assert end(told) == [("one-device-two-hands", "GPU-2 is in 2 hands")]


def test_a_pod_has_nothing_on_another_node_than_its_own() -> None:
    told = Told()
    told.put(pod("a", node="n2"), pod("b"))
    told.pods("n1", a=["GPU-1"], b=["GPU-1"])
    assert end(told) == []


def test_a_pod_that_a_kubelet_lists_for_30_seconds_after_it_was_deleted_still_runs() -> None:
    told = Told()
    told.put(pod("a"), pod("b"))
    told.drop(pod("a"))
    for _ in range(3):
        told.later(10)
        told.pods("n1", a=["GPU-1"], b=["GPU-1"])
    assert end(told, 4) == []
    assert end(told, 2) == [("one-device-two-hands", "GPU-1 is in 2 hands")]


def test_a_claim_whose_devices_no_call_says_is_not_seen() -> None:
    told = Told()
    told.line("kubelet", node="n1", call="NodePrepareResources", claim="team/c")
    assert "devices of claims: a kubelet's call did not say which a claim has" in told.verdict().unseen


def held_since_long(**held: list[str]) -> Told:
    """Pods have had devices of GPU-1, which is cut in two, for a while."""
    told = Told()
    told.put(*(pod(name) for name in held))
    told.hardware("n1", GPU_1, {"uuid": "GPU-2"})
    told.pods("n1", **held)
    told.later(20)
    return told


GPU_1 = {"uuid": "GPU-1", "mig": [{"uuid": "MIG-1", "profile": "3g.20gb"}, {"uuid": "MIG-2", "profile": "3g.20gb"}]}
AFTER = {**GPU_1, "resets": 1}


def test_a_gpu_is_not_reset_while_a_pod_has_it_or_an_instance_of_it() -> None:
    told = held_since_long(a=["MIG-2"], b=["GPU-2"])
    told.hardware("n1", AFTER, {"uuid": "GPU-2"})
    assert end(told, 4) == []
    assert end(told, 2) == [("reset-while-held", "GPU-1 was reset, and it was held")]
    (found,) = told.found()
    assert found.objects == ("Pod team/a", "Node n1")


def test_an_instance_that_the_reset_itself_took_counts_as_its_gpu() -> None:
    told = held_since_long(a=["MIG-2"])
    told.hardware("n1", {"uuid": "GPU-1", "resets": 1})
    assert ("reset-while-held", "GPU-1 was reset, and it was held") in end(told, 6)


def test_a_reset_of_a_gpu_that_nobody_has_is_nothing() -> None:
    told = held_since_long(b=["GPU-2"])
    told.hardware("n1", AFTER, {"uuid": "GPU-2"})
    assert end(told, 20) == []


def test_a_kubelet_that_is_heard_late_excuses_who_has_left_or_has_come_meanwhile() -> None:
    left = held_since_long(a=["MIG-2"])
    left.hardware("n1", AFTER)
    left.later(4)
    left.pods("n1")
    assert end(left, 20) == []
    come = held_since_long()
    come.put(pod("a"))
    come.pods("n1", a=["GPU-1"])
    come.later(4)
    come.hardware("n1", AFTER)
    assert end(come, 20) == []


def test_a_prepared_claim_holds_a_gpu_against_its_reset() -> None:
    told = held_since_long()
    told.line("kubelet", node="n1", call="NodePrepareResources", claim="team/c", devices=["GPU-1"])
    told.later(6)
    told.hardware("n1", AFTER)
    assert end(told, 6) == [("reset-while-held", "GPU-1 was reset, and it was held")]


def test_what_was_reset_before_the_record_began_and_a_counter_that_begins_anew_are_no_resets() -> None:
    told = Told()
    told.put(pod("a"))
    told.hardware("n1", {**GPU_1, "resets": 7})
    told.pods("n1", a=["GPU-1"])
    told.later(20)
    told.hardware("n1", {**GPU_1, "replicas": 1, "resets": 0})
    assert end(told, 20) == []


def test_a_pod_of_the_same_name_did_not_have_the_gpu_that_was_reset_between_the_two() -> None:
    told = held_since_long(a=["GPU-2"])
    told.drop(pod("a"))
    told.later(1)
    told.hardware("n1", GPU_1, {"uuid": "GPU-2", "resets": 1})
    second = pod("a")
    second["metadata"]["uid"] = "second"
    told.put(second)
    given(told, "a", "GPU-2")
    assert end(told, 20) == []
