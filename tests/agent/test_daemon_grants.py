"""Nothing is taken from a container that runs, and no GPU is given in a second shape: the kubelet's last List is not
all that is known of who holds what."""

import asyncio
import socket

import grpc.aio
import pytest

from agent import daemon
from agent.kubelet import grants
from agent.kubelet.podresources import PodResources
from deviceplugin.testing import Grant
from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from tests.support.agent.node import EAGER, GPU, Lab, fleet
from tests.support.hang import HANG_S

SHARED = "nvidia.com/gpu.shared"
SLICED = EAGER + "layout:\n- {gpus: [0], mode: timeSlicing, replicas: 2, whenBusy: wait}\n"
NVIDIAS = EAGER + "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n"
CUT = EAGER + "layout:\n- {gpus: [0], mode: mig, profiles: [3g.20gb, 3g.20gb], whenBusy: wait}\n"
RECUT = CUT.replace("3g.20gb, 3g.20gb", "2g.10gb, 2g.10gb")
POD = ("default", "pod")


def shares(lab: Lab) -> set[str]:
    endpoint = lab.kubelet.endpoints.get(SHARED)
    return endpoint.healthy if endpoint is not None else set()


async def lists(lab: Lab, count: int = 2) -> None:
    """So many Lists that began after this call have been taken in."""
    for _ in range(count):
        now_s = lab.agent._clock()
        lab.agent.holders.nudge()
        await lab.until(lambda now_s=now_s: lab.agent.holders.began_s > now_s)  # type: ignore[misc]


@pytest.mark.parametrize("config", [SLICED, NVIDIAS], ids=["layout", "sharing"])
async def test_a_gpu_that_was_given_a_moment_ago_is_not_offered_by_shares(lab: Lab, config: str) -> None:
    await lab.serve(fleet(1))
    lab.kubelet.unlisted.add(POD)
    await lab.kubelet.allocate(GPU, 1)
    await lab.agent.reconfigure(lab.settings(config))
    await lists(lab)
    assert shares(lab) == set()
    lab.kubelet.unlisted.clear()
    await lists(lab)
    assert shares(lab) == set()
    lab.kubelet.delete("pod")
    await lab.until(lambda: len(shares(lab)) == 2)


async def test_a_list_that_was_asked_for_before_the_grant_says_nothing_of_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lab.serve(fleet(1))
    await lists(lab)
    asked, answer = asyncio.Event(), asyncio.Event()
    list_now = lab.agent.holders._client.list

    async def held_up() -> object:
        found = await list_now()
        asked.set()
        await answer.wait()
        return found

    monkeypatch.setattr(lab.agent.holders._client, "list", held_up)
    lab.agent.holders.nudge()
    await asked.wait()
    await lab.kubelet.allocate(GPU, 1)
    monkeypatch.undo()
    asyncio.get_running_loop().call_later(0.1, answer.set)
    await lab.agent.reconfigure(lab.settings(SLICED))
    await lists(lab)
    assert shares(lab) == set()


async def test_what_no_list_shows_for_a_minute_is_free_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "UNLISTED_S", 3.0)
    await lab.serve(fleet(1))
    lab.kubelet.unlisted.add(POD)
    await lab.kubelet.allocate(GPU, 1)
    lab.kubelet.delete("pod")
    await lab.agent.reconfigure(lab.settings(SLICED))
    assert shares(lab) == set()
    await lab.until(lambda: len(shares(lab)) == 2)


@pytest.mark.parametrize("config", [SLICED, NVIDIAS], ids=["layout", "sharing"])
async def test_while_the_kubelet_is_silent_a_change_waits_and_comes_when_it_is_back(lab: Lab, config: str) -> None:
    await lab.serve(fleet(1))
    await lists(lab)
    await lab.kubelet.stop()
    await lab.agent.reconfigure(lab.settings(config))
    assert lab.agent.node_state.awaits_holders
    assert [one.name for one in lab.agent.node_state.layout.resources] == [GPU]
    await lab.kubelet.start()
    await lab.until(lambda: len(shares(lab)) == 2)


async def test_a_kubelet_that_was_silent_since_the_start_makes_a_later_change_wait(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent before this one gave the GPU to a pod, and left no checkpoint."""
    lab.power_on(fleet(1))
    lab.kubelet.pods[POD] = [Grant(GPU, (lab.uuid(0),), pb.ContainerAllocateResponse())]
    answers, list_now = asyncio.Event(), PodResources.list

    async def held_up(client: PodResources, timeout_s: float = HANG_S) -> object:
        await answers.wait()
        return await list_now(client, timeout_s)

    monkeypatch.setattr(PodResources, "list", held_up)
    monkeypatch.setattr(daemon, "HOLDERS_WITHIN_S", 0.05)
    await lab.kubelet.start()
    await lab.start()
    await lab.listed()
    assert lab.agent.node_state.holders_unknown
    await lab.agent.reconfigure(lab.settings(SLICED))
    assert lab.agent.node_state.awaits_holders
    assert shares(lab) == set()
    answers.set()
    await lists(lab)
    assert shares(lab) == set()
    lab.kubelet.delete("pod")
    await lab.until(lambda: len(shares(lab)) == 2)


async def test_a_kubelet_that_started_anew_and_lists_no_pod_yet_frees_nothing(lab: Lab) -> None:
    await lab.serve(fleet(1))
    await lab.kubelet.allocate(GPU, 1)
    await lab.shown()
    lab.kubelet.unlisted.add(POD)
    await lab.kubelet.restart()
    await lab.agent.reconfigure(lab.settings(SLICED))
    await lists(lab)
    assert shares(lab) == set()
    lab.kubelet.unlisted.clear()
    await lists(lab)
    lab.kubelet.delete("pod")
    await lab.until(lambda: len(shares(lab)) == 2)


async def test_a_resource_that_is_withdrawn_gives_nothing_from_then_on_whatever_its_server_is_busy_with(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lab.serve(fleet(1))
    await lists(lab)
    endpoint = lab.endpoint()

    busy = asyncio.Event()
    monkeypatch.setattr(lab.agent.manager, "mend", busy.wait)
    lab.agent.manager._wake.set()
    await lab.agent.reconfigure(lab.settings(SLICED))
    assert [one.name for one in lab.agent.node_state.layout.resources] == [SHARED]
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=[lab.uuid(0)])])
    with pytest.raises(grpc.aio.AioRpcError, match="unknown device"):
        await endpoint.stub.Allocate(request, timeout=HANG_S)


async def test_an_instance_that_was_given_a_moment_ago_is_not_cut_away(lab: Lab) -> None:
    half = "nvidia.com/mig-3g.20gb"
    await lab.serve(fleet(1), CUT, resource=half)
    lab.kubelet.unlisted.add(POD)
    grant = await lab.kubelet.allocate(half, 1)
    await lab.agent.reconfigure(lab.settings(RECUT))
    await lab.until(lambda: lab.agent.mig.waits, "the change waits")
    await lists(lab)
    assert grant.devices[0] in lab.agent.node_state.units()
    assert "a pod that the kubelet has not listed yet" in " ".join(lab.agent.node_state.problems)
    lab.kubelet.unlisted.clear()
    await lists(lab)
    assert grant.devices[0] in lab.agent.node_state.units()
    lab.kubelet.delete("pod")
    await lab.until(lambda: lab.kubelet.endpoints.get("nvidia.com/mig-2g.10gb") is not None)
    await lab.until(lambda: len(lab.endpoint("nvidia.com/mig-2g.10gb").healthy) == 2)


async def test_a_gpu_that_was_given_a_moment_ago_is_not_released_for_a_reset(lab: Lab) -> None:
    await lab.serve(fleet(1))
    lab.kubelet.unlisted.add(POD)
    await lab.kubelet.allocate(GPU, 1)
    with pytest.raises(ValueError, match="in use by a pod that the kubelet has not listed yet"):
        await lab.agent.mig.release(0, 1.0, forced=False)


async def test_a_daemon_whose_share_was_given_a_moment_ago_runs_on(lab: Lab) -> None:
    shared = EAGER + "layout:\n- {gpus: [0], mode: mps, replicas: 2, whenBusy: wait}\n"
    await lab.serve(fleet(1), shared, resource=SHARED)
    await lab.until(lambda: len(shares(lab)) == 2, "the MPS daemon is ready")
    await lists(lab)
    lab.kubelet.unlisted.add(POD)
    await lab.kubelet.allocate(SHARED, 1)
    assert lab.agent.mps._daemons._core.is_held(lab.uuid(0))
    await lab.agent.reconfigure(lab.settings())
    await lists(lab)
    (daemon,) = lab.agent.mps.states()
    assert (daemon.phase, daemon.wanted) == ("Ready", True)


@pytest.mark.parametrize("left", ["nothing", "a dead socket"])
async def test_while_no_kubelet_runs_at_the_start_a_gpu_whose_mode_is_to_change_is_not_taken_for_free(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """Agent and kubelet are stopped together, and the layout is another one by then; the pod runs on."""
    await lab.serve(fleet(1))
    await lab.kubelet.allocate(GPU, 1)
    await lab.shown()
    await lab.stop()
    await lab.kubelet.stop()
    registration = lab.kubelet.folder / "kubelet.sock"
    registration.unlink(missing_ok=True)
    if left == "a dead socket":
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(registration))
    monkeypatch.setattr(daemon, "HOLDERS_WITHIN_S", 0.05)
    await lab.start(SLICED)
    await lab.until(lambda: lab.discoveries > 0)
    await lab.look_again()
    assert lab.agent.node_state.holders_unknown
    assert lab.agent.node_state.views() == ()
    await lab.kubelet.start()
    await lab.look_again()
    await lab.until(lambda: not lab.agent.node_state.holders_unknown)
    await lists(lab)
    assert shares(lab) == set()
    lab.kubelet.delete("pod")
    await lab.until(lambda: len(shares(lab)) == 2)


async def test_an_instance_of_a_pod_that_was_never_listed_is_waited_for_also_where_the_layout_refuses(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grants, "UNLISTED_S", 3.0)
    half, third = "nvidia.com/mig-3g.20gb", "nvidia.com/mig-2g.10gb"
    refusing = [config.replace(", whenBusy: wait", "") for config in (CUT, RECUT)]
    await lab.serve(fleet(1), refusing[0], resource=half)
    lab.kubelet.unlisted.add(POD)
    await lab.kubelet.allocate(half, 1)
    lab.kubelet.delete("pod")
    await lab.agent.reconfigure(lab.settings(refusing[1]))
    await lab.until(lambda: third in lab.kubelet.endpoints and len(lab.endpoint(third).healthy) == 2)
