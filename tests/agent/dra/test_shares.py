"""An agent with a GPU that is given out by shares: claims are clients of its MPS daemon, each within its limits."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from agent.words import node as words
from tests.support.agent.claims import ClaimLab
from tests.support.agent.node import EAGER, fleet

SHARES = EAGER + "mps: {probeIntervalSeconds: 0.2}\nlayout:\n- {gpus: [0], mode: dra, shares: {granularity: 10}}\n"
DEVICE = "gpu-0-shares"


def published(claims: ClaimLab) -> dict[str, dict[str, Any]]:
    return {device["name"]: device for one in claims.slices for device in one["spec"].get("devices", ())}


def share(claims: ClaimLab, uid: str, memory: str, percent: int) -> None:
    capacity = {"memory": memory, "tessera.dev/computePercent": str(percent)}
    claims.claim(uid, DEVICE, shareID=f"share-{uid}", consumedCapacity=capacity)


async def test_claims_share_a_gpu_within_their_limits_across_a_kill(claims: ClaimLab) -> None:
    await claims.serve(fleet(2), SHARES)
    await claims.lab.until(lambda: "taints" not in published(claims).get(DEVICE, {"taints": 1}), "the daemon is ready")
    assert sorted(published(claims)) == [DEVICE]
    share(claims, "a", "12Gi", 30)
    share(claims, "b", "20Gi", 70)
    share(claims, "c", "1Gi", 10)
    answers = await claims.watcher.prepare("a", "b")
    assert [answer.error for answer in answers.values()] == ["", ""]
    (device,) = answers["a"].devices
    assert (device.device_name, device.share_id) == (DEVICE, "share-a")
    assert list(device.cdi_device_ids) == [f"k8s.gpu.nvidia.com/claim=a-{DEVICE}-share-a"]
    (spec,) = json.loads((claims.lab.folder / "cdi" / claims.specs[0]).read_text())["devices"]
    assert spec["name"] == f"a-{DEVICE}-share-a"
    edits = spec["containerEdits"]
    assert {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=12288M"} < set(edits["env"])
    pipe = claims.lab.state_dir / "mps" / claims.lab.uuid(0) / "pipe"
    mount = {"hostPath": str(pipe), "containerPath": "/tmp/nvidia-mps", "options": ["rw", "bind"]}
    assert mount in edits["mounts"]
    assert edits["deviceNodes"]
    over = (await claims.watcher.prepare("c"))["c"].error
    assert "found 33792 MiB and 110 % of GPU" in over
    held = {f"{claims.lab.uuid(0)}::share-{uid}": f"pod-{uid}" for uid in "ab"}
    assert claims.held() == held
    await claims.lab.restart(SHARES)
    await claims.registered()
    assert claims.held() == held
    assert (await claims.watcher.prepare("a"))["a"].devices == answers["a"].devices
    assert await claims.watcher.unprepare("b") == {"b": ""}
    await claims.lab.until(lambda: not claims.lab.agent.node_state.withheld, "the daemon is ready again")
    assert (await claims.watcher.prepare("c"))["c"].error == ""
    assert claims.held().keys() == {f"{claims.lab.uuid(0)}::share-{uid}" for uid in "ac"}


@pytest.mark.parametrize("field", ["allowMultipleAllocations", "requestPolicy"])
async def test_an_api_server_that_keeps_no_shares_is_told_of_once_and_gets_the_whole_gpus(
    claims: ClaimLab, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    def kept(write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(key: tuple[str, str, str], body: dict[str, Any], *more: Any) -> Any:
            for device in body.get("spec", {}).get("devices", ()):
                for part in (device, *device["capacity"].values()):
                    part.pop(field, None)
            return write(key, body, *more)

        return wrapped

    def whole() -> bool:
        return "gpu-1" in claims.devices

    for name in ("create", "update"):
        monkeypatch.setattr(claims.server.store, name, kept(getattr(claims.server.store, name)))
    await claims.serve(fleet(2), SHARES + "- {gpus: [1], mode: dra}\n")
    await claims.lab.until(lambda: whole() and DEVICE not in published(claims), "whole GPUs alone")
    await claims.lab.until(lambda: claims.lab.report().problems == (words.no_shares(),), "told")
    claims.lab.sim(gpu=1, xid=48)
    await claims.lab.until(lambda: "taints" in published(claims)["gpu-1"], "tainted")
    assert claims.lab.report().problems == (words.no_shares(),)
    assert whole()
    assert DEVICE not in published(claims)
