"""What end-to-end scenes look for all the time: a double hand that is planted is found, and what may be is not."""

from types import SimpleNamespace
from typing import Any

import pytest

from kubeletapi import podresources_v1_pb2 as pb
from tests.support.agent.hands import DRIVER, Read, Sight, sight
from tests.support.e2e import hands

NODE, CARD = "node-1", "GPU-a"
Json = dict[str, Any]


def part(profile: str, start: int, size: int, card: str = CARD) -> Json:
    counters = {f"memory-slice-{number}": {"value": "1"} for number in range(start, start + size)}
    return {
        "name": f"gpu-0-mig-{profile}-9-{start}",
        "attributes": {"parentUUID": {"string": card}, "profile": {"string": profile}},
        "consumesCounters": [{"counterSet": "gpu-0", "counters": {**counters, "copy-engines": {"value": "1"}}}],
    }


WHOLE = {"name": "gpu-0", "attributes": {"uuid": {"string": CARD}}}
SHARED = {"name": "gpu-1-shares", "attributes": {"uuid": {"string": "GPU-b"}}}
LEFT, RIGHT, SMALL = part("3g", 0, 4), part("3g", 4, 4), part("1g", 3, 1)
SLICES = [{"spec": {"driver": DRIVER, "pool": {"name": NODE}, "devices": [WHOLE, LEFT, RIGHT, SMALL, SHARED]}}]


def claim(name: str, *devices: Json, percent: int = 0, reserved: bool = True, **more: Any) -> Json:
    used = {"consumedCapacity": {"tessera.dev/computePercent": str(percent)}} if percent else {}
    results = [{"driver": DRIVER, "pool": NODE, "device": each["name"], **used, **more} for each in devices]
    status: Json = {"allocation": {"devices": {"results": results}}}
    return {
        "metadata": {"namespace": "team", "name": name},
        "status": {**status, "reservedFor": [{"name": "p"}]} if reserved else status,
    }


def given(pod: str, *devices: str, resource: str = "nvidia.com/gpu", container: str = "main") -> pb.PodResources:
    group = pb.ContainerDevices(resource_name=resource, device_ids=devices)
    return pb.PodResources(
        namespace="team", name=pod, containers=[pb.ContainerResources(name=container, devices=[group])]
    )


def claimed(pod: str, name: str, device: Json, share: str = "") -> pb.PodResources:
    resource = pb.ClaimResource(driver_name=DRIVER, pool_name=NODE, device_name=device["name"], share_id=share)
    found = pb.DynamicResource(claim_namespace="team", claim_name=name, claim_resources=[resource])
    return pb.PodResources(
        namespace="team", name=pod, containers=[pb.ContainerResources(name="main", dynamic_resources=[found])]
    )


def card(*instances: Json) -> Json:
    return {"uuid": CARD, "mig": list(instances)}


def instance(profile: str, start: int, size: int) -> Json:
    return {"profile": profile, "start": start, "size": size, "uuids": [f"MIG-{profile}-{start}"]}


def seen(*claims: Json, pods: tuple[pb.PodResources, ...] = (), gpus: list[Json] | None = None) -> Sight:
    return sight(Read(SLICES, claims, pb.ListPodResourcesResponse(pod_resources=pods), gpus))


HALVES = [card(instance("3g", 0, 4), instance("3g", 4, 4))]
DOUBLE = {
    "a GPU by two claims": seen(claim("a", WHOLE), claim("b", WHOLE)),
    "a GPU and a part of it": seen(claim("a", WHOLE), claim("b", RIGHT)),
    "two parts with one slice in common": seen(claim("a", LEFT), claim("b", SMALL)),
    "a part twice in a claim": seen(claim("a", LEFT, LEFT)),
    "a GPU by claim and by the plugin": seen(claim("a", WHOLE), pods=(given("p", CARD),)),
    "a part by claim, its GPU by the plugin": seen(claim("a", LEFT), pods=(given("p", CARD),)),
    "a part by claim, its MIG device by the plugin": seen(
        claim("a", SMALL), pods=(given("p", "MIG-3g-0"),), gpus=HALVES
    ),
    "a GPU by two pods": seen(pods=(given("p", CARD), given("q", CARD))),
    "a GPU by two containers": seen(pods=(given("p", CARD), given("p", CARD, container="other"))),
    "a GPU under two names": seen(pods=(given("p", CARD), given("q", CARD, resource="nvidia.com/gpu-other"))),
    "a replica by two pods": seen(pods=(given("p", "GPU-b::1"), given("q", "GPU-b::1"))),
    "a replica and its GPU": seen(pods=(given("p", "GPU-b::1"), given("q", "GPU-b"))),
    "replicas of a GPU and of its part": seen(pods=(given("p", f"{CARD}::1"), given("q", "MIG-3g-0::1")), gpus=HALVES),
    "a share by claim and a replica by the plugin": seen(
        claim("a", SHARED, percent=10), pods=(given("p", "GPU-b::1"),)
    ),
    "shares beside the whole": seen(claim("a", SHARED, percent=10), claim("b", SHARED)),
    "shares of more than all": seen(claim("a", SHARED, percent=60), claim("b", SHARED, percent=41)),
    "a claim that was deleted by force under its container": seen(claim("b", LEFT), pods=(claimed("p", "a", LEFT),)),
    "a share of a claim that was deleted, and the whole": seen(
        claim("b", SHARED), pods=(claimed("p", "a", SHARED, share="one"),)
    ),
}
FINE = {
    "parts side by side": seen(claim("a", LEFT), claim("b", RIGHT)),
    "a claim that two pods have": seen(claim("a", WHOLE), pods=(claimed("p", "a", WHOLE), claimed("q", "a", WHOLE))),
    "a watcher beside a holder": seen(
        claim("a", WHOLE),
        claim("w", WHOLE, adminAccess=True),
        pods=(claimed("q", "w", WHOLE), claimed("p", "a", WHOLE)),
    ),
    "an allocation that no pod has": seen(claim("a", WHOLE, reserved=False), claim("b", WHOLE)),
    "shares up to all": seen(
        claim("a", SHARED, percent=60), claim("b", SHARED, percent=40), pods=(claimed("p", "a", SHARED, share="one"),)
    ),
    "replicas": seen(pods=(given("p", "GPU-b::1", "GPU-b::2"), given("q", "GPU-b::3", resource="nvidia.com/other"))),
    "a MIG device beside a part by claim": seen(claim("a", RIGHT), pods=(given("p", "MIG-3g-0"),), gpus=HALVES),
    "devices that are no GPUs": seen(pods=(given("p", "7", resource="x.org/y"), given("q", "7", resource="x.org/y"))),
}


@pytest.mark.parametrize("found", DOUBLE.values(), ids=DOUBLE)
def test_a_double_hand_is_found(found: Sight) -> None:
    assert len(found.violations) == 1, found


@pytest.mark.parametrize("found", FINE.values(), ids=FINE)
def test_what_may_be_is_no_double_hand(found: Sight) -> None:
    assert not found.violations, found


def test_an_instance_belongs_to_a_claim_and_what_a_container_has_exists() -> None:
    left = instance("3g", 0, 4)
    assert seen(claim("a", LEFT), gpus=[card(left)]).odd == set()
    assert seen(claim("a", LEFT, reserved=False), gpus=[card(left)]).odd == {
        f"{(CARD, '3g', 0)} exists and no claim has it"
    }
    assert seen(gpus=[{"uuid": "GPU-c", "mig": [left]}]).odd == set(), "no claim may ask for that GPU"
    assert seen(claim("a", LEFT), pods=(claimed("p", "a", LEFT),), gpus=[card()]).odd == {
        f"{(CARD, '3g', 0)} is a container's and does not exist"
    }
    assert seen(pods=(given("p", "MIG-3g-0::2"),), gpus=[card()]).odd == {
        "MIG-3g-0 is a container's and does not exist"
    }
    assert seen(claim("a", LEFT), pods=(claimed("p", "a", LEFT),)).odd == set(), "there is no hardware to ask"


def test_what_was_seen_is_told_by_kind() -> None:
    pods = (given("p", "GPU-d"), claimed("q", "a", LEFT))
    assert seen(claim("a", LEFT), claim("b", SHARED, percent=5), pods=pods).kinds == {
        "claim", "mig", "shares", "nvidia.com/gpu",
    }  # fmt: skip


def test_a_look_that_fails_lets_what_was_odd_count_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("tests.support.e2e.hands.time", SimpleNamespace(monotonic=lambda: now))
    looking = hands.Hands(SimpleNamespace(agents=[object()]))  # type: ignore[arg-type]
    odd = Sight(odd={"an instance is left alone"})
    seen: list[Sight | Exception] = [odd]

    def look() -> Sight:
        if isinstance(seen[-1], Exception):
            raise seen[-1]
        return seen[-1]

    monkeypatch.setattr(looking, "_sight", look)
    for at, each in ((0.0, odd), (30.0, KeyError("devices")), (50.0, odd)):
        now = at
        seen.append(each)
        looking.check()
    now += hands.SOON_S + 1
    with pytest.raises(AssertionError, match="left alone"):
        looking.check()
