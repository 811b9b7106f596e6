"""An agent with a GPU in mode dra: what the kubelet and the API server see of it, through kills and mishaps."""

import asyncio
import json
import stat
from collections.abc import Iterable
from typing import Any

import pytest

from agent.dra import forgotten
from agent.dra.claim import RESOURCE_CLAIMS
from agent.dra.files_shell import ClaimFiles
from agent.dra.ledger import Prepared
from agent.dra.publishing.slices import RESOURCE_SLICES
from agent.dra.testing import TEAM
from agent.kubelet.cdifiles import CdiFiles
from agent.kubelet.driverfiles import NoDriverError
from agent.persistence.statefiles import CHECKPOINT, LAYOUT
from agent.words import node as words
from deviceplugin.cdi import Spec
from deviceplugin.strategy import NodeAccess
from inventory.devices import DeviceId
from kubeletapi import drahealth_v1alpha1_pb2 as health
from tests.support.agent.claims import NODE, ClaimLab
from tests.support.agent.node import EAGER, GPU, fleet
from tests.support.hang import HANG_S

HEALTH_SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
TWO = EAGER + "layout:\n- {gpus: [0, 1], mode: dra}\n"


async def test_gpus_of_the_layout_are_published_and_the_others_offered_to_the_device_plugin(claims: ClaimLab) -> None:
    await claims.serve(fleet(3), TWO)
    assert sorted(claims.devices) == ["gpu-0", "gpu-1"]
    assert (await claims.lab.listed()).healthy == {claims.lab.uuid(2)}
    assert set(claims.lab.kubelet.endpoints) == {GPU}
    info = claims.watcher.info
    assert (info.type, info.name) == ("DRAPlugin", "gpu.nvidia.com")
    assert list(info.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin", *HEALTH_SERVICES]
    assert stat.S_IMODE(claims.watcher.sockets[0].stat().st_mode) == 0o600


async def test_a_claim_that_nvidias_driver_prepared_before_is_taken_over(claims: ClaimLab) -> None:
    """Its spec is left until the kubelet asks, and is never beside the agent's own: no device may stand in two."""
    folder = claims.lab.folder / "cdi"
    folder.mkdir(exist_ok=True)
    names = {uid: f"k8s.gpu.nvidia.com-claim_{uid}.yaml" for uid in ("held", "ended", "other")}
    for name in names.values():
        (folder / name).write_text("{}")
    await claims.serve(fleet(2), TWO)
    assert claims.specs == sorted(names.values())
    claims.claim("held", "gpu-1")
    assert not (await claims.watcher.prepare("held"))["held"].error
    assert await claims.watcher.unprepare("ended") == {"ended": ""}
    assert claims.specs == ["k8s.gpu.nvidia.com-claim_held.json", names["other"]]


async def test_a_claim_is_prepared_once_and_a_repeated_call_gets_the_same_answer(claims: ClaimLab) -> None:
    await claims.serve(fleet(2), TWO)
    claims.claim("a", "gpu-1", shareID="s-1")
    answer = (await claims.watcher.prepare("a"))["a"]
    (device,) = answer.devices
    assert (answer.error, list(device.request_names), device.pool_name, device.device_name, device.share_id) == (
        "",
        ["gpu"],
        NODE,
        "gpu-1",
        "s-1",
    )
    assert list(device.cdi_device_ids) == ["k8s.gpu.nvidia.com/claim=a-gpu-1"]
    (name,) = claims.specs
    spec = json.loads((claims.lab.folder / "cdi" / name).read_text())
    (edits,) = spec["devices"]
    assert edits["containerEdits"]["deviceNodes"] == [
        {"path": "/dev/nvidia1", "hostPath": "/dev/null", "permissions": "rwm"}
    ]
    gets = len(claims.server.requests)
    assert (await claims.watcher.prepare("a"))["a"] == answer
    assert len(claims.server.requests) == gets, "what stands is answered from the ledger"
    assert claims.held() == {claims.lab.uuid(1): "pod-a"}
    assert await claims.watcher.unprepare("a") == {"a": ""}
    assert await claims.watcher.unprepare("a", "never") == {"a": "", "never": ""}
    assert (claims.specs, claims.held()) == ([], {})


async def test_each_claim_of_a_call_has_its_own_answer(claims: ClaimLab) -> None:
    await claims.serve(fleet(2), TWO)
    claims.claim("a", "gpu-0")
    claims.claim("b", "gpu-0")
    claims.claim("c", "gpu-7")
    answers = await claims.watcher.prepare("a", "b", "c", "gone")
    good = [uid for uid in ("a", "b") if not answers[uid].error]
    assert len(good) == 1
    held = f"Device gpu-0 is held by ResourceClaim {TEAM}/{good[0]} ({good[0]})"
    assert {uid: answer.error for uid, answer in answers.items() if uid not in good} == {
        ({"a", "b"} - set(good)).pop(): f"{held}. End its pods, or wait until they have ended",
        "c": f"Device gpu-7 of pool {NODE}: found none that is given out by claim, expected one of this node",
        "gone": f"ResourceClaim {TEAM}/gone: found none of this name, expected the claim of the pod",
    }
    assert claims.specs == [f"k8s.gpu.nvidia.com-claim_{good[0]}.json"]


async def test_a_kubelet_before_134_is_served_by_v1beta1(claims: ClaimLab) -> None:
    await claims.serve(fleet(2), TWO)
    claims.claim("a", "gpu-0")
    answer = await claims.watcher.prepare_beta("a")
    assert [list(device.cdi_device_ids) for device in answer.devices] == [["k8s.gpu.nvidia.com/claim=a-gpu-0"]]
    assert claims.held() == {}


async def test_claims_outlive_the_agent_and_what_a_kill_left_half_done_goes(claims: ClaimLab) -> None:
    await claims.serve(fleet(2), TWO)
    claims.claim("a", "gpu-0")
    answer = (await claims.watcher.prepare("a"))["a"]
    await claims.lab.stop()
    assert claims.watcher.sockets == []
    cdi = claims.lab.folder / "cdi"
    (cdi / "k8s.gpu.nvidia.com-claim_half.json").write_text("{")
    (cdi / claims.specs[0]).unlink()
    await claims.lab.start(TWO)
    await claims.registered()
    assert claims.held() == {claims.lab.uuid(0): "pod-a"}
    assert claims.specs == ["k8s.gpu.nvidia.com-claim_a.json"]
    assert (await claims.watcher.prepare("a"))["a"] == answer
    claims.claim("b", "gpu-0")
    assert "is held by" in (await claims.watcher.prepare("b"))["b"].error


@pytest.mark.parametrize("garbage", [b"", b"\0" * 512, b"[1e999]"])
async def test_a_gpu_that_a_claim_holds_is_not_the_plugins_though_the_modes_are_forgotten(
    claims: ClaimLab, garbage: bytes
) -> None:
    await claims.serve(fleet(3), TWO)
    claims.claim("a", "gpu-1")
    assert not (await claims.watcher.prepare("a"))["a"].error
    await claims.lab.stop()
    for name in (LAYOUT, CHECKPOINT):
        (claims.lab.state_dir / name).write_bytes(garbage)
    await claims.lab.start(TWO)
    await claims.registered()
    await claims.lab.look_again()
    offered = {device.gpu for each in claims.lab.agent.node_state.layout.resources for device in each.devices}
    assert offered == {claims.lab.uuid(2)}
    assert claims.lab.report().problems == ()
    assert sorted(claims.devices) == ["gpu-0", "gpu-1"]
    assert claims.held() == {claims.lab.uuid(1): "pod-a"}


async def test_an_api_server_that_is_away_fails_a_prepare_and_no_unprepare(claims: ClaimLab) -> None:
    await claims.serve(fleet(2), TWO)
    claims.claim("a", "gpu-0")
    claims.claim("b", "gpu-1")
    await claims.watcher.prepare("a")
    claims.server.down = True
    assert (await claims.watcher.prepare("b"))["b"].error
    assert await claims.watcher.unprepare("a") == {"a": ""}
    claims.server.down = False
    assert not (await claims.watcher.prepare("b"))["b"].error


async def test_slices_that_a_kubelet_deleted_are_there_again(claims: ClaimLab) -> None:
    await claims.serve(fleet(2), TWO)
    _, last, _ = (each["metadata"]["name"] for each in claims.slices)
    claims.server.delete(RESOURCE_SLICES, last)
    await claims.lab.until(lambda: len(claims.slices) == 3, "slices are written again")
    claims.server.merge(RESOURCE_SLICES, last, {"spec": {"devices": []}})
    await claims.lab.until(lambda: len(claims.devices) == 2, "what another client emptied is full again")


@pytest.mark.parametrize("service", HEALTH_SERVICES)
async def test_a_fault_is_a_taint_and_a_message_of_health_until_it_is_over(claims: ClaimLab, service: str) -> None:
    await claims.serve(fleet(2), TWO)
    claims.claim("a", "gpu-0")
    async with claims.watcher.health(service) as next_list:
        first = await asyncio.wait_for(next_list(), HANG_S)
        assert {each.device.device_name: each.health for each in first.devices} == {
            "gpu-0": health.HEALTHY,
            "gpu-1": health.HEALTHY,
        }
        claims.lab.sim(gpu=0, xid=48)
        await claims.lab.until(lambda: "taints" in claims.devices["gpu-0"], "tainted")
        assert claims.devices["gpu-0"]["taints"] == [
            {"key": "gpu.nvidia.com/xid", "value": "48", "effect": "NoSchedule"}
        ]
        assert "taints" not in claims.devices["gpu-1"]
        told = await asyncio.wait_for(next_list(), HANG_S)
        (sick,) = [each for each in told.devices if each.health == health.UNHEALTHY]
        assert sick.device.device_name == "gpu-0"
        assert "48" in sick.message
    assert "48" in (await claims.watcher.prepare("a"))["a"].error
    claims.lab.sim(gpu=0, reset=True)
    await claims.lab.until(lambda: "taints" not in claims.devices["gpu-0"], "well again")


async def test_a_removed_gpu_stays_with_a_taint_that_evicts_until_its_claim_has_ended(claims: ClaimLab) -> None:
    await claims.serve(fleet(3), EAGER + "layout:\n- {gpus: {product: NVIDIA A100-SXM4-40GB}, mode: dra}\n")
    claims.claim("a", "gpu-1")
    await claims.watcher.prepare("a")
    for gpu in (1, 2):
        claims.lab.sim(gpu=gpu, remove=True)
    await claims.lab.until(lambda: sorted(claims.devices) == ["gpu-0", "gpu-1"], "what nobody holds leaves the slices")
    lost = [{"key": "gpu.nvidia.com/gpu-lost", "value": "", "effect": "NoExecute"}]
    await claims.lab.until(lambda: claims.devices["gpu-1"].get("taints") == lost, "tainted")
    assert "taints" not in claims.devices["gpu-0"]
    assert {each["taints"][0]["effect"] for name, each in claims.parts.items() if name.startswith("gpu-1-")} == {
        "NoExecute"
    }
    claims.claim("b", "gpu-1")
    assert (await claims.watcher.prepare("b"))["b"].error == (
        "Device gpu-1: the GPU is no longer there. See the GpuNode of the node"
    )
    await claims.watcher.unprepare("a")
    await claims.lab.until(lambda: sorted(claims.devices) == ["gpu-0"], "it has left")
    assert "found none that is given out by claim" in (await claims.watcher.prepare("b"))["b"].error


async def test_a_gpu_leaves_the_mode_when_its_claim_has_ended(claims: ClaimLab) -> None:
    await claims.serve(fleet(2), TWO)
    claims.claim("a", "gpu-0")
    await claims.watcher.prepare("a")
    waiting = EAGER + "layout:\n- {gpus: [0], mode: whole, whenBusy: wait}\n- {gpus: [1], mode: dra}\n"
    await claims.lab.agent.reconfigure(claims.lab.settings(waiting))
    await claims.lab.until(lambda: bool(claims.devices["gpu-0"].get("taints")), "withheld from other claims")
    assert GPU not in claims.lab.kubelet.endpoints
    assert any("pod-a" in line for line in claims.lab.report().problems)
    await claims.watcher.unprepare("a")
    await claims.lab.until(lambda: list(claims.devices) == ["gpu-1"], "no longer published")
    assert (await claims.lab.listed()).healthy == {claims.lab.uuid(0)}


async def test_without_a_gpu_in_the_mode_nothing_is_registered_and_no_slice_is_left(claims: ClaimLab) -> None:
    await claims.serve(fleet(2), TWO)
    await claims.lab.agent.reconfigure(claims.lab.settings(EAGER))
    await claims.lab.until(lambda: not claims.slices and not claims.watcher.sockets, "all is gone")
    await claims.lab.agent.reconfigure(claims.lab.settings(TWO))
    await claims.registered()
    assert sorted(claims.devices) == ["gpu-0", "gpu-1"]


async def test_a_cluster_without_the_api_is_told_once_and_asked_for_nothing_else(claims: ClaimLab) -> None:
    claims.server.uninstall(RESOURCE_SLICES)
    claims.server._installed.clear()
    claims.lab.power_on(fleet(2))
    await claims.lab.kubelet.start()
    await claims.lab.start(TWO)
    await claims.lab.until(lambda: bool(claims.lab.report().problems), "the problem is reported")
    assert [line for line in claims.lab.report().problems if "resource.k8s.io/v1" in line]
    assert not [each for each in claims.server.requests if "resourceslices" in each.path]


async def test_an_agent_without_the_mode_asks_the_api_server_nothing_about_claims(claims: ClaimLab) -> None:
    claims.lab.power_on(fleet(1))
    await claims.lab.kubelet.start()
    await claims.lab.start(EAGER)
    await claims.lab.listed()
    await claims.lab.until(lambda: bool(claims.server.requests), "its followers follow")
    assert not [each for each in claims.server.requests if "resource.k8s.io" in each.path]
    assert claims.watcher.sockets == []


async def test_a_kubelet_that_refuses_the_driver_is_reported_until_one_takes_it(
    claims: ClaimLab,
) -> None:
    await claims.serve(fleet(2), TWO)
    await claims.watcher.register("no such service")
    await claims.lab.until(lambda: bool(claims.lab.report().problems), "reported")
    assert claims.lab.report().problems == (words.refused_by_kubelet("gpu.nvidia.com", "no such service"),)
    await claims.watcher.register()
    await claims.lab.until(lambda: not claims.lab.report().problems, "cleared")


async def test_sockets_that_were_swept_away_are_made_anew(claims: ClaimLab) -> None:
    await claims.serve(fleet(2), TWO)
    (old,) = claims.watcher.sockets
    old.unlink()
    await claims.lab.until(lambda: claims.watcher.sockets not in ([], [old]), "a fresh socket")
    claims.claim("a", "gpu-0")
    await claims.watcher.register()
    assert not (await claims.watcher.prepare("a"))["a"].error


async def test_a_node_without_the_drivers_files_refuses_a_claim_and_goes_on(
    claims: ClaimLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await claims.serve(fleet(2), TWO)

    async def none(_: CdiFiles, __: NodeAccess) -> Spec:
        raise NoDriverError("no libcuda.so.1 below /driver-root")

    monkeypatch.setattr(CdiFiles, "gpu_spec", none)
    claims.lab.agent.dra._preparer._files._made_for = None
    claims.claim("a", "gpu-0")
    claims.claim("b", "gpu-1")
    answers = await claims.watcher.prepare("a", "b")
    assert {answer.error for answer in answers.values()} == {"no libcuda.so.1 below /driver-root"}
    assert claims.held() == {}
    monkeypatch.undo()
    assert not (await claims.watcher.prepare("a"))["a"].error


async def test_a_claim_holds_its_gpu_while_its_files_are_written(
    claims: ClaimLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await claims.serve(fleet(2), TWO)
    claims.claim("a", "gpu-0")
    writing, go = asyncio.Event(), asyncio.Event()
    write = ClaimFiles.write

    async def slow(files: ClaimFiles, some: Iterable[Prepared], access: NodeAccess, unit: Any) -> None:
        writing.set()
        await go.wait()
        await write(files, some, access, unit)

    monkeypatch.setattr(ClaimFiles, "write", slow)
    call = asyncio.create_task(claims.watcher.prepare("a"))
    await asyncio.wait_for(writing.wait(), HANG_S)
    one = EAGER + "layout:\n- {gpus: [0], mode: whole, whenBusy: wait}\n- {gpus: [1], mode: dra}\n"
    await claims.lab.agent.reconfigure(claims.lab.settings(one))
    assert any("GPU 0" in line for line in claims.lab.agent.node_state.problems), "the layout waits for the claim"
    assert GPU not in claims.lab.kubelet.endpoints
    go.set()
    assert not (await call)["a"].error


async def test_what_the_kubelet_has_forgotten_is_given_back_once_its_claim_is_gone(
    claims: ClaimLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await claims.serve(fleet(2), TWO)
    claims.claim("a", "gpu-0")
    claims.claim("b", "gpu-1")
    await claims.watcher.prepare("a", "b")
    claims.server.delete(RESOURCE_CLAIMS, "a", namespace=TEAM)
    monkeypatch.setattr(forgotten, "LOOK_S", 0.0)
    left = ["k8s.gpu.nvidia.com-claim_b.json"]
    await claims.lab.until(lambda: claims.specs == left, "the spec is removed, after the claim is given back")
    assert claims.held() == {claims.lab.uuid(1): "pod-b"}


async def test_while_the_kubelet_is_silent_no_claim_counts_as_forgotten(
    claims: ClaimLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it listed last says nothing of a container that it started since."""
    await claims.serve(fleet(2), TWO)
    claims.claim("a", "gpu-0")
    await claims.watcher.prepare("a")
    holders = claims.lab.agent.holders
    await claims.lab.kubelet.stop()
    holders.nudge()
    await claims.lab.until(lambda: not holders.reachable)
    claims.server.delete(RESOURCE_CLAIMS, "a", namespace=TEAM)
    monkeypatch.setattr(forgotten, "LOOK_S", 0.0)
    dra = claims.lab.agent.dra
    for _ in range(3):
        await dra._forgotten.look(dra._preparer.client)
    assert claims.held() == {claims.lab.uuid(0): "pod-a"}


async def test_admin_access_holds_no_gpu_whatever_the_kubelet_says_of_its_container(claims: ClaimLab) -> None:
    await claims.serve(fleet(2), TWO)
    claims.claim("watcher", "gpu-0", adminAccess=True)
    claims.claim("a", "gpu-1")
    await claims.watcher.prepare("watcher", "a")
    held = claims.lab.agent.dra.claimed
    assert held("gpu.nvidia.com", TEAM, "a", "gpu-1") == DeviceId(claims.lab.uuid(1))
    assert held("gpu.nvidia.com", TEAM, "watcher", "gpu-0") is None
    assert claims.held() == {claims.lab.uuid(1): "pod-a"}
