"""A pod that asks for what a layout is about to bring is told of the layout, not advised to make one."""

from typing import Any

import pytest

from agent.cluster.gpulayouts import GPU_LAYOUTS
from controller.cluster.watching.kinds import GPU_NODES
from kube.resources import NODES, PODS
from tests.cli.explain.test_pods import GPU, Cluster, by_claim, offer
from tests.support.cli.shell import Shell
from tests.support.controller.gpunodes import full_status

SHARED = "nvidia.com/gpu.shared"
SLICES = {"gpus": [0], "mode": "timeSlicing", "replicas": 4}


@pytest.fixture
def cluster(shell: Shell) -> Cluster:
    found = Cluster(shell)
    found.server.install(GPU_LAYOUTS)
    return found


def layout(cluster: Cluster, *entries: dict[str, Any], name: str = "shared") -> None:
    body = {"spec": {"nodeSelector": {"pool": "node-1"}, "layout": list(entries)}}
    cluster.server.create(GPU_LAYOUTS, name, body)


async def coming(cluster: Cluster, limits: dict[str, str]) -> list[str]:
    cluster.pod("waits", limits)
    told = await cluster.told("waits")
    assert "no node offers it" in told[3]
    return told[4:]


async def test_the_layout_on_its_way_is_told_with_its_node_and_what_it_changes(cluster: Cluster) -> None:
    layout(cluster, SLICES)
    (line,) = await coming(cluster, {SHARED: "1"})
    assert line == (
        "GpuLayout shared is changing node-1 (GPU 0: whole -> timeSlicing x 4): it will offer 4 nvidia.com/gpu.shared, "
        "and the pod waits for it"
    )


@pytest.mark.parametrize(
    ("when_busy", "said"),
    [
        ("wait", "is changing node-1 (GPU 0: whole -> timeSlicing x 4) once a/b have ended: it will offer 4"),
        ("drain", "is changing node-1 (GPU 0: whole -> timeSlicing x 4) once a/b are evicted: it will offer 4"),
        ("refuse", "is to change node-1 (GPU 0: whole -> timeSlicing x 4) and is refused while a/b hold what it"),
    ],
)
async def test_who_is_in_the_way_is_named(cluster: Cluster, when_busy: str, said: str) -> None:
    holder = {"device": "GPU-10", "namespace": "a", "pod": "b", "container": "c"}
    cluster.server.merge(GPU_NODES, "node-1", {"status": {"holders": [holder]}})
    layout(cluster, {**SLICES, "whenBusy": when_busy})
    (line,) = await coming(cluster, {SHARED: "1"})
    assert line.startswith(f"GpuLayout shared {said}")


async def test_what_the_agent_offers_and_the_kubelet_does_not_know_yet_is_waited_for(cluster: Cluster) -> None:
    layout(cluster, SLICES)
    shared = {"resource": SHARED, "replicas": 4, "enforcement": "nobody"}
    made = [{"uuid": "GPU-10", "index": 0, "mode": "timeSlicing", "offers": [shared]}]
    made += [{"uuid": "GPU-11", "index": 1, "offers": offer(GPU)}]
    resources = [{"name": SHARED, "devices": 4, "sharing": "time-slicing"}]
    cluster.server.merge(GPU_NODES, "node-1", {"status": full_status({"devices": made, "resources": resources})})
    (line,) = await coming(cluster, {SHARED: "1"})
    assert line == f"node-1: its agent offers 4 {SHARED}, which its kubelet has not taken up yet: the pod waits for it"


async def test_a_layout_that_no_node_can_have_and_two_for_one_node_are_told(cluster: Cluster) -> None:
    layout(cluster, {**SLICES, "gpus": [7]})
    (line,) = await coming(cluster, {SHARED: "1"})
    assert line.startswith("GpuLayout shared is not applied: ")
    assert "no such GPU" in line
    layout(cluster, SLICES, name="more")
    said = "node-1 changes nothing: the GpuLayouts more, shared all select it, expected one"
    assert (await cluster.told("waits"))[4:] == [said]


async def test_a_layout_that_is_carried_out_or_brings_something_else_is_not_told(cluster: Cluster) -> None:
    layout(cluster, {"gpus": [0], "mode": "fractional"})
    told = await coming(cluster, {SHARED: "1"})
    assert told[0].startswith("A layout with mode: timeSlicing or mps offers it")
    cluster.pod("runs", {SHARED: "1"}, on="node-1")
    layout(cluster, SLICES, name="more")
    assert not any("GpuLayout" in line for line in await cluster.told("runs"))


async def test_of_a_claim_the_change_to_mode_dra_is_told_until_it_is_made(cluster: Cluster) -> None:
    by_claim(cluster)
    layout(cluster, {"gpus": {"any": 1}, "mode": "dra"}, name="claims")
    said = "GpuLayout claims is changing node-1 (GPU 0: whole -> dra): they are given out by claim then, and the pod"
    assert (await cluster.told("claims"))[4].startswith(said)
    made = [{"uuid": "GPU-10", "index": 0, "mode": "dra"}, {"uuid": "GPU-11", "index": 1, "offers": offer(GPU)}]
    cluster.server.merge(GPU_NODES, "node-1", {"status": full_status({"devices": made})})
    assert not any("GpuLayout" in line for line in await cluster.told("claims"))


async def test_without_the_right_to_read_layouts_the_rest_is_told(cluster: Cluster) -> None:
    cluster.pod("waits", {SHARED: "1"})
    cluster.shell.door.forbidden = "gpulayouts"
    shown = await cluster.shell.run("explain", "pod/waits")
    assert "A layout with mode: timeSlicing or mps offers it" in shown.stdout
    assert "note: gpulayouts are not looked at" in shown.stderr
    assert PODS.plural not in shown.stderr
    assert NODES.plural not in shown.stderr
