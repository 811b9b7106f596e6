"""What recorded histories say of a node: each change once, in the judge's own words."""

import io
import json
from typing import Any

import pytest

from history.judge import Finding, judged
from history.record import read
from kubeletapi import podresources_v1_pb2 as pb
from tests.support.agent.hands import DRIVER
from tests.support.e2e.devicelines import DeviceLines, claimed_devices

Json = dict[str, Any]
NODE, CARD, OTHER = "node-1", "GPU-a", "GPU-b"
WHOLE: Json = {"name": "gpu-0", "attributes": {"uuid": {"string": CARD}}}
PART: Json = {
    "name": "gpu-0-mig-3g-9-4",
    "attributes": {"parentUUID": {"string": CARD}, "profile": {"string": "3g"}},
}
PUBLISHED = {(DRIVER, NODE, each["name"]): each for each in (WHOLE, PART)}


def holder(pod: str, *ids: str) -> pb.PodResources:
    group = pb.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=ids)
    return pb.PodResources(namespace="team", name=pod, containers=[pb.ContainerResources(name="c", devices=[group])])


def claimer(pod: str, claim: str, device: Json, share: str = "") -> pb.PodResources:
    resource = pb.ClaimResource(driver_name=DRIVER, pool_name=NODE, device_name=device["name"], share_id=share)
    found = pb.DynamicResource(claim_namespace="team", claim_name=claim, claim_resources=[resource])
    return pb.PodResources(
        namespace="team", name=pod, containers=[pb.ContainerResources(name="c", dynamic_resources=[found])]
    )


def card(uuid: str = CARD, *instances: str) -> Json:
    """``instances``: UUIDs, four slices each."""
    mig = [{"profile": "3g", "start": 4 * at, "size": 4, "uuids": [each]} for at, each in enumerate(instances)]
    return {"uuid": uuid, "mig": mig or None}


class Node:
    """Looked at every three seconds; ``told`` has all lines."""

    def __init__(self) -> None:
        self.made = DeviceLines(NODE)
        self.t = 0.0
        self.told: list[Json] = []

    def look(
        self,
        *pods: pb.PodResources,
        offered: tuple[str, ...] = (CARD,),
        gpus: list[Json] | None = None,
        watched: set[tuple[str, str]] | None = None,
    ) -> list[Json]:
        self.t += 3
        devices = [pb.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=offered)]
        lines = list(
            self.made.lines(
                pb.ListPodResourcesResponse(pod_resources=pods),
                pb.AllocatableResourcesResponse(devices=devices),
                gpus,
                PUBLISHED,
                watched or set(),
            )
        )
        self.told += [{"t": self.t, **each} for each in lines]
        return lines

    def found(self) -> list[Finding]:
        end = {"t": self.t + 30, "source": "recorder", "type": "END"}
        text = b"".join(json.dumps(each).encode() + b"\n" for each in [*self.told, end])
        return list(judged(read(io.BytesIO(text))).findings)


def test_only_changes_are_told() -> None:
    node = Node()
    assert [each.get("call", each["source"]) for each in node.look(holder("p", CARD), gpus=[card()])] == [
        "hardware",
        "PodResources",
    ]
    assert node.look(holder("p", CARD), gpus=[card()]) == []
    assert node.look(holder("p", CARD), pb.PodResources(namespace="team", name="bare"), gpus=[card()]) == []
    assert [each["pods"] for each in node.look(gpus=[card()])] == [[]]


def test_the_order_in_which_a_kubelet_lists_is_no_change() -> None:
    node = Node()
    node.look(holder("p", CARD), holder("q", OTHER))
    assert node.look(holder("q", OTHER), holder("p", CARD)) == []


def test_claims_come_and_go_as_calls() -> None:
    node = Node()
    (told,) = node.look(claimer("p", "c", WHOLE))
    assert (told["call"], told["claim"], told["devices"]) == ("NodePrepareResources", "team/c", [CARD])
    (told,) = node.look()
    assert (told["call"], told["claim"]) == ("NodeUnprepareResources", "team/c")


def test_an_instance_of_a_claim_is_the_hardwares_own() -> None:
    node = Node()
    _, told = node.look(claimer("p", "c", PART), gpus=[card(CARD, "MIG-0", "MIG-4")])
    assert told["devices"] == ["MIG-4"]
    assert not [each for each in Node().look(claimer("p", "c", PART)) if "claim" in each], "no hardware names it"


def test_who_watches_with_admin_access_is_no_hand() -> None:
    assert Node().look(claimer("p", "c", WHOLE), watched={("team/c", WHOLE["name"])}) == []


def test_devices_of_claims_are_looked_up_by_what_names_them() -> None:
    listed = pb.ListPodResourcesResponse(pod_resources=[holder("p", CARD), claimer("q", "c", PART)])
    assert claimed_devices(listed) == {(DRIVER, NODE, PART["name"])}


@pytest.mark.parametrize(
    ("pods", "rule"),
    [
        ((holder("p", CARD), holder("q", CARD)), "one-device-two-hands"),
        ((holder("p", CARD), claimer("q", "c", WHOLE)), "one-device-two-hands"),
        ((holder("p", CARD), holder("q", f"{CARD}::0")), "one-device-two-hands"),
        ((holder("p", CARD), holder("q", "MIG-0")), "one-device-two-hands"),
    ],
)
def test_what_meets_is_found_by_the_judge(pods: tuple[pb.PodResources, ...], rule: str) -> None:
    node = Node()
    node.look(*pods, gpus=[card(CARD, "MIG-0")], offered=(f"{CARD}::0", f"{CARD}::1"))
    assert [each.rule for each in node.found()] == [rule]


@pytest.mark.parametrize(
    "pods",
    [
        (holder("p", f"{CARD}::0"), holder("q", f"{CARD}::1"), holder("r", f"{CARD}::2")),
        (claimer("p", "c", WHOLE, share="x"), claimer("q", "d", WHOLE, share="y")),
        (holder("p", "MIG-0"), claimer("q", "c", PART)),
        (holder("p", CARD), holder("q", OTHER)),
    ],
)
def test_what_does_not_meet_is_not(pods: tuple[pb.PodResources, ...]) -> None:
    """A layout may have fewer replicas than one before it gave away."""
    node = Node()
    node.look(*pods, gpus=[card(CARD, "MIG-0", "MIG-4"), card(OTHER)], offered=(f"{CARD}::0",))
    assert node.found() == []


def test_an_instance_that_goes_under_a_pod_is_found() -> None:
    node = Node()
    node.look(holder("p", "MIG-0"), gpus=[card(CARD, "MIG-0")])
    node.look(holder("p", "MIG-0"), gpus=[card(CARD)])
    assert [each.rule for each in node.found()] == ["destroyed-while-held"]


def test_a_reset_by_the_tool_is_a_change_and_one_under_a_pod_is_found() -> None:
    node = Node()
    node.look(holder("a", CARD), gpus=[card()])
    assert node.look(holder("a", CARD), gpus=[{**card(), "toolResets": 0}]) == []
    node.look(holder("a", CARD), gpus=[card()])
    node.look(holder("a", CARD), gpus=[{**card(), "toolResets": 1}])
    assert node.told[-1]["gpus"][0]["resets"] == 1
    assert [each.rule for each in node.found()] == ["reset-while-held"]
