"""Scenes of whole and shared GPUs, of layouts that change under pods, and of health. Each gives what it finds."""

import asyncio
import math
from typing import Final

import grpc.aio

from hack.planted.nets.nodejudge import Container, Finding, too_early, unit_of, unlimited, wrong_counts
from hack.planted.nets.nodeworld import (
    GPU,
    HEALTH,
    MEMORY_MIB,
    PROBATION_S,
    PROMISED_S,
    SHARED,
    Node,
    layout,
)

PERCENT: Final = "tessera.dev/gpu-percent"
NEEDS_A_RESET: Final = 61
"""An XID of class reset (docs/health.md) that leaves nothing in the simulated hardware (docs/simulator.md)."""
GPUS: Final = 2
SHARES: Final = 3
BOTH_SHARED: Final = layout(f"{{gpus: [0, 1], mode: timeSlicing, replicas: {SHARES}, whenBusy: wait}}")
ASKS_FOR_A_RESET: Final = 119
"""An XID after which the driver's recovery action is a reset."""
REPAIRING: Final = HEALTH + "remediation: {reset: when-free}\n"
BY_BOTH_S: Final = 6.0
"""Longer than the judge allows the kubelet and the hardware to be apart, before a reset and after it."""
MOMENT_S: Final = 2.0
"""How long a scene goes on looking for what should not come."""
SLOW_S: Final = 5.0
"""How long the kubelet takes for an answer."""


async def taken_a_moment_ago(node: Node) -> list[Finding]:
    """A layout comes for a GPU that a pod has just got, before any List of the kubelet shows it."""
    await _whole(node)
    node.kubelet.unlisted.add(("default", "holder"))
    (held,) = (await node.admit(GPU, 1, "holder")).devices
    return await _shared_beside(node, held)


async def learned_late(node: Node) -> list[Finding]:
    """The agent is killed after an Allocate, and the kubelet lists the pod after the next one has asked it. It is slow
    to say so: what it said before is all that the agent knows when the layout comes.
    """
    await _whole(node)
    node.kubelet.unlisted.add(("default", "holder"))
    (held,) = (await node.admit(GPU, 1, "holder")).devices
    # With it the next agent asks before it offers anything (docs/durability.md).
    checkpoint = node.folder / "state" / "checkpoint.json"
    await node.until(checkpoint.exists, "a checkpoint")
    await node.kill()
    lists = node.kubelet.lists
    await node.start(HEALTH)
    await node.until(lambda: node.healthy(GPU) == GPUS and node.kubelet.lists > lists, "the agent is back")
    node.kubelet.close_gate()
    node.kubelet.unlisted.clear()
    opening = asyncio.get_running_loop().call_later(SLOW_S, node.kubelet.open_gate)
    try:
        return await _shared_beside(node, held)
    finally:
        opening.cancel()
        node.kubelet.open_gate()


async def _whole(node: Node) -> None:
    await node.start(HEALTH)
    await node.until(lambda: node.healthy(GPU) == GPUS, "two GPUs")


async def _shared_beside(node: Node, held: str) -> list[Finding]:
    """Both GPUs are to be shared while one is held: the other one is, and pods take all that is offered."""
    (free,) = [each["uuid"] for each in await node.gpus() if each["uuid"] != held]
    node.reload(BOTH_SHARED)
    await node.comes(lambda: free in {unit_of(each) for each in _devices(node)})
    node.replicas[free] = SHARES
    await node.gpus()
    shares = {SHARED: {each: "" for each in _devices(node) if unit_of(each) == free}}
    for number in range(2 * SHARES):
        try:
            await node.admit(SHARED, 1, f"notebook-{number}")
        except (KeyError, LookupError, grpc.aio.AioRpcError):
            break  # none is left
    return wrong_counts(shares, {SHARED: SHARES})


def _devices(node: Node) -> set[str]:
    endpoint = node.kubelet.endpoints.get(SHARED)
    return set() if endpoint is None else endpoint.healthy


async def written_meanwhile(node: Node) -> list[Finding]:
    """A second layout is written while the agent, which asks a slow kubelet, takes up the first."""
    await _whole(node)
    node.kubelet.close_gate()
    node.reload(layout("{gpus: [0], mode: timeSlicing, replicas: 2}"))
    await asyncio.sleep(MOMENT_S / 2)
    node.configure(layout("{gpus: [0], mode: timeSlicing, replicas: 4}"))
    await asyncio.sleep(MOMENT_S / 4)
    node.kubelet.open_gate()
    await node.offered({SHARED: 4, GPU: 1})
    return wrong_counts(node.kubelet.now().devices, {SHARED: 4, GPU: 1})


async def reset_and_probation(node: Node) -> list[Finding]:
    """Two GPUs fail, and one of them is reset."""
    await _whole(node)
    uuids = [each["uuid"] for each in await node.gpus()]
    for index, uuid in enumerate(uuids):
        await node.sim(gpu=index, xid=NEEDS_A_RESET)
        if not await node.comes(lambda uuid=uuid: not node.is_healthy(uuid)):  # type: ignore[misc]
            return [Finding("kubelet", f"{uuid} has XID {NEEDS_A_RESET} and is offered for {PROMISED_S:g} s")]
    failed_s = node.now_s()
    first, second = uuids
    reset_s = node.now_s()
    await node.sim(gpu=1, reset=True)
    back = await node.comes(lambda: node.is_healthy(second))
    await node.comes(lambda: node.is_healthy(first), MOMENT_S)
    late = [] if back else [Finding("kubelet", f"{second} was reset and is not offered after {PROMISED_S:g} s")]
    lists = node.kubelet.told
    return [
        *late,
        *too_early(lists, second, failed_s, reset_s, PROBATION_S),
        *too_early(lists, first, failed_s, math.inf, PROBATION_S),
    ]


async def repaired_when_free(node: Node) -> list[Finding]:
    """Two GPUs ask for a reset, and a pod has one of them: the other one is reset."""
    await node.start(REPAIRING)
    await node.until(lambda: node.healthy(GPU) == GPUS, "two GPUs")
    (held,) = (await node.admit(GPU, 1, "trainer")).devices
    (free,) = [each["uuid"] for each in await node.gpus() if each["uuid"] != held]
    await asyncio.sleep(BY_BOTH_S)
    for index in range(GPUS):
        await node.sim(gpu=index, xid=ASKS_FOR_A_RESET)

    async def is_reset(uuid: str) -> bool:
        return any(each["uuid"] == uuid and each["toolResets"] for each in await node.gpus())

    if not await node.becomes(lambda: is_reset(free)):
        return [Finding("hardware", f"{free} asks for a reset, nobody has it, and it is not reset in {PROMISED_S:g} s")]
    await node.becomes(lambda: is_reset(held), BY_BOTH_S)
    return []


async def parts_of_a_gpu(node: Node) -> list[Finding]:
    """Two containers of one pod, and one of another, have parts of a GPU."""
    await node.start(layout("{gpus: [0], mode: fractional, granularity: 10}"))
    await node.until(lambda: node.healthy(PERCENT) > 0, "percents")
    await node.offered({PERCENT: 100})
    findings = wrong_counts(node.kubelet.now().devices, {PERCENT: 100})
    free = sorted(node.kubelet.endpoints[PERCENT].healthy)
    first, second, third = free[:30], free[30:50], free[50:90]
    try:
        answers = await node.allocate_together(PERCENT, (first, second))
        answers += await node.allocate_together(PERCENT, (third,))
    except grpc.aio.AioRpcError as refused:
        return [*findings, Finding("kubelet", f"30, 20 and 40 percent of a free GPU are refused: {refused.details()}")]
    for name, grant in zip(("main", "side", "other"), answers, strict=True):
        pod = "other" if name == "other" else "pod"
        node.kubelet.pods.setdefault(("default", pod), []).append(grant)
        node.note_grant(pod, grant)
    uuid = unit_of(first[0])
    node.replicas[uuid] = 100
    await node.gpus()
    containers = [
        Container(
            name,
            len(grant.devices),
            MEMORY_MIB,
            dict(grant.response.envs),
            [mount.container_path for mount in grant.response.mounts],
        )
        for name, grant in zip(("main", "side", "other"), answers, strict=True)
    ]
    return findings + unlimited(containers)
