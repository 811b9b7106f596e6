"""MIG instances by claim in a running agent: cut when a claim is prepared, gone when it is given back."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from agent.dra import cutting
from agent.dra import node as dra_node
from agent.dra.claimholders import MAX_RETURNED, ClaimHolders
from agent.dra.cutting import Cuts
from agent.dra.ledger import Ledger
from agent.dra.testing import DRIVER
from agent.mig import reconciler
from agent.nodestate import Choices, NodeState
from inventory.devices import GpuUuid, NodeName
from kube.errors import InvalidError
from kube.testing import FakeApiServer
from kube.writing import latest
from kubeletapi import podresources_v1_pb2 as pr
from tests.support.agent.claims import A100, NODE, ClaimLab, divided
from tests.support.agent.node import EAGER, GPU, Lab, fleet
from tests.support.hang import HANG_S

H100 = "NVIDIA H100 80GB HBM3"
ALL = EAGER + "layout:\n- {gpus: {product: %s}, mode: dra}\n"
SMALL, LARGE = "gpu-0-mig-1g10gb-19-6", "gpu-0-mig-4g40gb-5-0"


@pytest.fixture
async def claims(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ClaimLab]:
    monkeypatch.setattr(dra_node, "POLL_S", 0.02)
    monkeypatch.setattr(reconciler, "WAIT_POLL_S", 0.05)
    async with FakeApiServer() as server:
        yield ClaimLab(lab, server, H100)
        await lab.stop()


async def serve(claims: ClaimLab, gpus: int = 1) -> None:
    await claims.serve(fleet(gpus, claims.product), ALL % claims.product)


async def test_a_part_is_cut_for_its_claim_and_removed_when_it_is_given_back(claims: ClaimLab) -> None:
    await serve(claims, 2)
    assert len(claims.parts) == 2 * 25
    assert [bool(each["spec"].get("sharedCounters")) for each in claims.slices] == [True, False, False]
    versions = [each["metadata"]["resourceVersion"] for each in claims.slices]
    claims.claim("a", SMALL, "gpu-1-mig-7g80gb-0-0")
    answer = (await claims.watcher.prepare("a"))["a"]
    assert (answer.error, [device.device_name for device in answer.devices]) == ("", [SMALL, "gpu-1-mig-7g80gb-0-0"])
    assert (claims.instances(0), claims.instances(1)) == ([("1g.10gb", 6)], [("7g.80gb", 0)])
    (name,) = claims.specs
    spec = json.loads((claims.lab.folder / "cdi" / name).read_text())
    assert [device["name"] for device in spec["devices"]] == [f"a-{SMALL}", "a-gpu-1-mig-7g80gb-0-0"]
    (node, *capabilities) = [each["path"] for each in spec["devices"][0]["containerEdits"]["deviceNodes"]]
    assert (node, len(capabilities)) == ("/dev/nvidia0", 2)
    migs = {str(mig.uuid) for gpu in claims.lab.report().node.gpus for mig in gpu.mig_instances}
    assert {str(device): pod for device, pod in claims.held().items()} == dict.fromkeys(migs, "pod-a")
    assert (await claims.watcher.prepare("a"))["a"] == answer
    assert await claims.watcher.unprepare("a") == {"a": ""}
    assert (claims.instances(0), claims.instances(1), claims.held(), claims.specs) == ([], [], {}, [])
    assert [each["metadata"]["resourceVersion"] for each in claims.slices] == versions, "slices say what may be cut"
    assert claims.lab.report().problems == ()


async def test_parts_and_the_whole_gpu_follow_each_other_and_never_meet(claims: ClaimLab) -> None:
    await serve(claims)
    for uid, device in {"a": SMALL, "b": LARGE, "c": "gpu-0-mig-3g40gb-9-4", "whole": "gpu-0"}.items():
        claims.claim(uid, device)
    answers = await claims.watcher.prepare("a", "b", "c")
    (beaten,) = [uid for uid in ("a", "c") if answers[uid].error]
    assert "is held by ResourceClaim" in answers[beaten].error
    assert not answers["b"].error
    assert len(claims.instances(0)) == 2
    assert "Device gpu-0 is held by ResourceClaim team/" in (await claims.watcher.prepare("whole"))["whole"].error
    await asyncio.gather(*(claims.watcher.unprepare(uid) for uid in ("a", "b", "c")))
    assert claims.instances(0) == []
    assert claims.lab.simulation.hardware.gpus[0].mig.enabled
    assert not (await claims.watcher.prepare("whole"))["whole"].error
    assert not claims.lab.simulation.hardware.gpus[0].mig.enabled
    assert "is held by ResourceClaim team/whole" in (await claims.watcher.prepare("a"))["a"].error
    await claims.watcher.unprepare("whole")
    assert not (await claims.watcher.prepare("a"))["a"].error


async def test_an_ampere_gpu_is_switched_though_the_agent_listens_to_it(claims: ClaimLab) -> None:
    claims.product = A100
    await serve(claims)
    claims.claim("a", "gpu-0-mig-3g20gb-9-4")
    claims.claim("whole", "gpu-0")
    assert not (await claims.watcher.prepare("a"))["a"].error
    assert claims.instances(0) == [("3g.20gb", 4)]
    await claims.watcher.unprepare("a")
    assert not (await claims.watcher.prepare("whole"))["whole"].error
    assert not claims.lab.simulation.hardware.gpus[0].mig.enabled


async def test_claims_keep_their_parts_through_a_restart_and_what_no_claim_has_goes(claims: ClaimLab) -> None:
    await serve(claims)
    claims.claim("a", SMALL)
    claims.claim("b", LARGE)
    answer = (await claims.watcher.prepare("a", "b"))["a"]
    before = claims.held()
    await claims.lab.stop()
    ledger = claims.lab.state_dir / "claims.json"
    kept = json.loads(ledger.read_text())
    kept["claims"] = [each for each in kept["claims"] if each["uid"] == "a"]
    ledger.write_text(json.dumps(kept))
    await claims.lab.start(ALL % H100)
    await claims.registered()
    await claims.lab.until(lambda: claims.instances(0) == [("1g.10gb", 6)], "an orphan is removed")
    await claims.lab.until(lambda: len(claims.held()) == 1, "the holder is known")
    assert claims.held().items() <= before.items()
    assert (await claims.watcher.prepare("a"))["a"] == answer


async def test_an_orphan_that_a_process_uses_stays_until_it_ends_and_others_are_cut_beside_it(claims: ClaimLab) -> None:
    await serve(claims)
    claims.claim("a", SMALL)
    await claims.watcher.prepare("a")
    await claims.lab.stop()
    (gi,) = claims.lab.simulation.hardware.gpus[0].mig.instances
    claims.lab.sim(gpu=0, load={"pid": 77, "gi": gi.id, "ci": 0})
    (claims.lab.state_dir / "claims.json").unlink()
    await claims.lab.start(ALL % H100)
    await claims.registered()
    claims.claim("b", LARGE)
    claims.claim("c", "gpu-0-mig-1g20gb-15-6")
    assert not (await claims.watcher.prepare("b"))["b"].error
    assert claims.instances(0) == [("1g.10gb", 6), ("4g.40gb", 0)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "MADE_WITHIN_S", 0.3)
        error = (await claims.watcher.prepare("c"))["c"].error
    assert "1g.10gb at slice 6 is in use by process 77" in error
    claims.lab.sim(gpu=0, end=77)
    await claims.lab.until(lambda: claims.instances(0) == [("4g.40gb", 0)], "the orphan is removed")
    assert not (await claims.watcher.prepare("c"))["c"].error


async def test_a_fault_of_the_gpu_is_a_taint_on_all_its_parts_and_none_of_anothers(claims: ClaimLab) -> None:
    await serve(claims, 2)
    claims.claim("a", SMALL)
    await claims.watcher.prepare("a")
    async with claims.watcher.health() as next_list:
        first = await asyncio.wait_for(next_list(), HANG_S)
        assert sorted(each.device.device_name for each in first.devices) == ["gpu-0", SMALL, "gpu-1"]
        claims.lab.sim(gpu=0, lost=True)
        await claims.lab.until(lambda: "taints" in claims.parts[SMALL], "tainted")
        tainted = {name for name, each in (claims.parts | claims.devices).items() if "taints" in each}
        assert tainted == {name for name in claims.parts | claims.devices if name.startswith("gpu-0")}
        assert {taint["effect"] for taint in claims.parts[LARGE]["taints"]} == {"NoExecute"}
    claims.claim("b", LARGE)
    assert f"Device {LARGE}: " in (await claims.watcher.prepare("b"))["b"].error


async def test_a_layout_leaves_the_mode_when_the_claim_of_a_part_has_ended(claims: ClaimLab) -> None:
    await serve(claims)
    claims.claim("a", SMALL)
    await claims.watcher.prepare("a")
    await claims.lab.agent.reconfigure(
        claims.lab.settings(EAGER + "layout:\n- {gpus: [0], mode: whole, whenBusy: wait}\n")
    )
    await claims.lab.until(lambda: "taints" in claims.parts[LARGE], "withheld from other claims")
    assert claims.instances(0) == [("1g.10gb", 6)]
    await claims.watcher.unprepare("a")
    await claims.lab.until(lambda: not claims.slices, "nothing is published")
    await claims.lab.until(lambda: not claims.lab.simulation.hardware.gpus[0].mig.enabled, "MIG mode is off")
    assert (await claims.lab.listed(GPU)).healthy == {claims.lab.uuid(0)}


async def test_no_layout_takes_a_gpu_while_a_part_of_it_is_being_cut(claims: ClaimLab) -> None:
    await serve(claims)
    claims.claim("a", SMALL)
    claims.lab.sim(gpu=0, slow={"call": "nvmlDeviceCreateGpuInstanceWithPlacement", "seconds": 0.3})
    call = asyncio.create_task(claims.watcher.prepare("a"))
    await claims.lab.until(lambda: claims.held() == {claims.lab.uuid(0): "pod-a"}, "the GPU is held by the claim")
    whole = EAGER + "layout:\n- {gpus: [0], mode: whole, whenBusy: wait}\n"
    await claims.lab.agent.reconfigure(claims.lab.settings(whole))
    assert any("pod-a" in line for line in claims.lab.report().problems)
    assert not (await call)["a"].error
    assert claims.instances(0) == [("1g.10gb", 6)]


def test_what_was_given_back_is_remembered_for_a_while_only() -> None:
    claim_holders = ClaimHolders(DRIVER, Ledger(), Cuts(NodeState(NodeName(NODE), Choices()), Ledger(), nothing))
    for number in range(MAX_RETURNED + 1):
        claim_holders.returned("team", f"claim-{number}")
    held = [_listing(f"claim-{number}") for number in (0, MAX_RETURNED)]
    assert list(claim_holders.holding(pr.ListPodResourcesResponse(pod_resources=held), {SMALL: "MIG-1"})) == [
        ("MIG-1", "team/pod-claim-0")
    ]
    claim_holders.taken("team", f"claim-{MAX_RETURNED}")
    found = claim_holders.holding(pr.ListPodResourcesResponse(pod_resources=held), {SMALL: "MIG-1"})
    assert [pod for _, pod in found] == ["team/pod-claim-0", f"team/pod-claim-{MAX_RETURNED}"]


def test_a_claim_that_the_ledger_does_not_know_holds_what_the_kubelet_says() -> None:
    claim_holders = ClaimHolders(DRIVER, Ledger(), Cuts(NodeState(NodeName(NODE), Choices()), Ledger(), nothing))
    gpus = [divided(0), divided(1)]
    unit_of = claim_holders.claimed(gpus, {"gpu-0-mig-1g5gb-19-2": "MIG-1"})
    found = {
        device: unit_of(DRIVER, "team", "lost", device)
        for device in ("gpu-1", "gpu-1-shares", "gpu-0-mig-1g5gb-19-2", "gpu-0-mig-1g5gb-19-3", "gpu-11", "gpu", "")
    }
    assert found == {
        "gpu-1": gpus[1].uuid,
        "gpu-1-shares": gpus[1].uuid,
        "gpu-0-mig-1g5gb-19-2": "MIG-1",
        "gpu-0-mig-1g5gb-19-3": gpus[0].uuid,
        "gpu-11": None,
        "gpu": None,
        "": None,
    }
    assert unit_of("gpu.example.com", "team", "lost", "gpu-1") is None
    claim_holders.returned("team", "lost")
    assert unit_of(DRIVER, "team", "lost", "gpu-1") is None, "the kubelet may still list what it gave back"


async def nothing(gpu: GpuUuid, ready: Callable[[], bool], within_s: float) -> str:
    raise AssertionError(f"{gpu} is not to be changed ({ready}, {within_s})")


def _listing(claim: str) -> pr.PodResources:
    """A pod whose container has a part by that claim, as the kubelet lists it."""
    given = pr.ClaimResource(driver_name="gpu.nvidia.com", pool_name=NODE, device_name=SMALL)
    claimed = pr.DynamicResource(claim_namespace="team", claim_name=claim, claim_resources=[given])
    container = pr.ContainerResources(name="main", dynamic_resources=[claimed])
    return pr.PodResources(namespace="team", name=f"pod-{claim}", containers=[container])


async def test_an_admin_watches_a_part_that_is_there_and_cuts_none(claims: ClaimLab) -> None:
    await serve(claims)
    claims.claim("watcher", SMALL, adminAccess=True)
    assert (await claims.watcher.prepare("watcher"))[
        "watcher"
    ].error == f"Device {SMALL} has no device files. See the agent's log"
    claims.claim("a", SMALL)
    await claims.watcher.prepare("a")
    assert not (await claims.watcher.prepare("watcher"))["watcher"].error
    assert set(claims.held().values()) == {"pod-a"}
    await claims.watcher.unprepare("watcher")
    assert claims.instances(0) == [("1g.10gb", 6)]


async def test_what_a_reset_destroyed_is_made_again_for_its_claim(claims: ClaimLab) -> None:
    await serve(claims)
    claims.claim("a", SMALL)
    answer = (await claims.watcher.prepare("a"))["a"]
    claims.lab.sim(gpu=0, reset=True, destroyMig=True)
    await claims.lab.until(lambda: claims.instances(0) == [("1g.10gb", 6)], "made again")
    await claims.lab.until(lambda: bool(claims.held()), "discovered")
    assert (await claims.watcher.prepare("a"))["a"] == answer


@pytest.mark.parametrize("refuses", [False, True], ids=["drops", "refuses"])
async def test_an_api_server_without_counters_is_told_of_once_and_gets_whole_gpus(
    claims: ClaimLab, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    without_counters(claims.server, monkeypatch, refuses=refuses)
    await serve(claims)
    assert (sorted(claims.devices), claims.parts) == (["gpu-0"], {})
    await claims.lab.until(lambda: bool(claims.lab.report().problems), "told")
    (line,) = claims.lab.report().problems
    assert line.startswith("Mode dra: the API server does not keep sharedCounters of slices")
    (only,) = claims.slices
    assert only["spec"]["pool"]["resourceSliceCount"] == 1
    claims.lab.sim(gpu=0, xid=48)
    await claims.lab.until(lambda: "taints" in claims.devices["gpu-0"], "tainted")
    assert claims.lab.report().problems == (line,)
    assert claims.parts == {}
    await claims.lab.agent.reconfigure(claims.lab.settings(EAGER))
    await claims.lab.until(lambda: not claims.slices and not claims.lab.report().problems, "nothing is left to say")


async def test_slices_that_are_refused_for_another_reason_are_tried_again_with_their_parts(
    claims: ClaimLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latest, "_HOPELESS_S", 0.05)
    refusals = [InvalidError("denied: may not write slices of this node", status=422)] * 2
    claims.server.refuse = lambda method, path: (
        refusals.pop() if refusals and method == "POST" and "resourceslices" in path else None
    )
    await serve(claims)
    await claims.lab.until(lambda: len(claims.parts) == 25, "parts are published")
    assert refusals == []
    assert claims.lab.report().problems == ()


def without_counters(server: FakeApiServer, monkeypatch: pytest.MonkeyPatch, *, refuses: bool) -> None:
    """Its gate is off, or, as in 1.34 with the gate on, it wants counters beside their devices."""

    def kept(write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(key: tuple[str, str, str], body: dict[str, Any], *more: Any) -> Any:
            spec = body.get("spec", {})
            for device in spec.get("devices", ()):
                if device.pop("consumesCounters", None) and refuses:
                    raise InvalidError("counterSet: not found", status=422)
            if not refuses:
                spec.pop("sharedCounters", None)
            return write(key, body, *more)

        return wrapped

    for name in ("create", "update"):
        monkeypatch.setattr(server.store, name, kept(getattr(server.store, name)))
