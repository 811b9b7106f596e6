"""An agent whose claims ask for MPS by NVIDIA's configuration: a daemon for each, as long as the claim is held."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pynvml
import pytest

from agent.dra import node as dra_node
from agent.dra import preparing
from agent.mps import core
from agent.mps.control import MpsError
from agent.mps.runner import MpsDaemons
from agent.mps.specs import DaemonSpec
from kube.testing import FakeApiServer
from tests.support.agent.claims import ClaimLab
from tests.support.agent.node import EAGER, Lab, fleet, mps_client

TWO = EAGER + "mps: {probeIntervalSeconds: 0.2}\nlayout:\n- {gpus: [0, 1, 2], mode: dra}\n"


@pytest.fixture
async def claims(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ClaimLab]:
    monkeypatch.setattr(dra_node, "POLL_S", 0.02)
    monkeypatch.setattr(core, "FIRST_PAUSE_S", 0.05)
    async with FakeApiServer() as server:
        yield ClaimLab(lab, server)
        await lab.stop()


def asking(**limits: Any) -> dict[str, Any]:
    return {"kind": "GpuConfig", "sharing": {"strategy": "MPS", "mpsConfig": limits}}


def mode(claims: ClaimLab, index: int) -> int:
    pynvml.nvmlInit()
    try:
        return int(pynvml.nvmlDeviceGetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(claims.lab.uuid(index))))
    finally:
        pynvml.nvmlShutdown()


async def test_a_claim_has_one_daemon_for_its_gpus_until_it_is_given_back(claims: ClaimLab) -> None:
    """Its limits are the daemon's own, and stay across a kill of the agent; the third GPU has none."""
    await claims.serve(fleet(3), TWO)
    limits = {"defaultPinnedDeviceMemoryLimit": "10Gi", "defaultPerDevicePinnedMemoryLimit": {"1": "4Gi"}}
    claims.claim("a", "gpu-0", "gpu-1", config=asking(defaultActiveThreadPercentage=50, **limits))
    claims.claim("b", "gpu-2")
    answers = await claims.watcher.prepare("a", "b")
    assert [answer.error for answer in answers.values()] == ["", ""]
    (state,) = claims.lab.agent.mps.states()
    assert (state.name, state.phase) == ("claim team/a", core.Phase.READY)
    assert state.devices == (claims.lab.uuid(0), claims.lab.uuid(1))
    exclusive, default = pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, pynvml.NVML_COMPUTEMODE_DEFAULT
    assert [mode(claims, index) for index in range(3)] == [exclusive, exclusive, default]
    with mps_client(claims.lab, 0) as (_, given):
        found = json.loads(given)
        assert (found["threads"], found["memoryMib"]) == (50.0, 10240)
    specs = {name: json.loads((claims.lab.folder / "cdi" / name).read_text()) for name in claims.specs}
    pipe = str(claims.lab.state_dir / "mps" / claims.lab.uuid(0) / "pipe")
    for device in specs["k8s.gpu.nvidia.com-claim_a.json"]["devices"]:
        edits = device["containerEdits"]
        assert "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps" in edits["env"]
        assert pipe in [mount["hostPath"] for mount in edits["mounts"]]
    assert "CUDA_MPS" not in json.dumps(specs["k8s.gpu.nvidia.com-claim_b.json"])
    assert claims.lab.agent.node_state.withheld == {}, "what a claim has is withheld from nobody"
    await claims.lab.restart(TWO)
    await claims.registered()
    await claims.lab.until(
        lambda: [each.phase for each in claims.lab.agent.mps.states()] == [core.Phase.READY], "it is there again"
    )
    assert await claims.watcher.unprepare("a") == {"a": ""}
    assert claims.lab.agent.mps.states() == ()
    assert [mode(claims, index) for index in range(3)] == [default] * 3


async def test_a_daemon_that_does_not_start_fails_the_claim_with_its_reason(
    claims: ClaimLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: MpsDaemons, spec: DaemonSpec) -> bool:  # noqa: ARG001 - as the method
        raise MpsError("nvidia-cuda-mps-control is not there: see mps.controlProgram")

    await claims.serve(fleet(3), TWO)
    claims.claim("a", "gpu-0", config=asking())
    with monkeypatch.context() as broken:
        broken.setattr(MpsDaemons, "_start", fails)
        broken.setattr(preparing, "READY_WITHIN_S", 0.3)
        error = (await claims.watcher.prepare("a"))["a"].error
    assert "nvidia-cuda-mps-control is not there" in error
    assert claims.held() == {}
    await claims.lab.until(lambda: not claims.lab.agent.mps.states(), "nothing is left of it")
    assert (await claims.watcher.prepare("a"))["a"].error == ""
