"""Scenes of MIG: a change that is killed half-way, and one that a pod is in the way of."""

import asyncio
from typing import Any, Final

from hack.planted.nets.nodejudge import Finding, destroyed, half_made
from hack.planted.nets.nodeworld import PROMISED_S, START_S, Node, layout

LARGE: Final = "nvidia.com/mig-3g.20gb"
SMALL: Final = "nvidia.com/mig-2g.10gb"
TWO: Final = ("3g.20gb", "3g.20gb")
THREE: Final = ("2g.10gb", "2g.10gb", "2g.10gb")
SLOW: Final = "nvmlDeviceCreateGpuInstanceWithPlacement"
SLOW_S: Final = 2.0
KUBELET_S: Final = 2.5
"""How long the kubelet takes for a List after the kill: half of what the agent waits for it."""
WATCHED_S: Final = 4.0
"""How long an instance is watched that is not to go."""

Json = dict[str, Any]


def cut(*profiles: str) -> str:
    return layout(f"{{gpus: [0], mode: mig, profiles: [{', '.join(profiles)}], whenBusy: wait}}")


def instances(gpu: Json) -> list[tuple[str, str]]:
    """UUID and profile of each that can be used."""
    return [(uuid, one["profile"]) for one in gpu["mig"] or () for uuid in one["uuids"]]


async def killed_in_between(node: Node) -> list[Finding]:
    """Of three instances one is made when the agent is killed; the next one is judged by every list it sends."""
    await node.start(cut(*TWO))
    await node.until(lambda: node.healthy(LARGE) == len(TWO), "two instances")
    await node.sim(gpu=0, slow={"call": SLOW, "seconds": SLOW_S})
    node.reload(cut(*THREE))

    async def half() -> bool:
        (gpu,) = await node.gpus()
        return [profile for _, profile in instances(gpu)] == list(THREE[:1])

    if not await node.becomes(half):
        return [Finding("hardware", f"GPU 0 is not cut into {', '.join(THREE)} within {PROMISED_S:g} s")]
    await node.kill()
    await node.sim(gpu=0, slow={"call": SLOW, "seconds": 0})
    return await _second_life(node)


async def _second_life(node: Node) -> list[Finding]:
    """Once the instances are all there they stay: a list that comes before is wrong if it offers any of them."""
    heard, findings = len(node.kubelet.told), list[Finding]()
    # The first question is about the start; those after it are about the change that goes on.
    node.kubelet.close_gate(free=1)
    await node.start(cut(*THREE))
    # Before it asks, the agent may not have its hardware yet: an order would take that from it.
    await node.until(lambda: node.kubelet.lists >= node.kubelet.free, "the agent is back")
    opening: asyncio.TimerHandle | None = None

    async def whole() -> bool:
        nonlocal heard, opening
        offered = {device for told in node.kubelet.told[heard:] for _, device in told.healthy()}
        heard = len(node.kubelet.told)
        if opening is None and node.kubelet.lists > node.kubelet.free:
            opening = asyncio.get_running_loop().call_later(KUBELET_S, node.kubelet.open_gate)
        (gpu,) = await node.gpus()
        findings.extend(half_made(offered, gpu["uuid"], instances(gpu), THREE))
        return bool(findings) or node.healthy(SMALL) == len(THREE)

    if not await node.becomes(whole, START_S):
        findings.append(Finding("kubelet", f"the interrupted change of GPU 0 is not over after {START_S:g} s"))
    node.kubelet.open_gate()
    return findings


async def held_instance(node: Node) -> list[Finding]:
    """A layout has no place for an instance that a pod has."""
    await node.start(cut(*TWO))
    await node.until(lambda: node.healthy(LARGE) == len(TWO), "two instances")
    (held,) = (await node.admit(LARGE, 1, "trainer")).devices
    await node.gpus()
    node.reload(cut("7g.40gb"))

    async def gone() -> bool:
        (gpu,) = await node.gpus()
        return held not in [uuid for uuid, _ in instances(gpu)]

    await node.comes(lambda: not node.is_healthy(held))
    await node.becomes(gone, WATCHED_S)
    (gpu,) = await node.gpus()
    return destroyed([held], [uuid for uuid, _ in instances(gpu)])
