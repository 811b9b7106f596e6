"""The net of rights: two accounts, a namespace each, and what the controller's port answers them.

Alice may see everything of ``alpha`` and nothing of ``beta``. The names of all that is in beta are of beta alone, so an
answer that has one of them tells what she may not know.
"""

import asyncio
import logging
import ssl
import sys
from typing import Any, Final

import aiohttp

from controller.cluster.config.settings import Address
from controller.cluster.process.process import Process
from hack.planted.nets import reported
from hack.planted.nets.queues import TESSERA
from hack.planted.nets.queuescenes import QUEUE, Act, base, job, queue
from hack.planted.nets.queueworld import WORKLOADS, QueueWorld, config, controller, first, machines, world_of
from kube.testing import FakeApiServer, eventually

_VIEW: Final = "/apis/view.tessera.dev/v1alpha1"
_KUEUE: Final = "/apis/visibility.kueue.x-k8s.io/v1beta2"
_OWN, _FOREIGN = "alpha", "beta"
_SECRETS: Final = ("job-secret", "secret-waits")
_SERVED_AS: Final = "tessera-controller.tessera-system.svc"


def acts() -> list[Act]:
    return [
        *base(),
        *queue(_OWN, 1),
        *queue(_FOREIGN, 1),
        job(0.0, _OWN, "own"),
        job(0.0, _OWN, "own-waits"),
        job(0.0, _FOREIGN, "secret"),
        job(0.0, _FOREIGN, "secret-waits"),
    ]


def allowed(spec: dict[str, Any]) -> bool:
    """What the API server says of Alice's rights."""
    return bool(spec.get("resourceAttributes", {}).get("namespace") == _OWN)


def told(question: str, status: int, body: str) -> list[str]:
    """Sentences: what an answer to Alice has of what is not hers."""
    names = [name for name in _SECRETS if name in body]
    if names:
        return [f"{question} is answered with {status} and names {names[0]} of namespace {_FOREIGN}"]
    return [f"{question} is answered with {status}: alice has no right in {_FOREIGN}"] if status < 400 else []  # noqa: PLR2004


def manifest() -> dict[str, Any]:
    meta = {"name": "probe", "namespace": _FOREIGN, "labels": {QUEUE: "jobs"}}
    asked = {"cpu": "1", "nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "i", "resources": {"requests": asked, "limits": asked}}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


async def judged() -> list[str]:
    async with FakeApiServer() as server:
        server.users["alice"] = {"username": "alice", "groups": []}
        server.allows = allowed
        world = world_of(server, machines(1, 8))
        first(world, acts())
        async with controller(server, config(more=TESSERA), Address("127.0.0.1", 0)) as process:
            view = await _up(process)
            await eventually(lambda: _waiting(world) == 2, within_s=30.0, what="not two wait")  # noqa: PLR2004
            tls = ssl.create_default_context(cadata=view.trust.own.decode())
            return await _asked(f"https://127.0.0.1:{view.port}", tls, world)


async def _up(process: Process) -> Any:
    def is_up() -> bool:
        return process.view is not None and process.view.server.serving

    await eventually(is_up, within_s=60.0, what="the controller's port does not open")
    assert process.view is not None
    return process.view.server


def _waiting(world: QueueWorld) -> int:
    conditions = [each.get("status", {}).get("conditions", []) for each in world.all(WORKLOADS)]
    return sum(any(c["type"] == "QuotaReserved" and c["status"] == "False" for c in each) for each in conditions)


async def _asked(address: str, tls: ssl.SSLContext, world: QueueWorld) -> list[str]:
    named = {each["metadata"]["namespace"]: each["metadata"]["name"] for each in world.all(WORKLOADS)}
    findings: list[str] = []
    connector = aiohttp.TCPConnector(ssl=tls)
    headers = {"Authorization": "Bearer alice"}
    async with aiohttp.ClientSession(address, connector=connector, headers=headers) as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(path, server_hostname=_SERVED_AS) as answer:
                return answer.status, await answer.text()

        pending = f"{_KUEUE}/namespaces/{{}}/localqueues/jobs/pendingworkloads"
        own, _ = await get(pending.format(_OWN))
        if own != 200:  # noqa: PLR2004
            raise RuntimeError(f"GET {pending.format(_OWN)}: found {own}, expected 200")
        question = pending.format(_FOREIGN)
        findings += told(f"GET {question}", *await get(question))
        question = f"{_VIEW}/namespaces/{_FOREIGN}/workloadviews/{named[_FOREIGN]}"
        findings += told(f"GET {question}", *await get(question))
        question = f"{_VIEW}/namespaces/{_OWN}/forecasts"
        body = {"apiVersion": "view.tessera.dev/v1alpha1", "kind": "Forecast", "spec": {"manifest": manifest()}}
        async with session.post(question, json=body, server_hostname=_SERVED_AS) as answer:
            findings += told(f"POST {question} of a Job of {_FOREIGN}", answer.status, await answer.text())
    return findings


def main() -> int:
    return reported("account", asyncio.run(judged()))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(main())
