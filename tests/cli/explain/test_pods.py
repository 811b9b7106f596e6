"""``tessera explain pod/NAME``: where its GPUs could be, who has them, and which layout would make them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from agent.cluster import gpulayouts
from cli.explain import layouts
from cli.fleetnodes import hardware
from cli.layout.plan import Seen, planned
from controller.cluster.watching.kinds import (
    CLAIM_TEMPLATES,
    DEVICE_CLAIMS,
    DEVICE_CLASSES,
    DEVICE_SLICES,
    GPU_NODES,
    NAMESPACES,
)
from controller.jobs.framework import names
from controller.jobs.framework.podview import ADMISSION_GATE
from controller.reconcile.jobshell.followed_shell import GROUP_KINDS
from inventory.api.names import CONTROLLER
from kube.resources import EVENTS, NODES, PODS
from kube.testing import eventually
from simulator.fleet.fleetfile import load_fleet
from tests.controller.foreign.podgroups.test_native import group
from tests.controller.reconcile.pods.test_reconcile_shell import WITH_PODS
from tests.controller.reconcile.pods.test_reconcile_shell import pod as queued
from tests.support.cli.shell import Shell
from tests.support.controller.gpunodes import full_status, observed

EXAMPLES = Path(__file__).parents[3] / "examples"
NO_ROOM = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.shared."
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_ROOM}
GPU = "nvidia.com/gpu"


def offer(resource: str) -> list[dict[str, Any]]:
    return [{"resource": resource}]


class Cluster:
    """Two nodes with two GPUs each, of which one of the second failed."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.server = shell.scene.server
        for number, healthy in ((1, 2), (2, 1)):
            name = f"node-{number}"
            amounts = {"capacity": {GPU: "2"}, "allocatable": {GPU: str(healthy)}}
            self.server.create(NODES, name, {"metadata": {"labels": {"pool": name}}, "status": amounts})
            devices: list[dict[str, Any]] = [
                {"uuid": f"GPU-{number}{at}", "index": at, "offers": offer(GPU)} for at in (0, 1)
            ]
            if healthy == 1:
                reasons = ["XID 79: the GPU has fallen off the bus"]
                until = "the GPU is reset or the node rebooted"
                devices[1]["health"] = {"state": "Unhealthy", "reasons": reasons, "until": until}
            resources = [{"name": GPU, "devices": 2}]
            self.server.create(GPU_NODES, name, {"status": full_status({"devices": devices, "resources": resources})})

    def pod(self, name: str, limits: dict[str, str], *, on: str = "", namespace: str = "team", **spec: Any) -> None:
        container = {"name": "main", "resources": {"limits": limits, "requests": limits}}
        status: dict[str, Any] = {"phase": "Running" if on else "Pending"}
        if not on:
            status["conditions"] = [UNSCHEDULED]
        body = {"spec": {"containers": [container], "nodeName": on, **spec}, "status": status}
        self.server.create(PODS, name, body, namespace=namespace)

    async def told(self, name: str) -> list[str]:
        return (await self.shell.run("explain", f"pod/{name}")).stdout.splitlines()


@pytest.fixture
def cluster(shell: Shell) -> Cluster:
    return Cluster(shell)


async def test_a_pod_without_a_queue_is_told_who_has_what_it_asks_for_and_what_is_withheld(cluster: Cluster) -> None:
    cluster.pod("runs", {GPU: "2"}, on="node-1", namespace="other")
    cluster.pod("waits", {GPU: "2"}, nodeSelector={"pool": "node-2"})
    told = await cluster.told("waits")
    assert told[0] == "pod team/waits: Pending"
    assert told[1] == NO_ROOM
    rows = [re.split(r"  +", line) for line in told[4:7]]
    assert rows == [
        ["node", "offers", "free", "withheld", "held by", "closed to it"],
        ["node-1", "2", "0", "0", "other/runs (2)", "it has not pool=node-2"],
        ["node-2", "1", "1", "1", "-", "-"],
    ]
    ends = "until the GPU is reset or the node rebooted: tessera node health, on the node, says what to do"
    assert told[7] == f"GPU 1 of node-2 is withheld: XID 79: the GPU has fallen off the bus, {ends}"
    assert len(told) == 8


HEALTHY = {"uuid": "GPU-10", "index": 0, "offers": offer(GPU)}
LAYOUT = "its layout is about to change, until the containers on it have ended"


@pytest.mark.parametrize(
    ("health", "withheld", "told"),
    [
        (
            {"state": "Probation", "until": "it has done well for 10 s and 3 probes"},
            "",
            "it is on probation after a fault, until it has done well for 10 s and 3 probes",
        ),
        ({"state": "Probation"}, "", "it is on probation after a fault, until it has done well for health.probation"),
        (
            {"state": "Unhealthy", "reasons": ["XID 64"], "until": "its board is replaced", "unrepaired": "it is not"},
            "",
            "XID 64, until its board is replaced: it is not",
        ),
        (
            {"state": "Unhealthy", "reasons": ["XID 79: off the bus"], "since": "2024-01-01T00:00:00Z"},
            "",
            r"XID 79: off the bus \(for \d+d\d\dh\), until its fault is over: tessera node health, on the node",
        ),
        ({"state": "Healthy"}, LAYOUT, f"{LAYOUT}$"),
        (
            {"state": "Healthy"},
            "its MIG layout is being changed, until that is done",
            "its MIG .*, until that is done$",
        ),
    ],
)
async def test_a_gpu_that_is_withheld_is_named_with_why_and_until_when(
    cluster: Cluster, health: dict[str, Any], withheld: str, told: str
) -> None:
    why = [{"device": "GPU-11", "why": withheld}] if withheld else []
    found = [HEALTHY, {**HEALTHY, "uuid": "GPU-11", "index": 1, "health": health}]
    cluster.server.merge(GPU_NODES, "node-1", {"status": full_status({"devices": found, "withheld": why})})
    cluster.server.merge(NODES, "node-1", {"status": {"allocatable": {GPU: "1"}}})
    cluster.pod("waits", {GPU: "2"})
    (line,) = [line for line in await cluster.told("waits") if "of node-1 is withheld" in line]
    assert re.match(f"GPU 1 of node-1 is withheld: {told}", line)


async def test_devices_that_the_kubelet_alone_lacks_are_told_with_the_next_step(cluster: Cluster) -> None:
    cluster.server.merge(NODES, "node-1", {"status": {"allocatable": {GPU: "0"}}})
    cluster.pod("waits", {GPU: "1"})
    lacking = f"2 {GPU} of node-1 is withheld: the kubelet does not offer them, until they are: tessera doctor, on the"
    assert any(line.startswith(lacking) for line in await cluster.told("waits"))


async def test_where_pods_of_others_may_not_be_read_holders_are_those_of_the_agents(cluster: Cluster) -> None:
    cluster.server.merge(
        GPU_NODES,
        "node-1",
        {"status": {"holders": [{"device": "GPU-10", "namespace": "a", "pod": "b", "container": "c"}]}},
    )
    cluster.pod("waits", {GPU: "1"})
    cluster.shell.door.forbidden = "/api/v1/pods$"
    assert any(re.split(r"  +", line)[:5] == ["node-1", "2", "1", "0", "a/b"] for line in await cluster.told("waits"))
    cluster.shell.door.forbidden = "/api/v1/(pods|nodes)$|gpunodes"
    shown = await cluster.shell.run("explain", "pod/waits")
    assert shown.stdout.splitlines()[:2] == ["pod team/waits: Pending", NO_ROOM]
    assert "note: nodes are not looked at" in shown.stderr


@pytest.mark.parametrize(
    ("resource", "sentence", "file"),
    [
        ("nvidia.com/gpu.shared", "A layout with mode: timeSlicing or mps offers it", "shared.yaml"),
        ("nvidia.com/mig-1g.10gb", "No GPU here can do MIG", ""),
        ("tessera.dev/gpu-percent", "A layout with mode: fractional offers it", "notebooks.yaml"),
        ("nvidia.com/gpu-large", "A layout with an entry with resource: nvidia.com/gpu-large offers it", "sizes.yaml"),
    ],
)
async def test_where_no_node_offers_it_the_layout_that_would_is_named(
    cluster: Cluster, resource: str, sentence: str, file: str
) -> None:
    cluster.pod("waits", {resource: "1"})
    told = await cluster.told("waits")
    assert told[3] == f"It asks for 1 {resource}: no node offers it."
    assert told[4] == sentence + (f": examples/layouts/{file}" if file else "")
    pool = file.removesuffix(".yaml")
    typed = f"kubectl label node NODE example.com/pool={pool}; tessera layout apply -f examples/layouts/{file}"
    assert told[5:] == ([f"  {typed}"] if file else [])


PLACEMENT = {"profile": "1g.10gb", "profileId": 19, "slices": 1, "size": 1, "starts": [0]}
CUTTABLE = observed("n", devices=[{"uuid": "GPU-0", "index": 5, "mig": {"placements": [PLACEMENT]}}])


def test_of_a_mig_profile_a_gpu_is_named_that_has_it_or_the_profiles_that_there_are() -> None:
    found = layouts.for_resource("nvidia.com/mig-1g.10gb", [CUTTABLE])
    assert found.sentence == "A layout with mode: mig, profiles: [1g.10gb] (on GPU 5 of n, for one) offers it"
    assert "and replicas" in layouts.for_resource("nvidia.com/mig-1g.10gb.shared", [CUTTABLE]).sentence
    none = layouts.for_resource("nvidia.com/mig-9g.90gb", [CUTTABLE])
    assert (none.sentence, none.file) == ("No GPU here has the profile 9g.90gb; there are 1g.10gb", "")
    assert layouts.for_resource(GPU, []).sentence.startswith("No agent has told of a GPU")


def remedies() -> Iterator[tuple[str, str]]:
    """Resources, and the file that is named for each."""
    for resource in (GPU, "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "tessera.dev/gpu-percent"):
        yield resource, layouts.for_resource(resource, [CUTTABLE]).file
    yield "nvidia.com/gpu-large", layouts.for_resource("nvidia.com/gpu-large", [CUTTABLE]).file


@pytest.mark.parametrize(("resource", "file"), list(remedies()))
def test_the_layout_that_is_named_makes_the_resource(resource: str, file: str) -> None:
    read = gpulayouts.read(msgspec.json.encode(yaml.safe_load((EXAMPLES.parent / file).read_text())))
    assert read.layout is not None
    fleet = load_fleet(EXAMPLES / "fleets/h100-8.yaml")
    made = planned(Seen(hardware(fleet, fleet.nodes[0])), read.layout)
    assert (made.problems, made.after.get(resource, 0) > 0) == ((), True)


def test_every_layout_is_for_a_pool_of_its_name() -> None:
    for file in sorted((EXAMPLES / "layouts").glob("*.yaml")):
        spec = yaml.safe_load(file.read_text())["spec"]
        assert spec["nodeSelector"]["example.com/pool"] in (file.stem, "mixed")


def devices(*names_: str, taint: str = "", uuid: str = "GPU-99") -> list[dict[str, Any]]:
    taints = [{"key": taint, "value": "79", "effect": "NoSchedule"}] if taint else []
    attributes = {"type": {"string": "gpu"}, "uuid": {"string": uuid}}
    return [{"name": name, "attributes": attributes, "taints": taints} for name in names_]


def slice_of(cluster: Cluster, on: str, found: list[dict[str, Any]], **more: Any) -> None:
    spec = {"driver": "gpu.nvidia.com", "pool": {"name": on, "generation": 1, "resourceSliceCount": 1}}
    body = {"spec": {**spec, "nodeName": on, "devices": found, **more}}
    cluster.server.create(DEVICE_SLICES, f"slice-{on}", body)


def by_claim(cluster: Cluster, **exactly: Any) -> None:
    """The pod ``claims`` with a template of one request."""
    for resource in (DEVICE_CLASSES, CLAIM_TEMPLATES, DEVICE_CLAIMS, DEVICE_SLICES):
        cluster.server.install(resource)
    selector = {"cel": {"expression": "device.attributes['gpu.nvidia.com'].type == 'gpu'"}}
    cluster.server.create(DEVICE_CLASSES, "gpu.nvidia.com", {"spec": {"selectors": [selector]}})
    asked = {"deviceClassName": "gpu.nvidia.com", **exactly}
    spec = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": asked}]}}}
    cluster.server.create(CLAIM_TEMPLATES, "t", {"spec": spec}, namespace="team")
    cluster.pod("claims", {}, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])


def taken(cluster: Cluster, device: str, on: str, by: str, **result: Any) -> None:
    given = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": on, "device": device, **result}
    status = {"allocation": {"devices": {"results": [given]}}, "reservedFor": [{"resource": "pods", "name": by}]}
    cluster.server.create(DEVICE_CLAIMS, f"of-{by}", {"spec": {}, "status": status}, namespace="other")


async def test_of_a_claim_the_nodes_are_told_whose_devices_its_class_selects(cluster: Cluster) -> None:
    by_claim(cluster, count=2)
    slice_of(cluster, "node-1", [*devices("gpu-0", "gpu-1"), *devices("gpu-2", taint="gpu.nvidia.com/xid")])
    taken(cluster, "gpu-0", "node-1", "hers")
    told = await cluster.told("claims")
    title = "It asks for 2 of DeviceClass gpu.nvidia.com by a claim of template t (not made yet); offered by 1 node"
    assert told[3] == title
    assert re.split(r"  +", told[5]) == ["node-1", "3", "1", "1", "other/hers"]
    assert told[6] == "gpu-2 of node-1 is withheld: taint gpu.nvidia.com/xid=79, until the taint is gone"


async def test_of_a_tainted_device_its_agent_says_which_gpu_it_is_and_until_when(cluster: Cluster) -> None:
    by_claim(cluster)
    slice_of(cluster, "node-2", devices("gpu-1", taint="gpu.nvidia.com/xid", uuid="GPU-21"))
    told = await cluster.told("claims")
    withheld = "gpu-1 (GPU 1) of node-2 is withheld: XID 79: the GPU has fallen off the bus, until the GPU is reset"
    assert told[6].startswith(withheld)


async def test_requests_that_are_answered_alike_are_answered_once(cluster: Cluster) -> None:
    by_claim(cluster)
    both = [{"name": name, "resourceClaimTemplateName": "t"} for name in ("one", "two")]
    cluster.pod("twice", {}, resourceClaims=both)
    told = await cluster.told("twice")
    assert told[3].startswith("It asks for 2 times 1 of DeviceClass gpu.nvidia.com by a claim of template t")
    assert len(told) == len(set(told)) == 6
    slice_of(cluster, "node-2", devices("gpu-1", taint="gpu.nvidia.com/xid"))
    told = await cluster.told("twice")
    assert sum("is withheld" in line for line in told) == 1


async def test_two_resources_with_one_remedy_are_told_it_once(cluster: Cluster) -> None:
    cluster.pod("waits", {"nvidia.com/mig-1g.10gb": "1", "nvidia.com/mig-2g.20gb": "1"})
    told = await cluster.told("waits")
    assert told.count("No GPU here can do MIG") == 1
    assert told[3].startswith("It asks for 1 nvidia.com/mig-1g.10gb and for 1 nvidia.com/mig-2g.20gb: no node")


async def test_a_part_of_a_gpu_is_not_free_while_the_whole_is_taken(cluster: Cluster) -> None:
    by_claim(cluster)
    used = [{"counterSet": "set", "counters": {"slice": {"value": "1"}}}]
    found = [{**each, "consumesCounters": used} for each in devices("whole", "part")]
    slice_of(cluster, "node-1", found, sharedCounters=[{"name": "set", "counters": {"slice": {"value": "1"}}}])
    taken(cluster, "whole", "node-1", "hers")
    assert re.split(r"  +", (await cluster.told("claims"))[5])[:3] == ["node-1", "2", "0"]


@pytest.mark.parametrize(("wanted", "free"), [("40", "1"), ("50", "0")])
async def test_a_shared_gpu_is_free_while_enough_of_it_is_left(cluster: Cluster, wanted: str, free: str) -> None:
    by_claim(cluster, capacity={"requests": {"percent": wanted}})
    shared = {"allowMultipleAllocations": True, "capacity": {"percent": {"value": "100"}}}
    slice_of(cluster, "node-1", [{**devices("gpu-0")[0], **shared}])
    taken(cluster, "gpu-0", "node-1", "hers", consumedCapacity={"percent": "60"})
    assert re.split(r"  +", (await cluster.told("claims"))[5])[:3] == ["node-1", "1", free]


async def test_where_no_device_is_published_the_layout_is_named_and_what_is_missing_is_said(cluster: Cluster) -> None:
    by_claim(cluster)
    told = await cluster.told("claims")
    assert told[3].endswith("by a claim of template t (not made yet): no node offers it.")
    assert told[4] == "A layout with mode: dra (on node-1, for one) offers it: examples/layouts/claims.yaml"
    cluster.pod("lost", {}, resourceClaims=[{"name": "gpu", "resourceClaimName": "no"}])
    assert (await cluster.told("lost"))[3] == "claim no (missing): there is no ResourceClaim no"


async def test_a_pod_that_asks_for_none_and_one_that_is_not_there_are_told_so(cluster: Cluster) -> None:
    cluster.pod("plain", {"cpu": "1"})
    assert (await cluster.told("plain"))[-1] == "It asks for no GPU, neither by resource nor by claim."
    said = (await cluster.shell.run("explain", "pod/no", "-n", "other", code=1)).stderr
    expected = "expected a pod that exists in other (-n NAMESPACE). There is no namespace other"
    assert said == f"Error: WORKLOAD: found pod/no, {expected}\n"
    cluster.shell.scene.server.create(NAMESPACES, "team", {})
    said = (await cluster.shell.run("explain", "pod/plian", code=1)).stderr
    assert said.endswith("(-n NAMESPACE). Did you mean plain?\n")


async def test_a_pod_of_a_queue_is_explained_with_its_workload(cluster: Cluster) -> None:
    cluster.shell.scene.queue()
    cluster.shell.scene.workload("w", 1)
    cluster.pod("mine", {GPU: "1"})
    cluster.server.merge(PODS, "mine", {"metadata": {"annotations": {names.WORKLOAD: "w"}}}, namespace="team")
    told = await cluster.told("mine")
    assert told[0].startswith("team/w: Pending")
    assert "pod team/mine: Pending" in told
    body = await cluster.shell.json("explain", "po/mine")
    assert (body["workload"], body["explanation"]["workload"]) == ("w", "team/w")
    assert [each["node"] for each in body["resources"][0]["nodes"]] == ["node-1", "node-2"]


async def test_a_pod_of_a_refused_group_is_told_why_it_is_not_queued(cluster: Cluster) -> None:
    scene, server = cluster.shell.scene, cluster.server
    server.install(GROUP_KINDS[0])
    scene.queue()
    async with scene.controller(WITH_PODS, core_only=False):
        for name in ("a", "b"):
            queued(scene, name, schedulingGroup={"podGroupName": "lost"})

        def refused() -> set[str]:
            found = [each for each in server.list_all(EVENTS) if each["type"] == "Warning"]
            return {each["regarding"]["name"] for each in found}

        await eventually(lambda: refused() >= {"a", "b"})
        why = "spec.schedulingGroup.podGroupName: no PodGroup 'lost' of scheduling.k8s.io"
        assert any(each.startswith(f"It is not queued: {why}") for each in await cluster.told("a"))
        assert (await cluster.shell.json("explain", "pod/b"))["refusal"]["sentence"].startswith(why)
    cluster.pod("plain", {"cpu": "1"})
    assert (await cluster.shell.json("explain", "pod/plain"))["refusal"] is None


async def test_a_pod_of_a_group_that_lacks_pods_is_told_so(cluster: Cluster) -> None:
    scene, server = cluster.shell.scene, cluster.server
    server.install(GROUP_KINDS[0])
    scene.queue()
    server.create(GROUP_KINDS[0], "ge", group("ge", 3), namespace="team")
    async with scene.controller(WITH_PODS, core_only=False):
        for name in ("a", "b"):
            queued(scene, name, schedulingGroup={"podGroupName": "ge"})
        told = "PodGroup ge has 2 pods, and its minCount is 3"
        await eventually(lambda: told in {each["note"] for each in server.list_all(EVENTS)})
        found = [await cluster.shell.json("explain", f"pod/{name}") for name in ("a", "b")]
        assert [each["refusal"] and each["refusal"]["sentence"] for each in found] == [told, told]


@pytest.mark.parametrize(
    ("later", "told"),
    [
        (("WaitingForPods", CONTROLLER), "PodGroup ge has 2 pods"),
        (("WaitsForQuota", CONTROLLER), None),
        (("Scheduled", "default-scheduler"), "no PodGroup 'ge'"),
    ],
)
async def test_a_refusal_that_is_over_is_told_no_more(
    cluster: Cluster, later: tuple[str, str], told: str | None
) -> None:
    cluster.pod("a", {"cpu": "1"}, schedulingGates=[{"name": ADMISSION_GATE}])
    about = {"kind": "Pod", "name": "a", "namespace": "team"}
    reason, by = later
    events = [
        ("Warning", "Invalid", CONTROLLER, "no PodGroup 'ge'", "10:00:00"),
        ("Normal", reason, by, "PodGroup ge has 2 pods", "10:00:01"),
    ]
    for type_, why, of, note, at in events:
        body = {"type": type_, "reason": why, "note": note, "reportingController": of, "regarding": about}
        cluster.server.create(EVENTS, why.lower(), {**body, "eventTime": f"2026-01-01T{at}Z"}, namespace="team")
    found = (await cluster.shell.json("explain", "pod/a"))["refusal"]
    assert (found and found["sentence"]) == told
