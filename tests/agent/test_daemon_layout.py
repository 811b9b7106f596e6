"""An agent with a layout: each GPU in its own mode, changed live, and nothing taken from a container that runs."""

import asyncio

import grpc.aio
import pytest

from agent.cluster.gpulayouts import Found
from agent.kubelet import podresources
from inventory.devices import ResourceName
from inventory.layout.entries import Fractional, LayoutEntry, LayoutMode, TimeSliced
from kube.reading.entries import CachedObject, ObjectKey
from kube.reading.reflector import Added, Removed, Synced
from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from tests.support.agent.node import EAGER, GPU, Lab, fleet
from tests.support.inventory.layouts import layout, on

PERCENT = "tessera.dev/gpu-percent"
SHARED = "nvidia.com/gpu.shared"
THREE = EAGER + (
    "layout:\n- {gpus: [1], mode: timeSlicing, replicas: 4}\n- {gpus: [2], mode: fractional, granularity: 10}\n"
)


def slices(replicas: int, gpus: str = "[1]", more: str = "") -> str:
    return EAGER + f"layout:\n- {{gpus: {gpus}, mode: timeSlicing, replicas: {replicas}{more}}}\n"


async def percents_ready(lab: Lab, gpus: int = 1) -> None:
    await lab.until(lambda: len(lab.endpoint(PERCENT).healthy) == 100 * gpus, "an MPS daemon is not ready")


async def test_whole_sliced_and_fractional_gpus_stand_side_by_side(lab: Lab) -> None:
    await lab.serve(fleet(3), THREE)
    assert set(lab.kubelet.endpoints) == {GPU, SHARED, PERCENT}
    assert lab.endpoint().healthy == {lab.uuid(0)}
    assert lab.endpoint(SHARED).healthy == {f"{lab.uuid(1)}::{n}" for n in range(4)}
    assert lab.endpoint(PERCENT).devices.keys() == {f"{lab.uuid(2)}::{n}" for n in range(100)}
    await percents_ready(lab)


async def test_a_fraction_is_its_part_of_one_gpus_memory_and_threads(lab: Lab) -> None:
    await lab.serve(fleet(3), THREE)
    await percents_ready(lab)
    grant = await lab.kubelet.allocate(PERCENT, 30)
    envs = grant.response.envs
    assert envs["NVIDIA_VISIBLE_DEVICES"] == lab.uuid(2)
    assert envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={40960 * 30 // 100}M"
    mounts = {mount.container_path: mount.host_path for mount in grant.response.mounts}
    assert mounts[envs["CUDA_MPS_PIPE_DIRECTORY"]] == str(lab.state_dir / "mps" / lab.uuid(2) / "pipe")
    assert "CUDA_MPS_PIPE_DIRECTORY" not in (await lab.kubelet.allocate(SHARED, 1, pod="sliced")).response.envs


async def test_what_does_not_fit_one_gpu_is_refused_with_the_sentence_why(lab: Lab) -> None:
    both = EAGER + "layout:\n- {gpus: [0, 1], mode: fractional, granularity: 10}\n"
    await lab.serve(fleet(2), both, resource=PERCENT)
    await percents_ready(lab, 2)
    await lab.kubelet.allocate(PERCENT, 50, pod="a")
    await lab.kubelet.allocate(PERCENT, 60, pod="b")
    for size, why in ((60, "expected 50 at most"), (15, "expected a multiple of 10")):
        with pytest.raises(grpc.aio.AioRpcError, match=why) as refused:
            await lab.kubelet.allocate(PERCENT, size, pod="c")
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    await lab.until(lambda: lab.agent.node_state.percent_largest() == 50)


async def test_a_layout_changes_live_and_touches_no_other_resources_stream(lab: Lab) -> None:
    await lab.serve(fleet(3), THREE)
    await percents_ready(lab)
    before = {name: (one.registration.endpoint, one.lists) for name, one in lab.kubelet.endpoints.items()}
    await lab.agent.reconfigure(lab.settings(THREE.replace("replicas: 4", "replicas: 8")))
    await lab.until(lambda: len(lab.endpoint(SHARED).healthy) == 8)
    after = {name: (one.registration.endpoint, one.lists) for name, one in lab.kubelet.endpoints.items()}
    assert {name: after[name] for name in (GPU, PERCENT)} == {name: before[name] for name in (GPU, PERCENT)}
    assert after[SHARED][0] == before[SHARED][0]


async def test_a_change_that_would_take_a_gpu_from_a_pod_is_refused_by_name_until_it_is_gone(lab: Lab) -> None:
    await lab.serve(fleet(2))
    grant = await lab.kubelet.allocate(GPU, 1, pod="trainer")
    index = 0 if grant.devices == (lab.uuid(0),) else 1
    await lab.until(lambda: len(lab.agent.holders.holders) == 1)
    await lab.agent.reconfigure(lab.settings(slices(4, "[0, 1]")))
    (problem,) = lab.reporter.problems
    assert f"GPU {index} ({lab.uuid(index)}) is to be timeSlicing and is held by default/trainer" in problem
    assert len(lab.endpoint().healthy) == 2
    lab.kubelet.delete("trainer")
    lab.agent.holders.nudge()
    await lab.until(lambda: SHARED in lab.kubelet.endpoints and len(lab.endpoint(SHARED).healthy) == 8)
    assert lab.agent.node_state.problems == ()


async def test_a_change_that_waits_goes_on_elsewhere_and_gives_the_held_gpu_to_nobody_else(lab: Lab) -> None:
    await lab.serve(fleet(2), slices(2, "[0, 1]"), resource=SHARED)
    grant = await lab.kubelet.allocate(SHARED, 1, pod="guest")
    held = lab.uuid(0) if grant.devices[0].startswith(lab.uuid(0)) else lab.uuid(1)
    await lab.until(lambda: len(lab.agent.holders.holders) == 1)
    await lab.agent.reconfigure(lab.settings(EAGER + "layout:\n- {gpus: [0, 1], mode: whole, whenBusy: wait}\n"))
    await lab.until(lambda: GPU in lab.kubelet.endpoints and len(lab.endpoint().healthy) == 1)
    assert held not in lab.endpoint().devices
    await lab.until(lambda: lab.endpoint(SHARED).devices.keys() == {f"{held}::0", f"{held}::1"})
    assert lab.endpoint(SHARED).healthy == set()
    lab.kubelet.delete("guest")
    lab.agent.holders.nudge()
    await lab.until(lambda: len(lab.endpoint().healthy) == 2)


async def test_after_a_restart_a_gpu_is_in_the_mode_that_its_pods_were_promised(lab: Lab) -> None:
    await lab.serve(fleet(2), slices(4), resource=SHARED)
    await lab.kubelet.allocate(SHARED, 1, pod="guest")
    await lab.until(lambda: len(lab.agent.holders.holders) == 1)
    await lab.stop()
    (lab.state_dir / "checkpoint.json").unlink()
    await lab.start(EAGER)
    await lab.until(lambda: bool(lab.agent.node_state.problems))
    await lab.until(lambda: len(lab.endpoint(SHARED).healthy) == 4)
    assert lab.agent.node_state.modes == {lab.uuid(1): TimeSliced(4)}
    (problem,) = lab.agent.node_state.problems
    assert "is to be as without a layout and is held by default/guest" in problem


async def test_a_gpu_that_a_pod_held_before_the_first_layout_is_not_shared_under_it(lab: Lab) -> None:
    await lab.serve(fleet(2))
    await lab.kubelet.allocate(GPU, 2, pod="trainer")
    await lab.stop()
    for name in ("checkpoint.json", "layout.json"):
        (lab.state_dir / name).unlink(missing_ok=True)
    await lab.start(slices(4, "[0, 1]"))
    await lab.until(lambda: bool(lab.agent.node_state.problems))
    await lab.until(lambda: len(lab.endpoint().healthy) == 2)
    assert lab.endpoint().devices.keys() == {lab.uuid(0), lab.uuid(1)}
    assert "is held by default/trainer" in lab.agent.node_state.problems[0]


async def test_a_layout_with_a_mistake_is_named_and_nothing_of_it_is_applied(lab: Lab) -> None:
    await lab.serve(fleet(2), slices(4, "[1, 7]"))
    assert lab.endpoint().healthy == {lab.uuid(0), lab.uuid(1)}
    (problem,) = lab.reporter.problems
    assert problem == (
        f"{lab.folder}/config.yaml:4: gpus: 7: no such GPU, this node has the GPUs 0, 1 (NVIDIA A100-SXM4-40GB), "
        "expected one of them: the layout is not applied. Correct the layout"
    )


async def test_a_gpulayout_stands_in_the_files_place_and_is_remembered(lab: Lab) -> None:
    await lab.serve(fleet(2), slices(4), resource=SHARED)
    lab.agent._layout.object_layout = layout(LayoutEntry(on(0), LayoutMode.FRACTIONAL, granularity=50))
    await lab.agent.reconfigure(lab.settings(slices(4)))
    await lab.until(lambda: PERCENT in lab.kubelet.endpoints and len(lab.endpoint(PERCENT).healthy) == 100)
    assert lab.agent.node_state.modes == {lab.uuid(0): Fractional(50)}
    await lab.stop()
    agent = await lab.start(slices(4))
    assert agent._files.layout.object_layout == layout(LayoutEntry(on(0), LayoutMode.FRACTIONAL, granularity=50))


@pytest.mark.parametrize("settled", [False, True])
async def test_a_gpulayout_right_after_the_start_waits_for_no_poll(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, settled: bool
) -> None:
    monkeypatch.setattr(podresources, "IDLE_INTERVAL_S", 1000.0)
    await lab.serve(fleet(2))
    # Soon it is known that nobody holds them, and no GPU is unlisted for a moment.
    await lab.until(lambda: lab.agent.node_state._held is not None)
    if not settled:
        lab.agent.node_state._held = None
    watch = lab.agent.watch
    entry = LayoutEntry(on(0), LayoutMode.TIME_SLICING, replicas=2)
    watch._labels, watch._layouts_known = {}, True
    watch._layouts = {"half": Found("half", {}, layout(entry))}
    lab.agent._node_changed()
    assert lab.agent.node_state.awaits_holders
    assert lab.endpoint().healthy == {lab.uuid(0), lab.uuid(1)}
    await lab.until(lambda: SHARED in lab.kubelet.endpoints and len(lab.endpoint(SHARED).healthy) == 2)


async def test_two_gpulayouts_that_claim_the_node_change_nothing_and_are_named(lab: Lab) -> None:
    await lab.serve(fleet(2), slices(4, "[0]"), resource=SHARED)
    watch = lab.agent.watch
    watch._labels = {}

    def appears(name: str, *entries: LayoutEntry) -> None:
        watch.hear_layout(Added(ObjectKey("", name), CachedObject(Found(name, {}, layout(*entries)), name, "1")))

    watch.hear_layout(Synced())
    appears("first", LayoutEntry(on(1), LayoutMode.TIME_SLICING, replicas=2))
    await lab.until(lambda: lab.endpoint(SHARED).healthy == {f"{lab.uuid(1)}::{n}" for n in range(2)})
    applied, before = lab.agent._layout.object_layout, lab.agent.node_state.layout
    appears("rival", LayoutEntry(on(0, 1), LayoutMode.FRACTIONAL, granularity=50))
    named = "The GpuLayouts first, rival all select this node"
    assert any(named in problem for problem in lab.reporter.problems)
    assert [named in problem for problem in lab.agent.node_state.problems] == [True]
    assert lab.agent._layout.object_layout == applied
    assert lab.agent.node_state.layout == before
    watch.hear_layout(Removed(ObjectKey("", "first"), CachedObject(Found("first", {}, None), "first", "1")))
    await lab.until(lambda: PERCENT in lab.kubelet.endpoints and len(lab.endpoint(PERCENT).healthy) == 200)
    assert lab.agent.node_state.problems == ()


async def test_what_is_drained_is_given_to_nobody_from_before_its_pods_are_evicted(lab: Lab) -> None:
    await lab.serve(fleet(2), slices(2, "[0]"), resource=SHARED)
    await lab.kubelet.allocate(SHARED, 1, pod="guest")
    await lab.until(lambda: len(lab.agent.holders.holders) == 1)
    (free,) = lab.endpoint(SHARED).devices.keys() - lab.kubelet.held()
    evictor, server = lab.agent.mig.evictor, lab.agent.manager._slots[ResourceName(SHARED)].server
    want, refused = evictor.want, list[bool]()

    def asked(pods: frozenset[str]) -> None:
        """The evictor's task acts on it at the loop's next turn, at the soonest."""
        want(pods)
        if pods:
            asyncio.get_running_loop().call_soon(lambda: refused.append(free in server.view.unhealthy))

    evictor.want = asked  # type: ignore[method-assign] # the moment from which pods may be evicted
    await lab.agent.reconfigure(lab.settings(EAGER + "layout:\n- {gpus: [0], mode: whole, whenBusy: drain}\n"))
    await lab.until(lambda: evictor._wanted == {"default/guest"} and bool(refused))
    assert all(refused)
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=[free])])
    with pytest.raises(grpc.aio.AioRpcError, match="its layout is about to change"):
        await lab.endpoint(SHARED).stub.Allocate(request)
    lab.kubelet.delete("guest")
    lab.agent.holders.nudge()
    await lab.until(lambda: len(lab.endpoint().healthy) == 2)
    assert evictor._wanted == frozenset()
